"""Handling of folders of photos: opening, locating, scoring and copying them.

Only ONNX classifiers and HEIC photos need extra packages.
"""
