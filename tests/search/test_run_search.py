"""What is there when work stops: only what was certified and proved, whatever solvers offer."""

from __future__ import annotations

import math
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privopt.errors import CertificationError, SolverError, StoppedError
from privopt.execution.clock import Clock, DaemonCall, check, clock, limit
from privopt.search.incumbent import Incumbent
from privopt.search.offers import Later
from privopt.search.run_search import run_search


class Numbers:
    """Candidates are their own values, below 1 they fail; bounds are their own proofs, and 1 is the optimum."""

    def __init__(self) -> None:
        self.certified: list[float] = []

    def certify(self, candidate: float) -> tuple[float, float]:
        if not candidate >= 1.0:
            raise CertificationError("not private")
        self.certified.append(candidate)
        return candidate, candidate

    def prove(self, proof: float, value: float) -> tuple[float, None]:
        return min(proof, 1.0), None


def make(gap: float = 1e-3, closing: Numbers | None = None) -> Incumbent[float, float, float]:
    return Incumbent(closing or Numbers(), gap)


OFFERS = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.one_of(st.none(), st.floats(0.5, 3.0)),  # what it costs; below 1 it is a lie
        st.floats(-0.5, 0.5),  # what was promised beside
        st.one_of(st.none(), st.floats(0.0, 1.5)),
        st.booleans(),
        st.booleans(),
        st.sampled_from(["", "certify", "prove", "confirm"]),
    ),
    max_size=25,
)


@given(offers=OFFERS)
def test_values_and_bounds_are_monotone_and_certified(offers):
    closing = Numbers()
    incumbent = make(closing=closing)
    value, bound = math.inf, -math.inf
    for origin, cost, promise_offset, proof, firm, is_late, then in offers:
        given_ = None if cost is None else Later(float, cost) if is_late else cost
        promise = None if cost is None else cost + promise_offset
        incumbent.offer(origin, candidate=given_, value=promise, bound=proof, proof=proof, firm=firm)
        if then:
            getattr(incumbent, then)()
        assert incumbent.best_certified.value <= value
        assert incumbent.best_proved.bound >= bound
        value, bound = incumbent.best_certified.value, incumbent.best_proved.bound
        assert bound <= 1.0 <= value
    while incumbent.certify() or incumbent.prove():
        pass
    offered = [(origin, cost >= 1.0) for origin, cost, *_ in offers if cost is not None]
    honest = {origin for origin, _ in offered} - {origin for origin, true in offered if not true}
    if incumbent.best_certified.release is None:
        assert not honest  # a lie displaces what its own origin offered before
        with pytest.raises(SolverError):
            incumbent.answer(stopped=False)
        with pytest.raises(StoppedError):
            incumbent.answer(stopped=True)
        return
    answer = incumbent.answer(stopped=True)
    assert answer.release in closing.certified
    assert answer.release == answer.value
    assert answer.bound is None or answer.bound <= answer.value
    assert answer.stopped == (answer.bound is None or answer.value - answer.bound > 1e-3 * answer.value)


def test_false_promise_displaces_no_offer():
    incumbent = make()
    incumbent.offer("honest", candidate=1.2, value=1.2, bound=0.9, proof=0.9)
    incumbent.offer("liar", candidate=0.1, value=0.1, bound=50.0, proof=50.0)
    assert incumbent.has_reached_gap
    assert not incumbent.confirm()
    assert not incumbent.has_reached_gap
    answer = incumbent.answer(stopped=False)
    assert (answer.origin, answer.value, answer.bound) == ("honest", 1.2, 1.0)
    assert "liar" in answer.path


def test_promise_of_a_relaxation_is_ignored():
    incumbent = make()
    incumbent.offer("few", candidate=1.5, value=0.9, firm=False)
    incumbent.offer("few", bound=0.9, proof=0.9)
    assert not incumbent.has_reached_gap
    incumbent.offer("few", candidate=1.3, value=1.3)  # mended: firm, though it promises less
    assert incumbent.promised_value == 1.3
    incumbent.certify()
    assert incumbent.best_certified.value == 1.3


