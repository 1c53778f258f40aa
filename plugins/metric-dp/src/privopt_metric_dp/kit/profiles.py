"""Profiles of the baselines that need other problems than the default's."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from privopt.testing.problems import GeneratedProblem, npy_bytes
from privopt_metric_dp.kit.problems import MetricCase, metric_problems, metric_profile

__all__ = ["CONST_OPT", "EXPONENTIAL", "GIVEN", "PLANAR", "PREDICTIVE"]

PLANE: Final = ("grid", "points", "twins", "coincident", "globe")


def _radius_table(case: MetricCase) -> dict[str, dict[str, Any]]:
    lengths = case.space.lengths
    return {"const-opt": {"radius": lengths[len(lengths) // 2] if lengths else 1.0}}


EXPONENTIAL: Final = metric_profile(monotone="distance")
"""The loss falls with epsilon where it is the distance itself; for other losses it need not."""

PLANAR: Final = metric_profile(problems=metric_problems(shapes=PLANE), monotone="distance")
"""Points of the plane or of the globe alone."""

CONST_OPT: Final = metric_profile(extra=_radius_table, lengths=("const-opt.radius",), monotone="never")
"""With a radius; its feasible sets for two values of epsilon are not one inside the other."""


def _with_matrix(problem: GeneratedProblem) -> GeneratedProblem:
    """With a matrix that keeps no epsilon where places are out of reach, and some other than asked elsewhere."""
    case: MetricCase = problem.facts["case"]
    reach = case.space.distances[: case.records]
    z = np.exp(-(reach if case.own_outputs else reach[:, case.records :]))
    z = np.where(z.any(axis=1, keepdims=True), z, 1.0)
    extended = problem.with_key("given.matrix", "z.npy")
    return extended.with_file("z.npy", npy_bytes(z / z.sum(axis=1, keepdims=True)))


GIVEN: Final = metric_profile(problems=metric_problems().map(_with_matrix), variants={}, monotone="never")
"""With a matrix, whose rows stay in their order; what it was made for is not known."""


def _good_within_table(case: MetricCase) -> dict[str, dict[str, Any]]:
    lengths = case.space.lengths
    return {"predictive": {"good_within": lengths[len(lengths) // 2] if lengths else 1.0}}


PREDICTIVE: Final = metric_profile(
    problems=metric_problems(extra=_good_within_table), lengths=("predictive.good_within",)
)
"""With a distance at which tests end both ways."""
