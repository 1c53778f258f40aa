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
from privopt_photo_censor.app.picture import flattened
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
    """All that is taken from one photo, in one reading of its file."""

    tensor: Any
    metadata: Metadata
    more: str
    thumbnail: bytes
    digest: str


def _entries(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the photos of a folder by name, case aside; and the names of everything else in it.

    Raises:
        InputError: the folder has no photos, or the name of one is not UTF-8.
    """
    inside = sorted(folder.iterdir(), key=lambda path: (path.name.lower(), path.name))
    taken = (*SUFFIXES, *HEIF) if heif() else SUFFIXES
    photos = [path for path in inside if path.suffix.lower() in taken and path.is_file()]
    if not photos:
        raise InputError([Fault(folder.name, "", "no photos", "files ending in " + ", ".join(taken))])
    odd = [_shown(path.name) for path in photos if _shown(path.name) != path.name]
    if odd:
        raise InputError([Fault(folder.name, "", f"a photo called {name}", "names in UTF-8") for name in odd[:20]])
    others = [path for path in inside if path not in photos]
    return photos, [_shown(path.name) + "/" * path.is_dir() for path in others]


def _shown(name: str) -> str:
    """Return a file's name as text; bytes that are not UTF-8 as escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _more(photo: Image.Image, contents: bytes) -> str:
    """Return what a photo's file shows besides the one picture that is scored; empty if nothing."""
    found = []
    pictures = int(getattr(photo, "n_frames", 1))
    if pictures > 1:
        found.append(f"picture 2 of {pictures}" if pictures == 2 else f"pictures 2 to {pictures}")
    marked = any(mark in text for text in (contents, *texts_of(photo)) for mark in FILM_MARKS)
    if marked or FILM.search(contents, 12):  # a HEIC itself begins so
        found.append("the film inside")
    return " and ".join(found)


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
                metadata, more = read_metadata(name, photo, contents), _more(photo, contents)
            except Exception:  # Pillow's parsers raise whatever they like at a wrong byte
                raise BrokenMetadataError from None
            upright = flattened(photo)
    except Exception as error:  # decoders share no class of errors, and their texts quote bytes of the file
        raise _UnreadableError(name, error) from None
    return _Photo(
        tensor=None if model is None else model.tensor(upright),
        metadata=metadata,
        more=more,
        thumbnail=_thumbnail(upright, edge),
        digest=hashlib.sha256(contents).hexdigest(),
    )


def _thumbnail(upright: Image.Image, edge: int) -> bytes:
    small = upright.copy()
    small.thumbnail((edge, edge))
    out = io.BytesIO()
    small.save(out, "JPEG", quality=72)
    return out.getvalue()


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
    files, left_out = _entries(folder)
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
    left_out += [f"{photo.metadata.photo}: {photo.more}" for photo in photos if photo.more]
    seen = FolderContents(
        metadata=tuple(photo.metadata for photo in photos),
        left_out=tuple(left_out),
        thumbnails=tuple(photo.thumbnail for photo in photos),
        digests=tuple(photo.digest for photo in photos),
    )
    return seen, [photo.tensor for photo in photos]


def score_files(paths: Sequence[Path], model: Classifier) -> Floats:
    """Score (N, M) clean copies of photos by the model that scored a folder.

    Raises:
        InputError: one cannot be read, or the model will not do.
    """
    tensors = []
    for path in paths:
        with readable(path.name), opened(path.read_bytes(), math.inf) as photo:
            tensors.append(model.tensor(photo))
    return model.scores(tensors)


def place_of(points: Sequence[Point | None], model: Classifier, folder: str) -> int | None:
    """Return the place that more than half of the photos with GPS are nearest to; None where none has any.

    Args:
        points: latitude and longitude of each photo.
        model: has the places.
        folder: its name, for faults.

    Raises:
        InputError: no place has more than half of them.
    """
    counted = Counter(model.locate(*point) for point in points if point is not None)
    if not counted:
        return None
    true, most = counted.most_common(1)[0]
    if 2 * most <= counted.total():
        found = f"photos in {len(counted)} cells, none with more than half of them"
        raise InputError([Fault(folder, "GPS", found, "photos of one place, or photos.true_location")])
    return true
