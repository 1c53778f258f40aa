"""Guess where photos without a position were taken, from photos taken with the same camera on the same day."""

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
    """A guess of where a photo was taken, based on photos taken with the same camera on the same day.

    Attributes:
        point: The latitude and longitude in degrees.
        km: The largest distance between this point and any of those photos, in km.
        source: A phrase that explains what the guess is based on.
    """

    point: Point
    km: float
    source: str


def guesses(album: Sequence[Metadata]) -> dict[str, Guess]:
    """Guess the positions of photos that have none.

    Each guess is the position of the photo nearest in time among those taken with the same camera on the same day.

    Args:
        album: The metadata of all photos.

    Returns:
        A dict from photo names to guesses. A photo is omitted if its position is known or cannot be guessed.
    """
    positioned = [photo for photo in album if photo.point is not None]
    candidates = ((photo.photo, _guess_place(photo, positioned)) for photo in album if photo.point is None)
    return {name: guess for name, guess in candidates if guess is not None}


def _guess_place(photo: Metadata, positioned: Sequence[Metadata]) -> Guess | None:
    """Guess the position of a photo as described in :func:`guesses`.

    Returns None if the date of the photo is unknown, or if no photo with a position was taken with the same camera on
    that day.

    Args:
        photo: The metadata of the photo without a position.
        positioned: The metadata of all photos with a position.
    """
    # Only photos taken on a known date can be compared.
    similar = [
        candidate
        for candidate in positioned
        if photo.day and (candidate.day, candidate.camera) == (photo.day, photo.camera)
    ]
    if not similar:
        return None
    moment = _parse_time(photo.taken)
    nearest = min(similar, key=lambda candidate: abs((_parse_time(candidate.taken) - moment).total_seconds()))
    assert nearest.point is not None  # all candidates have a position
    # The largest distance to the similar photos shows how far off the guess may be.
    distances = haversine(np.array(nearest.point), np.array([candidate.point for candidate in similar]))
    camera = f"and camera ({photo.camera})" if photo.camera else "(no camera named)"
    count = f"{len(similar)} photo{'s' * (len(similar) > 1)} with a position"
    source = f"same day {camera} as {count}; {nearest.photo} is nearest in time"
    return Guess(point=nearest.point, km=float(distances.max()), source=source)


def _parse_time(taken: str) -> datetime:
    """Parse a time in Exif format, returning ``datetime.min`` if it is invalid, for example because the hour is 24."""
    try:
        return datetime.strptime(taken, "%Y:%m:%d %H:%M:%S")
    except ValueError:
        return datetime.min
