"""Run checks on a subject, which is one method of a mechanism, and report each check's result.

Hypothesis draws and shrinks the examples. The runner adds a limit on CPU time, and returns a :class:`CheckResult`
regardless of how a check ends.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import hypothesis
from attrs import asdict, evolve, frozen
from hypothesis import strategies as st
from hypothesis.errors import FailedHealthCheck, Flaky, HypothesisException, Unsatisfiable, UnsatisfiedAssumption

from privopt.errors import PrivoptError, UnknownNameError
from privopt.testing.checks import checks as all_checks
from privopt.testing.checks.base import Check, CheckFailedError, Elsewhere, History, LeftOut, Trial
from privopt.testing.efforts import Effort, effort
from privopt.testing.shared_problems import ProblemSource, shared_problems, without_local_constants
from privopt.testing.under_trial import Subject, error_text


def processor_seconds() -> float:
    """Return the CPU time used by this process and its terminated children, in seconds.

    The kit limits CPU time rather than wall time. Otherwise, fewer problems would be drawn on a busy machine, and the
    checks would be weaker.
    """
    return math.fsum(os.times()[:4])


SHARES: Final = 44
"""The number of checks among which an effort's time is divided.

It roughly equals the number of checks in privopt's own distributions. It is constant, so that results do not depend on
which plugins are installed.
"""

UNSOLVED: Final = "no generated problem was solved"
"""The reason given if none of a check's examples could be solved."""
NOTHING_TO_CHECK: Final = "nothing to check was found in the {} generated problems that were solved"
"""The reason given if no example could have revealed a fault, with a placeholder for the number of solved problems."""

MAX_REJECTED: Final = 10
"""The number of discarded examples after which a check ends, as a multiple of the effort's examples.

Hypothesis uses the same factor.
"""

Status = Literal["passed", "failed", "skipped", "not applicable"]
"""The status of a completed check, as explained in :class:`CheckResult`."""


