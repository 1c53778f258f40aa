"""The mechanisms for metric DP that this package registers, and the base class for others."""
