"""Read what photos reveal apart from their pictures: position, time, camera, serial number, thumbnail and texts.

:class:`Metadata` is a photo's row in metadata.csv. :class:`FolderContents` is what a folder of photos contains.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from attrs import field, frozen
from PIL import ExifTags, Image

from privopt_photo_censor.app.naming import COORDINATES
from privopt_photo_censor.app.positions import carries_position, gps
from privopt_photo_censor.app.texts import list_texts

__all__ = ["FolderContents", "Metadata", "Point", "read_metadata"]

Point = tuple[float, float]
"""Latitude and longitude in degrees."""

LONGEST_TEXT: Final = 80
"""Maximum number of characters that are read from a short field."""
MOMENT: Final = re.compile(r"\d{4}:\d\d:\d\d \d\d:\d\d:\d\d", re.ASCII)
"""A time in Exif format. Anything else in such a field is ignored."""
# The first field that contains a time counts: the time of exposure, then that of a scan, then that of the last change.
TAKEN: Final = (ExifTags.Base.DateTimeOriginal, ExifTags.Base.DateTimeDigitized, ExifTags.Base.DateTime)
SERIALS: Final = (ExifTags.Base.BodySerialNumber, ExifTags.Base.LensSerialNumber, ExifTags.Base.CameraOwnerName)
"""Fields that identify a camera, a lens or the camera's owner."""


def _nan_to_none(degrees: float | None) -> float | None:
    """Return a number of degrees unchanged, and None for None or for NaN, which stands for an empty cell in a table."""
    return None if degrees is None or math.isnan(degrees) else degrees


@frozen(kw_only=True)
class Metadata:
    """Everything that a photo's file reveals apart from its picture.

    Attributes:
        photo: Name of the photo.
        latitude, longitude: The position in the Exif data, in degrees. None if there is no usable position.
        place: Whether the file reveals a position or a place in any form (:func:`positions.carries_position`).
        taken: When the photo was taken, in Exif format (``2008:10:22 16:28:39``). Empty if the file does not state a
            time.
        camera: The make and model of the camera.
        serial: The serial numbers of the camera and lens, and the owner's name.
        thumbnail: Whether the file contains a thumbnail, which may show what was cropped from the picture.
        texts: The texts in the file (captions, comments, keywords, names), each after the name of its field.
        unread: Other data in the file that are not read, such as a maker note or a film, each with its size.
    """

    photo: str
    latitude: float | None = field(default=None, converter=_nan_to_none)
    longitude: float | None = field(default=None, converter=_nan_to_none)
    place: bool = field(default=False, converter=bool)
    taken: str = ""
    camera: str = ""
    serial: str = ""
    thumbnail: bool = field(default=False, converter=bool)
    texts: str = ""
    unread: str = ""

    @property
    def point(self) -> Point | None:
        """Latitude and longitude, or None if they are not known."""
        return None if self.latitude is None or self.longitude is None else (self.latitude, self.longitude)

    @property
    def day(self) -> str:
        """The date without the time. Empty if it is not known."""
        return self.taken[:10]


@frozen(kw_only=True, eq=False)
class FolderContents:
    """The contents of a folder of photos, apart from the scored pictures.

    Attributes:
        metadata: What each photo reveals apart from its picture.
        left_out: What was not examined and is therefore not covered by the guarantee: files of other formats,
            subfolders (whose names end in ``/``), and further pictures or films inside a photo's file.
        thumbnails: Small upright JPEGs of the photos without metadata, at most about 2 MB in total.
        digests: SHA-256 of the files when they were read. Empty for a release that was read from files.
    """

    metadata: tuple[Metadata, ...]
    left_out: tuple[str, ...] = ()
    thumbnails: tuple[bytes, ...] = field(default=(), repr=False)
    digests: tuple[str, ...] = field(default=(), repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """File names of the photos."""
        return tuple(photo.photo for photo in self.metadata)

    @property
    def photos_with_position(self) -> tuple[str, ...]:
        """Names of the photos whose files reveal a position or a place in any form."""
        return tuple(photo.photo for photo in self.metadata if photo.place)

    @property
    def photos_with_texts(self) -> tuple[str, ...]:
        """Names of the photos whose files contain texts, which may name a place."""
        return tuple(photo.photo for photo in self.metadata if photo.texts)


def read_metadata(name: str, photo: Image.Image, contents: bytes) -> Metadata:
    """Read what a photo's file reveals apart from its picture, as a row of metadata.csv.

    Args:
        name: Name of the photo.
        photo: The opened photo.
        contents: The bytes of the photo's file.
    """
    exif = photo.getexif()
    detail = exif.get_ifd(ExifTags.IFD.Exif)
    # These fields belong in the Exif directory, but some programs write them to the main directory.
    moments = (_to_line(detail.get(tag, exif.get(tag))) for tag in TAKEN)
    camera = " ".join(filter(None, (_to_line(exif.get(tag)) for tag in (ExifTags.Base.Make, ExifTags.Base.Model))))
    latitude, longitude = gps(photo) or (None, None)
    texts = list_texts(photo, contents)
    # A caption may state coordinates that no parser of positions looks for.
    has_coordinates = any(COORDINATES.search(text.value) for text in texts)
    return Metadata(
        photo=name,
        latitude=latitude,
        longitude=longitude,
        place=carries_position(photo, contents) or has_coordinates,
        taken=next((moment for moment in moments if MOMENT.fullmatch(moment)), ""),
        camera=camera,
        serial=", ".join(filter(None, (_to_line(detail.get(tag)) for tag in SERIALS))),
        thumbnail=bool(exif.get_ifd(ExifTags.IFD.IFD1)),
        texts=" | ".join(str(text) for text in texts if text.is_read),
        unread=" | ".join(str(text) for text in texts if not text.is_read),
    )


def _to_line(value: Any) -> str:
    """Return the value of an Exif field as a line of at most :data:`LONGEST_TEXT` characters, empty without a value."""
    return " ".join(str(value or "").replace("\0", " ").split())[:LONGEST_TEXT]
