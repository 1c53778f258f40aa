"""Metric problems: the keys of a problem file, and the arrays that are read from the files it names."""
