"""Metric differential privacy: records and distances, losses, the matrix, its certificate, solvers, attacks."""
