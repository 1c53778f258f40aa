"""The trusted code of metric DP: candidates are repaired and certified here, and bounds proved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

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
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers.instance import Instance

__all__ = [
    "CertifiedRelease",
    "Dual",
    "MatrixCertifier",
    "MatrixIncumbent",
    "MatrixOffers",
    "instance_view",
]

Candidate = Floats | MatrixRelease
"""A matrix (N, K), which is repaired, or a release, which is used as it is if it satisfies the notion."""


@frozen(eq=False)
class Dual:
    """What a bound is proved from.

    Attributes:
        multipliers: Multipliers of privacy rows.
        over: The required pairs (S, 2) that they belong to, and their distances (S,); None for all.
        bound: About what they prove; None if it is not known.
    """

    multipliers: Multipliers
    over: tuple[Ints, Floats] | None = None
    bound: float | None = None


@frozen(eq=False)
class CertifiedRelease:
    """A certified release, and details of how it was made."""

    release: MatrixRelease
    details: Mapping[str, Any] = field(factory=dict)


MatrixOffers = Offers[Candidate, Dual]
MatrixIncumbent = Incumbent[Candidate, Dual, CertifiedRelease]


@frozen(eq=False)
class MatrixCertifier:
    """Repairs candidates into certified integers, and evaluates multipliers into proofs.

    Attributes:
        data: The problem's data.
        constraint: The notion of the mechanism and its method.
        loss: Their utility loss.
        context: How the problem is solved.
    """

    data: MetricData
    constraint: MatrixConstraint
    loss: UtilityLoss[MatrixRelease]
    context: SolveContext

    def certify(self, candidate: Candidate) -> tuple[float, CertifiedRelease]:
        """Make a certified release of a candidate, and evaluate its loss.

        Raises:
            CertificationError: No release satisfies the notion, or its loss cannot be evaluated.
        """
        release, details = self._certify_release(candidate), {}
        if release.repaired is not None:
            details["repair"] = release.repaired.details
        if self.data.remap:
            original, release = release, remap_outputs(release, self.loss, self.data)
            details["remap"] = {"loss_before": self.loss.state(original)[0], "loss_after": self.loss.state(release)[0]}
        value = self.loss.state(release)[0]
        if value is None or math.isnan(value):
            raise CertificationError("the release's objective could not be evaluated; nothing written")
        return (-value if self.loss.maximise else value), CertifiedRelease(release, details)

    def _certify_release(self, candidate: Candidate) -> MatrixRelease:
        if isinstance(candidate, MatrixRelease):
            if self.constraint.measure(candidate).holds:
                return candidate
            candidate = candidate.probabilities
        return self.constraint.repair(candidate, self.data, self.context)

    def prove(self, proof: Dual, value: float) -> tuple[float, Proof]:
        """Evaluate multipliers exactly; return the bound that the proof states, and the proof."""
        assert isinstance(self.loss, ExpectedLoss)  # only searches with this loss offer bounds
        with self.context.timed("verify"):
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
    """Return the view of a search for a solver of ``Instance.of(data)``.

    The instance has a smaller epsilon and distances that are rounded down; bounds are evaluated without either.
    """
    lengths, solved_epsilon = data.needed[1], Instance.solved(data.epsilon)
    gain = float(data.epsilon) * data.metric.upper_distances(lengths) - solved_epsilon * lengths
    return offers.through("", lambda z: z, lambda multipliers: Dual(multipliers.freer(gain), data.needed))
