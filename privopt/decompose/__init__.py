"""Benders decomposition for privopt's models, with many cuts per round, checkpoints, and tolerance for lost workers."""
