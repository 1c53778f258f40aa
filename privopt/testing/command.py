"""The body of ``privopt check``, which runs the conformance kit on an installed mechanism and formats its results.

The methods are checked in parallel in worker processes. All checks of a method run in the same worker, which caches the
problems that it has solved.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed

from attrs import evolve
from hypothesis.configuration import set_hypothesis_home_dir

from privopt.errors import UnknownNameError, UsageError, number_of
from privopt.execution import processes, worker_state
from privopt.interfaces import Progress
from privopt.registry import registry
from privopt.testing.checks import check_names
from privopt.testing.efforts import Effort, effort
from privopt.testing.runner import CheckResult, run_check
from privopt.testing.under_trial import subject


def check(
    mechanism: str,
    method: str | None = None,
    *,
    only: Sequence[str] = (),
    how: Effort | str | None = None,
    seed: int = 0,
    on_result: Callable[[CheckResult], None] | None = None,
    progress: Progress | None = None,
) -> list[CheckResult]:
    """Run checks on an installed mechanism, with up to one worker process per processor.

    Args:
        mechanism: The mechanism's name.
        method: One of the mechanism's methods, or None for every method that has a guarantee. A method without a
            guarantee (kind "none") is checked against its paper's claim.
        only: The names of the checks to run. If empty, all checks are run.
        how: The effort: quick, ci, full or an :class:`Effort`. If None, the effort is read from the environment
            variable PRIVOPT_PROFILE, with ci as the default.
        seed: The seed for drawing problems.
        on_result: Called with each result as soon as it is available.
        progress: Called with a string that says how many checks have been completed.

    Returns:
        One result for each combination of method and check, ordered by method and then by check.

    Raises:
        UnknownNameError: The mechanism, method or effort does not exist.
        UsageError: A check does not exist, or ``method`` is None and none of the mechanism's methods has a guarantee.
            For an unknown check, the message also names plugins that are not installed.
    """
    # Look up all names here, so that unknown ones raise errors before any worker starts.
    chosen_effort = effort(how)
    registered = registry().get(mechanism)
    guaranteed_methods = [
        method_spec.name for method_spec in registered.spec.methods if registered.spec.promises(method_spec)
    ]
    names_of_checks = check_names()
    for name in only:
        if name not in names_of_checks:
            error = UnknownNameError("check", name, names_of_checks)
            raise UsageError("; ".join([str(error), *registry().describe_absences()])) from error
    checks = [name for name in names_of_checks if not only or name in only]
    names = guaranteed_methods if method is None else [registered.method(method).name]
    if not names:
        # Otherwise, a mechanism that claims nothing would pass without any check.
        methods = ", ".join(method_spec.name for method_spec in registered.spec.methods)
        raise UsageError(f"no method of {mechanism} has a guarantee; name one of {methods} by --method")
    workers = max(1, min(len(names), os.cpu_count() or 1))
    results: dict[tuple[str, str], CheckResult] = {}
    with tempfile.TemporaryDirectory(prefix="privopt-check-") as home, processes(workers) as executor:
        # With the method's name as the key, all its checks run in the same worker, which caches its solved problems.
        futures = [
            executor.submit(name, _run_in_worker, home, mechanism, name, check_name, len(names), chosen_effort, seed)
            for name in names
            for check_name in checks
        ]
        for future in as_completed(futures):
            result = future.result()
            results[result.method, result.check] = result
            if on_result is not None:
                on_result(result)
            if progress is not None:
                progress(f"{len(results)} of {number_of(len(futures), 'check')}", 0, None, None)
    return [results[name, check] for name in names for check in checks]


def _run_in_worker(
    home: str, mechanism: str, method: str, check: str, siblings: int, how: Effort, seed: int
) -> CheckResult:
    """Run a check on a method in a worker process, and return its result.

    The worker keeps the subject (the method under test with its cache of solved problems) for further checks of the
    same method.

    Args:
        home: The folder for temporary files, which the parent process removes.
        mechanism: The name of the mechanism.
        method: The name of the method.
        check: The name of the check.
        siblings: The number of methods that share the available time.
        how: The effort.
        seed: The seed for drawing problems.
    """
    state = worker_state()
    if state.get("trying") != (mechanism, method):
        tempfile.tempdir = home  # the parent process removes this folder, however the worker ends
        set_hypothesis_home_dir(home)  # otherwise Hypothesis would create .hypothesis in the user's current folder
        if "subject" in state:
            state["subject"].close()
        state["trying"], state["subject"] = (mechanism, method), subject(mechanism, method)
        state["subject"].siblings = siblings
        # Exclude the loaded modules, which stay until the worker exits, from garbage collection. Scanning them again
        # and again took a twentieth of the time.
        gc.collect()
        gc.freeze()
    return run_check(check, state["subject"], how=how, seed=seed)


def table(results: Sequence[CheckResult]) -> str:
    """Return the output of ``privopt check``: a table of results, followed by the findings of failed checks."""
    rows = [(r.method, r.check, str(r.version), r.status, f"{r.seconds:.1f} s", _summary_line(r)) for r in results]
    # The last column, the sixth, is a sentence and is not padded.
    widths = [max((len(row[n]) for row in rows), default=0) for n in range(5)]
    padded = [[cell.ljust(width) for cell, width in zip(row[:5], widths, strict=True)] + [row[5]] for row in rows]
    lines = ["  ".join(row).rstrip() for row in padded]
    for result in results:
        if result.status == "failed":
            lines += ["", f"{result.method}: {result.check} (version {result.version}) failed", result.reason]
    return "\n".join(lines)


def judge_skips(results: Sequence[CheckResult]) -> list[CheckResult]:
    """Return all results, with skipped checks marked as failed unless the profile gives a reason for leaving them out.

    This implements ``privopt check --fail-on-skip``, so that a check that tested nothing does not look like a success.
    Checks that are not applicable are left unchanged.
    """
    return [
        evolve(result, status="failed", reason=f"skipped: {result.reason}") if result.missed else result
        for result in results
    ]


def _summary_line(result: CheckResult) -> str:
    """Return the last cell of a result's table row: the number of problems tried, or the first line of the reason."""
    if result.status == "passed":
        summary = number_of(result.examples, "problem")
        return f"{summary}; {result.note}" if result.note else summary
    return result.reason.splitlines()[0] if result.reason else ""
