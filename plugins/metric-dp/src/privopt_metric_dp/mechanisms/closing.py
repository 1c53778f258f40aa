"""Turn the outcome of a metric DP search into a result, and certify fallbacks before any search."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from attrs import field, frozen

from privopt.arrays import Floats, Ints
from privopt.errors import CertificationError, InputError
from privopt.interfaces import SolveContext, UtilityLoss
from privopt.interfaces.incumbent import Incumbent
from privopt.interfaces.offers import Later, Offers
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.privacy import MatrixConstraint
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.matrix.remap import remapped
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof import Proof, prove
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers.exponential import exponential
from privopt_metric_dp.solvers.instance import Instance

__all__ = [
    "CertifiedRelease",
    "Dual",
    "MatrixClosing",
    "MatrixIncumbent",
    "MatrixOffers",
    "first_entries",
    "over_instance",
]

Candidate = Floats | MatrixRelease
"""A matrix (N, K), which is repaired, or integers, which are released as they are where they keep the notion."""


@frozen(eq=False)
class Dual:
    """What a bound is proved from.

    Attributes:
        multipliers: of privacy rows.
        over: required pairs (S, 2) that they belong to, and their distances (S,); all where None.
        bound: about what they prove; None where no one knows.
    """

    multipliers: Multipliers
    over: tuple[Ints, Floats] | None = None
    bound: float | None = None


@frozen(eq=False)
class CertifiedRelease:
    """A certified release, and what there is to say of how it was made."""

    release: MatrixRelease
    details: Mapping[str, Any] = field(factory=dict)


MatrixOffers = Offers[Candidate, Dual]
MatrixIncumbent = Incumbent[Candidate, Dual, CertifiedRelease]


@frozen(eq=False)
class MatrixClosing:
    """Repair into integers and certificate, multipliers into a proof: the only code of metric DP that is believed.

    Attributes:
        data: the problem's.
        constraint, loss: of the mechanism and its method.
        context: as it is solved.
    """

    data: MetricData
    constraint: MatrixConstraint
    loss: UtilityLoss[MatrixRelease]
    context: SolveContext

    def certify(self, candidate: Candidate) -> tuple[float, CertifiedRelease]:
        """Make a release of a candidate.

        Raises:
            CertificationError: none was found that keeps the notion, or its loss cannot be evaluated.
        """
        release, details = self._certified(candidate), {}
        if release.repaired is not None:
            details["repair"] = release.repaired.details
        if self.data.remap:
            before, release = release, remapped(release, self.loss, self.data)
            details["remap"] = {"loss_before": self.loss.state(before)[0], "loss_after": self.loss.state(release)[0]}
        value = self.loss.state(release)[0]
        if value is None or math.isnan(value):
            raise CertificationError("the release's objective could not be evaluated; nothing written")
        return (-value if self.loss.maximise else value), CertifiedRelease(release, details)

    def _certified(self, candidate: Candidate) -> MatrixRelease:
        if isinstance(candidate, MatrixRelease):
            if self.constraint.measure(candidate).holds:
                return candidate
            candidate = candidate.probabilities
        return self.constraint.repair(candidate, self.data, self.context)

    def prove(self, proof: Dual, value: float) -> tuple[float, Proof]:
        """Evaluate what a bound is proved from, and say which bound the proof states."""
        assert isinstance(self.loss, ExpectedLoss)  # who offers bounds looks at that
        with self.context.timed("verify"):
            made, bound = prove(
                proof.multipliers,
                self.data,
                self.loss.weighted,
                value,
                over=proof.over,
                gap=self.context.gap,
                memory_limit=self.context.free_memory,
                near=proof.bound,
            )
            return bound, made


def over_instance(data: MetricData, offers: MatrixOffers) -> Offers[Floats, Multipliers]:
    """Return an incumbent as a solver of :meth:`Instance.of` the data sees it.

    Multipliers were found at a smaller epsilon and at distances rounded down, and are evaluated without.
    """
    lengths, solved = data.needed[1], Instance.solved(data.epsilon)
    gain = float(data.epsilon) * data.metric.upper_distances(lengths) - solved * lengths
    return offers.through("", lambda z: z, lambda own: Dual(own.freer(gain), data.needed))


def first_entries(data: MetricData, incumbent: MatrixIncumbent, *, bounds: bool) -> list[Callable[[], None]]:
    """Return what offers what takes moments, before any search.

    One output for all, private whatever the distances are; and the exponential mechanism at half of epsilon, where
    distances to outputs are known.

    Args:
        data: the problem's.
        incumbent: to offer to.
        bounds: whether each record's cheapest output is offered as a bound.
    """
    weighted, (records, outputs) = data.weighted, data.shape

    def one_output() -> None:
        k = int(weighted.sum(axis=0).argmin())
        incumbent.offer(
            "one output",
            candidate=Later(_one, records, outputs, k),
            value=float(weighted[:, k].sum()),
            bound=float(weighted.min(axis=1).sum()) if bounds else None,
            proof=Dual(Multipliers.zero(), (np.zeros((0, 2), dtype=np.int64), np.zeros(0))) if bounds else None,
        )

    def half() -> None:
        try:
            z = exponential(data.to_outputs, float(data.epsilon))
        except InputError as unreached:  # a record with no output within reach: there is no such mechanism
            incumbent.note(f"exponential ({unreached})")
            return
        incumbent.offer("exponential", candidate=z, value=float(np.vdot(weighted, z)))

    return [one_output, half] if data.crossed else [one_output]


def _one(records: int, outputs: int, k: int) -> Floats:
    z = np.zeros((records, outputs))
    z[:, k] = 1.0
    return z
