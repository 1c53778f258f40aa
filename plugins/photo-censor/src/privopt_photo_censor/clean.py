"""Clean copies of photos: the picture that was scored, encoded anew, and nothing else of its file.

Whatever a file carries beside its pixels (position, time, thumbnail, comments, further pictures, films after its end)
cannot pass, since none of its bytes are taken: pixels are decoded, turned upright, brought to sRGB, and encoded.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from PIL import ExifTags, Image, ImageCms, ImageOps

from privopt.errors import CertificationError, Fault, InputError, UsageError
from privopt_photo_censor.folder import HEIF, UNREADABLE, opened
from privopt_photo_censor.scores import Copy

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


def clean(contents: bytes, suffix: str, wishes: Collection[str] = ()) -> bytes:
    """A photo's first picture encoded anew, without any metadata but those wished for.

    Args:
        contents: the photo's file.
        suffix: of the copy, one of :data:`FORMATS`.
        wishes: ``"position"`` keeps latitude and longitude, ``"time"`` the times of EXIF.

    Raises:
        CertificationError: what came out carries more than was asked for.
        One of :data:`privopt_photo_censor.folder.UNREADABLE`: it is no photo.
    """
    kind, options = FORMATS[suffix]
    with opened(contents) as photo:
        exif = _wished(photo, wishes)
        upright = _srgb(ImageOps.exif_transpose(photo))
    plain = Image.new("RGB", upright.size)
    plain.paste(upright)
    out = io.BytesIO()
    if exif is not None and kind in CARRIERS:
        options = {**options, "exif": exif}
    plain.save(out, kind, **options)
    with opened(out.getvalue()) as copy:
        more = metadata_of(copy) - set(wishes)
    if more:
        raise CertificationError(f"a copy in {kind} still carries {', '.join(sorted(more))}; nothing written")
    return out.getvalue()


def _wished(photo: Image.Image, wishes: Collection[str]) -> Image.Exif | None:
    """EXIF of a photo, cut down to what was wished for."""
    if not wishes:
        return None
    before, after = photo.getexif(), Image.Exif()
    if "position" in wishes:
        place = before.get_ifd(ExifTags.IFD.GPSInfo)
        wanted = (ExifTags.GPS.GPSLatitude, ExifTags.GPS.GPSLongitude)
        kept = {tag: place[tag] for base in wanted for tag in (base - 1, base) if tag in place}
        if kept:
            after.get_ifd(ExifTags.IFD.GPSInfo).update(kept)
    if "time" in wishes:
        detail = before.get_ifd(ExifTags.IFD.Exif)
        kept = {tag: detail[tag] for tag in TIMES if tag in detail}
        if kept:
            after.get_ifd(ExifTags.IFD.Exif).update(kept)
        if ExifTags.Base.DateTime in before:
            after[ExifTags.Base.DateTime] = before[ExifTags.Base.DateTime]
    return after


def _srgb(photo: Image.Image) -> Image.Image:
    """RGB pixels; colours of another profile as sRGB has them, since a copy carries no profile."""
    profile = photo.info.get("icc_profile")
    if profile and photo.mode in ("RGB", "CMYK", "L"):
        try:
            source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            changed = ImageCms.profileToProfile(photo, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
        except (ImageCms.PyCMSError, OSError):  # a profile that does not fit its picture: most programs ignore it too
            return photo.convert("RGB")
        if changed is not None:
            return changed
    return photo.convert("RGB")


def metadata_of(photo: Image.Image) -> set[str]:
    """What a file carries beside its picture, in words: position, time, thumbnail, and what else there is."""
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
    root: Path, photos: Sequence[tuple[str, str]], into: Path, wishes: Collection[str] = ()
) -> tuple[Copy, ...]:
    """Write clean copies of photos into a folder, by the same names; those of HEIC files are JPEGs.

    Args:
        root: folder of the photos.
        photos: their paths in it, and the SHA-256 that their files had when they were scored.
        into: an empty folder.
        wishes: see :func:`clean`.

    Raises:
        InputError: a photo changed since it was scored.
        UsageError: the copies would lie among the photos.
    """
    if root.resolve() in into.resolve().parents:
        raise UsageError(f"--copy-to: lies in the folder of the photos, {root}; name a folder elsewhere")
    taken = {name.lower() for name, _ in photos}
    made = []
    for name, digest in photos:
        contents = (root / name).read_bytes()
        if hashlib.sha256(contents).hexdigest() != digest:
            raise InputError([Fault(name, "", "a photo that changed while its album was solved", "the photo scored")])
        called = name
        if PurePosixPath(name).suffix.lower() in HEIF:
            called = next(c for c in _jpeg_names(name) if c.lower() not in taken)
            taken.add(called.lower())
        try:
            copy = clean(contents, PurePosixPath(called).suffix.lower(), wishes)
        except UNREADABLE as error:
            raise InputError([Fault(name, "", f"a photo that cannot be copied ({error})", "a photo")]) from None
        path = into / called
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(copy)
        made.append(Copy(photo=name, name=called, sha256=hashlib.sha256(copy).hexdigest()))
    return tuple(made)


def _jpeg_names(name: str) -> Iterator[str]:
    """``a.jpg`` for ``a.heic``, then ``a-2.jpg`` and so on."""
    stem = name[: -len(PurePosixPath(name).suffix)]
    yield f"{stem}.jpg"
    number = 2
    while True:
        yield f"{stem}-{number}.jpg"
        number += 1
