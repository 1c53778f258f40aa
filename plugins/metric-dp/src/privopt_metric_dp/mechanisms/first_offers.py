"""Offers that take moments and come before any search: one output for all, and the exponential mechanism."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from privopt.arrays import Floats
from privopt.errors import InputError
from privopt.search.offers import Later
from privopt_metric_dp.mechanisms.certifier import Dual, MatrixIncumbent
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers.exponential import exponential

__all__ = ["make_first_offers"]


def make_first_offers(data: MetricData, incumbent: MatrixIncumbent, *, bounds: bool) -> list[Callable[[], None]]:
    """Return functions that make an offer each.

    One output for all is private whatever the distances are. The exponential mechanism, at half of epsilon, needs
    distances to outputs.

    Args:
        data: The problem's data.
        incumbent: The search that the offers are made to.
        bounds: Whether each record's cheapest output is offered as a bound.
    """
    weighted, (records, outputs) = data.weighted, data.shape

    def offer_one_output() -> None:
        k = int(weighted.sum(axis=0).argmin())
        incumbent.offer(
            "one output",
            candidate=Later(_one_output_matrix, records, outputs, k),
            value=float(weighted[:, k].sum()),
            bound=float(weighted.min(axis=1).sum()) if bounds else None,
            proof=Dual(Multipliers.zero(), (np.zeros((0, 2), dtype=np.int64), np.zeros(0))) if bounds else None,
        )

    def offer_exponential() -> None:
        try:
            z = exponential(data.to_outputs, float(data.epsilon))
        except InputError as error:  # a record has no output within reach, so that there is no such mechanism
            incumbent.note(f"exponential ({error})")
            return
        incumbent.offer("exponential", candidate=z, value=float(np.vdot(weighted, z)))

    return [offer_one_output, offer_exponential] if data.crossed else [offer_one_output]


def _one_output_matrix(records: int, outputs: int, k: int) -> Floats:
    z = np.zeros((records, outputs))
    z[:, k] = 1.0
    return z
