"""The spherical-laplace mechanism, which adds exactly sampled noise to positions anywhere on Earth.

It extends the planar Laplace mechanism of Andrés, Bordenabe, Chatzikokolakis and Palamidessi (CCS 2013) to the sphere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_DOWN, Context
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from attrs import evolve

from privopt.declare.toml_text import exact_text
from privopt.errors import Fault, InputError
from privopt.interfaces import Channel, Mechanism, Outcome, Result, SolveContext
from privopt_spherical_laplace.law import doubling_distance, expected_distance, quantiles
from privopt_spherical_laplace.loss import ExpectedDistance, best_remap
from privopt_spherical_laplace.nearest import channel_of_points
from privopt_spherical_laplace.privacy import SphereDP
from privopt_spherical_laplace.problem import Privacy, SphereInstance, SphereProblem, check_epsilon
from privopt_spherical_laplace.release import SphereRelease

__all__ = ["SphericalLaplace"]

NO_LOWER_BOUND: Final = (
    "no closed form: the least loss over these points under this prior is the value of a linear program, of which "
    "optimal-lp over the same points states a proved bound"
)
"""The explanation in result.json for the missing lower bound if reports are points."""


class SphericalLaplace(Mechanism[SphereInstance, SphereRelease]):
    """A mechanism that adds Laplace noise to positions on the sphere.

    Noisy positions are rounded to decimal digits, to the cells of a grid, or to the nearest of a set of points.
    """

    problem_class = SphereProblem
    release_class = SphereRelease
    kit = "privopt_spherical_laplace.kit:PROFILE"
    reporting = "privopt_spherical_laplace.report:SphereReporting"
    scope = (
        "epsilon-metric DP of each report, between any two positions on Earth at great-circle distance d on a sphere "
        "of radius 6371.0088 km; a second report of the same position spends epsilon again."
    )
    bound_is_proof: ClassVar[bool] = True

    def load(self, declared: SphereProblem, file: str) -> SphereInstance:
        """Load a problem, including any points and prior that it refers to.

        Raises:
            InputError: The problem file, or a file that it refers to, is invalid.
        """
        return SphereInstance.of(declared, file)

    def privacy(self, problem: SphereInstance, method: str) -> SphereDP:
        """Return the privacy constraint, which is metric DP between any two positions on Earth."""
        return SphereDP(epsilon=problem.epsilon)

    def utility(self, problem: SphereInstance, method: str) -> ExpectedDistance:
        """Return the utility loss, which is the expected distance between a position and its report.

        The position is uniform on the sphere or, if reports are points, drawn from the prior over the points.
        """
        return ExpectedDistance(problem=problem)

    def solve(self, problem: SphereInstance, context: SolveContext) -> Outcome[SphereRelease]:
        """Make the release, which consists of the noise parameters and, if points are remapped, the mapping."""
        remap = best_remap(problem)[0] if problem.is_remapped else None
        release = SphereRelease(problem=problem, epsilon=problem.epsilon, remap=remap)
        bound = _lower_bound(problem)
        return Outcome(release=release, lower_bound=bound, solver={"name": "closed form"})

    def proved_bound(
        self, problem: SphereInstance, release: SphereRelease, result: Result, folder: Path
    ) -> float | None:
        """Return a lower bound on the expected loss of any mechanism with the same guarantee.

        The bound holds for positions that are uniformly distributed on the sphere. Returns None if reports are points,
        because the bound does not apply in that case.
        """
        return _lower_bound(problem)

    def details(
        self, problem: SphereInstance, release: SphereRelease, method: str, recorded: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return an explanation of the missing lower bound if reports are points, and an empty mapping otherwise."""
        return {} if problem.side is not None else {"no_lower_bound": NO_LOWER_BOUND}

    def meaning(self, problem: SphereInstance, release: SphereRelease, result: Result) -> Sequence[str]:
        """Return sentences that explain how far reports are from the true position, and what the guarantee means."""
        median, p95 = quantiles(problem.epsilon, np.array([0.5, 0.95])).tolist()
        bound = _lower_bound(problem)
        sentences = [
            f"Half of all reports are drawn within {median:.3g} km of the position, and 95 % within {p95:.3g} km; then "
            "they are rounded.",
            f"A report is at most twice as likely from one position as from another up to "
            f"{_round_down(doubling_distance(problem.epsilon)):g} km away.",
        ]
        if bound is not None:
            # As the density falls with the distance, an attacker's best guess is the unrounded report itself.
            sentences.append(
                "Whoever guesses a position, which may be anywhere on Earth, from one report is wrong by "
                f"{_round_down(bound):g} km in the mean, or by more."
            )
        if release.remap is not None:
            changed = int((release.remap != np.arange(len(release.remap))).sum())
            sentences.append(f"Under the prior another point than the nearest is reported for {changed} points.")
        return sentences

    def at_epsilon(self, problem: SphereInstance, epsilon: Fraction) -> SphereInstance:
        """Return a copy of the problem with a different epsilon, for plots of the loss against epsilon.

        Raises:
            InputError: Epsilon is outside the range for which draws are proved to be exact.
        """
        if (expectation := check_epsilon(epsilon)) is not None:
            raise InputError([Fault("problem", "privacy.epsilon", exact_text(epsilon), expectation)])
        return evolve(problem, declared=evolve(problem.declared, privacy=Privacy(epsilon=epsilon)))

    def channel(self, problem: SphereInstance, release: SphereRelease) -> Channel | None:
        """Return the channel from points to reports, for attacks and estimates.

        Returns None if reports are not points, or if there are more than :data:`MAX_PRIOR_POINTS` points.
        """
        return channel_of_points(problem, release)

    def audit(self, problem: SphereInstance, release: SphereRelease, result: Result) -> Mapping[str, Any]:
        """Return the claimed epsilon, the achieved epsilon (the rate of the noise) and the expected loss."""
        return {
            "epsilon": {"claimed": float(problem.epsilon), "achieved": float(release.epsilon)},
            "expected_loss": result.objective.value,
        }


def _round_down(value: float) -> float:
    """Round a positive number down to three significant digits, so that a sentence does not overstate a lower bound.

    >>> _round_down(0.57762), _round_down(1.42857), _round_down(577622.6)
    (0.577, 1.42, 577000.0)
    """
    return float(Context(prec=3, rounding=ROUND_DOWN).create_decimal(value))


def _lower_bound(problem: SphereInstance) -> float | None:
    """Return a lower bound on the loss of any mechanism that satisfies the problem's guarantee.

    The bound is the expected distance between a position and its report before rounding. Returns None if reports are
    points, because the bound does not apply in that case.
    """
    return None if problem.side is None else expected_distance(problem.epsilon)[0]
