"""Metric differential privacy: records, distances, losses, obfuscation matrices, certificates, solvers and attacks."""
