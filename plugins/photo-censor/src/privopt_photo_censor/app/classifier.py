"""A classifier of places in ONNX format, described by a TOML file such as::

model = "places.onnx"
cells = "cells.csv"            # lat,lon of each place's centre, and its name; one row per output, in order
output = "logits"              # what the model returns: logits | log-probabilities | probabilities
# output_name = "probabilities"  # the output to read, if the model has several

[input]
width = 224
height = 224
layout = "NCHW"                # or NHWC
resize = "crop"                # scale the shorter side and crop the centre; or stretch
# shorter_side = 256           # with crop: scale the shorter side to this length first, then crop the centre
# interpolation = "bilinear"   # bilinear | bicubic | nearest | lanczos
# channels = "RGB"             # or BGR
mean = [0.485, 0.456, 0.406]   # subtracted from values in the range from 0 to 1
std = [0.229, 0.224, 0.225]    # by which the differences are divided
"""

from __future__ import annotations

from collections.abc import Sequence
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
from privopt.errors import Fault, InputError, UsageError, cut, reason_of
from privopt.numbers.distances import directions
from privopt_photo_censor.app.picture import flatten_photo

__all__ = ["Classifier", "Input", "Settings", "load_classifier"]

BATCH_PHOTOS: Final = 16
"""The number of photos to pass to the model at a time."""


def _check_three(value: tuple[float, ...]) -> str | None:
    """Check that there are exactly three values, one per colour.

    Returns:
        None if the values are valid, and a description of valid values otherwise.
    """
    return None if len(value) == 3 else "three numbers: red, green, blue"


def _check_three_positive(value: tuple[float, ...]) -> str | None:
    """Check that there are exactly three values, one per colour, and that all of them are positive.

    Returns:
        None if the values are valid, and a description of valid values otherwise.
    """
    return None if len(value) == 3 and min(value) > 0 else "three numbers above 0: red, green, blue"


@frozen(kw_only=True)
class Input:
    """The ``[input]`` table of a model's TOML file, which specifies how to convert a photo to the model's input."""

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
    """The contents of the TOML file for a model: its ONNX file, its places, and the formats of its output and input."""

    model: File = key(help="ONNX file")
    cells: File = key(help="CSV of the places (lat, lon, name), in the order of the model's outputs")
    output: Literal["logits", "log-probabilities", "probabilities"] = key("logits", help="what the model returns")
    output_name: str | None = key(None, help="the output to read, by its name in the model")
    input: Input = key(help="what the model takes")


