"""An album as a classifier scores it: scores, the true location, and the photos that the owner will not delete.

The notation is that of Yang, Chakrabarti and Vorobeychik (AAAI 2020): ``S_ij`` is the log-probability of location j for
photo i, t the true location, and theta the margin. :class:`Alternates` is the form of the album for the solvers, with a
row for each location except the true one.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from privopt.arrays import Bools, Floats, doubles, read_only, truths

__all__ = ["Album", "Alternates", "Copy", "Task", "conjugate_carry", "describe_place", "shorten_list"]


def conjugate_carry(count: int) -> str:
    """Return "carries" for one thing, and "carry" for several or none."""
    return "carries" if count == 1 else "carry"


def shorten_list(names: Sequence[str], limit: int = 5) -> str:
    """Join the first few names in a list, and state how many more there are.

    >>> shorten_list(["a.jpg", "b.jpg", "c.jpg"], 2)
    'a.jpg, b.jpg and 1 more'
    """
    hidden_count = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {hidden_count} more" if hidden_count > 0 else "")


@frozen(kw_only=True)
class Task:
    """The requirement that the kept photos must meet (paper, (3) and (4)). Exactly one of the two attributes is set.

    Attributes:
        top_k: The true location must not be among the k most likely locations, with as few deletions as possible. None
            for a budget.
        budget: As many locations as possible must rank at or above the true one, with at most this number of deletions.
            None for a top-k.
    """

    top_k: int | None = None
    budget: int | None = None

    def __attrs_post_init__(self) -> None:
        """Check that exactly one of the two tasks is given, and raise ValueError otherwise."""
        if (self.top_k is None) == (self.budget is None):
            raise ValueError("a task is either a top-k or a deletion budget")


def describe_place(names: Sequence[str], column: int) -> str:
    """Describe a place by the index of its column and, if it has one, its name.

    ``names`` are the places' names in column order. There may be fewer names than columns, and names may be empty.

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
        sha256: SHA-256 digest of the copy's file.
    """

    photo: str
    name: str
    sha256: str


@frozen(kw_only=True, eq=False)
class Album:
    """The scores of the photos in one album, all taken at one place.

    Attributes:
        scores: (N, M) The log-probabilities log P(location | photo), finite or -inf. Adding a constant to a photo's row
            has no effect.
        true: Column of the true location.
        keep: (N,) True for photos that are never deleted.
        keep_at_least: Number of photos that must remain.
        margin: The margin theta, which is added to the true location's score for each photo (paper, section 2,
            black-box protection).
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
        """Check that the shapes match and that every score is finite or -inf, and raise ValueError otherwise."""
        photos, locations = self.scores.shape
        if not 0 <= self.true < locations or self.keep.shape != (photos,):
            raise ValueError(f"true location {self.true}, keep of shape {self.keep.shape} for {self.scores.shape}")
        # -inf is allowed, because it stands for a probability of 0.
        if np.isnan(self.scores).any() or (self.scores == np.inf).any():
            raise ValueError("scores are finite or -inf")

    @property
    def photos(self) -> int:
        """The number N of photos."""
        return int(self.scores.shape[0])

    @property
    def locations(self) -> int:
        """The number M of locations, including the true one."""
        return int(self.scores.shape[1])

    @property
    def required_count(self) -> int:
        """Minimum number of photos that must remain: ``keep_at_least``, or more if ``keep`` names more photos."""
        return max(self.keep_at_least, int(self.keep.sum()))

    @cached_property
    def rules_out_true(self) -> bool:
        """Whether some photo gives the true location probability 0.

        Any set that contains such a photo protects every location, because it puts the true location in the last rank.
        """
        return bool(np.isneginf(self.scores[:, self.true]).any())

    @cached_property
    def alternates(self) -> Alternates:
        """The album in the form that the solvers use. All scores of the true location must be finite."""
        return Alternates.of(self)


@frozen(kw_only=True, eq=False)
class Alternates:
    """An album with finite true scores, with one row for each alternate (a location other than the true one).

    Attributes:
        location: (m,) The column of each alternate in the album.
        scores: (m, N) The scores, with 0 in place of -inf.
        true: (N,) The scores of the true location.
        margin: The margin theta.
        diff: (m, N) The differences scores - true - theta in doubles, with 0 in place of -inf. A difference is positive
            if the photo favours the alternate over the true location.
        kills: (m, N) Whether the score is -inf. Such a photo rules the location out if it is retained.
        size: (m,) The largest |score| in the row, plus the largest |true|, plus |theta|, which is the scale of rounding
            errors.
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
        """Make the arrays from an album whose true scores are all finite."""
        location = np.delete(np.arange(album.locations), album.true)
        raw = np.ascontiguousarray(album.scores[:, location].T)
        true = np.ascontiguousarray(album.scores[:, album.true])
        kills = np.isneginf(raw)
        # -inf is recorded separately in `kills`, because sums and products with it would be NaN.
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
        """(m,) A bound on the rounding error of a row's sum over ``diff``, for any set of retained photos."""
        n = self.diff.shape[1]
        # Each difference is rounded twice, and a sum of n terms is rounded n - 1 more times. Partial sums are at most n
        # * size. The factor 4 is a safety margin.
        return np.asarray(4.0 * np.finfo(np.float64).eps * n * (n + 2) * self.size)

    def gain(self, row: int, photo: int) -> Fraction:
        """Return ``S_ij - S_it - theta`` exactly: how much a photo favours alternate ``row`` over the true one."""
        return Fraction(self.scores[row, photo]) - Fraction(self.true[photo]) - Fraction(self.margin)

    def sums(self, retained: Bools) -> Floats:
        """Return the sums (m,) of ``diff`` over the photos in the mask ``retained`` (N,), in doubles.

        A location that a retained photo rules out has the sum -inf.
        """
        total = self.diff[:, retained].sum(axis=1)
        return np.where(self.kills[:, retained].any(axis=1), -np.inf, total)
