"""Scopes of time: they nest, reach threads and worker processes, and swallow their own end alone."""

from __future__ import annotations

import math
import signal
import threading
import time
from contextlib import suppress

import pytest
from attrs import evolve

from privopt.errors import SolverError, StoppedError
from privopt.execution import processes, serial, threads
from privopt.execution.clock import (
    Clock,
    DaemonCall,
    OutOfTime,
    Ticket,
    asked_to_end,
    cap_time_limit,
    check,
    clock,
    interrupts,
    limit,
    slices,
)
from privopt.execution.resources import in_threads


class Fake:
    """A clock that goes when it is told to."""

    time = 0.0

    def __call__(self) -> float:
        return self.time


def test_scope_swallows_only_its_own_end():
    fake = Fake()
    with limit(10.0, now=fake) as outer:
        with outer.limit_to_share(0.5) as inner:
            assert inner.left == 5.0
            fake.time = 5.0
            check("anything")
        assert inner.expired
        assert not outer.expired
        assert outer.left == 5.0
        with limit(3.0) as inner:
            fake.time = 10.0
            check()
    assert outer.expired
    assert not inner.expired
    assert clock().left == math.inf
    check()


def test_ends_only_shrink():
    fake = Fake()
    with limit(5.0, now=fake), limit(50.0) as inner, limit(None) as unlimited:
        assert inner.left == unlimited.left == clock().left == 5.0
        fake.time = 4.0
        assert unlimited.left == 1.0
        fake.time = 7.0
        assert unlimited.left == 0.0


def test_solvers_get_the_remaining_time():
    fake = Fake()
    assert cap_time_limit() is None
    assert cap_time_limit(3.0) == 3.0
    with limit(2.0, now=fake) as scope:
        assert cap_time_limit() == cap_time_limit(3.0) == 2.0
        assert cap_time_limit(1.0) == 1.0
        fake.time = 2.0
        cap_time_limit()
    assert scope.expired


def test_solver_gets_time_though_the_deadline_passes_meanwhile():
    times = iter([0.0, 1.0, 5.0, 1.0, 5.0])
    with limit(2.0, now=lambda: next(times)) as scope:
        assert cap_time_limit() > 0
        assert cap_time_limit(3.0) > 0
    assert not scope.expired


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nested_block_keeps_the_interrupt_of_the_outer_one(number):
    with interrupts() as outer_signals:
        with suppress(KeyboardInterrupt), interrupts() as inner_signals:
            signal.raise_signal(number)
        assert inner_signals == outer_signals == [number]
        assert asked_to_end()
    assert not asked_to_end()


def test_message_says_what_was_not_done():
    with pytest.raises(StoppedError, match="all was priced"):
        raise OutOfTime(clock(), "all was priced")


def test_other_thread_cancels_threaded_work():
    is_same_clock = []
    with limit(100.0) as around:

        def work() -> None:
            while True:
                is_same_clock.append(clock() is around)
                check()
                time.sleep(0.001)

        running = DaemonCall(work)
        while not is_same_clock:
            time.sleep(0.001)
        around.cancel()
        assert running.wait(10.0)
    assert all(is_same_clock)
    with pytest.raises(OutOfTime):
        running.result()
    assert not around.expired  # the thread's block was ended, not this one


def test_thread_returns_its_result():
    running = DaemonCall(lambda: 7)
    assert running.wait(10.0)
    assert running.result() == 7
    assert not DaemonCall(threading.Event().wait).wait(0.0)


def test_reading_the_clock_is_cheap():
    with limit(100.0), limit(100.0), limit(100.0) as deep:
        best = math.inf
        for _ in range(5):
            start_seconds = time.thread_time()
            for _ in range(1_000):
                deep.check()
            best = min(best, time.thread_time() - start_seconds)
    assert best < 5e-3  # five microseconds each


@pytest.mark.parametrize("make", [lambda: serial(), lambda: threads(2), lambda: processes(1)])
def test_executors_take_the_time_of_the_caller(make):
    with make() as executor:
        assert executor.submit("a", _seconds_left).result() == math.inf
        with limit(60.0):
            assert 50.0 < executor.submit("a", _seconds_left).result() <= 60.0
        with limit(0.0) as scope:
            executor.submit("a", _seconds_left).result()
            check()
        assert scope.expired


def test_worker_has_the_same_end():
    with processes(1) as executor:
        executor.submit("a", _seconds_left).result()
        with limit(2.0) as scope:
            end = executor.submit("a", _end).result()
            assert abs(end - scope.end) < 0.05
        with limit(0.2) as scope:
            with pytest.raises(StoppedError):
                executor.submit("a", _until_the_end).result()
            check()
        assert scope.expired


def test_ticket_is_worth_the_remaining_seconds():
    with limit(5.0):
        ticket = Ticket.now()
    time.sleep(0.05)
    assert ticket.seconds_left <= 4.95
    assert evolve(ticket, machine=ticket.machine + "-other").seconds_left == pytest.approx(5.0, abs=0.02)
    with pytest.raises(StoppedError, match="_until_the_end"):
        Ticket(0.05, "elsewhere", 0.0).call(_until_the_end)


def _seconds_left() -> float:
    return clock().left


def _end() -> float:
    return time.monotonic() + clock().left


def _until_the_end() -> None:
    while True:
        check()
        time.sleep(0.01)


def test_threaded_work_ends_in_time(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    fake, started_tasks, gone_on = Fake(), [], threading.Event()

    def slow(first: int, _end: int) -> None:
        started_tasks.append(first)
        fake.time = 1.0
        gone_on.wait(0.05)

    with limit(0.5, now=fake) as scope:
        in_threads(slow, 10_000)
    assert scope.expired
    assert 1 <= len(started_tasks) <= 2  # of 8: one is with each thread, at most
    with limit(100.0):
        assert sum(in_threads(lambda a, b: b - a, 1000)) == 1000
    with limit(0.0) as scope:
        in_threads(lambda a, b: b - a, 1000)
    assert scope.expired


def test_early_timeout_of_a_method_is_no_end():
    with threads(1) as executor, limit(60.0), pytest.raises(SolverError):
        executor.submit("a", _fails).result()


def _fails() -> None:
    raise SolverError("no")


def test_slices_are_complete_and_check_the_clock():
    assert list(slices(0)) == []
    spans = list(slices(1000))
    assert [a for a, _ in spans] == [0, *(b for _, b in spans[:-1])]
    assert spans[-1][1] == 1000
    fake = Fake()
    with limit(1.0, now=fake) as scope:
        for first, _end in slices(1000):  # noqa: B007 (the last one is looked at)
            fake.time = 2.0
    assert scope.expired
    assert first == 0


def test_granted_time_does_not_depend_on_what_is_left():
    moments = [0.0]
    with limit(200.0, now=lambda: moments[0]):
        moments[0] += 150.0
        with clock().limit_to_share(0.5) as inner:
            assert inner.granted_seconds == 200.0
            assert inner.left == 25.0
    assert Clock(None).granted_seconds == math.inf


def test_held_block_passes_deadlines_but_not_cancellation():
    moments = [0.0]
    with limit(10.0, now=lambda: moments[0]) as scope:
        with clock().hold():
            moments[0] += 100.0
            check()
            assert scope.hold_count == 1
            scope.cancel()
            with pytest.raises(OutOfTime):
                check()
        assert scope.hold_count == 0


def test_cancellation_ends_a_scope_inside_a_held_block():
    with limit(10.0) as scope, clock().hold(), limit(5.0):
        scope.cancel()
        assert clock().is_cancelled
        assert clock().over is scope
        check()
    assert scope.expired