@frozen(kw_only=True, eq=False)
class Classifier:
    """A loaded classifier, which computes a score for each photo and each of M places.

    Attributes:
        settings: The contents of the model's TOML file.
        session: The onnxruntime session that runs the model.
        centres: Array of shape (M, 2) with the latitude and longitude of each place's centre in degrees, in the order
            of the model's outputs.
        names: The names of the places, or an empty tuple if they have none.
    """

    settings: Settings
    session: Any
    centres: Floats
    names: tuple[str, ...] = ()

    def locate(self, latitude: float, longitude: float) -> int:
        """Return the index of the place with the centre nearest to a position given in degrees."""
        # On a sphere, the nearest point is the one whose direction has the largest cosine.
        return int(np.argmax(directions(self.centres) @ directions(np.array([[latitude, longitude]]))[0]))

    def tensor(self, photo: Image.Image) -> NDArray[np.float32]:
        """Convert a photo to the model's input, without the batch axis.

        Pixel values are scaled to the range from 0 to 1 and then normalised with ``mean`` and ``std``.

        Returns:
            An array of shape (3, height, width) if the layout is NCHW, or (height, width, 3) if it is NHWC.
        """
        options = self.settings.input
        size = (options.width, options.height)
        upright = flatten_photo(photo)
        resampling = Image.Resampling[options.interpolation.upper()]
        if options.resize == "stretch":
            resized = upright.resize(size, resampling)
        elif options.shorter_side is None:
            # Cut out the largest central part with the right proportions, and scale it.
            resized = ImageOps.fit(upright, size, resampling)
        else:
            # Scale the shorter side to `shorter_side`, then cut out the centre.
            factor = options.shorter_side / min(upright.size)
            enlarged = upright.resize((round(upright.width * factor), round(upright.height * factor)), resampling)
            min_x, min_y = (enlarged.width - options.width) // 2, (enlarged.height - options.height) // 2
            resized = enlarged.crop((min_x, min_y, min_x + options.width, min_y + options.height))
        # Computed in single precision, which is what most models take.
        mean, std = (np.array(channel_values, dtype=np.float32) for channel_values in (options.mean, options.std))
        pixels: NDArray[np.float32] = np.asarray(resized, dtype=np.float32)
        if options.channels == "BGR":
            pixels = pixels[:, :, ::-1]
        values: NDArray[np.float32] = (pixels / np.float32(255.0) - mean) / std
        return values.transpose(2, 0, 1) if options.layout == "NCHW" else values

    def scores(self, tensors: list[Any]) -> Floats:
        """Return each photo's log-probability for each place, as an array of shape (N, M).

        Args:
            tensors: The N photos, converted by :meth:`tensor`.

        Raises:
            InputError: The model does not accept the photos, does not return one valid number per place, or returns
                probabilities where logits are declared.
        """
        name, output_name = self.settings.model.name, self._find_output()
        batches = [np.stack(tensors[start : start + BATCH_PHOTOS]) for start in range(0, len(tensors), BATCH_PHOTOS)]
        raw = np.concatenate([self._run_batch(batch, output_name) for batch in batches])
        if raw.shape != (len(tensors), len(self.centres)):
            actual = f"output {cut(output_name)} of shape {raw.shape}{self._describe_outputs()}"
            raise InputError([Fault(name, "", actual, f"({len(tensors)}, {len(self.centres)}): photos, cells")])
        if self.settings.output == "logits" and _are_probabilities(raw):
            # Numbers that sum to 1 are probabilities, which differ by at most 1. If they were read as logits, every
            # place would seem hidden.
            actual = f"output {cut(output_name)}, in which each photo's numbers sum to 1"
            raise InputError([Fault(name, "", actual, 'logits (or output = "probabilities" in its TOML)')])
        if self.settings.output == "logits":
            # The largest logit is subtracted first, so that exp does not overflow.
            shifted = raw - raw.max(axis=1, keepdims=True)
            raw = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        elif self.settings.output == "probabilities":
            with np.errstate(divide="ignore", invalid="ignore"):
                # The logarithm of 0 is -inf. That of a negative number is NaN, which raises an error below.
                raw = np.log(raw)
        if np.isnan(raw).any() or (raw == np.inf).any():
            raise InputError([Fault(name, "", "outputs that are not " + self.settings.output, "numbers")])
        return raw

    def _find_output(self) -> str:
        """Return the name of the model output that contains the scores.

        This is ``output_name`` if it is set. Otherwise, it is the first output of a floating-point type, or simply the
        first output if there is none of that type. Other types are skipped because some models, such as scikit-learn
        classifiers, return each photo's label first.

        Raises:
            InputError: The model has no output with the name ``output_name``.
        """
        outputs: dict[str, Any] = {output.name: output for output in self.session.get_outputs()}
        wanted_name = self.settings.output_name
        if wanted_name is not None:
            if wanted_name not in outputs:
                actual = f"no output {cut(wanted_name)}"
                raise InputError(
                    [Fault(self.settings.model.name, "", actual, f"one of {', '.join(map(cut, outputs))}")]
                )
            return wanted_name
        # Texts and whole numbers are labels. A sequence of maps contains a probability for each label.
        score_names = [name for name, output in outputs.items() if "float" in output.type or "double" in output.type]
        return score_names[0] if score_names else next(iter(outputs))

    def _describe_outputs(self) -> str:
        """Return a phrase for error messages that lists the model's outputs, or "" if there is only one."""
        names = [output.name for output in self.session.get_outputs()]
        return "" if len(names) < 2 else f" (output_name chooses one of {', '.join(map(cut, names))})"

    def _run_batch(self, batch: Any, output_name: str) -> Floats:
        """Run the model on a batch of photos and return its raw output.

        If the batch axis of the model's input has length 1, photos are passed one at a time. If the input has only two
        axes, each photo is flattened to a row of numbers, as scikit-learn models expect.

        Args:
            batch: Array of shape (B, ...) with the photos, converted by :meth:`tensor`.
            output_name: The name of the output to read.

        Raises:
            InputError: The model fails, for example because it expects input of a different shape.
        """
        model_input = self.session.get_inputs()[0]
        shape = model_input.shape
        photos = batch.reshape(len(batch), -1) if len(shape) == 2 else batch
        photos = photos.astype(_INPUT_TYPES.get(model_input.type, np.float32))
        # The batch axis of a model that takes any number of photos has a name or None instead of a length.
        takes_batches = not (isinstance(shape[0], int) and shape[0] == 1) if shape else True
        blocks = [photos] if takes_batches else [photos[row : row + 1] for row in range(len(photos))]
        try:
            results = [self.session.run([output_name], {model_input.name: block})[0] for block in blocks]
            return np.concatenate([_to_array(result, self.names) for result in results])
        except Exception as error:  # onnxruntime raises classes of its own that share no base
            actual = f"a model that fails ({reason_of(error)}); its input {cut(model_input.name)} has shape {shape}"
            expectation = f"one that takes {tuple(photos.shape[1:])} for each photo, and returns numbers"
            raise InputError([Fault(self.settings.model.name, "", actual, expectation)]) from None


