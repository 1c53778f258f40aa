"""The body of ``privopt check``: the kit on an installed mechanism."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed

from attrs import evolve
from hypothesis.configuration import set_hypothesis_home_dir

from privopt.errors import UnknownNameError, UsageError
from privopt.execution import processes, worker_state
from privopt.registry import registry
from privopt.testing.checks import checks as all_checks
from privopt.testing.runner import CheckResult, run_check
from privopt.testing.under_trial import subject


def check(
    mechanism: str,
    method: str | None = None,
    *,
    only: Sequence[str] = (),
    seed: int = 0,
    on_result: Callable[[CheckResult], None] | None = None,
) -> list[CheckResult]:
    """Run every check on an installed mechanism, its methods side by side in a worker process for each processor.

    Args:
        mechanism: its name.
        method: one of its methods; where None each that has a guarantee. One of kind "none" is held against what its
            paper claims.
        only: names of the checks to run; all of them where empty.
        seed: of the problems drawn.
        on_result: called with each result as soon as it is there.

    Returns:
        One result a method and check, in the order of methods and checks.

    Raises:
        UnknownNameError, UsageError: no mechanism, method or check is called so; says what is not installed.
    """
    registered = registry().get(mechanism)
    guaranteed = [one.name for one in registered.spec.methods if registered.spec.promises(one)]
    for name in only:
        if name not in all_checks():
            error = UnknownNameError("check", name, all_checks())
            raise UsageError("; ".join([str(error), *registry().describe_absences()])) from error
    checks = [name for name in all_checks() if not only or name in only]
    names = guaranteed if method is None else [registered.method(method).name]
    workers = max(1, min(len(names), os.cpu_count() or 1))
    results: dict[tuple[str, str], CheckResult] = {}
    with tempfile.TemporaryDirectory(prefix="privopt-check-") as home, processes(workers) as executor:
        running = [  # a method's checks all to one worker, which keeps what it solved
            executor.submit(name, _one, home, mechanism, name, each, len(names), seed)
            for name in names
            for each in checks
        ]
        for done in as_completed(running):
            result = done.result()
            results[result.method, result.check] = result
            if on_result is not None:
                on_result(result)
    return [results[name, check] for name in names for check in checks]


def _one(home: str, mechanism: str, method: str, check: str, siblings: int, seed: int) -> CheckResult:
    """In a worker: one check of one method, on the subject that the method's earlier checks left here."""
    kept = worker_state()
    if kept.get("trying") != (mechanism, method):
        tempfile.tempdir = home  # all that is written is gone with it, however this worker ends
        set_hypothesis_home_dir(home)  # else a folder .hypothesis appears where the command is run
        if "subject" in kept:
            kept["subject"].close()
        kept["trying"], kept["subject"] = (mechanism, method), subject(mechanism, method)
        kept["subject"].siblings = siblings
    return run_check(check, kept["subject"], seed=seed)


def table(results: Sequence[CheckResult]) -> str:
    """Format results as a table for the terminal, with the findings below it."""
    rows = [(r.method, r.check, str(r.version), r.status, f"{r.seconds:.1f} s", _line(r)) for r in results]
    widths = [max((len(row[n]) for row in rows), default=0) for n in range(5)]
    padded = [[cell.ljust(width) for cell, width in zip(row[:5], widths, strict=True)] + [row[5]] for row in rows]
    lines = ["  ".join(row).rstrip() for row in padded]
    for result in results:
        if result.status == "failed":
            lines += ["", f"{result.method}: {result.check} (version {result.version}) failed", result.reason]
    return "\n".join(lines)


def judge_skips(results: Sequence[CheckResult]) -> list[CheckResult]:
    """Return the results with every check that applies and was skipped without a stated reason as a failure."""
    return [
        evolve(result, status="failed", reason=f"skipped: {result.reason}") if result.missed else result
        for result in results
    ]


def _line(result: CheckResult) -> str:
    if result.status == "passed":
        done = f"{result.examples} problem{'s' * (result.examples != 1)}"
        return f"{done}; {result.note}" if result.note else done
    return result.reason.splitlines()[0] if result.reason else ""
