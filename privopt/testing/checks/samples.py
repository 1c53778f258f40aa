"""The pairs of secrets covered by a guarantee, and tests of outcome frequencies against given probabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from privopt.testing.under_trial import Run, Subject

T = TypeVar("T", bound=Hashable)

CONFIDENCE: Final = 1 - 1e-7
"""The confidence level of statistical verdicts. A correct mechanism fails with a probability of at most 1e-7."""


class Alike(NamedTuple):
    """The pairs of secrets that the guarantee must make hard to distinguish.

    Attributes:
        names: The secrets' ids. For a matrix, they are in the order of its rows.
        pairs: (P, 2) The indices of the two secrets in each pair. If the notion is not symmetric, the first secret's
            probabilities are bounded in terms of the second's.
        distances: (P,) The distance between the secrets in each pair, or 1 for neighbours without a distance.
    """

    names: list[str]
    pairs: NDArray[np.int64]
    distances: NDArray[np.float64]


def required_pairs(subject: Subject, run: Run) -> Alike:
    """Return the pairs of secrets that a run's guarantee must make hard to distinguish, with their distances.

    The pairs come from the profile, the problem or the release. The first of these that provides pairs is used. If none
    does, a symmetric notion requires all pairs of secrets, at distance 1. A notion that is not symmetric then requires
    no pairs, because it is unknown which secret in a pair is protected.

    If each user has their own matrix (scope "own-matrix"), the problem's pairs do not apply. A profile can check such
    matrices with its ``oracle``.
    """
    # Metric problems have ``alike``, which returns pairs and distances. Releases with records may have ``pairs``.
    release, problem_pairs = run.release, getattr(run.problem, "alike", None)
    names = [str(name) for name in getattr(release, "records", ())]
    if subject.profile.alike is not None:
        stated_pairs = list(subject.profile.alike(run.problem))
        # If the release has no records, the secrets are those in the profile's pairs, in order of occurrence.
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
    """Return the reason why it is unknown which secret of a pair is protected, or None if it is known or irrelevant."""
    if subject.notion.symmetric or subject.profile.alike is not None:
        return None
    return "its notion is not symmetric, and the profile has no `alike`, which says which secret of a pair is protected"


def find_odd_frequency(outcomes: Sequence[T], probabilities: Mapping[T, float]) -> str | None:
    """Return a sentence about an outcome that occurs too often or too rarely, or None if there is no such outcome.

    Args:
        outcomes: The outcomes of independent draws.
        probabilities: The supposed probability of each possible outcome.
    """
    counts, count = Counter(outcomes), len(outcomes)
    for name, probability in probabilities.items():
        # Rounding errors can put a probability slightly above 1.
        if not is_plausible_count(counts[name], count, min(1.0, probability), len(probabilities)):
            return f"{name} came {counts[name]} times in {count} draws; expected {probability * count:.6g} times"
    return None


def is_plausible_count(hits: int, count: int, probability: float, tests: int = 1) -> bool:
    """Return whether the number of draws with an outcome is consistent with the outcome's supposed probability.

    This is the case if the number lies in the two-sided binomial interval with confidence :data:`CONFIDENCE`.

    Args:
        hits: The number of draws with the outcome.
        count: The number of draws.
        probability: The outcome's supposed probability.
        tests: The number of tests that share the error probability.
    """
    from scipy.special import bdtr, bdtrc

    # The error probability is split evenly between the two sides and among the tests.
    tail = (1 - CONFIDENCE) / (2 * tests)
    # A single deviating draw refutes a probability of 0 or 1, whatever the confidence.
    if probability in (0.0, 1.0):
        return hits == count * probability
    return bool(bdtr(hits, count, probability) > tail and (hits == 0 or bdtrc(hits - 1, count, probability) > tail))
