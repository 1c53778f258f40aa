"""Read a folder of photos and collect the photos' scores, metadata and thumbnails."""

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
    can_read_heif,
    describe_failure,
    open_photo,
    readable,
    unreadable_fault,
)
from privopt_photo_censor.app.picture import flatten_photo
from privopt_photo_censor.app.positions import texts_of

__all__ = ["find_album_place", "look_at_folder", "score_files"]

FILM_MARKS: Final = (b"MotionPhoto", b"MicroVideo")
"""Byte strings that indicate a video appended to a photo's file. They occur in XMP data or before the video."""
BROKEN: Final = ("no picture, or a broken one", "its file is damaged")
"""The results of :func:`describe_failure` that are shortened to "broken" in the list of left-out files."""
FILM: Final = re.compile(rb"\0\0[\0-\x03][\x08-\xff]ftyp[ -~]{4}")
"""A pattern for the first bytes of a video in the MP4 family of formats."""


class _UnreadableError(Exception):
    """Raised when a photo cannot be read and must be left out.

    Args:
        name: The name of the photo.
        cause: The original error. Its message is not repeated, because it may quote bytes of the file.

    Attributes:
        entry: The photo's name and the reason, formatted for the list of files that were left out.
        fault: The photo's name and the reason, for the error message shown if no photo can be read.
    """

    def __init__(self, name: str, cause: Exception) -> None:
        """Create the error for a photo, with a reason derived from the original error."""
        super().__init__(name)
        reason = describe_failure(cause)
        self.entry = f"{name}: {'broken' if reason in BROKEN else reason}"
        self.fault = unreadable_fault(name, cause)


@frozen(kw_only=True, eq=False)
class _Photo:
    """The information extracted from a photo's file.

    Attributes:
        tensor: The picture as input for the classifier, or None if there is no classifier.
        metadata: The information in the file apart from the picture.
        unscored_parts: A description of any additional pictures and videos in the file, or an empty string if there are
            none.
        thumbnail: A small JPEG of the picture.
        digest: The SHA-256 checksum of the file, in hexadecimal.
    """

    tensor: Any
    metadata: Metadata
    unscored_parts: str
    thumbnail: bytes
    digest: str


def _list_entries(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the photos in a folder, sorted by name regardless of case, and the names of all other entries.

    Raises:
        InputError: The folder contains no photos, or a photo's name is not valid UTF-8.
    """
    # The second part of the key orders names that differ only in case.
    entries = sorted(folder.iterdir(), key=lambda path: (path.name.lower(), path.name))
    suffixes = (*SUFFIXES, *HEIF) if can_read_heif() else SUFFIXES
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
    """Return a file name with each byte that is not valid UTF-8 replaced by a backslash escape."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _describe_unscored_parts(photo: Image.Image, contents: bytes) -> str:
    """Describe the additional pictures and videos in a photo's file, which are not scored.

    Some phones append a video to a photo ("motion photo"). If the file contains only one picture and no video, the
    description is an empty string.

    Args:
        photo: The photo, opened with Pillow.
        contents: The contents of the photo's file.
    """
    parts = []
    picture_count = int(getattr(photo, "n_frames", 1))
    if picture_count > 1:
        parts.append(f"picture 2 of {picture_count}" if picture_count == 2 else f"pictures 2 to {picture_count}")
    has_mark = any(mark in text for text in (contents, *texts_of(photo)) for mark in FILM_MARKS)
    # A HEIC file itself begins like a film, so the search starts after its first 12 bytes.
    if has_mark or FILM.search(contents, 12):
        parts.append("the film inside")
    return " and ".join(parts)


def _read(path: Path, model: Classifier | None, edge: int, max_megapixels: float) -> _Photo:
    """Read a photo's file, including its metadata, a thumbnail and the picture prepared for the classifier.

    Args:
        path: The path of the file.
        model: The classifier to prepare the picture for, or None if there is no classifier.
        edge: The maximum length of the thumbnail's longer side, in pixels.
        max_megapixels: The largest accepted size of the photo, in megapixels.

    Raises:
        _UnreadableError: The picture or its metadata cannot be read.
    """
    name = path.name
    try:
        contents = path.read_bytes()
        with open_photo(contents, max_megapixels) as photo:
            photo.load()
            try:
                # Loading the Exif raises an error if it is broken. Pillow ignores this when it opens a JPEG.
                Image.Exif().load(photo.info.get("exif", b""))
                metadata = read_metadata(name, photo, contents)
                unscored_parts = _describe_unscored_parts(photo, contents)
            except Exception:  # Pillow's parsers may raise any exception on malformed bytes
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
    """Return the contents of a JPEG thumbnail whose longer side is at most ``edge`` pixels long."""
    thumbnail = upright.copy()
    thumbnail.thumbnail((edge, edge))
    buffer = io.BytesIO()
    thumbnail.save(buffer, "JPEG", quality=72)
    return buffer.getvalue()


def look_at_folder(
    folder: Path, model: Classifier | None = None, max_megapixels: float = MAX_MEGAPIXELS
) -> tuple[FolderContents, list[Any]]:
    """Read all photos in a folder, listing those that cannot be read as left out.

    Args:
        folder: The folder with the photos of one album.
        model: The classifier to prepare pictures for. If None, no pictures are prepared.
        max_megapixels: The largest accepted size of a photo, in megapixels. Larger photos are left out.

    Returns:
        The contents of the folder, and a list with the prepared picture of each photo that was read. If there is no
        classifier, the list contains None for each photo.

    Raises:
        InputError: The folder contains no photos, none of them can be read, or a photo's name is not valid UTF-8.
    """
    files, left_out = _list_entries(folder)
    # The length of a thumbnail's longer side, in pixels. It is smaller if there are more photos, so that all thumbnails
    # together take about 2 MB.
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
    # Photos that could not be read were appended at the end, so the list must be sorted again.
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
    """Return the scores of N image files over M places, as an array of shape (N, M).

    Args:
        paths: The files, such as clean copies of photos.
        model: The classifier that computes the scores.

    Raises:
        InputError: A file cannot be read, or the model does not accept the pictures.
    """
    tensors = []
    for path in paths:
        # The size is not limited here, because the photos themselves were within the limit.
        with readable(path.name), open_photo(path.read_bytes(), math.inf) as photo:
            tensors.append(model.tensor(photo))
    return model.scores(tensors)


def find_album_place(points: Sequence[Point | None], model: Classifier, folder: str) -> int | None:
    """Return the index of the place where most photos with a GPS position were taken.

    Each position is assigned to the place with the nearest centre. Returns None if no photo has a position.

    Args:
        points: The latitude and longitude of each photo in degrees, or None for a photo without a GPS position.
        model: The classifier, which provides the centres of the places.
        folder: The name of the folder, for error messages.

    Raises:
        InputError: No place accounts for more than half of the photos with a GPS position.
    """
    counts_by_column = Counter(model.locate(*point) for point in points if point is not None)
    if not counts_by_column:
        return None
    column, count = counts_by_column.most_common(1)[0]
    if 2 * count <= counts_by_column.total():
        actual = f"photos in {len(counts_by_column)} cells, none with more than half of them"
        raise InputError([Fault(folder, "GPS", actual, "photos of one place, or photos.true_location")])
    return column
