"""The metric DP mechanisms registered by this package, and the base class for others."""
