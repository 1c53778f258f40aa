"""Show the releases of metric mechanisms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privopt.interfaces import Reporting, Result
from privopt.interfaces.cost import limit_meaning
from privopt.interfaces.reporting import Layer, Section
from privopt_metric_dp.attacks.meaning import in_readers_unit
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.report import pages
from privopt_metric_dp.report.browser_check import check_section

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

__all__ = ["MetricReporting"]


class MetricReporting(Reporting[MetricInstance[Any], MatrixRelease]):
    """A map to explore, losses, worst pairs, baselines and convergence."""

    def report(self, problem: MetricInstance[Any], release: MatrixRelease, result: Result) -> Sequence[Section]:
        """Return the body of the report."""
        utility = self.mechanism.utility(problem, result.method)
        sections = pages.metric_sections(release, problem.data, result, utility)
        relation = self.mechanism.privacy(problem, result.method).relation
        meaning = self.mechanism.meaning(problem, release, result)
        sentences = [*meaning, *limit_meaning(result.guarantee, relation)]
        return [pages.meaning_section(sentences, problem.data.records, result), *sections]

    def in_readers_unit(self, problem: MetricInstance[Any], result: Result, value: float) -> str:
        """Return km of loss in the unit of ``[utility] per_km``."""
        return in_readers_unit(problem.data, result.objective, value)

    def report_check(self, release: MatrixRelease, result: Result, folder: Path) -> Section | None:
        """Return the artefact, and a button that proves privacy and bound in the browser."""
        return check_section(folder, release, result)

    def figures(self, problem: MetricInstance[Any], release: MatrixRelease, result: Result) -> Mapping[str, Figure]:
        """Draw the loss over the map, the privacy spent, one record's spread and the convergence."""
        utility = self.mechanism.utility(problem, result.method)
        return pages.metric_figures(release, problem.data, result, utility)

    def geo(self, problem: MetricInstance[Any], release: MatrixRelease, result: Result) -> Layer | None:
        """Return records with their losses, and outputs with how often they are released."""
        return pages.metric_layer(release, problem.data, self.mechanism.utility(problem, result.method))
