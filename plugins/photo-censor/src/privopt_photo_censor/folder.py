"""From a folder of photos to scores: GPS out of EXIF, log-probabilities out of a classifier."""

from __future__ import annotations

import io
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from PIL import ExifTags, Image, ImageOps

from privopt.errors import Fault, InputError
from privopt_photo_censor.classifier import Classifier, load_classifier
from privopt_photo_censor.scores import Floats

__all__ = ["ScoredFolder", "gps", "photo_files", "score_folder", "thumbnails"]

SUFFIXES: Final = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif")


@frozen(kw_only=True, eq=False)
class ScoredFolder:
    """Photos of a folder, by name.

    Attributes:
        names: file names.
        scores: (N, M) log-probabilities.
        points: latitude and longitude of each photo, None without GPS.
        cells: column of each photo's cell, None without GPS or outside all cells.
        true_location: the cell of most photos with GPS; None where none has any.
    """

    names: tuple[str, ...]
    scores: Floats
    points: tuple[tuple[float, float] | None, ...]
    cells: tuple[int | None, ...]
    true_location: int | None


def photo_files(folder: Path) -> list[Path]:
    """The photos of a folder by name, case aside.

    Raises:
        InputError: there are none.
    """
    found = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file()]
    if not found:
        raise InputError([Fault(folder.name, "", "no photos", "files ending in " + ", ".join(SUFFIXES))])
    return sorted(found, key=lambda path: (path.name.lower(), path.name))


def gps(photo: Image.Image) -> tuple[float, float] | None:
    """Latitude and longitude in degrees from a photo's EXIF; None where there is no usable position."""
    tags = photo.getexif().get_ifd(ExifTags.IFD.GPSInfo)
    latitude = _degrees(tags.get(ExifTags.GPS.GPSLatitude), tags.get(ExifTags.GPS.GPSLatitudeRef), "S", 90.0)
    longitude = _degrees(tags.get(ExifTags.GPS.GPSLongitude), tags.get(ExifTags.GPS.GPSLongitudeRef), "W", 180.0)
    return None if latitude is None or longitude is None else (latitude, longitude)


def _degrees(parts: Any, side: Any, negative: str, most: float) -> float | None:
    """Degrees, minutes and seconds (rationals) as signed degrees."""
    try:
        values = [float(part) for part in parts]
        size = sum(value / 60.0**place for place, value in enumerate(values))
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    if not values or not 0.0 <= size <= most:
        return None
    return -size if str(side).strip("\0 ").upper() == negative else size


def _open(path: Path, classifier: Classifier) -> tuple[Any, tuple[float, float] | None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as photo:
                return classifier.tensor(photo), gps(photo)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError([Fault(path.name, "", f"a photo that cannot be read ({reason})", "a photo")]) from None


def score_folder(folder: Path, classifier: Path) -> ScoredFolder:
    """Score the photos of a folder.

    Args:
        folder: photos of one album.
        classifier: TOML beside an ONNX model (:mod:`privopt_photo_censor.classifier`).

    Returns:
        Scores, names, and the cell that most photos with GPS were taken in.

    Raises:
        InputError: a photo cannot be read, the model will not do, or the photos' GPS lies in several cells with none
            holding more than half of them.
        UsageError: onnxruntime is not installed.
    """
    model = load_classifier(classifier)
    files = photo_files(folder)
    tensors: list[Any] = []
    points: list[tuple[float, float] | None] = []
    faults: list[Fault] = []
    for path in files:
        try:
            tensor, point = _open(path, model)
        except InputError as error:
            faults.extend(error.faults)
            continue
        tensors.append(tensor)
        points.append(point)
    if faults:
        raise InputError(faults[:20])
    cells = [None if point is None else model.cells.locate(*point) for point in points]
    counted = Counter(cell for cell in cells if cell is not None)
    true, most = counted.most_common(1)[0] if counted else (None, 0)
    if counted and 2 * most <= sum(counted.values()):
        found = f"photos in {len(counted)} cells, none with more than half of them"
        raise InputError([Fault(folder.name, "GPS", found, "photos of one place, or photos.true_location")])
    return ScoredFolder(
        names=tuple(path.name for path in files),
        scores=model.scores(tensors),
        points=tuple(points),
        cells=tuple(cells),
        true_location=true,
    )


def thumbnails(folder: Path) -> list[bytes]:
    """Small JPEGs of the photos of a folder, in their order, upright, and without any of their metadata.

    The more photos, the smaller: about 2 MB in all at most.

    Raises:
        InputError: a photo cannot be read.
    """
    files = photo_files(folder)
    edge = 192 if len(files) <= 120 else 112 if len(files) <= 500 else 64
    return [_thumbnail(path, edge) for path in files]


def _thumbnail(path: Path, edge: int) -> bytes:
    out = io.BytesIO()
    try:
        with Image.open(path) as photo:
            photo.draft("RGB", (2 * edge, 2 * edge))
            small = ImageOps.exif_transpose(photo).convert("RGB")
            small.thumbnail((edge, edge))
            plain = Image.new("RGB", small.size)
            plain.paste(small)
            plain.save(out, "JPEG", quality=72)
    except (OSError, ValueError, SyntaxError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError([Fault(path.name, "", f"a photo that cannot be read ({reason})", "a photo")]) from None
    return out.getvalue()
