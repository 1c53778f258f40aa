"""The report on a spherical-laplace release, which shows how far reports lie from the true position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from privopt.arrays import Figure
from privopt.interfaces import Result
from privopt.interfaces.reporting import Reporting
from privopt.report import Section, figure_section, use_theme
from privopt.report.theme import MARK, axes_of
from privopt_spherical_laplace.law import quantiles
from privopt_spherical_laplace.problem import SphereInstance
from privopt_spherical_laplace.release import SphereRelease

__all__ = ["SphereReporting"]


@use_theme
def distance_figure(problem: SphereInstance) -> Figure:
    """Plot the cumulative distribution of the distance between a position and its unrounded report."""
    # The curve ends at 99.5 %, beyond which it is nearly flat. The point at probability 0 is left out.
    probabilities = np.linspace(0.0, 0.995, 200)[1:]
    figure, axes = axes_of(6.4, 3.0)
    axes.plot(quantiles(problem.epsilon, probabilities), probabilities, color=MARK)
    axes.set_ylim(0.0, 1.0)
    axes.set_xlim(left=0.0)
    axes.set_xlabel("distance from the position, in km")
    axes.set_ylabel("probability of being nearer")
    return figure


class SphereReporting(Reporting[SphereInstance, SphereRelease]):
    """The report on a spherical-laplace release, which shows how far reported positions lie from the true one."""

    def figures(self, problem: SphereInstance, release: SphereRelease, result: Result) -> Mapping[str, Figure]:
        """Return the only figure, named ``distance``, which shows how far reports lie from the true position."""
        return {"distance": distance_figure(problem)}

    def report(self, problem: SphereInstance, release: SphereRelease, result: Result) -> Sequence[Section]:
        """Return a single section with the figure and the median and 95th percentile of the distance in km."""
        median, p95 = quantiles(problem.epsilon, np.array([0.5, 0.95])).tolist()
        lead = (
            f"Around any position half of all reports are drawn within {median:.3g} km and 95 % within {p95:.3g} km. "
            "Then they are rounded, which costs no privacy."
        )
        return [figure_section("How far reports lie from the position", distance_figure(problem), lead)]
