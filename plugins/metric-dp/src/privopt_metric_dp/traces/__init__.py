"""Repeated reports of one subject: prediction over traces, and attacks on many reports."""
