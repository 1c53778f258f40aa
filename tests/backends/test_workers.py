"""Solvers' processes: killed, late, left behind, forked; nothing of them outlives or harms the program."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from helpers.solver_forms import hard, tiny
from scipy import sparse

from privopt.backends import Outcome, get
from privopt.backends.base import Options
from privopt.backends.cbc import LIBRARY, Cbc, solver_options
from privopt.backends.highs import Highs
from privopt.backends.workers import ask, idle
from privopt.dsl.condition import ScaledForm
from privopt.dsl.solution import SolveInterrupt, solve_form
from privopt.errors import SolverError
from privopt.execution.worker import Worker


def test_raw_huge_coefficients_kill_only_the_worker() -> None:
    # what the check above keeps from CBC, handed to it all the same
    rng = np.random.default_rng(0)
    a = np.exp(rng.uniform(-40, 48, (60, 40)))
    a[rng.random(a.shape) < 0.5] *= -1
    columns = sparse.csc_matrix(a)
    problem = {
        "start": columns.indptr.astype(np.int32),
        "index": columns.indices.astype(np.int32),
        "value": columns.data,
        "c": rng.random(40),
        "col_lower": np.zeros(40),
        "col_upper": np.ones(40),
        "row_lower": np.full(60, -np.inf),
        "row_upper": np.full(60, 1.0),
        "integrality": np.zeros(40, np.uint8),
        "tolerance": 1e-9,
        "integer_tolerance": 1e-6,
        "gap": 0.0,
        "method": "auto",
        "threads": 1,
        "seed": 0,
        "time_limit": 5.0,
        "solver": LIBRARY,
    }
    try:
        ask("cbc", problem, 10.0)
    except SolverError as error:
        assert "cbc died" in str(error)  # noqa: PT017
    assert get("cbc").solve(tiny()).objective == pytest.approx(1.0)


def aborted(problem: dict[str, Any]) -> dict[str, Any]:
    os.write(2, b"Error while solving the linear program.\n\nERROR while running Cbc. Getting stack trace.\n")
    os.write(2, b"libc.so.6(abort+0xd3) [0x7fa710644472]\n")
    os.abort()


def test_a_solver_that_aborts_is_tried_with_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    # CBC does so on a 9 x 9 grid at the tightest tolerance (800 s): "Error while solving the linear program."
    tried = []

    def first_aborts(conditioned: ScaledForm, options: Options, attempt: int) -> dict[str, Any]:
        tried.append(attempt)
        if attempt == 0:
            monkeypatch.setattr("privopt.backends.workers._solve_problem", aborted)
        else:
            monkeypatch.undo()
        return solver_options(conditioned, options, attempt)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("privopt.backends.cbc.solver_options", first_aborts)
        assert get("cbc").solve(tiny()).objective == pytest.approx(1.0)
    assert tried == [0, 1]
    monkeypatch.setattr("privopt.backends.workers._solve_problem", aborted)
    with pytest.raises(SolverError, match=r"^cbc died by SIGABRT: Error while solving the linear program\.$"):
        get("cbc").solve(tiny())


def _children() -> set[int]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended since it was listed
            found |= {int(x) for x in (task / "children").read_text().split()}
    return found


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the worker under /proc")
def test_a_worker_killed_in_a_solve_is_a_solver_error() -> None:
    idle.close()
    before = _children()

    def kill() -> None:
        for _ in range(6000):  # a busy machine takes seconds until there is a worker
            time.sleep(0.05)
            started = _children() - before
            if started:
                time.sleep(0.7)
                for pid in started:
                    os.kill(pid, signal.SIGKILL)
                return

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(SolverError, match="cbc died by SIGKILL"):
        get("cbc").solve(hard())
    thread.join()
    assert get("cbc").solve(tiny()).objective == pytest.approx(1.0)


def test_a_worker_that_overruns_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privopt.backends.workers.GRACE_SECONDS", 0.0)
    monkeypatch.setattr(
        "privopt.backends.cbc.solver_options", lambda *given: solver_options(*given) | {"time_limit": np.inf}
    )
    started = time.monotonic()
    found = Cbc().solve(hard(), time_limit=0.5)
    assert found.outcome is Outcome.STOPPED
    assert found.message == "killed at the time limit"
    assert time.monotonic() - started < 60  # the model takes minutes


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for the worker under /proc")
def test_no_worker_outlives_a_killed_program() -> None:
    program = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent("""
        from privopt.execution.worker import Worker
        worker = Worker(quiet=True)
        print(worker.process.pid, flush=True)
        import time
        time.sleep(60)
    """),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    worker = int(program.stdout.readline())
    program.kill()
    program.wait()
    program.stdout.close()
    for _ in range(600):
        state = Path(f"/proc/{worker}/stat")
        if not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the worker lives on")


def test_forked_children_use_workers_of_their_own() -> None:
    get("cbc").solve(tiny())
    assert idle.workers["cbc"]
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, str(len(idle.workers)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reader, 10) == b"0"
    os.close(reader)
    os.close(writer)


def test_highs_that_overruns_is_ended_and_its_best_point_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privopt.backends.highs._highs_limit", lambda seconds, started: 1e9)
    heard: list[Any] = []

    def hear(self: Worker, value: Any) -> None:
        self.latest = value
        heard.append(value)

    monkeypatch.setattr(Worker, "hear", hear)
    monkeypatch.setattr("privopt.backends._highs_calls.ask", lambda solver, problem, limit: ask(solver, problem, 3.0))
    clock = SimpleNamespace(monotonic=lambda: 1e9 if heard else 0.0)  # the time has come when there is a point
    monkeypatch.setattr("privopt.backends.workers.time", clock)
    started = time.monotonic()
    found = Highs().solve(hard(), time_limit=3.0)
    assert time.monotonic() - started < 60  # the model takes minutes
    assert found.outcome is Outcome.FEASIBLE
    assert found.message == "killed at the time limit"
    assert found.bound is not None
    assert found.bound <= found.objective


def test_an_interrupt_ends_highs_at_once_and_its_best_point_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[float] = []

    def hear(self: Worker, value: Any) -> None:
        self.latest = value
        if not sent:
            sent.append(time.monotonic())
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    monkeypatch.setattr(Worker, "hear", hear)
    with pytest.raises(SolveInterrupt) as caught:
        Highs().solve(hard())
    assert time.monotonic() - sent[0] < 60  # the model takes minutes
    assert caught.value.result.outcome is Outcome.FEASIBLE
    assert caught.value.result.violation <= 1e-6


def test_an_interrupt_before_any_point_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    idle.close()
    monkeypatch.setattr(Worker, "hear", lambda self, value: None)  # no point comes, however late the interrupt does
    started = time.monotonic()

    def solve() -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        Highs().solve(hard())

    with pytest.raises(KeyboardInterrupt) as caught:
        solve()
    assert not isinstance(caught.value, SolveInterrupt)
    assert time.monotonic() - started < 60  # the model takes minutes


def test_a_model_solved_to_an_interrupt_is_feasible(monkeypatch: pytest.MonkeyPatch) -> None:
    form = tiny(integrality=[1, 1])
    result = Highs().solve(form)

    def interrupted(self: Highs, form: Any, **options: Any) -> Any:
        raise SolveInterrupt(evolve(result, outcome=Outcome.FEASIBLE))

    monkeypatch.setattr(Highs, "solve", interrupted)
    assert solve_form(form, "highs").status == "feasible"


def test_a_clash_of_integers_is_looked_for_where_it_can_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(solver: str, problem: dict[str, Any], limit: float | None) -> Any:
        asked.append(solver)
        return ask(solver, problem, limit)

    monkeypatch.setattr("privopt.backends._highs_calls.ask", counted)
    odd = tiny(A=[[2, 2]], row_lower=[3], row_upper=[3], integrality=[1, 1])
    assert str(get("highs").explain(odd)) == "row cannot hold"
    assert asked == ["highs", "highs"]
