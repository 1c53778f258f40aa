"""Read what photo files reveal apart from the pictures: position, time, camera, serial number, thumbnail and texts.

:class:`Metadata` holds this information for one photo, and corresponds to a row of metadata.csv.
:class:`FolderContents` describes a folder of photos.
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
"""A latitude and a longitude in degrees."""

LONGEST_TEXT: Final = 80
"""The maximum length of a short field. Any further characters are cut off."""
MOMENT: Final = re.compile(r"\d{4}:\d\d:\d\d \d\d:\d\d:\d\d", re.ASCII)
"""A pattern for a time in Exif format. A time field with any other value is ignored."""
# The first of these fields that contains a time is used: the time of exposure, of a scan, or of the last change.
TAKEN: Final = (ExifTags.Base.DateTimeOriginal, ExifTags.Base.DateTimeDigitized, ExifTags.Base.DateTime)
SERIALS: Final = (ExifTags.Base.BodySerialNumber, ExifTags.Base.LensSerialNumber, ExifTags.Base.CameraOwnerName)
"""The Exif fields that identify a camera, a lens or the camera's owner."""


def _nan_to_none(degrees: float | None) -> float | None:
    """Convert NaN, which represents an empty table cell, to None, and return any other value unchanged."""
    return None if degrees is None or math.isnan(degrees) else degrees


@frozen(kw_only=True)
class Metadata:
    """The information in a photo's file apart from its picture.

    Attributes:
        photo: The name of the photo.
        latitude, longitude: The position in the Exif data in degrees, or None if there is no usable position.
        place: Whether the file reveals a position or a place in any form.
        taken: The time at which the photo was taken, in Exif format (``2008:10:22 16:28:39``), or an empty string if it
            is unknown.
        camera: The make and model of the camera.
        serial: The serial numbers of the camera and lens, and the owner's name.
        thumbnail: Whether the file contains a thumbnail, which may show parts that were cropped out of the picture.
        texts: The texts in the file (captions, comments, keywords, names), each preceded by the name of its field.
        unread: A description of any data in the file that could not be read, such as a maker note or a video, including
            its size.
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
        """The latitude and longitude in degrees, or None if they are unknown."""
        return None if self.latitude is None or self.longitude is None else (self.latitude, self.longitude)

    @property
    def day(self) -> str:
        """The date on which the photo was taken, or an empty string if it is unknown."""
        return self.taken[:10]


@frozen(kw_only=True, eq=False)
class FolderContents:
    """The contents of a folder of photos, apart from the scored pictures.

    Attributes:
        metadata: The information in each photo's file apart from its picture.
        left_out: Descriptions of what was not examined and is not covered by the guarantee: files in other formats,
            photos that cannot be read, subfolders (whose names end in ``/``), and additional pictures or videos in a
            photo's file.
        thumbnails: A small upright JPEG of each photo, without metadata. If there are many photos, the thumbnails are
            smaller, to limit their total size.
        digests: The SHA-256 checksum of each photo's file at the time it was read. Empty if the contents were read from
            a release.
    """

    metadata: tuple[Metadata, ...]
    left_out: tuple[str, ...] = ()
    thumbnails: tuple[bytes, ...] = field(default=(), repr=False)
    digests: tuple[str, ...] = field(default=(), repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The file names of the photos."""
        return tuple(photo.photo for photo in self.metadata)

    @property
    def photos_with_position(self) -> tuple[str, ...]:
        """The names of the photos whose files reveal a position or a place in any form."""
        return tuple(photo.photo for photo in self.metadata if photo.place)

    @property
    def photos_with_texts(self) -> tuple[str, ...]:
        """The names of the photos whose files contain texts, which may name a place."""
        return tuple(photo.photo for photo in self.metadata if photo.texts)


def read_metadata(name: str, photo: Image.Image, contents: bytes) -> Metadata:
    """Read the information in a photo's file apart from its picture.

    Args:
        name: The name of the photo.
        photo: The photo, opened with Pillow.
        contents: The contents of the photo's file.
    """
    exif = photo.getexif()
    detail = exif.get_ifd(ExifTags.IFD.Exif)
    # These fields belong in the Exif directory, but some programs write them to the main directory.
    moments = (_to_line(detail.get(tag, exif.get(tag))) for tag in TAKEN)
    camera = " ".join(filter(None, (_to_line(exif.get(tag)) for tag in (ExifTags.Base.Make, ExifTags.Base.Model))))
    latitude, longitude = gps(photo) or (None, None)
    texts = list_texts(photo, contents)
    # A caption may contain coordinates, which `carries_position` may not look for.
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
    """Format an Exif field's value as a single line of at most :data:`LONGEST_TEXT` characters, cutting off the rest.

    The result is empty if the field has no value.
    """
    return " ".join(str(value or "").replace("\0", " ").split())[:LONGEST_TEXT]
