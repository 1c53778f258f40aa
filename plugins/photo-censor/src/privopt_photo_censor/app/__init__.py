"""Serve folders of pictures: open, place, score and copy them; part of the bare install but for ONNX and HEIC."""
