"""From a folder of photos to scores: log-probabilities out of a classifier, positions out of metadata, thumbnails."""

from __future__ import annotations

import hashlib
import io
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from PIL import Image

from privopt.arrays import Floats
from privopt.errors import Fault, Faults, InputError
from privopt_photo_censor.app.classifier import Classifier
from privopt_photo_censor.app.metadata import FolderContents, Metadata, Point, read_metadata
from privopt_photo_censor.app.open_photo import (
    HEIF,
    MAX_MEGAPIXELS,
    SUFFIXES,
    BrokenMetadataError,
    describe_failure,
    heif,
    opened,
    readable,
    unreadable_fault,
)
from privopt_photo_censor.app.picture import flatten_photo
from privopt_photo_censor.app.positions import texts_of

__all__ = ["look_at_folder", "place_of", "score_files"]

FILM_MARKS: Final = (b"MotionPhoto", b"MicroVideo")
"""Words in the files of photos that have a film appended: in XMP, or before the film."""
BROKEN: Final = ("no picture, or a broken one", "its file is damaged")
"""Reasons of :func:`describe_failure` that a list of photos gives in one word."""
FILM: Final = re.compile(rb"\0\0[\0-\x03][\x08-\xff]ftyp[ -~]{4}")
"""How a film of the MP4 family begins."""


class _UnreadableError(Exception):
    """A photo that is left out.

    Args:
        name: Of the photo.
        cause: Why; its own text is not repeated, because it may quote bytes of the file.
    """

    def __init__(self, name: str, cause: Exception) -> None:
        super().__init__(name)
        reason = describe_failure(cause)
        self.entry = f"{name}: {'broken' if reason in BROKEN else reason}"
        self.fault = unreadable_fault(name, cause)


@frozen(kw_only=True, eq=False)
class _Photo:
    """All that is taken from one photo, in one reading of its file.

    Attributes:
        tensor: The picture as the classifier takes it; None without a classifier.
        metadata: What the file reveals apart from the picture.
        unscored_parts: Further pictures and films of the file, in words; empty if there are none.
        thumbnail: A small JPEG.
        digest: SHA-256 of the file.
    """

    tensor: Any
    metadata: Metadata
    unscored_parts: str
    thumbnail: bytes
    digest: str


