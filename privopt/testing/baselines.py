"""Profiles of the baselines that need other problems than the default's."""

from __future__ import annotations

from typing import Any, Final

from privopt.testing.metric import MetricCase, metric_problems, metric_profile

__all__ = ["CONST_OPT", "EXPONENTIAL", "PLANAR"]

PLANE: Final = ("grid", "points", "twins", "coincident", "globe")


def _radius(case: MetricCase) -> dict[str, dict[str, Any]]:
    lengths = case.space.lengths
    return {"const-opt": {"radius": lengths[len(lengths) // 2] if lengths else 1.0}}


EXPONENTIAL: Final = metric_profile(monotone="distance")
"""The loss falls with epsilon where it is the distance itself; for other losses it need not."""

PLANAR: Final = metric_profile(problems=metric_problems(shapes=PLANE), monotone="distance")
"""Points of the plane or of the globe alone."""

CONST_OPT: Final = metric_profile(extra=_radius, lengths=("const-opt.radius",), monotone="never")
"""With a radius; its feasible sets for two values of epsilon are not one inside the other."""
