"""The Python interface to releases: solve, open, sample, estimate, and charge draws to subjects."""