def _list_entries(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the photos of a folder in the order of their names, whatever the case; and the names of all else in it.

    Raises:
        InputError: The folder has no photos, or the name of one is not UTF-8.
    """
    entries = sorted(folder.iterdir(), key=lambda path: (path.name.lower(), path.name))
    suffixes = (*SUFFIXES, *HEIF) if heif() else SUFFIXES
    photos = [path for path in entries if path.suffix.lower() in suffixes and path.is_file()]
    if not photos:
        raise InputError([Fault(folder.name, "", "no photos", "files ending in " + ", ".join(suffixes))])
    invalid_names = [_escape_name(path.name) for path in photos if _escape_name(path.name) != path.name]
    if invalid_names:
        faults = [Fault(folder.name, "", f"a photo called {name}", "names in UTF-8") for name in invalid_names[:20]]
        raise InputError(faults)
    others = [path for path in entries if path not in photos]
    return photos, [_escape_name(path.name) + "/" * path.is_dir() for path in others]


def _escape_name(name: str) -> str:
    """Return a file's name as text, with escapes for bytes that are not UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _describe_unscored_parts(photo: Image.Image, contents: bytes) -> str:
    """Return what a photo's file shows besides the one picture that is scored; empty if nothing."""
    parts = []
    picture_count = int(getattr(photo, "n_frames", 1))
    if picture_count > 1:
        parts.append(f"picture 2 of {picture_count}" if picture_count == 2 else f"pictures 2 to {picture_count}")
    has_mark = any(mark in text for text in (contents, *texts_of(photo)) for mark in FILM_MARKS)
    if has_mark or FILM.search(contents, 12):  # a HEIC itself begins so
        parts.append("the film inside")
    return " and ".join(parts)


def _read(path: Path, model: Classifier | None, edge: int, max_megapixels: float) -> _Photo:
    """Read one photo.

    Raises:
        _UnreadableError: The picture or what stands beside it cannot be read.
    """
    name = path.name
    try:
        contents = path.read_bytes()
        with opened(contents, max_megapixels) as photo:
            photo.load()
            try:
                Image.Exif().load(photo.info.get("exif", b""))  # of a JPEG, Pillow itself passes over a broken one
                metadata = read_metadata(name, photo, contents)
                unscored_parts = _describe_unscored_parts(photo, contents)
            except Exception:  # Pillow's parsers raise whatever they like at a wrong byte
                raise BrokenMetadataError from None
            upright = flatten_photo(photo)
    except Exception as error:  # decoders share no class of errors, and their texts quote bytes of the file
        raise _UnreadableError(name, error) from None
    return _Photo(
        tensor=None if model is None else model.tensor(upright),
        metadata=metadata,
        unscored_parts=unscored_parts,
        thumbnail=_make_thumbnail(upright, edge),
        digest=hashlib.sha256(contents).hexdigest(),
    )


def _make_thumbnail(upright: Image.Image, edge: int) -> bytes:
    """Return a small JPEG of a picture, whose longer side has at most ``edge`` pixels."""
    thumbnail = upright.copy()
    thumbnail.thumbnail((edge, edge))
    buffer = io.BytesIO()
    thumbnail.save(buffer, "JPEG", quality=72)
    return buffer.getvalue()


def look_at_folder(
    folder: Path, model: Classifier | None = None, max_megapixels: float = MAX_MEGAPIXELS
) -> tuple[FolderContents, list[Any]]:
    """Look at the photos of a folder. Those that cannot be read are listed and left out.

    Args:
        folder: Photos of one album.
        model: The classifier that scores them. None: only what their files reveal is read.
        max_megapixels: Photos of more millions of pixels are left out.

    Returns:
        What is seen, and the photos as the classifier takes them.

    Raises:
        InputError: The folder has no photos, or none of them can be read.
    """
    files, left_out = _list_entries(folder)
    edge = 192 if len(files) <= 120 else 112 if len(files) <= 500 else 64
    photos: list[_Photo] = []
    faults = Faults()
    for path in files:
        try:
            photos.append(_read(path, model, edge, max_megapixels))
        except _UnreadableError as error:
            left_out.append(error.entry)
            faults.extend([error.fault])
    if not photos:
        faults.check()
    left_out.sort(key=lambda name: (name.lower(), name))
    left_out += [f"{photo.metadata.photo}: {photo.unscored_parts}" for photo in photos if photo.unscored_parts]
    contents = FolderContents(
        metadata=tuple(photo.metadata for photo in photos),
        left_out=tuple(left_out),
        thumbnails=tuple(photo.thumbnail for photo in photos),
        digests=tuple(photo.digest for photo in photos),
    )
    return contents, [photo.tensor for photo in photos]


def score_files(paths: Sequence[Path], model: Classifier) -> Floats:
    """Score (N, M) clean copies of photos by the model that scored a folder.

    Raises:
        InputError: One cannot be read, or the model does not take them.
    """
    tensors = []
    for path in paths:
        with readable(path.name), opened(path.read_bytes(), math.inf) as photo:
            tensors.append(model.tensor(photo))
    return model.scores(tensors)


def place_of(points: Sequence[Point | None], model: Classifier, folder: str) -> int | None:
    """Return the place that more than half of the photos with GPS are nearest to; None if no photo has GPS.

    Args:
        points: Latitude and longitude of each photo.
        model: It has the places.
        folder: Its name, for faults.

    Raises:
        InputError: No place has more than half of them.
    """
    place_counts = Counter(model.locate(*point) for point in points if point is not None)
    if not place_counts:
        return None
    place, count = place_counts.most_common(1)[0]
    if 2 * count <= place_counts.total():
        actual = f"photos in {len(place_counts)} cells, none with more than half of them"
        raise InputError([Fault(folder, "GPS", actual, "photos of one place, or photos.true_location")])
    return place
