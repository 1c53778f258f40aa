"""The trusted part of metric DP mechanisms: it repairs and certifies candidates and proves lower bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve, field, frozen

from privopt.arrays import Floats, Ints
from privopt.errors import CertificationError
from privopt.interfaces import SolveContext, UtilityLoss
from privopt.search.incumbent import Incumbent
from privopt.search.offers import Offers
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.privacy import MatrixConstraint
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.matrix.remap import remap_outputs
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof import Proof, prove
from privopt_metric_dp.proof.lagrangian_bound import Multipliers
from privopt_metric_dp.solvers.instance import Instance

__all__ = [
    "CertifiedRelease",
    "Dual",
    "MatrixCertifier",
    "MatrixIncumbent",
    "MatrixOffers",
    "instance_view",
    "reserve_memory",
]

CERTIFYING_MATRICES: Final = 11
"""The number of matrices that fit in the memory set aside for certifying.

Each matrix has one double per record and output. With a time limit, candidates are certified while a solver runs. For
2,000 records and outputs, this took as much memory as 10.6 matrices.
"""

Candidate = Floats | MatrixRelease
"""A matrix of shape (N, K) to repair, or a release to keep unchanged if it satisfies the privacy notion."""


@frozen(eq=False)
class Dual:
    """Dual multipliers that prove a lower bound on the loss.

    Attributes:
        multipliers: The multipliers of the privacy constraints.
        over: The record pairs that have multipliers: an array of shape (S, 2) with their indices and an array of shape
            (S,) with their distances. If None, the multipliers are for all pairs covered by the guarantee.
        bound: An estimate of the lower bound proved by the multipliers, or None if there is no estimate.
    """

    multipliers: Multipliers
    over: tuple[Ints, Floats] | None = None
    bound: float | None = None


@frozen(eq=False)
class CertifiedRelease:
    """A certified release, with details of how it was made.

    Attributes:
        release: The release.
        details: Values for result.json that describe the repair and the remapping of outputs.
    """

    release: MatrixRelease
    details: Mapping[str, Any] = field(factory=dict)


MatrixOffers = Offers[Candidate, Dual]
MatrixIncumbent = Incumbent[Candidate, Dual, CertifiedRelease]


@frozen(eq=False)
class MatrixCertifier:
    """A certifier that turns candidates into releases satisfying a privacy notion, and proves lower bounds on the loss.

    Attributes:
        data: The data of the problem.
        constraint: The privacy notion.
        loss: The utility loss.
        context: The solver, gap and limits of the run.
    """

    data: MetricData
    constraint: MatrixConstraint
    loss: UtilityLoss[MatrixRelease]
    context: SolveContext

    def certify(self, candidate: Candidate) -> tuple[float, CertifiedRelease]:
        """Turn a candidate into a certified release.

        Returns:
            The loss, with its sign reversed if it is to be maximised, and the certified release.

        Raises:
            CertificationError: The repair failed, or the loss cannot be evaluated.
        """
        release, details = self._certify_release(candidate), {}
        if release.repaired is not None:
            details["repair"] = release.repaired.details
        if self.data.remap:
            # Replacing outputs is post-processing, so the guarantee still applies to the release.
            original, release = release, remap_outputs(release, self.loss, self.data)
            details["remap"] = {"loss_before": self.loss.state(original)[0], "loss_after": self.loss.state(release)[0]}
        value = self.loss.state(release)[0]
        if value is None or math.isnan(value):
            raise CertificationError("the release's objective could not be evaluated; nothing written")
        # The search always minimises.
        return (-value if self.loss.maximise else value), CertifiedRelease(release, details)

    def _certify_release(self, candidate: Candidate) -> MatrixRelease:
        """Return a candidate unchanged if it is a release that satisfies the privacy notion. Otherwise, repair it.

        Raises:
            CertificationError: The repair failed.
        """
        # Integers that satisfy the notion are released as they are. Everything else is repaired as doubles, and this
        # conversion would change even integers that satisfy the notion.
        if isinstance(candidate, MatrixRelease):
            if self.constraint.measure(candidate).holds:
                return candidate
            candidate = candidate.probabilities
        return self.constraint.repair(candidate, self.data, self.context)

    def prove(self, proof: Dual, value: float) -> tuple[float, Proof]:
        """Prove a lower bound on the loss by evaluating dual multipliers exactly.

        Args:
            proof: The multipliers offered by a solver.
            value: The best certified loss, which no valid lower bound can exceed.

        Returns:
            The proved lower bound and the proof.
        """
        assert isinstance(self.loss, ExpectedLoss)  # only searches with this loss offer bounds
        with self.context.time_phase("verify"):
            evaluated, bound = prove(
                proof.multipliers,
                self.data,
                self.loss.weighted,
                value,
                over=proof.over,
                gap=self.context.gap,
                memory_limit=self.context.free_memory,
                near=proof.bound,
            )
            return bound, evaluated


def instance_view(data: MetricData, offers: MatrixOffers) -> Offers[Floats, Multipliers]:
    """Return a view of a search, for use by solvers that work on the simplified problem ``Instance.of(data)``.

    The simplified problem has a slightly smaller epsilon and rounded distances, whereas bounds are evaluated with the
    exact values. The view therefore rescales the multipliers offered by solvers before passing them on.

    Args:
        data: The data of the problem.
        offers: The search that receives the offers. The rescaled multipliers are for the pairs in ``data.needed``.
    """
    lengths, solved_epsilon = data.needed[1], Instance.reduce_epsilon(data.epsilon)
    # How much the log ratios used to evaluate bounds exceed those in the simplified problem. Unless multipliers are
    # scaled down by exp(-gain), they prove little where epsilon d is large.
    gain = float(data.epsilon) * data.metric.upper_distances(lengths) - solved_epsilon * lengths
    return offers.through("", lambda z: z, lambda multipliers: Dual(multipliers.freer(gain), data.needed))


def reserve_memory(context: SolveContext, records: int, outputs: int) -> SolveContext:
    """Return the context for solvers, in which the memory for certifying their candidates is not available.

    Without a time limit, nothing is certified while a solver runs, so nothing is reserved.

    Args:
        context: The context of the run.
        records, outputs: The numbers of records and outputs.
    """
    if context.memory is None or context.search_time.left == math.inf:
        return context
    return evolve(context, memory=context.memory - CERTIFYING_MATRICES * 8.0 * records * outputs)
