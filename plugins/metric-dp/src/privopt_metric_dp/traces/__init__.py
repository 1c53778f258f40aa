"""Repeated reports of one subject along a trace: the private test of the last report, and the drawing of reports."""
