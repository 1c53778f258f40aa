"""The conformance kit's profile for bd-mdp: generated metric problems with a ``[bd-mdp]`` table."""

from __future__ import annotations

from typing import Any, Final

from privopt_bd_mdp.problem import PARTITIONS
from privopt_metric_dp.kit import MetricCase, metric_profile

__all__ = ["PROFILE"]


def _make_tables(case: MetricCase) -> dict[str, dict[str, Any]]:
    """Return the ``[bd-mdp]`` table for a generated problem file.

    The case determines the partitioner. If the number of records is odd, the Benders iterations have no warm start
    (``start = "cold"``) and must find the optimum on their own.
    """
    # The case determines the partitioner, so a failing case can be repeated, while many cases cover all partitioners.
    kind = PARTITIONS[(case.records + len(case.epsilon)) % len(PARTITIONS)]
    table: dict[str, Any] = {"partition": kind, "subsets": min(2, case.records)}
    if case.records % 2:
        table |= {"start": "cold"}
    return {"bd-mdp": table}


PROFILE: Final = metric_profile(extra=_make_tables, monotone="never")
