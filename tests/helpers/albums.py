"""A folder of painted holiday pictures, and a classifier of a few hundred bytes that looks at their colours."""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = ["write_album", "write_means", "write_onnx"]

PLACES = 12
TRUE = 4
PROBLEM = """
[photos]
folder = "photos"
classifier = "places.toml"
true_location = 4
keep = ["beach-03.jpg"]
[privacy]
top_k = 3
"""


def write_album(folder: Path) -> Path:
    """Fourteen pictures, the model and the problem; returns the problem file. Needs onnx and Pillow."""
    (folder / "photos").mkdir(parents=True)
    rng = np.random.default_rng(3)
    for number in range(1, 15):
        _paint(folder / "photos" / f"beach-{number:02d}.jpg", rng)
    _model(folder / "tiny.onnx")
    rows = [f"{41 + 0.7 * c},{9 + 0.9 * c}" for c in range(PLACES)]
    (folder / "cells.csv").write_text("\n".join(["lat,lon", *rows]) + "\n")
    text = 'model = "tiny.onnx"\ncells = "cells.csv"\n[input]\nwidth = 8\nheight = 8\n'
    (folder / "places.toml").write_text(text + "mean = [0.5, 0.5, 0.5]\nstd = [0.15, 0.15, 0.15]\n")
    (folder / "album.toml").write_text(PROBLEM)
    return folder / "album.toml"


def _paint(path: Path, rng: np.random.Generator) -> None:
    """Sky, sun, sea and sand, in the light of some hour."""
    from PIL import Image, ImageDraw

    width, height = 320, 240
    light = rng.uniform(0, 1)
    sky = np.array([255, 170, 110]) * light + np.array([110, 175, 235]) * (1 - light)
    sea = np.array([150, 110, 120]) * light + np.array([30, 110, 160]) * (1 - light)
    sand = np.array([235, 205, 150]) * rng.uniform(0.75, 1.05)
    horizon, shore = int(rng.uniform(90, 140)), int(rng.uniform(160, 200))
    pixels = np.zeros((height, width, 3))
    fade = np.linspace(0.8, 1.1, horizon)[:, None, None]
    pixels[:horizon] = sky * fade
    pixels[horizon:shore] = sea * (1 + 0.08 * rng.standard_normal((shore - horizon, width, 1)))
    pixels[shore:] = sand * (1 + 0.03 * rng.standard_normal((height - shore, width, 1)))
    photo = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(photo)
    x, y, size = rng.uniform(40, 280), rng.uniform(20, 80), rng.uniform(10, 20)
    pen.ellipse([x - size, y - size, x + size, y + size], fill=(255, 240, 190))
    hull = rng.uniform(60, 240)
    pen.polygon([(hull, horizon - 34), (hull, horizon + 4), (hull + 26, horizon + 4)], fill=(250, 250, 250))
    pen.polygon([(hull - 12, horizon + 5), (hull + 30, horizon + 5), (hull + 18, horizon + 14)], fill=(120, 60, 40))
    exif = Image.Exif()
    exif[0x010E] = "the beach of nowhere"  # a description, which thumbnails must not carry
    photo.save(path, quality=85, exif=exif)


def _model(path: Path) -> None:
    rng = np.random.default_rng(8)
    weights, bias = rng.normal(0, 0.55, (3, PLACES)), np.zeros(PLACES)
    weights[:, TRUE], bias[TRUE] = (0.9, 0.2, -0.5), 0.62
    write_means(path, weights, bias)


def write_means(path: Path, weights, bias, **shape) -> None:
    """Write a model of the mean colour of a picture, times weights (3, M)."""
    mean = ("GlobalAveragePool", ["photo"], {}), ("Flatten", ["GlobalAveragePool"], {})
    write_onnx(path, [*mean, ("Gemm", ["Flatten", "w", "b"], {})], len(bias), w=weights, b=bias, **shape)


def write_onnx(path: Path, steps, outputs: int, *, image_side: int = 8, batch: object = "n", **constants) -> None:
    """Write a model of a few hundred bytes: steps (operator, inputs, options), each called as its operator."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node(name, inputs, [name], **options) for name, inputs, options in steps],
        "tiny",
        [helper.make_tensor_value_info("photo", TensorProto.FLOAT, [batch, 3, image_side, image_side])],
        [helper.make_tensor_value_info(steps[-1][0], TensorProto.FLOAT, [batch, outputs])],
        [numpy_helper.from_array(np.asarray(value, dtype=np.float32), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