@frozen(kw_only=True)
class CheckResult:
    """The result of one check.

    Attributes:
        check: The check's name.
        version: The check's version.
        status: The outcome: "passed", "failed", "skipped" if the check could not run, or "not applicable" if it does
            not concern this kind of release.
        reason: The finding on the smallest example that failed, or the reason why the check was not run.
        seconds: The duration of the check in seconds.
        method: The mechanism's method.
        examples: The number of examples. For a failed check, it includes all examples up to the failure. For a passed
            check, it includes only those that could have revealed a fault.
        note: If an attack passed, a clause that states the smallest fault it would have detected.
        missed: Whether the check was skipped although the profile gives no reason for leaving it out.
    """

    check: str
    version: int
    status: Status
    reason: str = ""
    seconds: float = 0.0
    method: str = ""
    examples: int = 0
    note: str = ""
    missed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the result as the JSON object printed by ``privopt check --json``."""
        return asdict(self) | {"seconds": round(self.seconds, 3)}


class _TimeOverError(BaseException):
    """Raised when a check has no time left. Hypothesis does not catch it, because it is not an Exception."""


def _run_example(
    check: Check, subject: Subject, how: Effort, history: History, data: Any, source: ProblemSource | None = None
) -> None:
    """Run one example of a check, and update the check's history.

    Args:
        check: The check to run.
        subject: The method under test.
        how: The effort, with this check's share of the time.
        history: The state of the check across examples.
        data: The Hypothesis data object from which problems are drawn.
        source: The source of shared problems. If None, problems are drawn from ``data``.

    Raises:
        CheckFailedError: The example shows a fault.
        _TimeOverError: The check's time has expired, so this example was not run.
        HypothesisException: The example is discarded.
    """
    started_at = time.monotonic()
    if history.failed_at is None:
        # Two discarded examples count as one example, because a check must also end if all of its examples are
        # discarded.
        is_over = (
            history.examples + history.rejected // 2 >= check.min_examples
            and processor_seconds() - history.start > how.seconds
        )
    else:
        # The search for a smaller failure is limited by wall time, because it only affects how large the reported
        # problem is.
        is_over = started_at - history.failed_at > how.shrinking
    if is_over:
        raise _TimeOverError
    try:
        check.function(Trial(subject=subject, data=data, effort=how, history=history, source=source))
    except HypothesisException:
        # Hypothesis discards an example by raising one of its own errors, which is not a finding.
        history.rejected += 1
        raise
    except (Exception, SystemExit) as error:
        if history.failed_at is None:
            history.examples, history.failed_at = history.examples + 1, started_at
        if isinstance(error, CheckFailedError):
            raise
        # Any other error is assumed to come from the mechanism's code, and is a finding.
        message = f"the check could not be done, for the mechanism raised {error_text(error)}"
        raise CheckFailedError(message, None) from error
    if history.failed_at is None:
        history.examples += 1
    if history.examples == 1:
        # The clock starts after the first example, so that imports and compilation are not counted.
        history.start = processor_seconds()


def run_check(name: str, subject: Subject, *, how: Effort | str | None = None, seed: int = 0) -> CheckResult:
    """Run one check on a subject, and return the result.

    Args:
        name: The check's name.
        subject: The method under test.
        how: The effort: quick, ci, full or an :class:`Effort`. If None, it is read from the environment variable
            PRIVOPT_PROFILE, with ci as the default.
        seed: The seed for drawing problems.

    Raises:
        UnknownNameError: The check or the effort does not exist.
    """
    if name not in all_checks():
        raise UnknownNameError("check", name, all_checks())
    check = all_checks()[name]
    how = effort(how)
    passed_result = CheckResult(check=name, version=check.version, status="passed", method=subject.method.name)
    reason = check.reason_to_skip(subject)
    if reason is not None:
        return evolve(passed_result, **_not_done(reason))
    # Each method of a mechanism runs all checks, and all of these share the effort's time.
    time_share = how.seconds / (SHARES * subject.siblings)
    how = evolve(how, examples=max(check.min_examples, round(how.examples * check.share)), seconds=time_share)
    history = History(processor_seconds())
    result = _run_shared_examples(check, subject, how, history, seed)
    if result is None or result.status == "failed":
        # Hypothesis can shrink the examples that it draws itself, so that a simple problem shows the failure.
        search_history = History(processor_seconds())
        search = run_examples(name, lambda data: _run_example(check, subject, how, search_history, data), how, seed)
        if result is None or search.status == "failed":
            result, history = search, search_history
    status, reason = result.status, result.reason
    # An example is idle if it could not have shown a fault. ``history.cannot`` says why there was nothing to check.
    effective_count = history.examples - history.idle
    if status == "skipped" or (status == "passed" and not effective_count):
        nothing_checked = (
            NOTHING_TO_CHECK.format(len(history.solved)) if history.solved else f"{UNSOLVED}: see the check solves"
        )
        status, reason = "skipped", history.cannot or nothing_checked
        # If no problem is solved, all other checks are skipped. This check must then fail, because otherwise the
        # mechanism would pass.
        if name == "solves":
            status, reason = "failed", history.cannot or UNSOLVED
    not_done = _not_done(reason) if status == "skipped" else {"status": status, "reason": reason}
    # If an attack passed, its note gives its power on the problem on which it was most powerful.
    note = history.power if status == "passed" else ""
    return evolve(
        passed_result,
        **not_done,
        seconds=result.seconds,
        examples=effective_count if status == "passed" else history.examples,
        note=note,
    )


def _run_shared_examples(
    check: Check, subject: Subject, how: Effort, history: History, seed: int
) -> CheckResult | None:
    """Run a check on the problems shared by all checks, stopping at the first failure, and return the result.

    The result is None if no problem could be drawn, or if the check makes more random choices than fit in one
    Hypothesis example. In either case, :func:`run_check` uses :func:`run_examples` instead.

    Args:
        check: The check to run.
        subject: The method under test.
        how: The effort, with this check's share of the time.
        history: The state of the check across examples.
        seed: The seed for drawing problems.
    """
    # The version does not matter, because run_check uses only the status, the reason and the duration.
    start, result = time.monotonic(), CheckResult(check=check.name, version=1, status="passed")
    source = ProblemSource(shared_problems(subject.profile, seed))
    completed: CheckResult | None = None

    def run_all(data: st.DataObject) -> None:
        """Run all examples within a single Hypothesis example, so that discarding one of them does not end the run."""
        nonlocal completed
        completed = None
        while history.examples < how.examples and history.rejected < MAX_REJECTED * how.examples:
            if source.is_empty:
                break
            try:
                _run_example(check, subject, how, history, data, source)
            except CheckFailedError as error:
                completed = evolve(result, status="failed", reason=str(error))
                return
            except _TimeOverError:
                break
            except UnsatisfiedAssumption:
                continue
        # If all examples were discarded, Hypothesis would report that nothing could be drawn.
        completed = evolve(result, status="passed" if history.examples else "skipped")

    try:
        if not source.is_empty:
            run_one = evolve(how, examples=1).settings()
            with without_local_constants():
                hypothesis.seed(seed)(run_one(hypothesis.given(st.data())(run_all)))()
    except (Unsatisfiable, FailedHealthCheck):
        return None
    return None if completed is None else evolve(completed, seconds=time.monotonic() - start)


def _not_done(reason: str) -> dict[str, Any]:
    """Return values for the attributes ``status``, ``reason`` and ``missed`` of a check that was not run.

    The values depend on the type of the reason, which is :class:`Elsewhere`, :class:`LeftOut` or a plain string.
    """
    status: Status = "not applicable" if isinstance(reason, Elsewhere) else "skipped"
    return {"status": status, "reason": str(reason), "missed": not isinstance(reason, Elsewhere | LeftOut)}


def run_examples(check: str, example: Callable[[st.DataObject], object], how: Effort, seed: int) -> CheckResult:
    """Run the examples of one check, which may test a mechanism or any other registered object, such as a solver.

    Args:
        check: The check's name.
        example: A function that draws and tests one example, and raises a :class:`CheckFailedError` if it finds a
            fault. A PrivoptError also counts as a finding.
        how: The effort, which determines the number of examples.
        seed: The seed for all random draws.

    Returns:
        The result, with the smallest failure found. If no example could be drawn, its status is "skipped".
    """
    start, count, is_out_of_time = time.monotonic(), 0, False
    failure: CheckFailedError | None = None

    def body(data: st.DataObject) -> None:
        """Run one example and store any failure, because Hypothesis may wrap or replace the error.

        Hypothesis calls this function for each example and, after a failure, for smaller examples. The last failure is
        therefore the smallest one found.
        """
        nonlocal count, is_out_of_time, failure
        count += 1
        try:
            example(data)
        except CheckFailedError as error:
            failure = error
            raise
        except _TimeOverError:
            is_out_of_time = True
            raise
        except PrivoptError as error:
            failure = CheckFailedError(f"it raised {error_text(error)}", None)
            raise failure from error

    status: Status = "passed"
    reason = ""
    try:
        with without_local_constants():
            hypothesis.seed(seed)(how.settings()(hypothesis.given(st.data())(body)))()
    except CheckFailedError as error:
        status, reason = "failed", str(error)
    except (Unsatisfiable, FailedHealthCheck):
        status, reason = "skipped", "nothing could be drawn to try it on"
    # Hypothesis repeats failures. If the time expires during a repetition, the failure does not recur, so Hypothesis
    # raises Flaky.
    except (_TimeOverError, Flaky, ExceptionGroup) as error:
        if failure is not None or not is_out_of_time:
            status = "failed"
            reason = str(failure) if failure is not None else f"differs from run to run: {error_text(error)}"
    seconds = time.monotonic() - start
    return CheckResult(check=check, version=1, status=status, reason=reason, seconds=seconds, examples=count)


def run_checks(
    subject: Subject,
    names: Iterable[str] | None = None,
    *,
    how: Effort | str | None = None,
    seed: int = 0,
) -> list[CheckResult]:
    """Run checks on a subject, and return their results.

    Args:
        subject: The method under test.
        names: The names of the checks to run. If None, all checks are run.
        how: The effort: quick, ci, full or an :class:`Effort`. If None, it is read from the environment variable
            PRIVOPT_PROFILE, with ci as the default.
        seed: The seed for drawing problems.
    """
    check_names = list(all_checks()) if names is None else list(names)
    return [run_check(name, subject, how=how, seed=seed) for name in check_names]
