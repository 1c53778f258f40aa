"""Guess where photos without a position were taken, offline: from other photos, and from what their names say."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.numbers.distances import haversine
from privopt_photo_censor.app.metadata import Metadata, Point
from privopt_photo_censor.app.naming import CAMERA

__all__ = ["Guess", "guesses", "kilometres", "named_cities"]

PAIR: Final = re.compile(r"(?<![\d.])(-?\d{1,2}\.\d{2,})[^\d.-]{1,3}(-?\d{1,3}\.\d{2,})(?![\d.])")
"""Latitude and longitude as decimals, in a name."""
SIDES: Final = re.compile(r"(?<![A-Za-z\d])([NS])(\d{1,2}(?:\.\d+)?)[ _,;-]{0,3}([EW])(\d{1,3}(?:\.\d+)?)(?![\d.])")
"""The same with their hemispheres before them."""
ALIKE_KM: Final = 50.0
"""Photos that share a word speak of one place where their positions are no farther apart."""
SHORTEST: Final = 4
"""Letters of a word that may be a place's name: shorter ones are everywhere."""
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

    These are tried in order: coordinates in a photo's name; the photo nearest in time, of the same day and camera. Then
    follow a word of its name that photos with a position share, if these are within 50 km, and the name of a city of
    the time zones in it.

    Returns:
        Guesses by photo; photos with a position, and those without any hint, are absent.
    """
    known = [photo for photo in album if photo.point is not None]
    words: dict[str, list[Metadata]] = defaultdict(list)
    for photo in known:
        for word in _words(photo.photo):
            words[word].append(photo)
    found: dict[str, Guess] = {}
    for photo in album:
        if photo.point is None:
            guess = (
                _in_name(photo.photo) or _same_day(photo, known) or _shared(photo.photo, words) or _city(photo.photo)
            )
            if guess is not None:
                found[photo.photo] = guess
    return found


def kilometres(one: Point, others: Sequence[Point]) -> Floats:
    """Return (n,) great-circle distances from a point to others, km."""
    return np.asarray(haversine(np.array(one), np.array(others)))


def _in_name(name: str) -> Guess | None:
    stem = PurePosixPath(name).stem
    pair, sides = PAIR.search(stem), SIDES.search(stem)
    if sides is not None:
        point = float(sides[2]) * (1 if sides[1] == "N" else -1), float(sides[4]) * (1 if sides[3] == "E" else -1)
    elif pair is not None:
        point = float(pair[1]), float(pair[2])
    else:
        return None
    good = abs(point[0]) <= 90.0 and abs(point[1]) <= 180.0
    return Guess(point=point, km=None, source="coordinates in its name") if good else None


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


def _words(name: str) -> set[str]:
    """Words of a photo's path that may be places' names: not what a camera writes."""
    path = PurePosixPath(name)
    parts = [part for part in (*path.parts[:-1], path.stem) if not CAMERA.fullmatch(part)]
    return {word for part in parts for word in re.findall(r"[^\W\d_]+", part.casefold()) if len(word) >= SHORTEST}


def _shared(name: str, words: Mapping[str, Sequence[Metadata]]) -> Guess | None:
    for word in sorted(_words(name) & words.keys()):
        points = [photo.point for photo in words[word] if photo.point is not None]
        far = float(kilometres(points[0], points).max())
        if far <= ALIKE_KM:
            source = f"“{word}” in its name, as in {len(points)} photo{'s' * (len(points) > 1)} with a position"
            return Guess(point=points[0], km=far, source=source)
    return None


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
            if len(label) >= SHORTEST:
                found[label.casefold()] = label, (_degrees(match[1], 2), _degrees(match[2], 3))
    return found


def _degrees(text: str, whole: int) -> float:
    """``+DDMM`` or ``+DDMMSS`` in degrees; longitudes have three digits of them."""
    digits = text[1:]
    minutes, seconds = int(digits[whole : whole + 2]), int(digits[whole + 2 :] or 0)
    return (-1.0 if text[0] == "-" else 1.0) * (int(digits[:whole]) + minutes / 60.0 + seconds / 3600.0)
