"""The conformance kit's profile of bd-mdp: metric problems with a partition."""

from __future__ import annotations

from typing import Any, Final

from privopt_bd_mdp.problem import PARTITIONS
from privopt_metric_dp.kit import MetricCase, metric_profile

__all__ = ["PROFILE"]


def _make_tables(case: MetricCase) -> dict[str, dict[str, Any]]:
    """Return a table that uses every partitioner, by the size of the case; Benders' own rounds too, in some cases."""
    kind = PARTITIONS[(case.records + len(case.epsilon)) % len(PARTITIONS)]
    table: dict[str, Any] = {"partition": kind, "subsets": min(2, case.records)}
    if case.records % 2:
        table |= {"start": "cold"}
    return {"bd-mdp": table}


PROFILE: Final = metric_profile(extra=_make_tables, monotone="never")
