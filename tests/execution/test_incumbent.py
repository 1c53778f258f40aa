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
from privopt.execution.clock import Clock, clock, limit
from privopt.interfaces.attend import attend
from privopt.interfaces.incumbent import MARGIN_WRITING, Incumbent
from privopt.interfaces.offers import Later


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
def test_values_never_rise_bounds_never_fall_and_nothing_is_said_that_was_not_certified(offers):
    closing = Numbers()
    incumbent = make(closing=closing)
    value, bound = math.inf, -math.inf
    for origin, cost, beside, proof, firm, late, then in offers:
        given_ = None if cost is None else Later(float, cost) if late else cost
        promise = None if cost is None else cost + beside
        incumbent.offer(origin, candidate=given_, value=promise, bound=proof, proof=proof, firm=firm)
        if then:
            getattr(incumbent, then)()
        assert incumbent.certified[0] <= value
        assert incumbent.proved[0] >= bound
        value, bound = incumbent.certified[0], incumbent.proved[0]
        assert bound <= 1.0 <= value
    while incumbent.certify() or incumbent.prove():
        pass
    offered = [(origin, cost >= 1.0) for origin, cost, *_ in offers if cost is not None]
    honest = {origin for origin, _ in offered} - {origin for origin, true in offered if not true}
    if incumbent.certified[1] is None:
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


def test_a_lie_displaces_nobody_elses_offer():
    incumbent = make()
    incumbent.offer("honest", candidate=1.2, value=1.2, bound=0.9, proof=0.9)
    incumbent.offer("liar", candidate=0.1, value=0.1, bound=50.0, proof=50.0)
    assert incumbent.reached
    assert not incumbent.confirm()
    assert not incumbent.reached
    answer = incumbent.answer(stopped=False)
    assert (answer.origin, answer.value, answer.bound) == ("honest", 1.2, 1.0)
    assert "liar" in answer.path


def test_what_a_relaxation_promises_counts_for_nothing():
    incumbent = make()
    incumbent.offer("few", candidate=1.5, value=0.9, firm=False)
    incumbent.offer("few", bound=0.9, proof=0.9)
    assert not incumbent.reached
    incumbent.offer("few", candidate=1.3, value=1.3)  # mended: firm, though it promises less
    assert incumbent.value == 1.3
    incumbent.certify()
    assert incumbent.certified[0] == 1.3


def test_a_smaller_problem_sees_the_whole():
    incumbent = make(gap=0.1)
    inner = incumbent.through("double", lambda z: 2 * z, lambda f: f / 2)
    inner.offer("any", candidate=0.6, value=1.2, bound=1.0, proof=2.0)
    assert inner.best.candidate == 0.6
    assert not inner.reached
    inner.offer("any", candidate=Later(float, 0.5), value=1.0)
    assert inner.confirm()
    assert incumbent.certified[::2] == (1.0, "double")
    alone = incumbent.through("", lambda z: z, None)
    assert not alone.reached
    alone.offer("any", candidate=1.0, value=1.0, bound=1.0, proof=1.0)
    assert alone.reached
    assert incumbent.proved[0] == 1.0


def test_threads_offer_at_once():
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
    assert incumbent.certified[0] == pytest.approx(1.001)


