"""Benders decomposition of privopt's models, with many cuts per round, checkpoints, and tolerance of lost workers."""
