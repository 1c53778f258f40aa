"""Ledgers: each subject's exact spending, limits on it, and first reports that are kept."""
