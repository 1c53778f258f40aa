"""The commands that metric DP adds to the command line."""
