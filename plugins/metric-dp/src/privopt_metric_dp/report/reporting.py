"""The class that presents releases of metric mechanisms on report pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privopt.arrays import Figure
from privopt.interfaces import Reporting, Result
from privopt.interfaces.cost import limit_meaning
from privopt.interfaces.reporting import Layer, Section
from privopt_metric_dp.attacks.meaning import describe_error, describe_guess, guess_rates, in_readers_unit, noun_of
from privopt_metric_dp.matrix.expected_loss import costs_of
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.report import pages
from privopt_metric_dp.report.browser_check import check_section

__all__ = ["MetricReporting"]


class MetricReporting(Reporting[MetricInstance[Any], MatrixRelease]):
    """The report on a metric release, with an interactive map, losses, worst pairs, baselines and convergence."""

    def headline(self, problem: MetricInstance[Any], release: MatrixRelease, result: Result) -> str:
        """Return sentences on what is reported, the average error, and how often an attacker guesses correctly."""
        data, noun = problem.data, noun_of(problem.data.records)
        # A mechanism may use another class for its problem files, which has no [utility] table.
        declared = problem.declared
        kind = declared.utility.kind if isinstance(declared, MetricProblem) else ""
        # A mechanism may have a loss of its own that differs from the one in [utility].
        if costs_of(self.mechanism.utility(problem, result.method), data) is not data:
            kind = ""
        published = f"Instead of the true {noun}, one of {len(data.outputs):,} is reported, drawn at random."
        if len(data.outputs) == 1:
            published = f"Whatever the true {noun}, the same one is always reported."
        guess = describe_guess(*guess_rates(release, data), noun)
        return f"{published} {describe_error(data, result.objective, kind)} {guess}"

    def report(self, problem: MetricInstance[Any], release: MatrixRelease, result: Result) -> Sequence[Section]:
        """Return the sections of the report, such as the map, the explanation of the guarantee, and the losses."""
        utility = self.mechanism.utility(problem, result.method)
        sections = pages.metric_sections(release, problem.data, result, utility)
        relation = self.mechanism.privacy(problem, result.method).relation
        meaning = self.mechanism.meaning(problem, release, result)
        together = (
            f"Many reports together tell how common each {noun_of(problem.data.records)} is, at no further cost: "
            "privopt estimate DIR REPORTS.csv --out SHARES.csv."
        )
        sentences = [*meaning, *limit_meaning(result.guarantee, relation), together]
        # The map is the first picture on the page.
        return [*sections[:1], pages.meaning_section(sentences, problem.data.records, result, relation), *sections[1:]]

    def in_readers_unit(self, problem: MetricInstance[Any], result: Result, value: float) -> str:
        """Convert a loss in km to the unit declared by ``[utility] per_km``, and return it as a string.

        The string is empty if no unit is declared.
        """
        return in_readers_unit(problem.data, result.objective, value)

    def report_check(self, release: MatrixRelease, result: Result, folder: Path) -> Section | None:
        """Return a section with the release and a button that checks its privacy and lower bound in the browser.

        Returns None if the release is too large or cannot be checked in the browser.
        """
        return check_section(folder, release, result)

    def figures(self, problem: MetricInstance[Any], release: MatrixRelease, result: Result) -> Mapping[str, Figure]:
        """Return the figures of the report, keyed by file name, such as maps of each record's loss and privacy."""
        utility = self.mechanism.utility(problem, result.method)
        return pages.metric_figures(release, problem.data, result, utility)

    def geo(self, problem: MetricInstance[Any], release: MatrixRelease, result: Result) -> Layer | None:
        """Return a map layer that shows the loss of each record and the frequency of each output.

        Returns None if the records have no coordinates on a map.
        """
        return pages.metric_layer(release, problem.data, self.mechanism.utility(problem, result.method))
