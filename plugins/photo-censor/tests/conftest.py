from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import pytest
from attrs import frozen

from privopt_photo_censor.album import Album, Task


@frozen(eq=False)
class Truth:
    """The protected k of every set of photos, from Fractions of the doubles; nothing of the plugin's own rank.

    The Fractions of one album are brought to one denominator, so that sums of sets are sums of integers.
    """

    album: Album
    above: list[int]  # by bit mask of the kept photos

    @classmethod
    def of(cls, album: Album) -> Truth:
        alternates = [j for j in range(album.locations) if j != album.true]
        finite = np.where(np.isneginf(album.scores), 0.0, album.scores)
        exact = [[Fraction(v) for v in row] for row in finite.tolist()]
        theta = Fraction(album.margin)
        terms = [[row[j] - row[album.true] - theta for j in alternates] for row in exact]
        unit = lcm(*(t.denominator for row in terms for t in row))
        integer_terms = [[int(t * unit) for t in row] for row in terms]
        dead = [[bool(np.isneginf(album.scores[i, j])) for j in alternates] for i in range(album.photos)]
        hidden = [bool(np.isneginf(album.scores[i, album.true])) for i in range(album.photos)]
        zeros = [0] * len(alternates)
        sums, ruled, is_excluded = [zeros], [[False] * len(alternates)], [False]
        protected_counts = [len(alternates)]
        for mask in range(1, 1 << album.photos):
            i = mask.bit_length() - 1
            smaller_set = mask ^ (1 << i)
            sums.append([a + b for a, b in zip(sums[smaller_set], integer_terms[i], strict=True)])
            ruled.append([a or b for a, b in zip(ruled[smaller_set], dead[i], strict=True)])
            is_excluded.append(is_excluded[smaller_set] or hidden[i])
            able = sum(s >= 0 and not r for s, r in zip(sums[mask], ruled[mask], strict=True))
            protected_counts.append(len(alternates) if is_excluded[mask] else able)
        return cls(album, protected_counts)

    def of_set(self, is_kept: Any) -> int:
        return self.above[sum(1 << i for i in np.flatnonzero(is_kept).tolist())]

    def best(self, task: Task) -> int | None:
        """Fewest deletions, or highest protected k; None where nothing will do."""
        photos = self.album.photos
        fixed = sum(1 << i for i in np.flatnonzero(self.album.keep).tolist())
        min_kept = self.album.keep_at_least
        if task.budget is not None:
            min_kept = max(min_kept, photos - task.budget)
        allowed_sets = [m for m in range(1 << photos) if m & fixed == fixed and m.bit_count() >= min_kept]
        if task.budget is not None:
            return max(self.above[m] for m in allowed_sets)
        deletion_counts = [photos - m.bit_count() for m in allowed_sets if self.above[m] >= (task.top_k or 1)]
        return min(deletion_counts, default=None)


@pytest.fixture(scope="session")
def truth() -> Callable[[Album], Truth]:
    return Truth.of


@pytest.fixture(scope="session")
def draw_album() -> Callable[..., Album]:
    def draw(rng: Any, max_photos: int = 12) -> Album:
        """Return a small album: ties, -inf scores, kept photos, margins, all of them sometimes."""
        photos, locations = int(rng.integers(1, max_photos + 1)), int(rng.integers(2, 9))
        kind = rng.integers(4)
        if kind == 0:
            scores = np.log(rng.dirichlet(np.full(locations, 0.7), photos))
        elif kind == 1:  # many exact ties
            scores = rng.integers(-3, 1, (photos, locations)).astype(float)
        elif kind == 2:  # ties of decimals that doubles do not make
            scores = np.round(rng.normal(-2, 1, (photos, locations)), 1)
        else:
            scores = np.log(rng.dirichlet(np.full(locations, 2.0), photos))
        true = int(rng.integers(locations))
        scores[:, true] += rng.choice([0.0, 0.5, 1.0])
        if rng.random() < 0.4:
            scores[rng.random(scores.shape) < 0.1] = -np.inf
            if rng.random() < 0.7:
                hidden = np.isneginf(scores[:, true])
                scores[hidden, true] = -1.0
        is_required = rng.random(photos) < rng.choice([0.0, 0.0, 0.2])
        margin = float(rng.choice([0.0, 0.0, 0.1, 0.5]))
        return Album(scores=scores, true=true, keep=is_required, keep_at_least=int(rng.integers(2)), margin=margin)

    return draw


@pytest.fixture(scope="session")
def draw_exposed() -> Callable[..., Album]:
    def draw(rng: Any, photos: int, locations: int = 24, **album_options: Any) -> Album:
        """Return an album whose place is found: noise about one location and its neighbours."""
        true = int(rng.integers(locations))
        distance_weights = np.exp(-np.abs(np.arange(locations) - true) / 2.0)
        scores = rng.normal(0, 1, (photos, locations)) + rng.exponential(1.0, (photos, 1)) * distance_weights
        scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return Album(scores=scores, true=true, **album_options)

    return draw
