"""Benders decomposition for privopt's models, with many cuts per round and checkpoints. Lost workers are tolerated."""
