"""Releases in Python: solved, opened, sampled, estimated, and charged to subjects."""
