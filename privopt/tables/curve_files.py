"""``privopt curve``: the curves into a table, and into a page where one is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from privopt.declare.schema import File
from privopt.errors import UsageError
from privopt.run.publish import check_file, new_file
from privopt.run.solve import Options
from privopt.tables.curve import Curves, draw_curves, epsilons_of
from privopt.tables.curve_page import curve_page

__all__ = ["write_curves"]


def write_curves(
    problem: Path,
    mechanisms: list[str],
    epsilon: str,
    out: Path,
    report: Path | None,
    options: Options,
    matrices: Sequence[Path] = (),
) -> Curves:
    """Solve, and write what was found.

    Args:
        problem: the problem file.
        mechanisms: names.
        epsilon: LO:HI:N.
        out: the table, CSV.
        report: the page, or None.
        options: those that :func:`privopt.tables.curve.draw_curves` uses; ``force`` replaces files that are there.
        matrices: own mechanisms, as there.

    Raises:
        UsageError: files that are there, or options that cannot be meant so.
        PrivoptError: as :func:`privopt.tables.curve.draw_curves`.
    """
    values = epsilons_of(epsilon)
    for path in (out, report):
        if path is not None:
            check_file(path.absolute(), force=options.force)
    if report is not None and report.absolute().resolve() == out.absolute().resolve():
        raise UsageError(f"--report {report}: is --out too; name two files")
    source = File.read(problem, wanted="a problem file in TOML")
    found = draw_curves(source, mechanisms, values, options, matrices)
    with ExitStack() as files:  # both are made before either gets its name
        if report is not None:
            files.enter_context(new_file(report, force=options.force)).write_text(
                curve_page(found, problem.name), "utf-8"
            )
        found.table().write_csv(files.enter_context(new_file(out, force=options.force)))
    return found
