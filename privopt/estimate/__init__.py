"""Estimates of the true distribution, with intervals, from reports drawn by a certified mechanism."""
