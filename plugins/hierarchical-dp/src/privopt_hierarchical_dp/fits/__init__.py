"""Fits: consistent whole numbers near noisy values, all of them post-processing."""
