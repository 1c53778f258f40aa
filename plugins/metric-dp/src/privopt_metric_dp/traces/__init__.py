"""Repeated reports about one subject along a trace: the private test of the last report, and drawing the reports."""
