"""Tools to open, locate, score and copy the photos in a folder.

Extra packages are needed only for ONNX classifiers and HEIC photos.
"""
