"""The body of ``privopt check``: the kit on an installed mechanism."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privopt.testing.runner import CheckResult

__all__ = ["check", "table"]


def check(
    mechanism: str, method: str | None = None, *, told: Callable[[CheckResult], None] | None = None
) -> list[CheckResult]:
    """Run every check on an installed mechanism.

    Args:
        mechanism: its name.
        method: one of its methods; where None each that has a guarantee. One of kind "none" is held against what its
            paper claims.
        told: called with each result as soon as it is there.

    Returns:
        One result a method and check.

    Raises:
        PrivoptError: no such mechanism or method, or no profile to try it by.
    """
    from hypothesis.configuration import set_hypothesis_home_dir

    from privopt.testing.checks import CHECKS
    from privopt.testing.efforts import effort
    from privopt.testing.runner import run_checks
    from privopt.testing.under_trial import subjects

    results: list[CheckResult] = []
    with tempfile.TemporaryDirectory(prefix="privopt-check-") as home:
        set_hypothesis_home_dir(home)  # else a folder .hypothesis appears where the command is run
        for tried in subjects(mechanism, method):
            try:
                for name in CHECKS:
                    results += run_checks(tried, [name], how=effort())
                    if told is not None:
                        told(results[-1])
            finally:
                tried.close()
    return results


def table(results: Sequence[CheckResult]) -> str:
    """Results as a table for the terminal, what was found below it."""
    rows = [(r.method, r.check, str(r.version), r.status, f"{r.seconds:.1f} s", _line(r)) for r in results]
    widths = [max((len(row[n]) for row in rows), default=0) for n in range(5)]
    padded = [[cell.ljust(width) for cell, width in zip(row[:5], widths, strict=True)] + [row[5]] for row in rows]
    lines = ["  ".join(row).rstrip() for row in padded]
    for result in results:
        if result.status == "failed":
            lines += ["", f"{result.method}: {result.check} (version {result.version}) failed", result.reason]
    return "\n".join(lines)


def _line(result: CheckResult) -> str:
    if result.status == "passed":
        return f"{result.examples} problem{'s' * (result.examples != 1)}"
    return result.reason.splitlines()[0] if result.reason else ""
