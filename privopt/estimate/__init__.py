"""Estimates of the true distribution, with intervals, from the reports of a certified mechanism."""
