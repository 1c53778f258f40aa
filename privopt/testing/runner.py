"""Run checks on a subject and report how each ended."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import hypothesis
from attrs import asdict, evolve, frozen
from hypothesis import strategies as st
from hypothesis.errors import FailedHealthCheck, Flaky, HypothesisException, Unsatisfiable

from privopt.errors import PrivoptError, UnknownNameError
from privopt.testing.checks import checks as all_checks
from privopt.testing.checks.attack import EVENT_PROBABILITY
from privopt.testing.checks.base import Check, CheckFailedError, Elsewhere, History, Trial
from privopt.testing.efforts import Effort, effort
from privopt.testing.under_trial import Subject, error_text


def spent() -> float:
    """Return the processor seconds of this process and its children: a busy machine must not weaken a check."""
    return math.fsum(os.times()[:4])


UNSOLVED: Final = "no generated problem was solved"
NOTHING_TO_CHECK: Final = "nothing to check was found in the {} generated problems that were solved"

Status = Literal["passed", "failed", "skipped"]


@frozen(kw_only=True)
class CheckResult:
    """How one check ended.

    Attributes:
        check: its name.
        version: of the check.
        status: passed, failed or skipped.
        reason: what was found with the smallest example, or why it was skipped.
        seconds: it took.
        method: of the mechanism.
        examples: drawn until it failed, or in all.
        note: of one that passed: how much an attack would have seen.
        missed: of one that was skipped: whether it is for such a mechanism, and no one said why it is omitted.
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
        """Return the JSON object of one check in ``privopt check --json``."""
        return asdict(self) | {"seconds": round(self.seconds, 3)}


class _TimeOverError(BaseException):
    """No further example is to be drawn, nor a smaller one: ends Hypothesis, which catches no error of this base."""


def _one(check: Check, subject: Subject, how: Effort, history: History, data: Any) -> None:
    began = time.monotonic()
    if history.failed_at is None:
        over = history.examples + history.rejected // 2 >= check.min_examples and spent() - history.start > how.seconds
    else:
        over = began - history.failed_at > how.shrinking
    if over:
        raise _TimeOverError
    try:
        check.function(Trial(subject=subject, data=data, effort=how, history=history))
    except HypothesisException:
        history.rejected += 1
        raise
    except Exception as error:
        if history.failed_at is None:
            history.examples, history.failed_at = history.examples + 1, began
        if isinstance(error, CheckFailedError):
            raise
        # what a mechanism's own code raises while it is asked about its release is a finding
        raised = f"the check could not be done, for the mechanism raised {error_text(error)}"
        raise CheckFailedError(raised, None) from error
    if history.failed_at is None:
        history.examples += 1
    if history.examples == 1:
        history.start = spent()  # the clock starts after the first one, which pays for imports and compilation


def run_check(name: str, subject: Subject, *, how: Effort | str | None = None, seed: int = 0) -> CheckResult:
    """Run one check.

    Args:
        name: of the check.
        subject: what is tried.
        how: dev, ci or nightly, or an effort of one's own; PRIVOPT_PROFILE's, else ci, where None.
        seed: of the problems drawn.

    Raises:
        UnknownNameError: no check, or no profile, is called so.
    """
    if name not in all_checks():
        raise UnknownNameError("check", name, all_checks())
    check = all_checks()[name]
    how = effort(how)
    made = CheckResult(check=name, version=check.version, status="passed", method=subject.method.name)
    reason = check.reason_to_skip(subject)
    if reason is not None:
        return evolve(made, status="skipped", reason=str(reason), missed=not isinstance(reason, Elsewhere))
    share = how.seconds / (len(all_checks()) * subject.siblings)
    how = evolve(how, examples=max(check.min_examples, round(how.examples * check.share)), seconds=share)
    history = History(spent())
    result = run_examples(name, lambda data: _one(check, subject, how, history, data), how, seed)
    status, reason = result.status, result.reason
    if status == "skipped" or (status == "passed" and not history.examples):
        none = NOTHING_TO_CHECK.format(len(history.solved)) if history.solved else f"{UNSOLVED}: see the check solves"
        status, reason = "skipped", history.cannot or none
        if name == "solves":  # were nothing solved, all would be skipped and nothing fail
            status, reason = "failed", history.cannot or UNSOLVED
    seen = min(history.powers, default=None) if status == "passed" else None
    note = "" if seen is None else _power(seen)
    missed = status == "skipped" and not isinstance(history.cannot, Elsewhere)
    return evolve(
        made, status=status, reason=reason, seconds=result.seconds, examples=history.examples, note=note, missed=missed
    )


def run_examples(check: str, example: Callable[[st.DataObject], object], how: Effort, seed: int) -> CheckResult:
    """Run the examples of one check of anything: a mechanism, a kind, a solver, a ledger class.

    Args:
        check: its name.
        example: draws what it tries, and raises :class:`CheckFailedError` where it finds something; a PrivoptError is
            a finding too.
        how: how many, how long.
        seed: of what is drawn.

    Returns:
        Its result, with the smallest failure found; skipped where nothing could be drawn.
    """
    start, count, over = time.monotonic(), 0, False
    failure: CheckFailedError | None = None

    def body(data: st.DataObject) -> None:
        nonlocal count, over, failure
        count += 1
        try:
            example(data)
        except CheckFailedError as error:
            failure = error
            raise
        except _TimeOverError:
            over = True
            raise
        except PrivoptError as error:
            failure = CheckFailedError(f"it raised {error_text(error)}", None)
            raise failure from error

    status: Status = "passed"
    reason = ""
    try:
        hypothesis.seed(seed)(how.settings()(hypothesis.given(st.data())(body)))()
    except CheckFailedError as error:
        status, reason = "failed", str(error)
    except (Unsatisfiable, FailedHealthCheck):
        status, reason = "skipped", "nothing could be drawn to try it on"
    except (_TimeOverError, Flaky, ExceptionGroup) as error:  # Flaky too where the end comes before a draw
        if failure is not None or not over:
            status = "failed"
            reason = str(failure) if failure is not None else f"differs from run to run: {error_text(error)}"
    seconds = time.monotonic() - start
    return CheckResult(check=check, version=1, status=status, reason=reason, seconds=seconds, examples=count)


def _power(multiple: float) -> str:
    if math.isinf(multiple):
        return "the attack had no power on these problems"
    seen = math.ceil(multiple * 100) / 100
    return f"would have seen {seen:g} epsilon or more in events of probability {EVENT_PROBABILITY:g} or more"


def run_checks(
    subject: Subject,
    names: Iterable[str] | None = None,
    *,
    how: Effort | str | None = None,
    seed: int = 0,
) -> list[CheckResult]:
    """Run checks on a subject.

    Args:
        subject: what is tried.
        names: of the checks; all of them where None.
        how: dev, ci or nightly, or an effort of one's own; PRIVOPT_PROFILE's, else ci, where None.
        seed: of the problems drawn.
    """
    chosen = list(all_checks()) if names is None else list(names)
    return [run_check(name, subject, how=how, seed=seed) for name in chosen]
