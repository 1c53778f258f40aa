"""Tools to open, locate, score and copy the photos in a folder.

Only ONNX classifiers and HEIC photos need extra packages.
"""
