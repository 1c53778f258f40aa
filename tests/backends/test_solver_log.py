"""``log=True`` shows the log of each solver, and nothing is shown without it."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from privopt.backends.solver_log import show_log
from privopt.dsl import Index, IndexSet, Le, Model, total
from privopt.errors import UsageError


def knapsack(kind: str) -> Model:
    rng = np.random.default_rng(0)
    m = Model("knapsack")
    X, Q = IndexSet("X", 12), IndexSet("Q", 3)
    i, q = Index("i", X), Index("q", Q)
    x = m.variable("x", X, upper=1, kind=kind)  # type: ignore[arg-type]
    weight, worth = m.param("weight", rng.integers(1, 100, (3, 12))), m.param("worth", rng.integers(1, 100, 12))
    m.maximize(total(worth[i] * x[i], over=i))
    m.require("capacity", Le(total(weight[q, i] * x[i], over=i), 200), forall=q)
    return m


@pytest.mark.parametrize("kind", ["continuous", "binary"])
@pytest.mark.parametrize(("backend", "words"), [("highs", "Running HiGHS"), ("cbc", "ptimal")])
def test_log_is_shown_if_asked_for(capfd: pytest.CaptureFixture[str], kind: str, backend: str, words: str) -> None:
    m = knapsack(kind)
    expected = m.solve(backend).objective
    assert capfd.readouterr() == ("", "")
    solution = m.solve(backend, log=True, gap=1e-3, time_limit=30.0)
    out, err = capfd.readouterr()
    assert out == ""
    assert words in err
    # A worker that has shown its log shows none the next time.
    m.solve(backend, log=False)
    assert capfd.readouterr() == ("", "")
    assert solution.objective == pytest.approx(expected, rel=1e-3)


def test_log_is_copied_while_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    thread_count = threading.active_count()
    with show_log() as path, open(path, "a", encoding="utf-8") as file:
        file.write("first line\n")
        file.flush()
        for _ in range(50):
            if "first line" in capsys.readouterr().err:
                break
            threading.Event().wait(0.1)
        else:
            pytest.fail("nothing was copied in five seconds")
        file.write("last line")
    assert capsys.readouterr().err == "last line"
    assert threading.active_count() == thread_count
    assert sys.stderr.writable()


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_refuses_a_log_that_is_no_truth_value(backend: str) -> None:
    with pytest.raises(UsageError, match="log must be True or False, got 'yes'"):
        knapsack("binary").solve(backend, log="yes")  # type: ignore[typeddict-item]
    with pytest.raises(UsageError, match="a solve takes the options"):
        knapsack("binary").solve(backend, log_file="solver.log")  # type: ignore[call-arg]