def test_smaller_problem_sees_the_full_state():
    incumbent = make(gap=0.1)
    inner = incumbent.through("double", lambda z: 2 * z, lambda f: f / 2)
    inner.offer("any", candidate=0.6, value=1.2, bound=1.0, proof=2.0)
    assert inner.best.candidate == 0.6
    assert not inner.has_reached_gap
    inner.offer("any", candidate=Later(float, 0.5), value=1.0)
    assert inner.confirm()
    assert incumbent.best_certified[::2] == (1.0, "double")
    sub_incumbent = incumbent.through("", lambda z: z, None)
    assert not sub_incumbent.has_reached_gap
    sub_incumbent.offer("any", candidate=1.0, value=1.0, bound=1.0, proof=1.0)
    assert sub_incumbent.has_reached_gap
    assert incumbent.best_proved.bound == 1.0


def test_threads_offer_concurrently():
    incumbent = make()

    def work(n: int) -> None:
        for step in range(200):
            incumbent.offer(f"t{n}", candidate=3.0 - step / 100 - n / 1000, value=3.0 - step / 100 - n / 1000)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert incumbent.certify()
    assert incumbent.best_certified.value == pytest.approx(1.001)


class Holding(Numbers):
    """Waits in a step until the test lets it go on; proofs look at the clock meanwhile."""

    def __init__(self, step: str) -> None:
        super().__init__()
        self.step, self.has_begun, self.may_end = step, threading.Event(), threading.Event()

    def certify(self, candidate: float) -> tuple[float, float]:
        if self.step == "certify":
            self.has_begun.set()
            self.may_end.wait(60.0)
            check()
        return super().certify(candidate)

    def prove(self, proof: float, value: float) -> tuple[float, None]:
        while self.step == "prove" and not self.may_end.wait(0.01):
            self.has_begun.set()
            check()
        return super().prove(proof, value)


@pytest.mark.parametrize("holder", ["candidate", "proof", "certify", "prove"])
def test_offers_never_wait_for_a_closing_step(holder):
    """A candidate, a proof or a certifier that never ended held the lock that all of these take."""
    step = "prove" if holder in ("proof", "prove") else "certify"
    certifier = Holding(holder)
    incumbent = make(closing=certifier)

    def evaluate_slowly() -> float:
        certifier.has_begun.set()
        certifier.may_end.wait(60.0)
        return 1.25

    incumbent.offer(
        "slow",
        candidate=Later(evaluate_slowly) if holder == "candidate" else 1.25,
        value=1.25,
        bound=0.5,
        proof=Later(evaluate_slowly) if holder == "proof" else 0.5,
    )
    closing = DaemonCall(getattr(incumbent, step))
    assert certifier.has_begun.wait(60.0)

    def ask_and_offer() -> tuple[float, float]:
        incumbent.note("asked", figure=1)
        incumbent.offer("other", candidate=1.5, value=1.5)
        assert not incumbent.has_reached_gap
        with pytest.raises(SolverError, match="asked"):
            incumbent.answer(stopped=False)
        return incumbent.promised_value, incumbent.promised_bound

    questions = DaemonCall(ask_and_offer)
    assert questions.wait(60.0), "a question waits for a closing step"
    assert questions.result() == (1.25, 0.5)
    certifier.may_end.set()
    assert closing.wait(60.0)
    assert closing.result()


def test_end_of_a_search_keeps_its_certificate():
    certifier = Holding("certify")
    incumbent, search_time = make(closing=certifier), Clock(None, clock())

    def search() -> None:
        incumbent.offer("search", candidate=1.0, value=1.0, bound=1.0, proof=1.0)
        incumbent.confirm()

    def end_search() -> None:
        certifier.has_begun.wait(60.0)
        search_time.cancel()
        certifier.may_end.set()

    ending = DaemonCall(end_search)
    answer = run_search(search, incumbent, search_time)
    assert ending.wait(60.0)
    assert (answer.value, answer.bound, answer.stopped) == (1.0, 1.0, False)


