"""Independent checkers of metric DP releases, one in Python without dependencies and one in plain JavaScript."""
