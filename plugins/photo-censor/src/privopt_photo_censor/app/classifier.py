"""An ONNX classifier of places, described by a small TOML next to it::

model = "places.onnx"
cells = "cells.csv"            # lat,lon of each place's centre, and its name; a row for each output, in order
output = "logits"              # logits | log-probabilities | probabilities
[input]
width = 224
height = 224
layout = "NCHW"                # or NHWC
resize = "crop"                # shorter side to size and centre crop; or stretch
# shorter_side = 256           # with crop: the shorter side becomes this long first, then the centre is cut out
# interpolation = "bilinear"   # bilinear | bicubic | nearest | lanczos
# channels = "RGB"             # or BGR
mean = [0.485, 0.456, 0.406]   # of values in 0 to 1
std = [0.229, 0.224, 0.225]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from attrs import frozen
from numpy.typing import NDArray
from PIL import Image, ImageOps

from privopt.arrays import Floats
from privopt.declare import File, key, load_problem
from privopt.declare.schema import positive
from privopt.declare.tables import Column, read_table
from privopt.errors import Fault, InputError, UsageError, reason_of
from privopt.numbers.distances import directions
from privopt_photo_censor.app.picture import flattened

__all__ = ["Classifier", "Input", "Settings", "load_classifier"]

BATCH_PHOTOS: Final = 16


def _three(value: tuple[float, ...]) -> str | None:
    return None if len(value) == 3 else "three numbers: red, green, blue"


def _three_positive(value: tuple[float, ...]) -> str | None:
    return None if len(value) == 3 and min(value) > 0 else "three numbers above 0: red, green, blue"


@frozen(kw_only=True)
class Input:
    """What the model takes."""

    width: int = key(help="columns", unit="pixels", check=positive)
    height: int = key(help="rows", unit="pixels", check=positive)
    layout: Literal["NCHW", "NHWC"] = key("NCHW", help="order of the axes")
    resize: Literal["crop", "stretch"] = key("crop", help="how a photo gets its size")
    shorter_side: int | None = key(None, help="with crop: length of the shorter side before it", unit="pixels")
    interpolation: Literal["bilinear", "bicubic", "nearest", "lanczos"] = key("bilinear", help="how pixels are made")
    channels: Literal["RGB", "BGR"] = key("RGB", help="order of the colours, of mean and std too")
    mean: tuple[float, ...] = key((0.0, 0.0, 0.0), help="subtracted from values in 0 to 1", check=_three)
    std: tuple[float, ...] = key((1.0, 1.0, 1.0), help="divided by", check=_three_positive)


@frozen(kw_only=True)
class Settings:
    """The TOML next to a model."""

    model: File = key(help="ONNX file")
    cells: File = key(help="CSV of the places (lat, lon, name), in the order of the model's outputs")
    output: Literal["logits", "log-probabilities", "probabilities"] = key("logits", help="what the model returns")
    input: Input = key(help="what the model takes")


@frozen(kw_only=True, eq=False)
class Classifier:
    """A model that is ready to score photos.

    Attributes:
        settings: from the TOML.
        session: onnxruntime's.
        centres: (M, 2) latitude and longitude of the places, degrees, in the order of its outputs.
        names: of the places; empty where they have none.
    """

    settings: Settings
    session: Any
    centres: Floats
    names: tuple[str, ...] = ()

    def locate(self, latitude: float, longitude: float) -> int:
        """Find the column of the place whose centre is nearest to a point (degrees), on the sphere."""
        return int(np.argmax(directions(self.centres) @ directions(np.array([[latitude, longitude]]))[0]))

    def tensor(self, photo: Image.Image) -> NDArray[np.float32]:
        """Prepare one photo as the model takes it, float32, without the batch axis."""
        taken = self.settings.input
        size = (taken.width, taken.height)
        upright = flattened(photo)
        how = Image.Resampling[taken.interpolation.upper()]
        if taken.resize == "stretch":
            sized = upright.resize(size, how)
        elif taken.shorter_side is None:
            sized = ImageOps.fit(upright, size, how)
        else:
            grown = taken.shorter_side / min(upright.size)
            whole = upright.resize((round(upright.width * grown), round(upright.height * grown)), how)
            left, top = (whole.width - taken.width) // 2, (whole.height - taken.height) // 2
            sized = whole.crop((left, top, left + taken.width, top + taken.height))
        mean, std = (np.array(each, dtype=np.float32) for each in (taken.mean, taken.std))
        pixels: NDArray[np.float32] = np.asarray(sized, dtype=np.float32)
        if taken.channels == "BGR":
            pixels = pixels[:, :, ::-1]
        values: NDArray[np.float32] = (pixels / np.float32(255.0) - mean) / std
        return values.transpose(2, 0, 1) if taken.layout == "NCHW" else values

    def scores(self, tensors: list[Any]) -> Floats:
        """Compute (N, M) log-probabilities of photos.

        Raises:
            InputError: the model does not take them, or does not return a number for each place.
        """
        name = self.settings.model.name
        batches = [np.stack(tensors[first : first + BATCH_PHOTOS]) for first in range(0, len(tensors), BATCH_PHOTOS)]
        raw = np.concatenate([np.asarray(self._run(batch, name), dtype=np.float64) for batch in batches])
        if raw.shape != (len(tensors), len(self.centres)):
            found = f"an output of shape {raw.shape}"
            raise InputError([Fault(name, "", found, f"({len(tensors)}, {len(self.centres)}): photos, cells")])
        if self.settings.output == "logits":
            shifted = raw - raw.max(axis=1, keepdims=True)
            raw = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        elif self.settings.output == "probabilities":
            with np.errstate(divide="ignore", invalid="ignore"):
                raw = np.log(raw)
        if np.isnan(raw).any() or (raw == np.inf).any():
            raise InputError([Fault(name, "", "outputs that are not " + self.settings.output, "numbers")])
        return raw

    def _run(self, batch: Any, name: str) -> Any:
        """Run the model, photo by photo where it takes one at a time."""
        wanted = self.session.get_inputs()[0]
        whole = not (isinstance(wanted.shape[0], int) and wanted.shape[0] == 1)
        blocks = [batch] if whole else [batch[row : row + 1] for row in range(len(batch))]
        try:
            return np.concatenate([self.session.run(None, {wanted.name: block})[0] for block in blocks])
        except Exception as error:  # onnxruntime raises classes of its own that share no base
            shape = tuple(batch.shape[1:])
            found = f"a model that fails ({reason_of(error)})"
            raise InputError([Fault(name, "", found, f"one that takes {shape}")]) from None


def load_classifier(path: Path) -> Classifier:
    """Load a classifier by its TOML.

    Raises:
        UsageError: onnxruntime is not installed. InputError: TOML, cells or model will not do.
    """
    settings = load_problem(Settings, path)
    taken = settings.input
    if taken.shorter_side is not None and (
        taken.resize != "crop" or taken.shorter_side < max(taken.width, taken.height)
    ):
        wanted = 'at least width and height, with resize = "crop"'
        raise InputError([Fault(path.name, "input.shorter_side", str(taken.shorter_side), wanted)])
    centres, names = _read_cells(settings.cells)
    return Classifier(settings=settings, session=_session(settings.model), centres=centres, names=names)


def _read_cells(file: File) -> tuple[Floats, tuple[str, ...]]:
    """Read latitude and longitude of the places, and their names, if any."""
    degrees = [Column(name=n, least=-most, most=most, unit="degrees") for n, most in (("lat", 90.0), ("lon", 180.0))]
    table = read_table(file, [*degrees, Column(name="name", kind="text", optional=True)])
    names = tuple(name.strip() for name in table["name"].tolist()) if "name" in table else ()
    return np.column_stack([table["lat"], table["lon"]]), names


def _session(model: File) -> Any:
    """Open a model of one input.

    Raises:
        UsageError: onnxruntime is not installed. InputError: the model will not do.
    """
    try:
        import onnxruntime
    except ImportError:
        raise UsageError(
            "a model needs onnxruntime, which is not installed; install privopt-photo-censor[onnx]"
        ) from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.contents, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # as above
        found = f"no model ({reason_of(error)})"
        raise InputError([Fault(model.name, "", found, "an ONNX model")]) from None
    if len(session.get_inputs()) != 1:
        found = f"{len(session.get_inputs())} inputs"
        raise InputError([Fault(model.name, "", found, "a model of one input")])
    return session