def test_endless_proof_is_abandoned(monkeypatch):
    monkeypatch.setattr("privopt.search.run_search.MIN_CLOSING_SECONDS", 0.2)
    certifier = Holding("prove")

    def search(incumbent) -> None:
        incumbent.offer("better", candidate=1.5, value=1.5, bound=0.5, proof=0.5)
        clock().cancel()

    answer = attend_work(search, 0.0, certifier)
    assert (answer.value, answer.bound, answer.stopped) == (1.5, None, True)


@pytest.mark.parametrize("step", ["certify", "prove"])
def test_abandoned_step_is_not_repeated(step):
    certifier = Numbers()
    with limit(60.0) as scope:
        incumbent = make(closing=certifier)
        incumbent.offer("first", candidate=1.5, value=1.5, bound=0.5, proof=0.5)
        monkey, tries = getattr(certifier, step), []

        def cancel_scope(*arguments):
            tries.append(arguments)
            scope.cancel()
            check()
            return monkey(*arguments)

        setattr(certifier, step, cancel_scope)
        assert not getattr(incumbent, step)()
        assert not getattr(incumbent, step)()
        assert len(tries) == 1
        assert incumbent.ended_steps == {step}


def test_interrupted_first_certificate_is_made_at_the_end():
    class Interrupted(Numbers):
        is_first = True

        def certify(self, candidate: float) -> tuple[float, float]:
            if self.is_first:
                self.is_first = False
                raise KeyboardInterrupt
            return super().certify(candidate)

    answer = attend_work(lambda incumbent: None, 60.0, Interrupted())
    assert (answer.value, answer.stopped) == (2.0, True)
    assert "interrupted" in answer.path


class FakeTime:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_search_leaves_time_for_closing_steps():
    """The first certificate takes 3 of 30 s, so 1.5 (3 + 3) s are left at the end."""
    fake_time, ended_at, is_over = FakeTime(), [], threading.Event()

    class Slow(Numbers):
        def certify(self, candidate: float) -> tuple[float, float]:
            fake_time.seconds += 3.0
            return super().certify(candidate)

    with limit(30.0, now=fake_time):
        incumbent, search_time = make(closing=Slow()), Clock(None, clock())

        def search() -> None:
            while clock().left > 0.0:
                fake_time.seconds += 0.125
                time.sleep(0.001)
            ended_at.append(fake_time.seconds)
            is_over.set()

        answer = run_search(
            search,
            incumbent,
            search_time,
            first_offers=[lambda: incumbent.offer("first", candidate=2.0, value=2.0)],
        )
        assert is_over.wait(60.0)
    assert answer.stopped
    assert 21.0 <= ended_at[0] < 30.0


def attend_work(work, seconds: float | None = None, closing: Numbers | None = None):
    """Return the outcome of work over the numbers, with one first entry."""
    incumbent = make(closing=closing)
    first_offers = [lambda: incumbent.offer("first", candidate=2.0, value=2.0)]
    return run_search(lambda: work(incumbent), incumbent, Clock(seconds, clock()), first_offers=first_offers)


def fails(incumbent) -> None:
    incumbent.offer("fails", candidate=1.5, value=1.5)
    raise StoppedError("it cannot go on")


def test_work_that_ignores_the_clock_is_abandoned():
    incumbent = make()
    running = threading.Event()  # a search that waited for the work would never end

    def work() -> None:
        incumbent.offer("endless", candidate=1.5, value=1.5)
        running.wait()

    answer = run_search(work, incumbent, Clock(0.3, clock()))
    running.set()
    assert (answer.value, answer.stopped) == (1.5, True)


