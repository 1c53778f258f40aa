"""Benders decomposition of privopt's models: many cuts a round, checkpoints, workers that may be lost."""
