"""Clean copies of photos: the scored picture, encoded again, and nothing else of its file.

Nothing that a file carries apart from its pixels (position, time, thumbnail, comments, further pictures, films after
its end) can pass, since none of its bytes are taken: the picture that was scored, flattened, is encoded again. What
encoding changes of it is seen by scoring the copies.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from PIL import ExifTags, Image

from privopt.errors import CertificationError, Fault, InputError, UsageError
from privopt_photo_censor.album import Copy
from privopt_photo_censor.app.naming import copy_names
from privopt_photo_censor.app.opening import opened, readable
from privopt_photo_censor.app.picture import flattened
from privopt_photo_censor.app.positions import carries_position, gps, written_gps

__all__ = ["clean", "clean_copies", "metadata_of"]

FORMATS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    ".jpg": ("JPEG", {"quality": 95, "subsampling": 0}),
    ".jpeg": ("JPEG", {"quality": 95, "subsampling": 0}),
    ".png": ("PNG", {}),
    ".webp": ("WEBP", {"quality": 95}),
    ".tif": ("TIFF", {"compression": "tiff_adobe_deflate"}),
    ".tiff": ("TIFF", {"compression": "tiff_adobe_deflate"}),
    ".bmp": ("BMP", {}),
    ".gif": ("GIF", {}),
    ".avif": ("AVIF", {"quality": 90}),
}
CARRIERS: Final = ("JPEG", "PNG", "WEBP", "AVIF")
"""Formats whose copies can keep what is wished for; the others keep nothing."""
TIMES: Final = (
    ExifTags.Base.DateTime,
    ExifTags.Base.DateTimeOriginal,
    ExifTags.Base.DateTimeDigitized,
    ExifTags.Base.OffsetTimeOriginal,
)
MOMENT: Final = re.compile(r"\d{4}:\d\d:\d\d \d\d:\d\d:\d\d", re.ASCII)
"""A time as EXIF writes it; whatever else is in such a field is not a time."""


def clean(contents: bytes, suffix: str, wishes: Collection[str] = ()) -> bytes:
    """Return a photo's first picture encoded again, without any metadata but those wished for.

    Args:
        contents: the photo's file.
        suffix: of the copy, one of :data:`FORMATS`.
        wishes: ``"position"`` keeps latitude and longitude, written again; ``"time"`` date and time of EXIF, without
            their zone.

    Raises:
        CertificationError: what came out carries more than was asked for.
        Exception: of any class, as :func:`privopt_photo_censor.app.opening.opened` raises them: it is not a photo.
    """
    kind, options = FORMATS[suffix]
    with opened(contents) as photo:
        exif = _wished(photo, wishes)
        plain = flattened(photo)
    out = io.BytesIO()
    if exif is not None and kind in CARRIERS:
        options = {**options, "exif": exif.tobytes()}  # an Exif of nothing but a position passes for empty
    plain.save(out, kind, **options)
    with opened(out.getvalue()) as copy:
        carried = {"position"} if carries_position(copy, out.getvalue()) else set()
        more = (metadata_of(copy) | carried) - set(wishes)
    if more:
        raise CertificationError(f"a copy in {kind} still carries {', '.join(sorted(more))}; nothing written")
    return out.getvalue()


def _wished(photo: Image.Image, wishes: Collection[str]) -> Image.Exif | None:
    """EXIF of a photo, cut down to what was wished for and is of its form; None where there is nothing of it."""
    before, after = photo.getexif(), Image.Exif()
    place: dict[int, Any] = {}
    times: dict[int, Any] = {}
    first: dict[int, Any] = {}
    if "position" in wishes and (point := gps(photo)) is not None:
        place = written_gps(*point)
    if "time" in wishes:
        detail = before.get_ifd(ExifTags.IFD.Exif)
        times = {tag: detail[tag] for tag in TIMES if MOMENT.fullmatch(str(detail.get(tag)))}
        first = {tag: before[tag] for tag in TIMES[:1] if MOMENT.fullmatch(str(before.get(tag)))}
    if not (place or times or first):
        return None
    if place:
        after.get_ifd(ExifTags.IFD.GPSInfo).update(place)
    if times:
        after.get_ifd(ExifTags.IFD.Exif).update(times)
    after.update(first)
    return after


def metadata_of(photo: Image.Image) -> set[str]:
    """Return what a file contains apart from its picture, in words: position, time, thumbnail, and the like."""
    exif = photo.getexif()
    found = set()
    if exif.get_ifd(ExifTags.IFD.GPSInfo):
        found.add("position")
    detail = exif.get_ifd(ExifTags.IFD.Exif)
    if any(tag in exif or tag in detail for tag in TIMES):
        found.add("time")
    if exif.get_ifd(ExifTags.IFD.IFD1):
        found.add("thumbnail")
    if set(detail) - set(TIMES) or exif.get(ExifTags.Base.Make) or exif.get(ExifTags.Base.Model):
        found.add("camera")
    found |= {key for key in ("xmp", "comment", "icc_profile", "photoshop", "mp") if photo.info.get(key)}
    return found


def clean_copies(
    root: Path,
    photos: Sequence[tuple[str, str]],
    into: Path,
    wishes: Collection[str] = (),
    *,
    album: Collection[str] = (),
) -> tuple[Copy, ...]:
    """Write clean copies of photos into a folder, by names that reveal nothing; those of HEIC files are JPEGs.

    Args:
        root: folder of the photos.
        photos: their paths in it, and the SHA-256 that their files had when they were scored.
        into: an empty folder.
        wishes: see :func:`clean`.
        album: names of all its photos, which no copy takes (:func:`privopt_photo_censor.app.naming.copy_names`).

    Raises:
        InputError: a photo changed since it was scored.
        UsageError: the copies would lie among the photos.
    """
    if root.resolve() in into.resolve().parents:
        raise UsageError(f"--copy-to: lies in the folder of the photos, {root}; name a folder elsewhere")
    names = copy_names([name for name, _ in photos], album)
    made = []
    for (name, digest), called in zip(photos, names, strict=True):
        contents = (root / name).read_bytes()
        if hashlib.sha256(contents).hexdigest() != digest:
            raise InputError([Fault(name, "", "a photo that changed while its album was solved", "the photo scored")])
        with readable(name, "copied"):
            copy = clean(contents, PurePosixPath(called).suffix.lower(), wishes)
        into.mkdir(parents=True, exist_ok=True)
        (into / called).write_bytes(copy)
        made.append(Copy(photo=name, name=called, sha256=hashlib.sha256(copy).hexdigest()))
    return tuple(made)
