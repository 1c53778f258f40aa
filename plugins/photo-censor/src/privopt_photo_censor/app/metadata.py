"""Read what photos reveal apart from their pictures: position, time, camera, serial number, thumbnail, name."""

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
"""Latitude and longitude, degrees."""

LONGEST_TEXT: Final = 80
"""Characters that are taken of a text in a photo's file."""
MOMENT: Final = re.compile(r"\d{4}:\d\d:\d\d \d\d:\d\d:\d\d", re.ASCII)
"""A time as EXIF writes it; whatever else is in such a field is not a time."""
TAKEN: Final = (ExifTags.Base.DateTimeOriginal, ExifTags.Base.DateTimeDigitized, ExifTags.Base.DateTime)
SERIALS: Final = (ExifTags.Base.BodySerialNumber, ExifTags.Base.LensSerialNumber, ExifTags.Base.CameraOwnerName)
"""Fields that name one camera, or its owner."""


def _known(degrees: float | None) -> float | None:
    """Return degrees; None for NaN, which an empty cell of a table is."""
    return None if degrees is None or math.isnan(degrees) else degrees


@frozen(kw_only=True)
class Metadata:
    """What a photo's file reveals apart from its picture.

    Attributes:
        photo: its name.
        latitude, longitude: the position in its Exif, degrees; None without a usable one.
        place: whether it reveals a position or a place in any form (:func:`positions.carries_position`).
        taken: when, as Exif writes it (``2008:10:22 16:28:39``); empty where it says nothing.
        camera: maker and model.
        serial: serial numbers of body and lens, and the owner's name.
        thumbnail: whether it holds a small picture, which may show what was cut off.
        texts: the texts that it carries (captions, comments, keywords, names), each behind the name of its field.
        unread: what else it carries and no one reads (a maker note, a film), each with its size.
    """

    photo: str
    latitude: float | None = field(default=None, converter=_known)
    longitude: float | None = field(default=None, converter=_known)
    place: bool = field(default=False, converter=bool)
    taken: str = ""
    camera: str = ""
    serial: str = ""
    thumbnail: bool = field(default=False, converter=bool)
    texts: str = ""
    unread: str = ""

    @property
    def point(self) -> Point | None:
        """Latitude and longitude, if known."""
        return None if self.latitude is None or self.longitude is None else (self.latitude, self.longitude)

    @property
    def day(self) -> str:
        """The date alone; empty where it is not known."""
        return self.taken[:10]


@frozen(kw_only=True, eq=False)
class FolderContents:
    """What is seen in a folder of photos.

    Attributes:
        metadata: what each photo reveals apart from its picture, by name.
        left_out: what was not looked at, so that nothing is promised of it: files of other formats, subfolders (their
            names end in ``/``), and further pictures or films inside a photo's file.
        thumbnails: small upright JPEGs of the photos without any of their metadata, about 2 MB in all at most.
        digests: SHA-256 of the files, as they were read; none of a release that was read back.
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
    def positioned(self) -> tuple[str, ...]:
        """Photos whose files reveal a position or a place in any way."""
        return tuple(photo.photo for photo in self.metadata if photo.place)

    @property
    def captioned(self) -> tuple[str, ...]:
        """Photos whose files carry texts, which may name a place."""
        return tuple(photo.photo for photo in self.metadata if photo.texts)


def read_metadata(name: str, photo: Image.Image, contents: bytes) -> Metadata:
    """Read what a photo's file reveals.

    Args:
        name: of the photo.
        photo: opened.
        contents: its file.
    """
    exif = photo.getexif()
    detail = exif.get_ifd(ExifTags.IFD.Exif)
    moments = (_text(detail.get(tag, exif.get(tag))) for tag in TAKEN)
    camera = " ".join(filter(None, (_text(exif.get(tag)) for tag in (ExifTags.Base.Make, ExifTags.Base.Model))))
    latitude, longitude = gps(photo) or (None, None)
    texts = list_texts(photo, contents)
    has_coordinates = any(COORDINATES.search(text.value) for text in texts)
    return Metadata(
        photo=name,
        latitude=latitude,
        longitude=longitude,
        place=carries_position(photo, contents) or has_coordinates,
        taken=next((moment for moment in moments if MOMENT.fullmatch(moment)), ""),
        camera=camera,
        serial=", ".join(filter(None, (_text(detail.get(tag)) for tag in SERIALS))),
        thumbnail=bool(exif.get_ifd(ExifTags.IFD.IFD1)),
        texts=" | ".join(str(text) for text in texts if text.is_read),
        unread=" | ".join(str(text) for text in texts if not text.is_read),
    )


def _text(value: Any) -> str:
    """Return a field as one short line."""
    return " ".join(str(value or "").replace("\0", " ").split())[:LONGEST_TEXT]
