"""The conformance kit's profile of LR-Geo: small maps on which everyone is a user."""

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


def _table(case: MetricCase) -> Mapping[str, Mapping[str, Any]]:
    """Radii that reach a little, or all over the map, by the size of the case."""
    own = case.space.distances[: case.records, : case.records]
    lengths = own[(own > 0) & np.isfinite(own)]
    near, far = (float(lengths.min()), float(lengths.max())) if lengths.size else (1.0, 1.0)
    wide = len(case.space) % 2 == 0
    return {
        "lr-geo": {
            "users": "all",
            "radius": 2 * far if wide else near,
            "obfuscation_radius": far,
            "exponential_beyond": near if wide else 0.0,
            "exponent": 1.0 if case.records % 2 else 0.5,
        }
    }


def _oracle(loaded: Any, release: Any, result: Result) -> Iterator[str]:
    """Check every user's own matrix over the pairs of its LR set, from the problem's distances."""
    if release.matrices is None:
        return
    data = loaded.data
    for user, matrix in release.matrices.items():
        records = data.records.numbers(matrix.records.tolist())
        inside = np.isin(data.pairs, records).all(axis=1)
        pairs = np.searchsorted(records, data.pairs[inside])
        if not certify(matrix.weights, pairs, data.distances[inside], data.epsilon).holds:
            yield f"the matrix of {user} does not keep epsilon {float(data.epsilon)} inside its LR set"
        own = np.flatnonzero(release.records == user)[0]
        if not np.array_equal(release.weights[own], matrix.weights[matrix.records.tolist().index(user)]):
            yield f"the row of {user} is not that of its matrix"


def _evenly(problem: GeneratedProblem) -> GeneratedProblem:
    """Without a prior: users are weighed alike, and none's cell may have a prior of 0."""
    case: MetricCase = problem.facts["case"]
    return evolve(case, prior=()).problem()


PROFILE = metric_profile(
    problems=metric_problems(extra=_table).map(_evenly),
    lengths=("lr-geo.radius", "lr-geo.obfuscation_radius", "lr-geo.exponential_beyond"),
    monotone="never",
    oracle=_oracle,
)
