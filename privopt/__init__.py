"""Optimal privacy mechanisms, with proof."""

__version__ = "0.1.0"
