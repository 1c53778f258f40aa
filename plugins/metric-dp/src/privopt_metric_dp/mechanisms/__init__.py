"""The registered mechanisms of metric DP, and the base class for others."""
