"""Attacks on obfuscation matrices, on many reports from one place, and on traces."""
