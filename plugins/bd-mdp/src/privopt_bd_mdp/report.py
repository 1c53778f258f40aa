"""The report's section on the decomposition: its parts, blocks, boundaries and rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privopt.interfaces import Result
from privopt.report import Section, table_section
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.report.reporting import MetricReporting

__all__ = ["BDmDPReporting", "sections"]

# Heading of each column of the report's table, by the key of a part's figures (solver._count_figures).
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
    """The report that every metric mechanism has, with an additional section on the decomposition."""

    def report(self, problem: MetricInstance[Any], release: MatrixRelease, result: Result) -> Sequence[Section]:
        """Return the sections that every metric mechanism's report has, followed by the one on the decomposition."""
        return [*super().report(problem, release, result), *sections(result)]


def sections(result: Result) -> Sequence[Section]:
    """Return a section with a table row for each decomposed connected part, or an empty tuple if there are none.

    A part is not decomposed if a closed form solved it, or if the method was not a decomposition.
    """
    # `told` contains the solver's figures, which `verify` does not check. The lead below says so.
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
