"""The registered mechanisms for metric DP, and the base class for others."""
