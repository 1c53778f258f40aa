"""Searches that can be stopped: what solvers offer, what is certified of it, and when a search ends."""
