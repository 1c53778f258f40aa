"""What people are told about a released matrix: its meaning, warnings, and what an attacker gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic

from privopt.declare.name_forms import warn_of_look_alikes
from privopt.interfaces import Channel, Mechanism, Result
from privopt_metric_dp.attacks.meaning import Interpretation, costs_in_words, interpret_guarantee
from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import D, MetricInstance

__all__ = ["MatrixWords"]


class MatrixWords(Mechanism[MetricInstance[D], MatrixRelease], Generic[D]):
    """The methods of a metric mechanism that describe a release, and search for none."""

    def meaning(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> Sequence[str]:
        """Return the promise between nearest neighbours, the best guess next to chance, and the cost to a reader."""
        return (*self._interpret(problem, release, result).sentences, *costs_in_words(problem.data, result.objective))

    def warnings(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> Sequence[str]:
        """Warn of doubtful input, of a guarantee that protects little, of a coarse mesh, and of ids that look alike."""
        data = problem.data
        mesh_warning = None if data.region is None else data.region.coarse(data.epsilon)
        look_alikes = warn_of_look_alikes((*data.records.ids, *data.outputs.ids), "ids")
        interpretation = self._interpret(problem, release, result)
        return [*data.warnings, *interpretation.warnings, *filter(None, [mesh_warning]), *look_alikes]

    def _interpret(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> Interpretation:
        by_distance = isinstance(self.privacy(problem, result.method), MetricDP)
        return interpret_guarantee(release, problem.data, by_distance=by_distance)

    def channel(self, problem: MetricInstance[D], release: MatrixRelease) -> Channel:
        """Return the matrix as a channel; with prior, distances and places if it has a row for each record."""
        return release.channel_over(problem.data)

    def audit(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> Mapping[str, Any]:
        """Measure achieved epsilon over all pairs, GV ratio, GV error, Bayes error, entropy, and attack samples."""
        from privopt_metric_dp.attacks.matrix_figures import audit_matrix

        return audit_matrix(release, problem.data, self.utility(problem, result.method))

    def over_time(
        self, problem: MetricInstance[D], release: MatrixRelease, result: Result, reports: int
    ) -> Mapping[str, Any] | None:
        """Return how far the likeliest record of many reports is from their place."""
        from privopt_metric_dp.attacks.many_reports import over_time

        return over_time(release, problem.data, max_reports=reports)
