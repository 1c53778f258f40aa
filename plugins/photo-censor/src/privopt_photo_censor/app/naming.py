"""Name clean copies so that their names reveal neither a place nor a time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath
from typing import Final

from privopt_photo_censor.app.opening import HEIF

__all__ = ["copy_names", "revealed"]

CAMERA: Final = re.compile(
    r"(_?(DSC|IMG|MG|MVI)|DSCN|DSCF|DJI|IMGP|IMG_E|CIMG|PICT|SAM|HPIM|IMAG|GOPR)[_-]?\d{1,5}",
    re.IGNORECASE | re.ASCII,
)
"""Names by a camera's counter, which tell nothing; a word may be a place, and a number or a letter with one half of a
position."""
DATE: Final = re.compile(
    r"(?<!\d)((19|20)\d\d([-_. ]?)(0[1-9]|1[0-2])\3(0[1-9]|[12]\d|3[01])(?!\d{3})"
    r"|(0?[1-9]|[12]\d|3[01])[-_. ](0?[1-9]|1[0-2])[-_. ](19|20)\d\d(?!\d))"
)
"""A date, year first or day first; digits of an hour may follow."""
COORDINATES: Final = re.compile(
    r"\d{1,3}[.°º]\d{2,}\D{1,4}\d{1,3}[.°º]\d{2,}"
    r"|(?<![A-Za-z\d])[NS]\d{1,2}(?!\d{3}).{0,20}[EW]\d{1,3}|\d[NS][\W_]?\d.{0,20}\d[EW](?![A-Za-z])"
    r"|(?<![A-Za-z])lat.*lon"
)
"""Latitude and longitude: two decimals, numbers with their hemispheres, or the words."""


def revealed(name: str, places: Collection[str] = ()) -> str | None:
    """Return what a photo's path reveals: "a date", "coordinates" or "a place" (of those named); else None.

    >>> [revealed(name, ["Rome"]) for name in ("IMG_20190801.jpg", "43.4674,11.8851.jpg", "rome_2.jpg", "pool.jpg")]
    ['a date', 'coordinates', 'a place', None]
    """
    if DATE.search(name):
        return "a date"
    if COORDINATES.search(name):
        return "coordinates"
    words = f" {_words(name)} "
    return "a place" if any(f" {_words(place)} " in words for place in places if _words(place)) else None


def _words(text: str) -> str:
    return " ".join(re.findall(r"[^\W\d_]+", text.casefold()))


def copy_names(names: Iterable[str], album: Collection[str] = ()) -> list[str]:
    """Return the names of the clean copies of photos.

    A name stays if it is one that a camera gives. One with a folder, a date, coordinates or a word, which may be that
    of a place, becomes ``photo-0001.jpg`` and so on. No copy takes the name of another photo of the album.

    >>> copy_names(["DSCN0010.jpg", "IMG_20190801.PNG", "Arezzo/a.jpg", "IMG_1.HEIC"])
    ['DSCN0010.jpg', 'photo-0001.png', 'photo-0002.jpg', 'IMG_1.jpg']
    """
    names = list(names)
    taken = {name.lower() for name in (*album, *names)}
    made = []
    number = 0
    for name in names:
        path = PurePosixPath(name)
        suffix = ".jpg" if path.suffix.lower() in HEIF else path.suffix
        called = f"{path.stem}{suffix}"
        if "/" in name or not CAMERA.fullmatch(path.stem) or (called != name and called.lower() in taken):
            called = name
            while called.lower() in taken:
                number += 1
                called = f"photo-{number:04d}{suffix.lower()}"
        taken.add(called.lower())
        made.append(called)
    return made
