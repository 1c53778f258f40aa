"""An album as a classifier sees it: scores, the true location, and the photos that its owner will not delete.

The notation is that of Yang, Chakrabarti and Vorobeychik (AAAI 2020): ``S_ij`` is the log-probability of location j for
photo i, t the true location, and theta the margin. :class:`Alternates` is the same album for the solvers, with a row
for each location but the true one.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from privopt.arrays import Bools, Floats, doubles, read_only, truths

__all__ = ["Album", "Alternates", "Copy", "Task", "describe_place", "shorten_list"]


def shorten_list(names: Sequence[str], limit: int = 5) -> str:
    """Join the first few names of a list, and say how many more it has.

    >>> shorten_list(["a.jpg", "b.jpg", "c.jpg"], 2)
    'a.jpg, b.jpg and 1 more'
    """
    hidden_count = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {hidden_count} more" if hidden_count > 0 else "")


@frozen(kw_only=True)
class Task:
    """The task for a set of kept photos (paper, (3) and (4)).

    Attributes:
        top_k: The true location must not be among the k most likely ones, with as few deletions as possible; or None.
        budget: As many locations as possible must be at or above the true one, with at most this number of deletions.
    """

    top_k: int | None = None
    budget: int | None = None

    def __attrs_post_init__(self) -> None:
        if (self.top_k is None) == (self.budget is None):
            raise ValueError("a task is either a top-k or a deletion budget")


def describe_place(names: Sequence[str], column: int) -> str:
    """Describe a place by its name, if it has one, and its column.

    >>> describe_place(["Rome", ""], 0), describe_place(["Rome", ""], 1)
    ('Rome (place 0)', 'place 1')
    """
    name = names[column] if column < len(names) else ""
    return f"{name} (place {column})" if name else f"place {column}"


@frozen(kw_only=True)
class Copy:
    """A clean copy of a photo.

    Attributes:
        photo: Name of the photo.
        name: File name of the copy.
        sha256: Digest of the copy's file.
    """

    photo: str
    name: str
    sha256: str


@frozen(kw_only=True, eq=False)
class Album:
    """Scores of the photos of one album, taken at one place.

    Attributes:
        scores: (N, M) log P(location | photo), finite or -inf. A constant added to a photo's row changes nothing.
        true: Column of the true location.
        keep: (N,) True for photos that are never deleted.
        keep_at_least: Number of photos that must remain.
        margin: theta, added to the true location's score in each photo (paper, section 2, black-box protection).
    """

    scores: Floats = field(converter=doubles)
    true: int
    keep: Bools = field(converter=truths)
    keep_at_least: int = 1
    margin: float = 0.0

    @keep.default
    def _default_keep(self) -> Bools:
        return np.zeros(self.scores.shape[0], dtype=np.bool_)

    def __attrs_post_init__(self) -> None:
        photos, locations = self.scores.shape
        if not 0 <= self.true < locations or self.keep.shape != (photos,):
            raise ValueError(f"true location {self.true}, keep of shape {self.keep.shape} for {self.scores.shape}")
        if np.isnan(self.scores).any() or (self.scores == np.inf).any():
            raise ValueError("scores are finite or -inf")

    @property
    def photos(self) -> int:
        """N."""
        return int(self.scores.shape[0])

    @property
    def locations(self) -> int:
        """M, the true one included."""
        return int(self.scores.shape[1])

    @property
    def required_count(self) -> int:
        """Least number of photos that remain."""
        return max(self.keep_at_least, int(self.keep.sum()))

    @cached_property
    def rules_out_true(self) -> bool:
        """Whether some photo gives the true location probability 0. Any set with it protects all others (P6)."""
        return bool(np.isneginf(self.scores[:, self.true]).any())

    @cached_property
    def alternates(self) -> Alternates:
        """The album for the solvers. Only if all scores of the true location are finite."""
        return Alternates.of(self)


@frozen(kw_only=True, eq=False)
class Alternates:
    """An album with finite true scores, with one row for each alternate, that is each location but the true one.

    Attributes:
        location: (m,) column of each alternate in the album.
        scores: (m, N) scores, with 0 in place of -inf.
        true: (N,) scores of the true location.
        margin: theta.
        diff: (m, N) scores - true - theta in doubles, with 0 in place of -inf.
        kills: (m, N) True if the score is -inf, so that the photo, if it is retained, rules the location out.
        size: (m,) largest |score| + |true| + |theta| of the row, which is the scale of its rounding errors.
        keep: (N,) True for photos that are never deleted.
    """

    location: NDArray[np.int64]
    scores: Floats
    true: Floats
    margin: float
    diff: Floats
    kills: Bools
    size: Floats
    keep: Bools

    @classmethod
    def of(cls, album: Album) -> Alternates:
        """Reduce an album whose true scores are finite."""
        location = np.delete(np.arange(album.locations), album.true)
        raw = np.ascontiguousarray(album.scores[:, location].T)
        true = np.ascontiguousarray(album.scores[:, album.true])
        kills = np.isneginf(raw)
        scores = np.where(kills, 0.0, raw)
        diff = np.where(kills, 0.0, scores - true - album.margin)
        size = np.abs(scores).max(axis=1, initial=0.0) + np.abs(true).max(initial=0.0) + abs(album.margin)
        return cls(
            location=read_only(location),
            scores=read_only(scores),
            true=read_only(true),
            margin=album.margin,
            diff=read_only(diff),
            kills=read_only(kills),
            size=read_only(size),
            keep=album.keep,
        )

    @property
    def slack(self) -> Floats:
        """(m,) bound on the error of a sum of a row's differences in doubles, for any set of retained photos."""
        n = self.diff.shape[1]
        # Each difference takes two roundings, and a sum of n terms n - 1 more; partial sums are at most n * size.
        # The factor 4 is a reserve.
        return np.asarray(4.0 * np.finfo(np.float64).eps * n * (n + 2) * self.size)

    def gain(self, row: int, photo: int) -> Fraction:
        """Return ``S_ij - S_it - theta`` of one alternate and photo, exactly."""
        return Fraction(self.scores[row, photo]) - Fraction(self.true[photo]) - Fraction(self.margin)

    def sums(self, retained: Bools) -> Floats:
        """Return (m,) sums of the differences over the retained photos, in doubles; -inf for locations ruled out."""
        total = self.diff[:, retained].sum(axis=1)
        return np.where(self.kills[:, retained].any(axis=1), -np.inf, total)
