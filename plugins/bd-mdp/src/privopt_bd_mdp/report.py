"""The report section on the decomposition, which lists the numbers of blocks, boundary records and rounds by part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privopt.interfaces import Result
from privopt.report import Section, table_section
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.report.reporting import MetricReporting

__all__ = ["BDmDPReporting", "sections"]

# Column headings, keyed by the name of the statistic (see solver._count_figures).
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
    """The report of a metric mechanism with an additional section on the decomposition."""

    def report(self, problem: MetricInstance[Any], release: MatrixRelease, result: Result) -> Sequence[Section]:
        """Return the standard sections for a metric mechanism, followed by the section on the decomposition."""
        return [*super().report(problem, release, result), *sections(result)]


def sections(result: Result) -> Sequence[Section]:
    """Return a section with a table of the decomposed parts, or an empty tuple if no part was decomposed.

    A part is a connected component of the graph of required pairs. Parts solved in closed form are not decomposed. If
    the run's method is not a decomposition, no part is decomposed.
    """
    # `told` holds what the solver reported about itself. `verify` does not check it, and the lead says so.
    solver_figures = result.details.told
    parts = solver_figures.get("parts", ())
    if not parts:
        return ()
    lead = (
        f"The records were partitioned by {solver_figures.get('partition')}; each connected part was decomposed on "
        "its own. These figures are reported by the solver and not checked; loss, bound and privacy above do not "
        "rest on them."
    )
    rows = [tuple(part.get(name, "") for name in COLUMNS) for part in parts]
    return (table_section("The decomposition", tuple(COLUMNS.values()), rows, lead, for_experts=True),)
