"""The table ``[privacy]`` of metric DP."""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen

from privopt.declare.schema import key, positive
from privopt_metric_dp.problem.kinds import MetricNotion

__all__ = ["MetricPrivacy"]


@frozen(kw_only=True)
class MetricPrivacy(MetricNotion):
    """``[privacy]`` of metric DP."""

    kind: ClassVar[str] = "metric-dp"
    everywhere: bool = key(False, help="between any two points of the region, not only records (docs: every point)")
    split_km: float | None = key(
        None,
        help="with everywhere: longer streets are divided, coarser meshes refined; default: streets so that epsilon x "
        "length is at most 0.5, planes as they are",
        unit="km",
        check=positive,
    )
