"""The conformance kit's profile for LR-Geo, which generates problems on small maps with a user at every record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from attrs import evolve

from privopt.interfaces import Result
from privopt.testing import GeneratedProblem
from privopt_metric_dp.kit import MetricCase, metric_problems, metric_profile
from privopt_metric_dp.matrix.certify import certify

__all__ = ["PROFILE"]


def _make_options(case: MetricCase) -> Mapping[str, Mapping[str, Any]]:
    """Return the ``[lr-geo]`` table for a generated problem.

    The radii cover either a small part of the map or all of it. They are derived from the case, so that a failing case
    can be reproduced.
    """
    distances = case.space.distances[: case.records, : case.records]
    lengths = distances[(distances > 0) & np.isfinite(distances)]
    min_length, max_length = (float(lengths.min()), float(lengths.max())) if lengths.size else (1.0, 1.0)
    is_large = len(case.space) % 2 == 0
    return {
        "lr-geo": {
            "users": "all",
            "radius": 2 * max_length if is_large else min_length,
            "obfuscation_radius": max_length,
            "exponential_beyond": min_length if is_large else 0.0,
            "exponent": 1.0 if case.records % 2 else 0.5,
        }
    }


def _check_release(loaded: Any, release: Any, result: Result) -> Iterator[str]:
    """Yield one line for each fault in the users' matrices.

    A matrix is faulty if it violates metric DP inside its LR set, or if its row for the user differs from the released
    row.

    Args:
        loaded: The loaded problem, with its required pairs.
        release: The release to check.
        result: The contents of result.json, which are not used.
    """
    if release.matrices is None:
        return
    data = loaded.data
    for user, matrix in release.matrices.items():
        records = data.records.numbers(matrix.records.tolist())
        is_inside = np.isin(data.pairs, records).all(axis=1)
        pairs = np.searchsorted(records, data.pairs[is_inside])
        if not certify(matrix.weights, pairs, data.distances[is_inside], data.epsilon).holds:
            yield f"the matrix of {user} does not satisfy epsilon {float(data.epsilon)} inside its LR set"
        row_number = np.flatnonzero(release.records == user)[0]
        if not np.array_equal(release.weights[row_number], matrix.weights[matrix.records.tolist().index(user)]):
            yield f"the row of {user} is not that of its matrix"


def _drop_prior(problem: GeneratedProblem) -> GeneratedProblem:
    """Return the problem without its prior, because LR-Geo rejects a prior that is 0 at a user's record."""
    case: MetricCase = problem.facts["case"]
    return evolve(case, prior=()).problem()


PROFILE = metric_profile(
    problems=metric_problems(extra=_make_options).map(_drop_prior),
    lengths=("lr-geo.radius", "lr-geo.obfuscation_radius", "lr-geo.exponential_beyond"),
    monotone="never",
    oracle=_check_release,
)
