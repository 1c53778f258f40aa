"""Fits of consistent integers to noisy values, all of which are post-processing."""
