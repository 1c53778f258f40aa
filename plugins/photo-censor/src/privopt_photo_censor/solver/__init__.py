"""Solvers that choose which photos to keep: a branch-and-bound search that records a proof, and simpler baselines."""
