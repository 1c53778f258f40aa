"""(epsilon, delta)-metric DP: P_i(S) <= exp(epsilon d) P_j(S) + delta for records i, j at distance d and all sets S.

That is sum_k max(0, z_ik - exp(epsilon d) z_jk) <= delta, both ways: the set of outputs where the term is positive is
the worst S.
"""

from fractions import Fraction
from typing import ClassVar

import numpy as np
from attrs import frozen

from privopt.declare import between, key
from privopt.dsl import Ge, Le, exp, total
from privopt.errors import CertificationError
from privopt.interfaces import Certificate, Guarantee
from privopt.numbers import exp_fixed
from privopt.numbers.sampling import TOTAL
from privopt_metric_dp.matrix.privacy import MatrixConstraint, add_reversed_pairs
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.declared import MetricNotion

BITS = 80
"""Fractional bits of the bounds on exp(epsilon d)."""
MIXED = 1e-6
"""Share of the uniform row in a repaired row. It lowers sums by this share of delta, more than a solver's tolerance."""


@frozen(kw_only=True)
class ApproximatePrivacy(MetricNotion):
    """`[privacy] kind = "approximate-metric-dp"`."""

    kind: ClassVar[str] = "approximate-metric-dp"
    kit: ClassVar[str] = "ranked_response.kit:APPROXIMATE"
    delta: Fraction = key(help="what the bound may be missed by", unit="probability", check=between(0, 1))


@frozen(kw_only=True)
class ApproximateMetricDP(MatrixConstraint):
    """(epsilon, delta)-metric DP."""

    kind: ClassVar[str] = "approximate-metric-dp"

    epsilon: Fraction
    delta: Fraction
    unit: str
    within: float | None

    @classmethod
    def from_keys(cls, keys, data):
        """Return the notion over all required pairs: none follows from others, because delta adds up along a path."""
        return cls(epsilon=keys.epsilon, delta=keys.delta, unit=f"per {data.unit}", within=data.within)

    @classmethod
    def keys(cls):
        """Return the class of the keys: epsilon, how far pairs reach, and delta."""
        return ApproximatePrivacy

    @classmethod
    def limits(cls, result):
        """Return what was checked, and what was not."""
        return ["The sum over outputs for each pair of records, both ways, in integers."], [
            "Reports after the first: epsilon and delta add up."
        ]

    @property
    def guarantee(self):
        """The guarantee of a release that is certified."""
        return Guarantee(
            kind=self.kind,
            epsilon=self.epsilon,
            unit=self.unit,
            scope="all-pairs" if self.within is None else "neighbours",
            statement="For every two records at distance d and every set of outputs the probabilities differ by a "
            f"factor of at most exp({float(self.epsilon):g} d), and {float(self.delta):g} beyond.",
            extra={"delta": float(self.delta)} | ({} if self.within is None else {"neighbours_within": self.within}),
        )

    def emit(self, model, **symbols):
        """Add the rows s_ijk >= z_ik - exp(epsilon d_ij) z_jk and sum_k s_ijk <= delta to a model."""
        z, i, j, k, d, pairs = (symbols[name] for name in ("z", "i", "j", "k", "d", "pairs"))
        if not len(pairs):
            return
        s = model.variable("s", i.index_set, j.index_set, k.index_set, lower=0)
        factor = exp(float(self.epsilon) * d[i, j])
        model.require("excess", Ge(s[i, j, k], z[i, k] - factor * z[j, k]), forall=(i, j, k), where=pairs)
        model.require("delta", Le(total(s[i, j, k], over=k), float(self.delta)), forall=(i, j), where=pairs)

    def repair(self, z, data, context):
        """Return a solver's rows in integers, moved a little towards the uniform row, because the sum is convex.

        Raises:
            CertificationError: The result does not certify.
        """
        z = np.clip(z, 0, None)
        z /= z.sum(axis=1, keepdims=True)
        uniform_share = MIXED if self.delta > MIXED else 0.5
        z = (1 - uniform_share) * z + uniform_share / z.shape[1]
        # Rounded down by so much that no row sums to more than TOTAL.
        weights = np.floor(z * float(TOTAL) * (1 - 1e-12)).astype(np.uint64)
        for row in weights:
            row[row.argmax()] += np.uint64(TOTAL - int(row.sum()))
        release = MatrixRelease.over(data, weights)  # with every required pair: none follows from others
        if not self.measure(release).holds:
            raise CertificationError("no repair was found that certifies")
        return release

    def measure(self, release):
        """Return the greatest sum over the pairs, in integers: exp is enclosed from below, which enlarges each term."""
        worst = 0
        max_sum = self.delta * TOTAL * 2**BITS
        for (a, b), distance in zip(add_reversed_pairs(release.pairs).tolist(), [*release.distances] * 2, strict=True):
            low, _ = exp_fixed(self.epsilon * Fraction(float(distance)), BITS)
            row, other_row = release.weights[a].tolist(), release.weights[b].tolist()
            excess = sum(
                max(0, (weight << BITS) - low * other_weight)
                for weight, other_weight in zip(row, other_row, strict=True)
            )
            worst = max(worst, excess)
        return Certificate(
            holds=worst <= max_sum,
            evidence="proved",
            kind=self.kind,
            worst=np.nextafter(float(Fraction(worst, TOTAL << BITS)), np.inf),
            allowed=float(self.delta),
            checked=2 * len(release.pairs),
            arithmetic="integers; exp enclosed to 80 bits",
        )
