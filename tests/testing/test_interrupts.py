"""A mechanism that says it was stopped fails; somebody's interrupt ends the kit."""

import os
import signal

import pytest
from attrs import evolve
from faults import matrix

from privopt.errors import StoppedError
from privopt.testing import run_check, subject


class SaysStopped(matrix.RightMatrix):
    """Calls itself stopped where no limit was set."""

    def solve(self, problem, context):
        return evolve(super().solve(problem, context), stopped=True)


class RaisesStopped(matrix.RightMatrix):
    def solve(self, problem, context):
        raise StoppedError("had enough")


class Interrupted(matrix.RightMatrix):
    """Answers an interrupt with what it has."""

    came = signal.SIGINT

    def solve(self, problem, context):
        outcome = super().solve(problem, context)
        try:
            os.kill(os.getpid(), self.came)
            signal.pause()
        except KeyboardInterrupt:
            return evolve(outcome, stopped=True)
        raise AssertionError("no signal came")


class Terminated(Interrupted):
    came = signal.SIGTERM


class InterruptedWithNothing(Interrupted):
    def solve(self, problem, context):
        super().solve(problem, context)
        raise StoppedError("interrupted before anything was found")


@pytest.mark.parametrize(("fault", "words"), [(SaysStopped, "no limit was"), (RaisesStopped, "had enough")])
def test_unexplained_stop_fails_with_a_reason(fault, words):
    kit_subject = subject(fault, guarantee="metric-dp")
    result = run_check("solves", kit_subject, how="quick")
    kit_subject.close()
    assert result.status == "failed"
    assert words in result.reason


@pytest.mark.parametrize("right", [Interrupted, Terminated, InterruptedWithNothing])
def test_interrupt_ends_the_kit(right):
    old_handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    kit_subject = subject(right, guarantee="metric-dp")
    with pytest.raises(KeyboardInterrupt):
        run_check("solves", kit_subject, how="quick")
    kit_subject.close()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == old_handlers
