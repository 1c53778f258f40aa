"""The privacy guarantee of FL-Linear (local differential privacy through Laplace noise) and its certificate."""

from __future__ import annotations

from fractions import Fraction

from attrs import frozen

from privopt.interfaces import Certificate, Guarantee, PrivacyConstraint
from privopt.interfaces.additive import NoiseCall, certify_noise
from privopt_fl_linear.location import compute_noise_budget
from privopt_fl_linear.quantiles import Noise
from privopt_fl_linear.release import FLRelease

__all__ = ["COVERED", "LocalLaplace"]

COVERED = (
    "Local differential privacy: whoever sees everything published, the server included, cannot tell b clients at one "
    "location from b + 1 better than epsilon allows. To hide g clients of one location together costs g epsilon; a "
    "client who moves costs epsilon at each of two locations. Locations, distances and costs are public."
)

DECLARED = (
    "that noise was drawn, freshly and at that scale; if the problem gave noisy_clients, that locations drew it for "
    "this epsilon"
)
"""The guarantee's assumption that cannot be checked on a release."""

TOLD_SITES = (
    "; for the failure probability, that details.told.opening.sites were chosen by public data, before counts were seen"
)
"""A further assumption that cannot be checked, added if the facilities were chosen from public data."""


@frozen(kw_only=True)
class LocalLaplace(PrivacyConstraint[FLRelease]):
    """Local DP by adding Laplace noise of scale 1 / epsilon to each location's count (Theorems 1 and 5).

    Attributes:
        epsilon: The exact privacy budget.
        locations: The number of locations, each of which sends one report.
        noise: The kind of Laplace noise, ``"discrete"`` or ``"continuous"``.
        opening: Whether the facilities to open were chosen from public data. ``verify`` cannot check that they were
            chosen before the counts were seen, so the certificate lists this as an assumption.
    """

    epsilon: Fraction
    locations: int
    noise: Noise
    opening: bool = False

    @property
    def guarantee(self) -> Guarantee:
        """The claimed guarantee: local DP (kind ``local-dp``) for one client at one location."""
        return Guarantee(
            kind="local-dp",
            epsilon=self.epsilon,
            unit="per client",
            scope="one client at one location",
            statement=COVERED,
        )

    def measure(self, release: FLRelease) -> Certificate:
        """Certify in exact rational arithmetic that sensitivity / scale <= epsilon for the noise at each location.

        The release depends on the true counts only through the noisy reports. The scale used is the one prescribed by
        epsilon or, if smaller, the scale of the noise drawn in this run. If the locations drew their noise themselves,
        its scale cannot be checked.

        Args:
            release: The release, which states the scale of the noise if it was drawn in this run.
        """
        scale = 1 / compute_noise_budget(self.epsilon)
        # The smaller scale is certified, because it spends more budget.
        scale = scale if release.scale is None else min(scale, release.scale)
        call = NoiseCall(scale=scale, sensitivity=1)  # adding or removing a client changes one count by one
        return certify_noise(
            self.guarantee,
            [call],
            checked=self.locations,
            rests_on=DECLARED + (TOLD_SITES if self.opening else ""),
            notes={"distribution": f"{self.noise} Laplace"},
        )
