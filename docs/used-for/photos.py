"""An album without its place: docs/used-for/photo-censor.md as a script. It needs onnx, onnxruntime and Pillow.

``python docs/used-for/photos.py [--small] [--out FOLDER]``. A toy classifier compares a photo's mean colour with those
of four towns. The published copies are scored again by a session of one's own: the town must not be its best guess.
All sets of photos are tried, to see that no smaller one would do. The copies must carry no metadata.

The full size has nine photos of Arezzo with GPS (PRIVOPT_DATA); the small one five painted ones.
"""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
from job import data_path, main, privopt
from numpy.typing import NDArray
from PIL import Image

Floats = NDArray[np.float64]

TOWNS = {"Arezzo": (43.47, 11.88), "Bergen": (60.39, 5.32), "Cork": (51.9, -8.47), "Nice": (43.7, 7.27)}


def write_photos(folder: Path, *, small: bool) -> None:
    """Write photos with GPS positions to the folder ``photos``."""
    photos = folder / "photos"
    photos.mkdir()
    if not small:
        for path in data_path("exif_gps").glob("*.jpg"):
            shutil.copy(path, photos)
        return
    rng = np.random.default_rng(4)
    for number in range(5):
        colour = np.array([150, 120, 90]) + 15 * number * np.array([-1, 1, 1])
        pixels = np.clip(colour + rng.normal(0, 25, (60, 80, 3)), 0, 255).astype(np.uint8)
        exif = Image.Exif()
        # The GPS fields: 43 degrees 28 minutes 2.8 seconds north, 11 degrees 53 minutes 6.4 seconds east.
        exif.get_ifd(0x8825).update({1: "N", 2: (43.0, 28.0, 2.8), 3: "E", 4: (11.0, 53.0, 6.4)})
        Image.fromarray(pixels).save(photos / f"p{number}.jpg", exif=exif)


def write_model(folder: Path) -> None:
    """Write the classifier and the problem. Its best guess is Arezzo for typical photos, but not for the oddest one."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    means = []
    for path in sorted((folder / "photos").glob("*.jpg")):
        with Image.open(path) as photo:
            means.append(np.asarray(photo.convert("RGB").resize((16, 16)), dtype=float).mean(axis=(0, 1)) / 255)
    centre = np.mean(means, axis=0)
    odd = means[int(np.linalg.norm(np.array(means) - centre, axis=1).argmax())]
    looks = np.array([centre, (centre + odd) / 2, centre[::-1] * 0.5, centre * 0.3], dtype=np.float32)
    weights, bias = 40 * looks.T, -20 * (looks**2).sum(axis=1)  # logits: -20 times the squared distance of colours
    steps = [("GlobalAveragePool", ["photo"]), ("Flatten", ["GlobalAveragePool"]), ("Gemm", ["Flatten", "w", "b"])]
    graph = helper.make_graph(
        [helper.make_node(name, given, [name]) for name, given in steps],
        "mean colour",
        [helper.make_tensor_value_info("photo", TensorProto.FLOAT, ["n", 3, 16, 16])],
        [helper.make_tensor_value_info("Gemm", TensorProto.FLOAT, ["n", len(TOWNS)])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), folder / "eye.onnx")
    rows = ["lat,lon,name", *(f"{lat},{lon},{town}" for town, (lat, lon) in TOWNS.items())]
    (folder / "cells.csv").write_text("\n".join(rows) + "\n")
    (folder / "places.toml").write_text(
        'model = "eye.onnx"\ncells = "cells.csv"\noutput = "logits"\n'
        # As in `score`: whole photos, of any shape. The default cuts out the middle.
        '[input]\nwidth = 16\nheight = 16\nresize = "stretch"\n'
    )
    (folder / "album.toml").write_text(
        'title = "Holiday photos to share"\n'
        '[photos]\nfolder = "photos"\nclassifier = "places.toml"\n[privacy]\ntop_k = 1\n'
    )


def score(folder: Path, photos: Path) -> Floats:
    """Return the logarithm (P, T) of the probability of each town for each photo, by a session of onnxruntime.

    Photos count as independent: the guess for an album is the town with the greatest sum.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "eye.onnx")
    rows = []
    for path in sorted(photos.glob("*.jpg")):
        with Image.open(path) as photo:
            pixels = np.asarray(photo.convert("RGB").resize((16, 16), Image.Resampling.BILINEAR), dtype=np.float32)
        (logits,) = session.run(None, {"photo": (pixels / 255).transpose(2, 0, 1)[None]})
        shifted = logits[0].astype(float) - float(logits[0].max())
        rows.append(shifted - np.log(np.exp(shifted).sum()))
    return np.array(rows, dtype=float)


def count_least_deletions(scores: Floats) -> int:
    """Return the least number of photos to leave out so that the first town is not the best guess.

    ``scores`` (P, T) are logarithms of probabilities, which are added up over the other photos.
    """
    for count in range(len(scores)):
        for deleted in itertools.combinations(range(len(scores)), count):
            if np.delete(scores, deleted, axis=0).sum(axis=0).argmax() != 0:
                return count
    return len(scores)


def run_job(folder: Path, *, small: bool) -> dict[str, float]:
    """Make the copies, check them, and return how many photos were left out and what the copies reveal."""
    write_photos(folder, small=small)
    write_model(folder)
    privopt(folder, "solve", "photo-censor", "album.toml", "--out", "album", "--copy-to", "to-post", "--quiet")
    privopt(folder, "verify", "album", "--quiet")
    privopt(folder, "report", "album", "--quiet")
    copies = sorted((folder / "to-post").glob("*.jpg"))
    with_metadata = 0
    for path in copies:
        with Image.open(path) as photo:
            with_metadata += bool(photo.getexif()) or "icc_profile" in photo.info
    originals = score(folder, folder / "photos")
    guess = score(folder, folder / "to-post").sum(axis=0)
    result = json.loads((folder / "album" / "result.json").read_text())
    return {
        "photos": len(originals),
        "left_out": len(originals) - len(copies),
        "least": count_least_deletions(originals),
        "copies_with_metadata": with_metadata,
        "best_guess_before": float(originals.sum(axis=0).argmax()),
        "best_guess_of_copies": float(guess.argmax()),
        "proved_optimal": float(result["objective"]["value"] == result["objective"]["lower_bound"]),
    }


if __name__ == "__main__":
    main(__doc__, run_job)
