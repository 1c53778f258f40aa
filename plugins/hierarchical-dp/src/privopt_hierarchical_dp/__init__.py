"""Hierarchical census counts under differential privacy (AIJ 2021)."""
