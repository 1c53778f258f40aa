"""Profiles for the mechanisms in this package that cannot use the default profile."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from privopt.testing.problems import GeneratedProblem, npy_bytes
from privopt_metric_dp.kit.problems import MetricCase, metric_problems, metric_profile

__all__ = ["CONST_OPT", "EXPONENTIAL", "GIVEN", "PLANAR", "PREDICTIVE"]

PLANE: Final = ("grid", "points", "twins", "coincident", "globe")
"""The shapes of metric spaces whose points have coordinates.

See :func:`privopt_metric_dp.kit.strategies.metric_spaces`.
"""


def _radius_table(case: MetricCase) -> dict[str, dict[str, Any]]:
    """Return a ``[const-opt]`` table for a generated case, with the median of the distinct distances as its radius."""
    lengths = case.space.lengths
    return {"const-opt": {"radius": lengths[len(lengths) // 2] if lengths else 1.0}}


EXPONENTIAL: Final = metric_profile(monotone="distance")
"""The profile for "exponential". A loss that is the distance never increases with epsilon, but other losses may."""

PLANAR: Final = metric_profile(problems=metric_problems(shapes=PLANE), monotone="distance")
"""The profile for "planar-laplace", which supports only points in the plane or on the globe."""

CONST_OPT: Final = metric_profile(extra=_radius_table, lengths=("const-opt.radius",), monotone="never")
"""The profile for "const-opt", whose problems contain a radius.

The loss may increase with epsilon, because the linear programs for two values of epsilon allow different matrices.
"""


def _with_matrix(problem: GeneratedProblem) -> GeneratedProblem:
    """Add a matrix for the "given" mechanism to a problem.

    The entries in row i are proportional to exp(-d_ik), where d_ik is the distance from record i to output k. Entries
    at an infinite distance are 0. In a disconnected space, the matrix therefore does not satisfy metric DP for any
    epsilon.
    """
    case: MetricCase = problem.facts["case"]
    distances = case.space.distances[: case.records]
    # Outputs that are not the records follow them in the space.
    z = np.exp(-(distances if case.own_outputs else distances[:, case.records :]))
    # If no output can be reached from a record, its row consists of zeros, which cannot be scaled to sum to 1, so it is
    # made uniform.
    z = np.where(z.any(axis=1, keepdims=True), z, 1.0)
    extended = problem.with_key("given.matrix", "z.npy")
    return extended.with_file("z.npy", npy_bytes(z / z.sum(axis=1, keepdims=True)))


GIVEN: Final = metric_profile(problems=metric_problems().map(_with_matrix), variants={}, monotone="never")
"""The profile for "given", whose problems contain a matrix.

It has no variants, because these would have to change the matrix as well.
"""


def _good_within_table(case: MetricCase) -> dict[str, dict[str, Any]]:
    """Return a ``[predictive]`` table for a case, with the median of the distinct distances as ``good_within``."""
    lengths = case.space.lengths
    return {"predictive": {"good_within": lengths[len(lengths) // 2] if lengths else 1.0}}


PREDICTIVE: Final = metric_profile(
    problems=metric_problems(extra=_good_within_table), lengths=("predictive.good_within",)
)
"""The profile for "predictive".

A previous report is good enough to repeat if it lies within ``good_within`` of the position. This distance is chosen so
that some tests succeed and others fail.
"""
