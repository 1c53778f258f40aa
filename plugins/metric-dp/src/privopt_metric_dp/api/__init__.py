"""Python names of metric DP: places, problems, answers about one report."""
