"""The privacy guarantee of FL-Linear."""

from __future__ import annotations

from fractions import Fraction

from attrs import evolve, frozen

from privopt.interfaces import Certificate, Guarantee, PrivacyConstraint
from privopt.interfaces.additive import NoiseCall, certify_noise
from privopt_fl_linear.location import compute_noise_budget
from privopt_fl_linear.quantiles import Noise
from privopt_fl_linear.release import FLRelease

__all__ = ["COVERED", "LocalLaplace"]

COVERED = (
    "Local differential privacy: whoever sees everything published, the server included, cannot tell b clients at one "
    "location from b + 1 better than epsilon allows. g clients at a location: g epsilon. A client who moves: epsilon "
    "at each of two locations. Locations, distances and costs are public."
)

DECLARED = (
    "that noise was drawn, freshly and at that scale; where the problem gave noisy_clients, that locations drew it for "
    "this epsilon"
)

TOLD_SITES = (
    "; for the failure probability, that details.told.opening.sites were chosen by public data, before counts were seen"
)


@frozen(kw_only=True)
class LocalLaplace(PrivacyConstraint[FLRelease]):
    """Each location's count with Laplace noise of scale 1 / epsilon: Theorems 1 and 5.

    Attributes:
        epsilon: The exact budget.
        locations: Number of reports that are checked.
        noise: ``"discrete"`` or ``"continuous"``.
        opening: Whether the open facilities were chosen. ``verify`` takes that choice as it is recorded.
    """

    epsilon: Fraction
    locations: int
    noise: Noise
    opening: bool = False

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee, of kind ``local-dp``, for one client at one location."""
        return Guarantee(
            kind="local-dp",
            epsilon=self.epsilon,
            unit="per client",
            scope="one client at one location",
            statement=COVERED,
        )

    def measure(self, release: FLRelease) -> Certificate:
        """Compare sensitivity / scale with epsilon, in rationals, for each location's report.

        Only the reports lead from the counts to the release. The scale is the one that epsilon prescribes. Noise that
        was drawn here must have at least that scale. One release cannot show at which scale locations drew theirs.
        """
        scale = 1 / compute_noise_budget(self.epsilon)
        scale = scale if release.scale is None else min(scale, release.scale)
        call = NoiseCall(scale=scale, sensitivity=1)  # one client more or less changes one count by one
        certificate = certify_noise(
            self.guarantee,
            [call],
            checked=self.locations,
            rests_on=DECLARED + (TOLD_SITES if self.opening else ""),
            notes={"distribution": f"{self.noise} Laplace"},
        )
        return evolve(certificate, arithmetic="declared")
