"""Estimates from reports: the shares of people at each record, with confidence intervals."""