def test_failed_work_leaves_its_offers():
    answer = attend_work(fails)
    assert (answer.value, answer.stopped) == (1.5, True)
    assert "cannot go on" in answer.path
    with pytest.raises(ZeroDivisionError):
        attend_work(lambda _: 1 / 0)
    with pytest.raises(SolverError, match="asked for"):
        attend_work(_refuses)


def _refuses(_: object) -> None:
    raise SolverError("asked for by name")


def test_later_changes_cost_only_quality():
    values = np.array([1.1])
    closing = Numbers()
    incumbent: Incumbent = Incumbent(closing, 1e-3)
    incumbent.offer("torn", candidate=Later(lambda: float(values[0])), value=1.1)
    values[0] = 1.7
    incumbent.certify()
    assert incumbent.best_certified.value == 1.7
    assert "as offered" in incumbent.answer(stopped=False).path


def test_certifies_only_at_the_end_without_a_limit():
    closing = Numbers()

    def work(incumbent) -> None:
        for step in range(10):
            incumbent.offer("steps", candidate=2.0 - step / 10, value=2.0 - step / 10, bound=0.1, proof=0.1)
            time.sleep(0.01)

    answer = attend_work(work, closing=closing)
    assert closing.certified == [pytest.approx(1.1)]
    assert answer.offers == 10
    assert not answer.stopped
    assert [low for _, low, _ in answer.trajectory] == [0.1] * 10


def test_certifies_on_the_way_under_a_limit():
    closing = Numbers()

    def work(incumbent) -> None:
        for step in range(10):
            incumbent.offer("steps", candidate=2.0 - step / 10, value=2.0 - step / 10)
            time.sleep(0.06)

    attend_work(work, 60.0, closing)
    assert len(closing.certified) > 2


def test_final_gap_is_certified_at_the_end():
    # 500 nodes of Rome, 100 outputs, epsilon 1, gap .01: .0157 was certified on the way and kept, though the search
    # ended at .0075
    with limit(60.0):
        incumbent = make(gap=0.01)

        def work() -> None:
            incumbent.offer("search", candidate=1.0157, value=1.0157)
            while incumbent.best_certified.value > 1.0157:
                time.sleep(0.01)
            incumbent.offer("search", candidate=1.0075, value=1.0075, bound=1.0, proof=1.0)

        answer = run_search(work, incumbent, Clock(30.0, clock()))
    assert (answer.value, answer.bound, answer.stopped) == (1.0075, 1.0, False)


class Compiling(Numbers):
    """Certifies as on a machine that has kept no compiled code: the first time takes as long as everything else."""

    def __init__(self, monkeypatch, seconds: float = 0.5) -> None:
        super().__init__()
        self.compiled, self.seconds = 0, seconds
        monkeypatch.setattr("privopt.search.incumbent.compilations", lambda: self.compiled)

    def certify(self, candidate: float) -> tuple[float, float]:
        if not self.certified:
            self.compiled += 1
            time.sleep(self.seconds)
        return super().certify(candidate)


def test_measures_again_after_compilation(monkeypatch):
    incumbent = make(closing=Compiling(monkeypatch))
    incumbent.offer("first", candidate=2.0, value=2.0)
    incumbent.certify()
    assert incumbent.closing_seconds >= 0.5
    incumbent.offer("second", candidate=1.5, value=1.5)
    incumbent.certify()
    assert incumbent.closing_seconds < 0.5


def test_cold_code_cache_ends_no_search(monkeypatch):
    closing = Compiling(monkeypatch, 1.2)

    def work(incumbent) -> None:
        for step in range(10):
            incumbent.offer("steps", candidate=1.95 - step / 10, value=1.95 - step / 10)
            time.sleep(0.09)

    with limit(3.6):  # compiling takes 1.2 s of it; kept one and a half times, .6 s is left; the search takes .9 s
        answer = attend_work(work, 3.6, closing)
    assert answer.value == pytest.approx(1.05)
    assert not answer.stopped


