"""The data of an album: a classifier's scores, the true location, and the photos that must be kept.

The notation follows Yang, Chakrabarti and Vorobeychik (AAAI 2020). ``S_ij``, a log-probability, is photo i's score for
location j. ``t`` is the true location, and ``theta`` is the margin, which is added to each photo's score for the true
location. The solvers work on :class:`Alternates`, which has one row for each location except the true one.
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
    """Return "carries" if ``count`` is 1, and "carry" otherwise."""
    return "carries" if count == 1 else "carry"


def shorten_list(names: Sequence[str], limit: int = 5) -> str:
    """Join at most ``limit`` names with commas, and state how many more there are.

    >>> shorten_list(["a.jpg", "b.jpg", "c.jpg"], 2)
    'a.jpg, b.jpg and 1 more'
    """
    hidden_count = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {hidden_count} more" if hidden_count > 0 else "")


@frozen(kw_only=True)
class Task:
    """The optimisation task: either a top-k task or a budget task (AAAI 2020, Equations (3) and (4)).

    A location is protected if it ranks at or above the true one. A top-k task deletes as few photos as possible so that
    the true location is not among the k most likely ones. A budget task protects as many locations as possible.

    Attributes:
        top_k: The number k in a top-k task, or None in a budget task.
        budget: The maximum number of deletions in a budget task, or None in a top-k task.
    """

    top_k: int | None = None
    budget: int | None = None

    def __attrs_post_init__(self) -> None:
        """Check that exactly one of ``top_k`` and ``budget`` is set.

        Raises:
            ValueError: Neither or both are set.
        """
        if (self.top_k is None) == (self.budget is None):
            raise ValueError("a task is either a top-k or a deletion budget")


def describe_place(names: Sequence[str], column: int) -> str:
    """Describe a place by its column and, if it has one, its name.

    Args:
        names: The names of the places in column order. Trailing names may be missing, and a name may be empty.
        column: The column of the place.

    >>> describe_place(["Rome", ""], 0), describe_place(["Rome", ""], 1)
    ('Rome (place 0)', 'place 1')
    """
    name = names[column] if column < len(names) else ""
    return f"{name} (place {column})" if name else f"place {column}"


@frozen(kw_only=True)
class Copy:
    """A clean copy of a photo, which contains the picture but no metadata.

    Attributes:
        photo: The name of the photo.
        name: The file name of the copy.
        sha256: The SHA-256 checksum of the copy's file, in hexadecimal.
    """

    photo: str
    name: str
    sha256: str


@frozen(kw_only=True, eq=False)
class Album:
    """The scores of N photos, all taken at one place, over M locations.

    Attributes:
        scores: Array of shape (N, M) with the log-probabilities log P(location | photo), which are finite or -inf.
            Adding a constant to a photo's row has no effect.
        true: The column of the true location.
        keep: Boolean array of shape (N,) indicating which photos must not be deleted.
        keep_at_least: The minimum number of photos that must remain.
        margin: The margin theta, which is added to the true location's score for each photo (AAAI 2020, section 2,
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
        """Check the shapes and the scores.

        Raises:
            ValueError: The shapes do not match, the true location is not a column, or a score is neither finite nor
                -inf.
        """
        photos, locations = self.scores.shape
        if not 0 <= self.true < locations or self.keep.shape != (photos,):
            raise ValueError(f"true location {self.true}, keep of shape {self.keep.shape} for {self.scores.shape}")
        # -inf is allowed because it is the logarithm of a probability of 0.
        if np.isnan(self.scores).any() or (self.scores == np.inf).any():
            raise ValueError("scores are finite or -inf")

    @property
    def photos(self) -> int:
        """The number of photos, N."""
        return int(self.scores.shape[0])

    @property
    def locations(self) -> int:
        """The number of locations, M, including the true one."""
        return int(self.scores.shape[1])

    @property
    def required_count(self) -> int:
        """The minimum number of photos that must remain, given both ``keep_at_least`` and ``keep``."""
        return max(self.keep_at_least, int(self.keep.sum()))

    @cached_property
    def rules_out_true(self) -> bool:
        """Whether any photo assigns probability 0 to the true location.

        If such a photo is posted, the true location ranks last, so every other location is protected.
        """
        return bool(np.isneginf(self.scores[:, self.true]).any())

    @cached_property
    def alternates(self) -> Alternates:
        """The scores in the layout used by the solvers.

        All scores of the true location must be finite.
        """
        return Alternates.of(self)


@frozen(kw_only=True, eq=False)
class Alternates:
    """The scores of an album's N photos for the m alternates, which are the locations other than the true one.

    All scores of the true location must be finite.

    Attributes:
        location: Array of shape (m,) with the column of each alternate in the album.
        scores: Array of shape (m, N) with the scores, where -inf is replaced by 0.
        true: Array of shape (N,) with the scores of the true location.
        margin: The margin theta, which is added to the true location's score for each photo.
        diff: Array of shape (m, N) with the differences ``scores - true - margin`` in doubles, or 0 where the score is
            -inf. A positive difference means that the photo favours the alternate over the true location.
        kills: Boolean array of shape (m, N) indicating whether the score is -inf. If a photo with such a score is
            retained, it rules out the alternate.
        size: Array of shape (m,) with a magnitude for bounding rounding errors: the largest absolute score in each row,
            plus the largest absolute value in ``true``, plus the absolute value of the margin.
        keep: Boolean array of shape (N,) indicating which photos must not be deleted.
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
        """Build the arrays from an album in which all scores of the true location are finite."""
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
        """Upper bounds on the rounding errors in the results of :meth:`sums`, as an array of shape (m,).

        The bounds hold for any set of retained photos.
        """
        n = self.diff.shape[1]
        # Each difference is rounded twice, and a sum of n terms is rounded n - 1 more times. Partial sums are at most n
        # * size. The factor 4 is a safety margin.
        return np.asarray(4.0 * np.finfo(np.float64).eps * n * (n + 2) * self.size)

    def gain(self, row: int, photo: int) -> Fraction:
        """Return the exact amount by which a photo favours an alternate over the true location.

        This is the photo's score for the alternate, minus both its score for the true location and the margin. A score
        of -inf is treated as 0.
        """
        return Fraction(self.scores[row, photo]) - Fraction(self.true[photo]) - Fraction(self.margin)

    def sums(self, retained: Bools) -> Floats:
        """Return the sum of each row of ``diff`` over the retained photos in doubles, as an array of shape (m,).

        The sum is -inf for each alternate ruled out by a retained photo.

        Args:
            retained: Boolean array of shape (N,) indicating whether each photo is retained.
        """
        total = self.diff[:, retained].sum(axis=1)
        return np.where(self.kills[:, retained].any(axis=1), -np.inf, total)
