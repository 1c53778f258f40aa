"""Metric problems: the keys of a problem file, and the arrays read from the files that it names."""
