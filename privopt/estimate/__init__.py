"""Estimates from reports: shares of the crowd with intervals, and answers about one report."""
