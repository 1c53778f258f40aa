"""Which secrets must be alike, and how often an outcome of some probability may come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from privopt.testing.under_trial import Run, Subject

T = TypeVar("T", bound=Hashable)

CONFIDENCE: Final = 1 - 1e-7
"""Of one statistical verdict: a right mechanism is blamed once in ten million tries, or less."""


class Alike(NamedTuple):
    """Secrets that must be alike.

    Attributes:
        names: ids of the secrets; of a matrix in the order of its rows.
        pairs: (P, 2) their numbers.
        distances: (P,) how far apart they are; 1 between neighbours that have no distance.
    """

    names: list[str]
    pairs: NDArray[np.int64]
    distances: NDArray[np.float64]


def required(subject: Subject, run: Run) -> Alike:
    """Return which secrets must be alike: those of the profile, the problem's pairs, the release's, or every two.

    Each user's own matrix is held against nothing but itself, so its pairs are the profile's business (``oracle``).
    """
    release, alike = run.release, getattr(run.problem, "alike", None)
    names = [str(name) for name in getattr(release, "records", ())]
    if subject.profile.alike is not None:
        stated = list(subject.profile.alike(run.problem))
        names = names or list(dict.fromkeys(str(name) for one, two, _ in stated for name in (one, two)))
        place = {name: number for number, name in enumerate(names)}
        numbers = np.array([(place[str(one)], place[str(two)]) for one, two, _ in stated], dtype=np.int64)
        return Alike(names, numbers.reshape(-1, 2), np.array([float(d) for *_, d in stated]))
    if alike is not None and run.stated.guarantee.scope != "own-matrix":
        return Alike(names, *(np.asarray(each) for each in alike()))
    if hasattr(release, "pairs"):
        return Alike(names, np.asarray(release.pairs), np.asarray(release.distances))
    pairs = np.stack(np.triu_indices(len(names), 1), axis=1).astype(np.int64)
    return Alike(names, pairs, np.ones(len(pairs)))


def come_otherwise(drawn: Sequence[T], stated: Mapping[T, float]) -> str | None:
    """Return which outcome, of those with a stated probability, came more or less often than it may, in words."""
    came, count = Counter(drawn), len(drawn)
    for name, probability in stated.items():
        if not plausible(came[name], count, min(1.0, probability), len(stated)):
            return f"{name} came {came[name]} times in {count} draws; expected {probability * count:.6g} times"
    return None


def plausible(hits: int, count: int, probability: float, tests: int = 1) -> bool:
    """Check whether a count is in its two-sided binomial interval at :data:`CONFIDENCE`, shared by ``tests`` tests."""
    from scipy.special import bdtr, bdtrc

    tail = (1 - CONFIDENCE) / (2 * tests)
    if probability in (0.0, 1.0):
        return hits == count * probability
    return bool(bdtr(hits, count, probability) > tail and (hits == 0 or bdtrc(hits - 1, count, probability) > tail))
