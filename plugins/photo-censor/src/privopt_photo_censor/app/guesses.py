"""Guess where photos without a position were taken, offline: from other photos, or from a city in their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.numbers.distances import haversine
from privopt_photo_censor.app.metadata import Metadata, Point

__all__ = ["Guess", "guesses", "kilometres", "named_cities"]

SHORTEST_NAME: Final = 4
"""Letters of a city's name: shorter words are everywhere."""
TABLE: Final = "zoneinfo/zone.tab"
"""Of the package tzdata: some 400 cities of the world and their positions, degrees and minutes."""
CITY: Final = re.compile(r"[A-Z]{2}\t([+-]\d{4,6})([+-]\d{5,7})\t(\S+)")


@frozen(kw_only=True)
class Guess:
    """Where a photo may have been taken.

    Attributes:
        point: latitude and longitude, degrees.
        km: how far off the photos are that it comes from, at most; None where it comes from a name alone.
        source: what it comes from, in words.
    """

    point: Point
    km: float | None
    source: str


def guesses(album: Sequence[Metadata]) -> dict[str, Guess]:
    """Guess the places of photos without a position of their own.

    A photo takes the place of the one nearest in time, of the same day and camera. Otherwise its name may contain the
    name of a city of the time zones.

    Returns:
        Guesses by photo; photos with a position, and those without any hint, are absent.
    """
    known = [photo for photo in album if photo.point is not None]
    found = ((photo.photo, _same_day(photo, known) or _city(photo.photo)) for photo in album if photo.point is None)
    return {name: guess for name, guess in found if guess is not None}


def kilometres(one: Point, others: Sequence[Point]) -> Floats:
    """Return (n,) great-circle distances from a point to others, km."""
    return np.asarray(haversine(np.array(one), np.array(others)))


def _same_day(photo: Metadata, known: Sequence[Metadata]) -> Guess | None:
    """Return the position of the photo nearest in time, of the same day and camera."""
    alike = [other for other in known if photo.day and (other.day, other.camera) == (photo.day, photo.camera)]
    if not alike:
        return None
    moment = _moment(photo.taken)
    nearest = min(alike, key=lambda other: abs((_moment(other.taken) - moment).total_seconds()))
    assert nearest.point is not None  # all that are known have one
    far = kilometres(nearest.point, [other.point for other in alike if other.point is not None])
    camera = f"and camera ({photo.camera})" if photo.camera else "(no camera named)"
    others = f"{len(alike)} photo{'s' * (len(alike) > 1)} with a position"
    source = f"same day {camera} as {others}; {nearest.photo} is nearest in time"
    return Guess(point=nearest.point, km=float(far.max()), source=source)


def _moment(taken: str) -> datetime:
    """Return when a photo was taken; an invalid time (hour 24, month 0) counts as the first moment there is."""
    try:
        return datetime.strptime(taken, "%Y:%m:%d %H:%M:%S")
    except ValueError:
        return datetime.min


def _city(name: str) -> Guess | None:
    words = " ".join(re.findall(r"[^\W\d_]+", name.casefold()))
    for city, (label, point) in named_cities().items():
        if f" {city} " in f" {words} ":
            return Guess(point=point, km=None, source=f"{label} in its name")
    return None


@cache
def named_cities() -> dict[str, tuple[str, Point]]:
    """Return the cities that time zones are named after: label and position by name in lower case."""
    found = {}
    for line in files("tzdata").joinpath(TABLE).read_text("utf-8").splitlines():
        match = CITY.match(line)
        if match is not None:
            label = match[3].rpartition("/")[2].replace("_", " ")
            if len(label) >= SHORTEST_NAME:
                found[label.casefold()] = label, (_degrees(match[1], 2), _degrees(match[2], 3))
    return found


def _degrees(text: str, whole: int) -> float:
    """``+DDMM`` or ``+DDMMSS`` in degrees; longitudes have three digits of them."""
    digits = text[1:]
    minutes, seconds = int(digits[whole : whole + 2]), int(digits[whole + 2 :] or 0)
    return (-1.0 if text[0] == "-" else 1.0) * (int(digits[:whole]) + minutes / 60.0 + seconds / 3600.0)
