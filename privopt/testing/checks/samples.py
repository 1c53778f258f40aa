"""Find the pairs of secrets that a guarantee covers, and test frequencies of outcomes against stated probabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from privopt.testing.under_trial import Run, Subject

T = TypeVar("T", bound=Hashable)

CONFIDENCE: Final = 1 - 1e-7
"""Confidence of one statistical verdict: a correct mechanism fails at most once in ten million trials."""


class Alike(NamedTuple):
    """Pairs of secrets that the guarantee must make hard to distinguish.

    Attributes:
        names: Ids of the secrets; for a matrix, in the order of its rows.
        pairs: (P, 2) Indices of the secrets of each pair; ordered if the notion is not symmetric.
        distances: (P,) The distances of the pairs; 1 for neighbours without a distance.
    """

    names: list[str]
    pairs: NDArray[np.int64]
    distances: NDArray[np.float64]


def required_pairs(subject: Subject, run: Run) -> Alike:
    """Return the pairs of secrets that the guarantee of a run must make hard to distinguish, with their distances.

    The first of profile, problem and release that states pairs decides. If none of them does, all pairs of secrets are
    required at distance 1, or no pairs under a notion that is not symmetric, because nothing says which secret of a
    pair is protected. If each user has their own matrix (scope "own-matrix"), the problem's pairs do not apply. A
    profile can check such matrices by its ``oracle``.
    """
    # Metric problems have ``alike``, which returns pairs and distances; releases with records may have ``pairs``.
    release, problem_pairs = run.release, getattr(run.problem, "alike", None)
    names = [str(name) for name in getattr(release, "records", ())]
    if subject.profile.alike is not None:
        stated_pairs = list(subject.profile.alike(run.problem))
        # If the release has no records, the secrets are those that occur in the profile's pairs, in that order.
        names = names or list(dict.fromkeys(str(name) for a, b, _ in stated_pairs for name in (a, b)))
        index_by_name = {name: number for number, name in enumerate(names)}
        numbers = np.array([(index_by_name[str(a)], index_by_name[str(b)]) for a, b, _ in stated_pairs], dtype=np.int64)
        return Alike(names, numbers.reshape(-1, 2), np.array([float(d) for *_, d in stated_pairs]))
    if problem_pairs is not None and run.stated.guarantee.scope != "own-matrix":
        return Alike(names, *(np.asarray(part) for part in problem_pairs()))
    if hasattr(release, "pairs"):
        return Alike(names, np.asarray(release.pairs), np.asarray(release.distances))
    if not subject.notion.symmetric:
        return Alike(names, np.empty((0, 2), dtype=np.int64), np.empty(0))
    pairs = np.stack(np.triu_indices(len(names), 1), axis=1).astype(np.int64)
    return Alike(names, pairs, np.ones(len(pairs)))


def states_direction(subject: Subject) -> str | None:
    """Return why pairs of secrets cannot be compared under a notion that is not symmetric; None if they can."""
    if subject.notion.symmetric or subject.profile.alike is not None:
        return None
    return "its notion is not symmetric, and the profile has no `alike`, which says which secret of a pair is protected"


def find_odd_frequency(outcomes: Sequence[T], probabilities: Mapping[T, float]) -> str | None:
    """Return a sentence on an outcome that is too frequent or too rare for its stated probability, or None.

    Args:
        outcomes: The outcomes of independent draws.
        probabilities: The stated probability of each possible outcome.
    """
    counts, count = Counter(outcomes), len(outcomes)
    for name, probability in probabilities.items():
        # Rounding may put a probability slightly above 1.
        if not is_plausible_count(counts[name], count, min(1.0, probability), len(probabilities)):
            return f"{name} came {counts[name]} times in {count} draws; expected {probability * count:.6g} times"
    return None


def is_plausible_count(hits: int, count: int, probability: float, tests: int = 1) -> bool:
    """Return whether a count is in its two-sided binomial interval at :data:`CONFIDENCE`.

    Args:
        hits: How often an outcome occurred.
        count: The number of draws.
        probability: The stated probability of the outcome.
        tests: The number of such tests that share the error probability.
    """
    from scipy.special import bdtr, bdtrc

    # Half of the error for each side, and an equal part for each outcome that is tested.
    tail = (1 - CONFIDENCE) / (2 * tests)
    # At a probability of 0 or 1, a single deviating draw refutes the probability, whatever the confidence.
    if probability in (0.0, 1.0):
        return hits == count * probability
    return bool(bdtr(hits, count, probability) > tail and (hits == 0 or bdtrc(hits - 1, count, probability) > tail))
