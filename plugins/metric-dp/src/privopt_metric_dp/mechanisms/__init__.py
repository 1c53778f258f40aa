"""The metric DP mechanisms that this package registers, and the base class for others."""