def test_progress_names_each_closing_step():
    """A repair and a proof may take minutes, in which no solver offers anything."""
    shown = []

    class Watched(Numbers):
        def certify(self, candidate):
            shown.append("certify")
            return super().certify(candidate)

        def prove(self, proof, value):
            shown.append("prove")
            return super().prove(proof, value)

    incumbent = Incumbent(Watched(), 1e-9, progress=lambda *report: shown.append(report))
    incumbent.offer("solver", candidate=2.0, value=2.0, bound=0.5, proof=0.5)
    assert incumbent.certify()
    assert incumbent.prove()
    assert shown == [
        ("solver", 1, 0.5, 2.0),
        ("solver, repairing and certifying", 0, 0.5, 2.0),
        "certify",
        ("solver", 1, 0.5, 2.0),
        ("solver, proving the bound", 0, 0.5, 2.0),
        "prove",
        ("solver", 1, 0.5, 2.0),
    ]


class SlowProofs(Numbers):
    """Proofs take 8 seconds of the clock, more than is left after a search."""

    def __init__(self, moments: list[float]) -> None:
        super().__init__()
        self.moments = moments

    def prove(self, proof: float, value: float) -> tuple[float, None]:
        self.moments[0] += 8.0
        check()
        return super().prove(proof, value)


def test_limit_costs_no_bound_that_was_found():
    """The clock is the test's own: the search ends at its limit, and no time for proofs is left."""
    moments = [0.0]
    outer = Clock(None, None, now=lambda: moments[0])
    with clock_of(outer):
        incumbent = make(closing=SlowProofs(moments))

        def work() -> None:
            incumbent.offer("closed form", candidate=1.0, value=1.0, bound=1.0, proof=1.0)
            moments[0] += 11.0
            check()

        answer = run_search(work, incumbent, Clock(10.0, outer))
    assert (answer.value, answer.bound) == (1.0, 1.0)
    assert not answer.stopped


def test_held_work_is_waited_for():
    """Work that was counted beforehand ends past the limit, and what it offers is taken."""
    moments = [0.0]
    outer = Clock(None, None, now=lambda: moments[0])
    with clock_of(outer):
        incumbent = make()

        def work() -> None:
            incumbent.offer("first", candidate=3.0, value=3.0)
            with clock().hold():
                moments[0] += 1000.0
                check()
                time.sleep(0.2)  # longer than the loop that waits polls
                incumbent.offer("closed form", candidate=1.0, value=1.0, bound=1.0, proof=1.0)
            check()
            raise AssertionError("the limit holds again after the block")

        answer = run_search(work, incumbent, Clock(10.0, outer))
    assert (answer.value, answer.bound, answer.origin) == (1.0, 1.0, "closed form")


def test_short_held_work_does_not_lift_the_limit():
    """Held work that begins and ends between two polls is not waited for ever after."""
    released = threading.Event()
    incumbent = make()

    def work() -> None:
        incumbent.offer("first", candidate=1.0, value=1.0, bound=1.0, proof=1.0)
        with clock().hold():
            pass
        released.wait(60)  # does not look at the clock

    try:
        answer = run_search(work, incumbent, Clock(0.2), begins_held=True)
    finally:
        was_waiting = not released.is_set()
        released.set()
    assert was_waiting
    assert answer.value == 1.0


def test_work_that_is_never_held_is_not_waited_for_without_end():
    released = threading.Event()
    incumbent = make()

    def work() -> None:
        incumbent.offer("first", candidate=1.0, value=1.0, bound=1.0, proof=1.0)
        released.wait(60)  # does not look at the clock, and never holds it

    try:
        answer = run_search(work, incumbent, Clock(0.2), begins_held=True)
        assert not released.is_set()
    finally:
        released.set()
    assert answer.value == 1.0


def clock_of(scope: Clock):
    """Enter a scope of a test's own clock."""
    from privopt.execution.clock import within

    return within(scope)