_INPUT_TYPES: Final = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
"""The NumPy types that correspond to onnxruntime's names for input types."""


def _to_array(result: Any, names: Sequence[str]) -> Floats:
    """Convert a model's output for a batch of photos to an array with one row per photo.

    Args:
        result: The model's output, either an array or a list with a mapping from labels to probabilities for each
            photo. Converters for scikit-learn models produce such a list unless ``zipmap`` is off.
        names: The names of the places. If the labels are these names, the columns are in the order of ``names``.
            Otherwise, they are in the order of the sorted labels, as in scikit-learn.
    """
    if isinstance(result, list) and result and isinstance(result[0], dict):
        labels = sorted(result[0])
        # The names are compared as a list, not a set, because a name that two places share cannot serve as a label.
        if sorted(names) == labels:
            labels = list(names)
        return np.array([[row[label] for label in labels] for row in result], dtype=np.float64)
    return np.asarray(result, dtype=np.float64)


def _are_probabilities(raw: Floats) -> bool:
    """Return whether each row is a probability distribution over at least two places, within a tolerance of 1e-4."""
    return bool(raw.shape[1] > 1 and (raw >= 0).all() and (np.abs(raw.sum(axis=1) - 1) < 1e-4).all())


def load_classifier(path: Path) -> Classifier:
    """Load the classifier described by a TOML file.

    Args:
        path: The path of the TOML file.

    Raises:
        UsageError: onnxruntime is not installed.
        InputError: The TOML file, the CSV file of places or the ONNX model is invalid.
    """
    settings = load_problem(Settings, path)
    options = settings.input
    # The part that is cut out of the centre must fit within the scaled photo.
    if options.shorter_side is not None and (
        options.resize != "crop" or options.shorter_side < max(options.width, options.height)
    ):
        expectation = 'at least width and height, with resize = "crop"'
        raise InputError([Fault(path.name, "input.shorter_side", str(options.shorter_side), expectation)])
    centres, names = _read_cells(settings.cells)
    return Classifier(settings=settings, session=_open_session(settings.model), centres=centres, names=names)


def _read_cells(file: File) -> tuple[Floats, tuple[str, ...]]:
    """Read the latitudes, longitudes and names of places from a CSV file.

    Returns:
        An array of shape (M, 2) with latitudes and longitudes in degrees, and a tuple with the names of the places,
        which is empty if the file has no names.
    """
    degrees = [
        Column(name=axis, least=-limit, most=limit, unit="degrees") for axis, limit in (("lat", 90.0), ("lon", 180.0))
    ]
    table = read_table(file, [*degrees, Column(name="name", kind="text", optional=True)])
    names = tuple(name.strip() for name in table["name"].tolist()) if "name" in table else ()
    return np.column_stack([table["lat"], table["lon"]]), names


def _open_session(model: File) -> Any:
    """Open an ONNX model, which must have a single input, as an onnxruntime session on the CPU.

    Raises:
        UsageError: onnxruntime is not installed.
        InputError: The file is not an ONNX model, or the model does not have exactly one input.
    """
    try:
        import onnxruntime
    except ImportError:
        raise UsageError(
            "a model needs onnxruntime, which is not installed; install privopt-photo-censor[onnx]"
        ) from None
    options = onnxruntime.SessionOptions()
    # Errors are raised as exceptions, so only fatal messages are logged.
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.contents, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises classes of its own that share no base
        actual = f"no model ({reason_of(error)})"
        raise InputError([Fault(model.name, "", actual, "an ONNX model")]) from None
    if len(session.get_inputs()) != 1:
        actual = f"{len(session.get_inputs())} inputs"
        raise InputError([Fault(model.name, "", actual, "a model of one input")])
    return session
