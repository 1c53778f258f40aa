"""Solvers that never end, lie, take what is not there or raise: the release is honest, and it comes in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from helpers.grids import first_alone
from helpers.toys import grid_text

from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_metric_dp.proof.lagrangian_bound import Multipliers
from privopt_metric_dp.solvers import auto

GRID = grid_text(5, 5, 0.6, 0.9)


class Bad:
    """A solver that comes first and does one thing wrong."""

    name = "bad"
    needs = 0.0

    def peak_bytes(self, part):
        return self.needs

    def solve(self, part, offers):
        raise NotImplementedError


class Liar(Bad):
    """Not private at all, for a loss of nothing, with a bound above every loss."""

    def solve(self, part, offers):
        instance = part.instance
        z = np.zeros(instance.cost.shape)
        z[np.arange(instance.records), instance.cost.argmin(axis=1)] = 1.0
        zero = Multipliers.zero()
        offers.offer(self.name, candidate=z, value=1e-9, bound=1e6, proof=zero)


class Greedy(Bad):
    """Needs a terabyte, and would be found out if it were begun."""

    needs = 1e12


class Faulty(Bad):
    """Raises what it is told to."""

    def __init__(self, error):
        self.error = error

    def solve(self, part, offers):
        raise self.error


def make_bad_ladder(bad_solver):
    """Yield the ladder with a bad solver before all others."""

    def ladder(part, memory, original_ladder=auto.auto):
        yield bad_solver
        yield from original_ladder(part, memory)

    return ladder


@pytest.fixture
def problem(tmp_path):
    (tmp_path / "problem.toml").write_text(GRID)
    return tmp_path / "problem.toml"


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """Return the objective without a bad solver."""
    folder = tmp_path_factory.mktemp("right")
    (folder / "problem.toml").write_text(GRID)
    return solve("optimal-lp", folder / "problem.toml", folder / "out").result.objective


@pytest.mark.filterwarnings("ignore:bad failed")
@pytest.mark.parametrize(
    ("bad_solver", "keywords"),
    [
        (Liar(), "as offered"),
        (Greedy(), "needs 1e+03"),
        (Faulty(MemoryError()), "out of memory"),
        (Faulty(np.linalg.LinAlgError("singular")), "bad (singular)"),
        (Faulty(ZeroDivisionError("one")), "ZeroDivisionError('one')"),
    ],
)
def test_next_method_continues_and_is_recorded(tmp_path, problem, right, monkeypatch, bad_solver, keywords):
    monkeypatch.setattr(auto, "make_ladder", lambda method: make_bad_ladder(bad_solver))
    release = solve("optimal-lp", problem, tmp_path / "out")
    assert keywords in release.result.solver["path"]
    assert release.result.status == "optimal"
    assert not release.stopped
    assert release.result.objective.value == pytest.approx(right.value, rel=2e-6)
    assert verify(tmp_path / "out").verdict == "proved"


COMMAND = """
import re, sys, threading, time
time.monotonic = time.process_time  # before any scope of time takes it: the limit means work, whatever else runs here
from privopt.__main__ import main
from privopt_metric_dp.solvers import auto
import numpy as np
from privopt.execution import threads

class Endless:
    name = "endless"

    def peak_bytes(self, part):
        return 0.0

    def solve(self, part, offers):
        sys.stderr.write("begun\\n")
        sys.stderr.flush()
        WORK

def ladder(part, room, own=auto.auto):
    yield Endless()
    yield from own(part, room)

auto.make_ladder = lambda method: ladder
main()
"""
NO_CLOCK = "while True: np.sort(np.random.default_rng(0).random(1_000_000))"
IN_A_POOL = "threads(2).submit('a', lambda: [np.sort(np.random.random(1_000_000)) for _ in iter(int, 1)]).result()"


def command(work, problem, output_folder, *options):
    return [
        sys.executable,
        "-c",
        COMMAND.replace("WORK", work),
        *("solve", "optimal-lp", str(problem), "--out", str(output_folder), "--quiet", *options),
    ]


@first_alone("work", [NO_CLOCK, IN_A_POOL])
def test_leaves_methods_that_ignore_the_clock(tmp_path, problem, work):
    limited = command(work, problem, tmp_path / "out", "--time-limit", "8")
    completed = subprocess.run(limited, capture_output=True, text=True, check=False, timeout=600)
    assert completed.returncode == 4, completed.stderr
    assert verify(tmp_path / "out").verdict == "proved"


@first_alone("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_certifies_the_best(tmp_path, problem, number):
    running = subprocess.Popen(
        command(NO_CLOCK, problem, tmp_path / "out"), stderr=subprocess.PIPE, text=True, env=os.environ
    )
    assert running.stderr.readline() == "begun\n"
    running.send_signal(number)
    _, stderr = running.communicate(timeout=120)
    assert running.returncode == 4, stderr
    assert verify(tmp_path / "out").verdict == "proved"
