"""The report's section on the decomposition: parts, blocks, boundaries, rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privopt.interfaces import Result
from privopt.report import Section, table_section
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.report.reporting import MetricReporting

__all__ = ["BDmDPReporting", "sections"]

COLUMNS = {
    "records": "records",
    "pairs": "pairs",
    "blocks": "blocks",
    "largest_block": "largest block",
    "boundary": "boundary records",
    "pairs_between_subsets": "pairs between subsets",
    "rounds": "rounds",
}


class BDmDPReporting(MetricReporting):
    """The report of metric mechanisms, and a section on the decomposition."""

    def report(self, problem: MetricInstance[Any], release: MatrixRelease, result: Result) -> Sequence[Section]:
        """Return the body of the report."""
        return [*super().report(problem, release, result), *sections(result)]


def sections(result: Result) -> Sequence[Section]:
    """Return a section for each connected part that was decomposed; none if none was."""
    solver_figures = result.details.told
    parts = solver_figures.get("parts", ())
    if not parts:
        return ()
    lead = (
        f"The records were partitioned by {solver_figures.get('partition')}; each connected part was decomposed on its "
        "own. These figures are the solver's word; loss, bound and privacy above do not rest on them."
    )
    rows = [tuple(part.get(name, "") for name in COLUMNS) for part in parts]
    return (table_section("The decomposition", tuple(COLUMNS.values()), rows, lead),)
