"""Solvers that choose the photos to keep: a branch-and-bound search that records a proof, and baselines."""
