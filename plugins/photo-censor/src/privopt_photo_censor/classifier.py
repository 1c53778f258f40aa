"""An ONNX classifier of places, described by a small TOML beside it::

model = "places.onnx"
cells = "cells.csv"            # s2 | lat,lon | south,west,north,east; a row for each output, in order
output = "logits"              # logits | log-probabilities | probabilities
[input]
width = 224
height = 224
layout = "NCHW"                # or NHWC
resize = "crop"                # shorter side to size and centre crop; or stretch
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
from privopt.errors import Fault, InputError, UsageError
from privopt_photo_censor.cells import Cells, read_cells

__all__ = ["Classifier", "Input", "Settings", "load_classifier", "log_softmax"]

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
    mean: tuple[float, ...] = key((0.0, 0.0, 0.0), help="subtracted from values in 0 to 1", check=_three)
    std: tuple[float, ...] = key((1.0, 1.0, 1.0), help="divided by", check=_three_positive)


@frozen(kw_only=True)
class Settings:
    """The TOML beside a model."""

    model: File = key(help="ONNX file")
    cells: File = key(help="CSV of the locations, in the order of the model's outputs")
    output: Literal["logits", "log-probabilities", "probabilities"] = key("logits", help="what the model returns")
    input: Input = key(help="what the model takes")


def log_softmax(logits: Floats) -> Floats:
    """Log-probabilities, rows normalised."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


@frozen(kw_only=True, eq=False)
class Classifier:
    """A model that is ready to score photos.

    Attributes:
        settings: from the TOML.
        cells: locations, in the order of its outputs.
        session: onnxruntime's.
    """

    settings: Settings
    cells: Cells
    session: Any

    def tensor(self, photo: Image.Image) -> NDArray[np.float32]:
        """One photo as the model takes it, float32, without the batch axis."""
        taken = self.settings.input
        size = (taken.width, taken.height)
        upright = ImageOps.exif_transpose(photo).convert("RGB")
        if taken.resize == "crop":
            sized = ImageOps.fit(upright, size, Image.Resampling.BILINEAR)
        else:
            sized = upright.resize(size, Image.Resampling.BILINEAR)
        mean, std = (np.array(each, dtype=np.float32) for each in (taken.mean, taken.std))
        pixels: NDArray[np.float32] = np.asarray(sized, dtype=np.float32)
        values: NDArray[np.float32] = (pixels / np.float32(255.0) - mean) / std
        return values.transpose(2, 0, 1) if taken.layout == "NCHW" else values

    def scores(self, tensors: list[Any]) -> Floats:
        """(N, M) log-probabilities of photos.

        Raises:
            InputError: the model does not take them, or does not return a number for each cell.
        """
        name = self.settings.model.name
        parts = []
        for first in range(0, len(tensors), BATCH):
            batch = np.stack(tensors[first : first + BATCH])
            parts.append(np.asarray(self._run(batch, name), dtype=np.float64))
        raw = np.concatenate(parts)
        if raw.shape != (len(tensors), len(self.cells)):
            found = f"an output of shape {raw.shape}"
            raise InputError([Fault(name, "", found, f"({len(tensors)}, {len(self.cells)}): photos, cells")])
        if self.settings.output == "logits":
            raw = log_softmax(raw)
        elif self.settings.output == "probabilities":
            with np.errstate(divide="ignore", invalid="ignore"):
                raw = np.log(raw)
        if np.isnan(raw).any() or (raw == np.inf).any():
            raise InputError([Fault(name, "", "outputs that are no " + self.settings.output, "numbers")])
        return raw

    def _run(self, batch: Any, name: str) -> Any:
        """Run the model, photo by photo where it takes one at a time."""
        wanted = self.session.get_inputs()[0]
        whole = not (isinstance(wanted.shape[0], int) and wanted.shape[0] == 1)
        blocks = [batch] if whole else [batch[row : row + 1] for row in range(len(batch))]
        try:
            return np.concatenate([self.session.run(None, {wanted.name: block})[0] for block in blocks])
        except Exception as error:  # onnxruntime raises classes of its own that share no base
            reason = str(error).splitlines()[0]
            shape = tuple(batch.shape[1:])
            raise InputError([Fault(name, "", f"a model that fails ({reason})", f"one that takes {shape}")]) from None


def load_classifier(path: Path) -> Classifier:
    """Load a classifier by its TOML.

    Raises:
        UsageError: onnxruntime is not installed. InputError: TOML, cells or model will not do.
    """
    try:
        import onnxruntime
    except ImportError:
        raise UsageError(
            "photos.folder needs onnxruntime, which is not installed; install privopt-photo-censor[onnx]"
        ) from None
    settings = load_problem(Settings, path)
    cells = read_cells(settings.cells.here)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(settings.model.contents, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # as above
        reason = str(error).splitlines()[0]
        raise InputError([Fault(settings.model.name, "", f"no model ({reason})", "an ONNX model")]) from None
    if len(session.get_inputs()) != 1:
        found = f"{len(session.get_inputs())} inputs"
        raise InputError([Fault(settings.model.name, "", found, "a model of one input")])
    return Classifier(settings=settings, cells=cells, session=session)
