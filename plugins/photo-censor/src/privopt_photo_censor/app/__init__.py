"""Handle folders of photos: open, locate, score and copy them. Only ONNX and HEIC need extra packages."""
