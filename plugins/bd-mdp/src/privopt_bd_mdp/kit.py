"""The conformance profile of bd-mdp, which generates metric problems with a ``[bd-mdp]`` table."""

from __future__ import annotations

from typing import Any, Final

from privopt_bd_mdp.problem import PARTITIONS
from privopt_metric_dp.kit import MetricCase, metric_profile

__all__ = ["PROFILE"]


def _make_tables(case: MetricCase) -> dict[str, dict[str, Any]]:
    """Return the ``[bd-mdp]`` table to add to a generated problem file.

    If the number of records is odd, the table sets ``start = "cold"``, so that the Benders iterations must find the
    optimum without a warm start.
    """
    # The partitioner is derived from the case rather than drawn at random, so that a failing case can be repeated. Over
    # many cases, every partitioner is used.
    kind = PARTITIONS[(case.records + len(case.epsilon)) % len(PARTITIONS)]
    table: dict[str, Any] = {"partition": kind, "subsets": min(2, case.records)}
    if case.records % 2:
        table |= {"start": "cold"}
    return {"bd-mdp": table}


PROFILE: Final = metric_profile(extra=_make_tables, monotone="never")
