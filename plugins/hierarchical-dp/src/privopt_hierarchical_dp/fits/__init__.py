"""Fits of consistent integers to noisy values. All of them are post-processing."""
