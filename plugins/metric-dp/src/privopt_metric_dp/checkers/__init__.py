"""Independent checkers of metric DP releases, in Python's standard library alone and in plain JavaScript."""
