"""Tools for folders of photos: opening, locating, scoring and copying the photos.

Only ONNX classifiers and HEIC photos need extra packages.
"""
