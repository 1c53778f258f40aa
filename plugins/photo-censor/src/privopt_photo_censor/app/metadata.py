"""Read what photos reveal apart from their pictures: position, time, camera, serial number, thumbnail, name."""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen
from PIL import ExifTags, Image

from privopt_photo_censor.app.clean import MOMENT
from privopt_photo_censor.app.positions import carries_position, gps

__all__ = ["Metadata", "Point", "read_metadata"]

Point = tuple[float, float]
"""Latitude and longitude, degrees."""

LONGEST: Final = 80
"""Characters that are taken of a text in a photo's file."""
TAKEN: Final = (ExifTags.Base.DateTimeOriginal, ExifTags.Base.DateTimeDigitized, ExifTags.Base.DateTime)
SERIALS: Final = (ExifTags.Base.BodySerialNumber, ExifTags.Base.LensSerialNumber, ExifTags.Base.CameraOwnerName)
"""Fields that name one camera, or its owner."""


@frozen(kw_only=True)
class Metadata:
    """What a photo's file reveals apart from its picture.

    Attributes:
        photo: its name.
        point: the position in its Exif; None without a usable one.
        place: whether it reveals a position or a place in any form (:func:`positions.carries_position`).
        taken: when, as Exif writes it (``2008:10:22 16:28:39``); empty where it says nothing.
        camera: maker and model.
        serial: serial numbers of body and lens, and the owner's name.
        thumbnail: whether it holds a small picture, which may show what was cut off.
    """

    photo: str
    point: Point | None = None
    place: bool = False
    taken: str = ""
    camera: str = ""
    serial: str = ""
    thumbnail: bool = False

    @property
    def day(self) -> str:
        """The date alone; empty where it is not known."""
        return self.taken[:10]


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
    return Metadata(
        photo=name,
        point=gps(photo),
        place=carries_position(photo, contents),
        taken=next((moment for moment in moments if MOMENT.fullmatch(moment)), ""),
        camera=camera,
        serial=", ".join(filter(None, (_text(detail.get(tag)) for tag in SERIALS))),
        thumbnail=bool(exif.get_ifd(ExifTags.IFD.IFD1)),
    )


def _text(value: Any) -> str:
    """Return a field as one short line."""
    return " ".join(str(value or "").replace("\0", " ").split())[:LONGEST]
