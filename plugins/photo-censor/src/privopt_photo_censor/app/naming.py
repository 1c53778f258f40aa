"""Detect file names that reveal a date, coordinates or a place."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

__all__ = ["COORDINATES", "describe_revelation", "find_revealing_names"]

DATE: Final = re.compile(
    r"(?<!\d)((19|20)\d\d([-_. ]?)(0[1-9]|1[0-2])\3(0[1-9]|[12]\d|3[01])"
    r"((?!\d{3})|(?=([01]\d|2[0-3])[0-5]\d([0-5]\d(\d{3})?)?(?!\d)))"
    r"|(0?[1-9]|[12]\d|3[01])[-_. ](0?[1-9]|1[0-2])[-_. ](19|20)\d\d(?!\d))"
)
"""A pattern for a date that begins with the year or the day.

A date that begins with the year may be followed directly by at most two more digits, such as an hour, or by
the digits of a time down to minutes, seconds or milliseconds. No digit may follow a date that begins with the day."""
COORDINATES: Final = re.compile(
    r"\d{1,3}[.°º]\d{2,}\D{1,4}\d{1,3}[.°º]\d{2,}"
    r"|(?<![A-Za-z\d])[NS]\d{1,2}(?!\d{3}).{0,20}[EW]\d{1,3}|\d[NS][\W_]?\d.{0,20}\d[EW](?![A-Za-z])"
    r"|(?<![A-Za-z])lat.*lon"
)
"""A pattern for a latitude and a longitude.

It matches two decimal numbers, numbers with letters for the hemispheres, and the words lat and lon.
"""


def describe_revelation(name: str, places: Collection[str] = ()) -> str | None:
    """Return what a photo's name reveals: "a date", "coordinates" or "a place".

    Returns None if the name reveals nothing.

    Args:
        name: The photo's name.
        places: The names of places to look for in the photo's name.

    >>> names = ["IMG_20190801.jpg", "43.4674,11.8851.jpg", "rome_2.jpg", "pool.jpg"]
    >>> [describe_revelation(name, ["Rome"]) for name in names]
    ['a date', 'coordinates', 'a place', None]
    """
    if DATE.search(name):
        return "a date"
    if COORDINATES.search(name):
        return "coordinates"
    # With blanks at both ends, only whole words match: Rome is found in rome_2.jpg but not in Jerome.jpg.
    words = f" {_normalize_words(name)} "
    normalized_places = filter(None, map(_normalize_words, places))
    return "a place" if any(f" {place} " in words for place in normalized_places) else None


def find_revealing_names(names: Sequence[str], places: Collection[str] = ()) -> dict[str, str]:
    """Return a dict that maps each revealing name to what it reveals ("a date", "coordinates" or "a place").

    Args:
        names: The names of the photos.
        places: The names of places to look for in the names of the photos.
    """
    return {name: reason for name in names if (reason := describe_revelation(name, places)) is not None}


def _normalize_words(text: str) -> str:
    """Convert a string to lower case, with digits and punctuation removed and words separated by single spaces."""
    return " ".join(re.findall(r"[^\W\d_]+", text.casefold()))
