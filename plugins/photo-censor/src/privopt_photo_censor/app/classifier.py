"""An ONNX classifier of places, described by a small TOML next to it::

model = "places.onnx"
cells = "cells.csv"            # s2 | lat,lon | south,west,north,east; a row for each output, in order
output = "logits"              # logits | log-probabilities | probabilities | embedding
# places = "places.npy"        # with embedding: (M, D), a row for each cell; scores are cosines / temperature
# temperature = 0.07
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
from privopt.declare.tables import read_array
from privopt.errors import Fault, InputError, UsageError, reason_of
from privopt_photo_censor.app.cells import Cells, read_cells
from privopt_photo_censor.app.picture import flattened

__all__ = [
    "Classifier",
    "Input",
    "Model",
    "ModelSettings",
    "Settings",
    "directions",
    "load_classifier",
    "log_softmax",
    "open_model",
]

BATCH: Final = 16


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
class ModelSettings:
    """What the TOML next to a model says of the model itself."""

    model: File = key(help="ONNX file")
    input: Input = key(help="what the model takes")


@frozen(kw_only=True)
class Settings(ModelSettings):
    """The TOML next to a model."""

    cells: File = key(help="CSV of the locations, in the order of the model's outputs")
    output: Literal["logits", "log-probabilities", "probabilities", "embedding"] = key(
        "logits", help="what the model returns"
    )
    places: File | None = key(None, help="with embedding: (locations, dimensions), .npy, a row for each cell")
    temperature: float = key(0.07, help="with embedding: what cosines are divided by", check=positive)


def log_softmax(logits: Floats) -> Floats:
    """Return log-probabilities, rows normalised."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


@frozen(kw_only=True, eq=False)
class Model:
    """A model that is ready to look at photos.

    Attributes:
        settings: from the TOML.
        session: onnxruntime's.
    """

    settings: ModelSettings
    session: Any

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

    def outputs(self, tensors: list[Any]) -> Floats:
        """Run the model on photos and return its (N, ...) outputs.

        Raises:
            InputError: the model does not take them.
        """
        name = self.settings.model.name
        batches = [np.stack(tensors[first : first + BATCH]) for first in range(0, len(tensors), BATCH)]
        return np.concatenate([np.asarray(self._run(batch, name), dtype=np.float64) for batch in batches])

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


@frozen(kw_only=True, eq=False)
class Classifier(Model):
    """A model that is ready to score photos.

    Attributes:
        settings: from the TOML.
        session: onnxruntime's.
        cells: locations, in the order of its outputs.
        places: (M, D) unit vectors of the locations, of a model that embeds; else None.
    """

    settings: Settings
    cells: Cells
    places: Floats | None = None

    def scores(self, tensors: list[Any]) -> Floats:
        """Return (N, M) log-probabilities of photos.

        Raises:
            InputError: the model does not take them, or does not return a number for each cell.
        """
        name = self.settings.model.name
        raw = self.outputs(tensors)
        if self.places is not None:
            raw = self._cosines(raw, name) / self.settings.temperature
        if raw.shape != (len(tensors), len(self.cells)):
            found = f"an output of shape {raw.shape}"
            raise InputError([Fault(name, "", found, f"({len(tensors)}, {len(self.cells)}): photos, cells")])
        if self.settings.output in ("logits", "embedding"):
            raw = log_softmax(raw)
        elif self.settings.output == "probabilities":
            with np.errstate(divide="ignore", invalid="ignore"):
                raw = np.log(raw)
        if np.isnan(raw).any() or (raw == np.inf).any():
            raise InputError([Fault(name, "", "outputs that are not " + self.settings.output, "numbers")])
        return raw

    def _cosines(self, raw: Floats, name: str) -> Floats:
        """(N, M) cosines between the photos' embeddings and the places'."""
        assert self.places is not None
        return np.asarray(directions(raw, name, self.places.shape[1]) @ self.places.T)


def directions(raw: Floats, name: str, size: int | None = None) -> Floats:
    """Normalise embeddings (N, D) to length 1.

    Args:
        raw: what a model returned.
        name: of its file, for faults.
        size: D, where it is known.

    Raises:
        InputError: they are of another shape, or of length 0, or no numbers.
    """
    if raw.ndim != 2 or (size is not None and raw.shape[1] != size):
        found, wanted = f"an embedding of shape {raw.shape}", f"(photos, {size or 'dimensions'})"
        raise InputError([Fault(name, "", found, wanted + (", as places has" if size else ""))])
    sizes = np.linalg.norm(raw, axis=1, keepdims=True)
    if not (np.isfinite(sizes) & (sizes > 0.0)).all():
        raise InputError([Fault(name, "", "an embedding of length 0, or of no numbers", "a direction")])
    return np.asarray(raw / sizes)


def load_classifier(path: Path) -> Classifier:
    """Load a classifier by its TOML.

    Raises:
        UsageError: onnxruntime is not installed. InputError: TOML, cells or model will not do.
    """
    settings = load_problem(Settings, path)
    cells = read_cells(settings.cells.here)
    places = _embedded(settings, path.name, len(cells))
    return Classifier(settings=settings, cells=cells, session=open_model(settings).session, places=places)


def open_model(settings: ModelSettings) -> Model:
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
        session = onnxruntime.InferenceSession(settings.model.contents, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # as above
        found = f"no model ({reason_of(error)})"
        raise InputError([Fault(settings.model.name, "", found, "an ONNX model")]) from None
    if len(session.get_inputs()) != 1:
        found = f"{len(session.get_inputs())} inputs"
        raise InputError([Fault(settings.model.name, "", found, "a model of one input")])
    return Model(settings=settings, session=session)


def _embedded(settings: Settings, file: str, cells: int) -> Floats | None:
    """Return the table of places of a model that embeds, rows of length 1.

    Raises:
        InputError: it lacks one, or has one and does not embed; or a row has length 0.
    """
    taken = settings.input
    faults = []
    if (settings.output == "embedding") != (settings.places is not None):
        found = "nothing" if settings.places is None else f"a table of places with output = {settings.output!r}"
        faults.append(Fault(file, "places", found, 'a table of places with output = "embedding", and only then'))
    if taken.shorter_side is not None and (
        taken.resize != "crop" or taken.shorter_side < max(taken.width, taken.height)
    ):
        wanted = 'at least width and height, with resize = "crop"'
        faults.append(Fault(file, "input.shorter_side", str(taken.shorter_side), wanted))
    if faults:
        raise InputError(faults)
    if settings.places is None:
        return None
    table = read_array(settings.places, (cells, None), what="places (locations, dimensions)")
    sizes = np.linalg.norm(table, axis=1, keepdims=True)
    if (sizes == 0.0).any():
        row = int(np.argmin(sizes))
        raise InputError([Fault(settings.places.name, f"row {row} (from 0)", "zeros alone", "a direction")])
    return np.asarray(table / sizes)