class Slow(Numbers):
    """Certifies once, then never comes back."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.stuck = what, threading.Event()

    def certify(self, candidate: float) -> tuple[float, float]:
        if self.what == "certify" and self.certified:
            self.stuck.wait()
        return super().certify(candidate)

    def prove(self, proof: float, value: float) -> tuple[float, None]:
        if self.what == "prove":
            self.stuck.wait()
        return super().prove(proof, value)


@pytest.mark.parametrize("what", ["certify", "prove"])
def test_a_closing_step_that_hangs_is_left_behind(what):
    closing, stood = Slow(what), []
    with limit(1.5):
        incumbent = make(closing=closing)
        first = [lambda: incumbent.offer("first", candidate=2.0, value=2.0)]

        def work() -> None:
            incumbent.offer("better", candidate=1.5, value=1.5, bound=0.5, proof=0.5)

        soft = Clock(0.5, clock())
        answer = attend(work, incumbent, soft, first=first, stand_by=stood.append)
        assert incumbent.hard.left <= 0.1 + MARGIN_WRITING * incumbent.cost["write"]
    closing.stuck.set()
    assert answer.value == (2.0 if what == "certify" else 1.5)
    assert answer.bound is None
    assert answer.stopped
    assert stood[0].value == 2.0


def attended(work, seconds: float | None = None, closing: Numbers | None = None):
    """Return the outcome of work over the numbers, with one first entry."""
    incumbent = make(closing=closing)
    soft = Clock(seconds, clock())
    return attend(
        lambda: work(incumbent), incumbent, soft, first=[lambda: incumbent.offer("first", candidate=2.0, value=2.0)]
    )


def fails(incumbent) -> None:
    incumbent.offer("fails", candidate=1.5, value=1.5)
    raise StoppedError("it cannot go on")


def test_work_that_looks_at_no_clock_is_left_behind():
    began = time.monotonic()
    incumbent = make()
    running = threading.Event()

    def work() -> None:
        incumbent.offer("endless", candidate=1.5, value=1.5)
        running.wait()

    answer = attend(work, incumbent, Clock(0.3, clock()))
    running.set()
    assert time.monotonic() - began < 10.0
    assert (answer.value, answer.stopped) == (1.5, True)


def test_work_that_cannot_go_on_leaves_what_it_offered():
    answer = attended(fails)
    assert (answer.value, answer.stopped) == (1.5, True)
    assert "cannot go on" in answer.path
    with pytest.raises(ZeroDivisionError):
        attended(lambda _: 1 / 0)
    with pytest.raises(SolverError, match="asked for"):
        attended(_refuses)


def _refuses(_: object) -> None:
    raise SolverError("asked for by name")


def test_arrays_that_change_after_the_offer_cost_quality_alone():
    values = np.array([1.1])
    closing = Numbers()
    incumbent: Incumbent = Incumbent(closing, 1e-3)
    incumbent.offer("torn", candidate=Later(lambda: float(values[0])), value=1.1)
    values[0] = 1.7
    incumbent.certify()
    assert incumbent.certified[0] == 1.7
    assert "as offered" in incumbent.answer(stopped=False).path


def test_without_a_limit_nothing_is_certified_on_the_way():
    closing = Numbers()

    def work(incumbent) -> None:
        for step in range(10):
            incumbent.offer("steps", candidate=2.0 - step / 10, value=2.0 - step / 10, bound=0.1, proof=0.1)
            time.sleep(0.01)

    answer = attended(work, closing=closing)
    assert closing.certified == [pytest.approx(1.1)]
    assert answer.offers == 10
    assert not answer.stopped
    assert [low for _, low, _ in answer.trajectory] == [0.1] * 10


def test_under_a_limit_it_is_certified_on_the_way():
    closing = Numbers()

    def work(incumbent) -> None:
        for step in range(10):
            incumbent.offer("steps", candidate=2.0 - step / 10, value=2.0 - step / 10)
            time.sleep(0.06)

    attended(work, 60.0, closing)
    assert len(closing.certified) > 2


def test_under_a_limit_what_reaches_the_gap_is_certified_at_the_end():
    # 500 nodes of Rome, 100 outputs, epsilon 1, gap .01: .0157 was certified on the way and kept, though the search
    # ended at .0075
    with limit(60.0):
        incumbent = make(gap=0.01)

        def work() -> None:
            incumbent.offer("search", candidate=1.0157, value=1.0157)
            while incumbent.certified[0] > 1.0157:
                time.sleep(0.01)
            incumbent.offer("search", candidate=1.0075, value=1.0075, bound=1.0, proof=1.0)

        answer = attend(work, incumbent, Clock(30.0, clock()))
    assert (answer.value, answer.bound, answer.stopped) == (1.0075, 1.0, False)


class Compiling(Numbers):
    """Certifies as on a machine that has kept no compiled code: the first time takes as long as everything else."""

    def __init__(self, monkeypatch, seconds: float = 0.5) -> None:
        super().__init__()
        self.compiled, self.seconds = 0, seconds
        monkeypatch.setattr("privopt.interfaces.incumbent.compilations", lambda: self.compiled)

    def certify(self, candidate: float) -> tuple[float, float]:
        if not self.certified:
            self.compiled += 1
            time.sleep(self.seconds)
        return super().certify(candidate)


def test_what_was_measured_while_code_was_compiled_is_measured_again(monkeypatch):
    incumbent = make(closing=Compiling(monkeypatch))
    incumbent.offer("first", candidate=2.0, value=2.0)
    incumbent.certify()
    assert incumbent.needs >= 0.5
    incumbent.offer("second", candidate=1.5, value=1.5)
    incumbent.certify()
    assert incumbent.needs < 0.5


def test_a_cold_cache_of_compiled_code_ends_no_search(monkeypatch):
    closing = Compiling(monkeypatch, 1.2)

    def work(incumbent) -> None:
        for step in range(10):
            incumbent.offer("steps", candidate=1.95 - step / 10, value=1.95 - step / 10)
            time.sleep(0.09)

    with limit(3.6):  # compiling takes 1.2 s of it; kept one and a half times, .6 s is left; the search takes .9 s
        answer = attended(work, 3.6, closing)
    assert answer.value == pytest.approx(1.05)
    assert not answer.stopped
