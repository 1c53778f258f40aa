"""The Python interface to releases: solving, opening, sampling, estimating, and charging draws to subjects."""
