"""Metric differential privacy: records and distances, losses, obfuscation matrices, certificates, solvers, attacks."""
