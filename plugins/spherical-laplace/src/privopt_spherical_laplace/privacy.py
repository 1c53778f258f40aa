"""The privacy guarantee of spherical-laplace, which is certified from the parameters of a release."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Final

from attrs import frozen

from privopt.declare.toml_text import exact_text
from privopt.interfaces import Certificate, Guarantee, PrivacyConstraint
from privopt_metric_dp.matrix.privacy import SPHERE
from privopt_spherical_laplace.law import SMALLEST_EPSILON
from privopt_spherical_laplace.release import SphereRelease
from privopt_spherical_laplace.sampler.exact import RADIUS_KM

__all__ = ["SphereDP"]

_STATEMENT: Final = (
    "Whoever sees the output, and whatever else they know: the odds between any two positions on Earth change by at "
    "most exp({epsilon:g} d), where d is their great-circle distance in km on a sphere of radius {radius} km."
)


@frozen(kw_only=True)
class SphereDP(PrivacyConstraint[SphereRelease]):
    """The guarantee of epsilon-metric DP between any two positions on the sphere.

    Attributes:
        kind: The name of the privacy notion.
        odds: Whether the notion bounds how much an output can change the odds between two positions.
        epsilon: The claimed epsilon per km, exact.
    """

    kind: ClassVar[str] = "metric-dp"
    odds: ClassVar[bool] = True

    epsilon: Fraction

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee stated with the release, which is metric DP between any two positions on Earth."""
        radius = exact_text(RADIUS_KM)
        return Guarantee(
            kind=self.kind,
            epsilon=self.epsilon,
            unit="per km",
            scope="everywhere",
            statement=_STATEMENT.format(epsilon=float(self.epsilon), radius=radius),
            extra={SPHERE: radius},
        )

    def measure(self, release: SphereRelease) -> Certificate:
        """Certify in rational arithmetic that the release's rate and radius satisfy the claim.

        Given a position x, a report y has the density ``exp(-rate * d(x, y)) / Z``, where Z is the same constant for
        every x. The logarithms of the densities for two positions x and x' therefore differ by at most
        ``rate * d(x, x')`` (docs/reference/proof.md, "The sphere"). The radius must be the claimed one, because
        distances are measured on a sphere with that radius.
        """
        failures = []
        if release.epsilon > self.epsilon:
            failures.append(f"law.csv: the rate {float(release.epsilon):g} exceeds epsilon, {float(self.epsilon):g}")
        if release.epsilon < SMALLEST_EPSILON:
            failures.append(
                f"law.csv: the rate {float(release.epsilon):g} is below 0.000001, which no draw is proved for"
            )
        if release.radius_km != RADIUS_KM:
            failures.append(f"law.csv: the radius is {float(release.radius_km):g} km, not {float(RADIUS_KM):g} km")
        return Certificate(
            holds=not failures,
            evidence="proved",
            kind=self.kind,
            worst=float(release.epsilon),
            allowed=float(self.epsilon),
            checked=2,  # the rate and the radius
            arithmetic="a theorem on the law of these parameters, which are compared as rationals",
            failures=tuple(failures),
        )
