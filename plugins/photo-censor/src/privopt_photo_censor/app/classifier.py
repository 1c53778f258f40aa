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
from privopt_photo_censor.app.picture import flatten_photo

__all__ = ["Classifier", "Input", "Settings", "load_classifier"]

BATCH_PHOTOS: Final = 16


def _check_three(value: tuple[float, ...]) -> str | None:
    return None if len(value) == 3 else "three numbers: red, green, blue"


def _check_three_positive(value: tuple[float, ...]) -> str | None:
    return None if len(value) == 3 and min(value) > 0 else "three numbers above 0: red, green, blue"


@frozen(kw_only=True)
class Input:
    """The table ``[input]``: how a photo becomes the model's input."""

    width: int = key(help="columns", unit="pixels", check=positive)
    height: int = key(help="rows", unit="pixels", check=positive)
    layout: Literal["NCHW", "NHWC"] = key("NCHW", help="order of the axes")
    resize: Literal["crop", "stretch"] = key("crop", help="how a photo gets its size")
    shorter_side: int | None = key(None, help="with crop: length of the shorter side before it", unit="pixels")
    interpolation: Literal["bilinear", "bicubic", "nearest", "lanczos"] = key("bilinear", help="how pixels are made")
    channels: Literal["RGB", "BGR"] = key("RGB", help="order of the colours, of mean and std too")
    mean: tuple[float, ...] = key((0.0, 0.0, 0.0), help="subtracted from values in 0 to 1", check=_check_three)
    std: tuple[float, ...] = key((1.0, 1.0, 1.0), help="divided by", check=_check_three_positive)


@frozen(kw_only=True)
class Settings:
    """The TOML file next to a model."""

    model: File = key(help="ONNX file")
    cells: File = key(help="CSV of the places (lat, lon, name), in the order of the model's outputs")
    output: Literal["logits", "log-probabilities", "probabilities"] = key("logits", help="what the model returns")
    input: Input = key(help="what the model takes")


@frozen(kw_only=True, eq=False)
class Classifier:
    """A model that is ready to score photos.

    Attributes:
        settings: The TOML file.
        session: The model's session of onnxruntime.
        centres: (M, 2) latitude and longitude of the places in degrees, in the order of the model's outputs.
        names: Names of the places. Empty if they have none.
    """

    settings: Settings
    session: Any
    centres: Floats
    names: tuple[str, ...] = ()

    def locate(self, latitude: float, longitude: float) -> int:
        """Find the column of the place whose centre is nearest to a point (degrees), on the sphere."""
        return int(np.argmax(directions(self.centres) @ directions(np.array([[latitude, longitude]]))[0]))

    def tensor(self, photo: Image.Image) -> NDArray[np.float32]:
        """Prepare one photo as the model's input, float32, without the batch axis."""
        options = self.settings.input
        size = (options.width, options.height)
        upright = flatten_photo(photo)
        resampling = Image.Resampling[options.interpolation.upper()]
        if options.resize == "stretch":
            resized = upright.resize(size, resampling)
        elif options.shorter_side is None:
            resized = ImageOps.fit(upright, size, resampling)
        else:
            factor = options.shorter_side / min(upright.size)
            enlarged = upright.resize((round(upright.width * factor), round(upright.height * factor)), resampling)
            min_x, min_y = (enlarged.width - options.width) // 2, (enlarged.height - options.height) // 2
            resized = enlarged.crop((min_x, min_y, min_x + options.width, min_y + options.height))
        # In single precision, which is the type of the model's input.
        mean, std = (np.array(channel_values, dtype=np.float32) for channel_values in (options.mean, options.std))
        pixels: NDArray[np.float32] = np.asarray(resized, dtype=np.float32)
        if options.channels == "BGR":
            pixels = pixels[:, :, ::-1]
        values: NDArray[np.float32] = (pixels / np.float32(255.0) - mean) / std
        return values.transpose(2, 0, 1) if options.layout == "NCHW" else values

    def scores(self, tensors: list[Any]) -> Floats:
        """Compute (N, M) log-probabilities of photos.

        Raises:
            InputError: The model does not take the photos, or does not return a number for each place.
        """
        name = self.settings.model.name
        batches = [np.stack(tensors[start : start + BATCH_PHOTOS]) for start in range(0, len(tensors), BATCH_PHOTOS)]
        raw = np.concatenate([np.asarray(self._run_batch(batch, name), dtype=np.float64) for batch in batches])
        if raw.shape != (len(tensors), len(self.centres)):
            actual = f"an output of shape {raw.shape}"
            raise InputError([Fault(name, "", actual, f"({len(tensors)}, {len(self.centres)}): photos, cells")])
        if self.settings.output == "logits":
            # The largest logit is taken off first, so that exp does not overflow.
            shifted = raw - raw.max(axis=1, keepdims=True)
            raw = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        elif self.settings.output == "probabilities":
            with np.errstate(divide="ignore", invalid="ignore"):
                raw = np.log(raw)
        if np.isnan(raw).any() or (raw == np.inf).any():
            raise InputError([Fault(name, "", "outputs that are not " + self.settings.output, "numbers")])
        return raw

    def _run_batch(self, batch: Any, name: str) -> Any:
        """Run the model, photo by photo if its batch axis has length 1."""
        model_input = self.session.get_inputs()[0]
        takes_batches = not (isinstance(model_input.shape[0], int) and model_input.shape[0] == 1)
        blocks = [batch] if takes_batches else [batch[row : row + 1] for row in range(len(batch))]
        try:
            return np.concatenate([self.session.run(None, {model_input.name: block})[0] for block in blocks])
        except Exception as error:  # onnxruntime raises classes of its own that share no base
            shape = tuple(batch.shape[1:])
            actual = f"a model that fails ({reason_of(error)})"
            raise InputError([Fault(name, "", actual, f"one that takes {shape}")]) from None


def load_classifier(path: Path) -> Classifier:
    """Load the classifier that a TOML file describes.

    Raises:
        UsageError: onnxruntime is not installed.
        InputError: The TOML file, the cells or the model is invalid.
    """
    settings = load_problem(Settings, path)
    options = settings.input
    if options.shorter_side is not None and (
        options.resize != "crop" or options.shorter_side < max(options.width, options.height)
    ):
        expectation = 'at least width and height, with resize = "crop"'
        raise InputError([Fault(path.name, "input.shorter_side", str(options.shorter_side), expectation)])
    centres, names = _read_cells(settings.cells)
    return Classifier(settings=settings, session=_open_session(settings.model), centres=centres, names=names)


def _read_cells(file: File) -> tuple[Floats, tuple[str, ...]]:
    """Read latitude and longitude of the places, and their names, if any."""
    degrees = [
        Column(name=axis, least=-limit, most=limit, unit="degrees") for axis, limit in (("lat", 90.0), ("lon", 180.0))
    ]
    table = read_table(file, [*degrees, Column(name="name", kind="text", optional=True)])
    names = tuple(name.strip() for name in table["name"].tolist()) if "name" in table else ()
    return np.column_stack([table["lat"], table["lon"]]), names


def _open_session(model: File) -> Any:
    """Open a model that has one input.

    Raises:
        UsageError: onnxruntime is not installed.
        InputError: The file is no ONNX model, or has several inputs.
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
        actual = f"no model ({reason_of(error)})"
        raise InputError([Fault(model.name, "", actual, "an ONNX model")]) from None
    if len(session.get_inputs()) != 1:
        actual = f"{len(session.get_inputs())} inputs"
        raise InputError([Fault(model.name, "", actual, "a model of one input")])
    return session
