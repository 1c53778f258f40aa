from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from privopt_photo_censor.scores import Album, Task


def _protected(album: Album, kept: tuple[int, ...]) -> int:
    """Protected k by Fractions of the doubles; nothing of the plugin's own rank."""
    if not kept:
        return album.locations - 1
    if any(np.isneginf(album.scores[i, album.true]) for i in kept):
        return album.locations - 1
    count = 0
    for j in range(album.locations):
        if j == album.true or any(np.isneginf(album.scores[i, j]) for i in kept):
            continue
        terms = [Fraction(album.scores[i, j]) - Fraction(album.scores[i, album.true]) for i in kept]
        count += sum(terms) - len(kept) * Fraction(album.margin) >= 0
    return count


def _best(album: Album, task: Task) -> int | None:
    """Fewest deletions, or highest protected k; None where nothing will do."""
    photos = range(album.photos)
    fixed = set(np.flatnonzero(album.keep).tolist())
    if task.top_k is not None:
        for count in range(album.photos, album.keep_at_least - 1, -1):
            for kept in combinations(photos, count):
                if fixed <= set(kept) and _protected(album, kept) >= task.top_k:
                    return album.photos - count
        return None
    assert task.budget is not None
    least = max(album.photos - task.budget, album.keep_at_least)
    return max(
        _protected(album, kept)
        for count in range(least, album.photos + 1)
        for kept in combinations(photos, count)
        if fixed <= set(kept)
    )


@pytest.fixture(scope="session")
def brute_protected() -> Callable[[Album, tuple[int, ...]], int]:
    return _protected


@pytest.fixture(scope="session")
def brute_best() -> Callable[[Album, Task], int | None]:
    return _best


@pytest.fixture(scope="session")
def draw_album() -> Callable[..., Album]:
    def draw(rng: Any, most: int = 8) -> Album:
        """A small album: ties, -inf scores, kept photos, margins, all of them sometimes."""
        photos, locations = int(rng.integers(1, most + 1)), int(rng.integers(2, 9))
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
        keep = rng.random(photos) < rng.choice([0.0, 0.0, 0.2])
        margin = float(rng.choice([0.0, 0.0, 0.1, 0.5, -0.3]))
        return Album(scores=scores, true=true, keep=keep, keep_at_least=int(rng.integers(2)), margin=margin)

    return draw
