"""Guess where photos without a position were taken, offline: from the other photos of the day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np
from attrs import frozen

from privopt.numbers.distances import haversine
from privopt_photo_censor.app.metadata import Metadata, Point

__all__ = ["Guess", "guesses"]


@frozen(kw_only=True)
class Guess:
    """Where a photo may have been taken.

    Attributes:
        point: latitude and longitude, degrees.
        km: how far off the photos are that it comes from, at most.
        source: what it comes from, in words.
    """

    point: Point
    km: float
    source: str


def guesses(album: Sequence[Metadata]) -> dict[str, Guess]:
    """Guess the places of photos without a position of their own: that of the photo nearest in time.

    It must be of the same day and camera.

    Returns:
        Guesses by photo; photos with a position, and those without any hint, are absent.
    """
    known = [photo for photo in album if photo.point is not None]
    found = ((photo.photo, _same_day(photo, known)) for photo in album if photo.point is None)
    return {name: guess for name, guess in found if guess is not None}


def _same_day(photo: Metadata, known: Sequence[Metadata]) -> Guess | None:
    """Return the position of the photo nearest in time, of the same day and camera."""
    alike = [other for other in known if photo.day and (other.day, other.camera) == (photo.day, photo.camera)]
    if not alike:
        return None
    moment = _moment(photo.taken)
    nearest = min(alike, key=lambda other: abs((_moment(other.taken) - moment).total_seconds()))
    assert nearest.point is not None  # all that are known have one
    far = haversine(np.array(nearest.point), np.array([other.point for other in alike]))
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
