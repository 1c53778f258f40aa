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
from helpers.solver_forms import hard_form, tiny
from scipy import sparse

from privopt.backends import Outcome, get
from privopt.backends.base import Options
from privopt.backends.cbc import LIBRARY, Cbc, as_buffer, solver_options
from privopt.backends.highs import Highs
from privopt.backends.workers import ask, idle
from privopt.dsl.condition import ScaledForm
from privopt.dsl.solution import SolveInterrupt, solve_form
from privopt.errors import SolverError
from privopt.execution.worker import Worker


def test_huge_coefficients_kill_only_the_worker() -> None:
    # what the check above keeps from CBC, handed to it all the same
    rng = np.random.default_rng(0)
    a = np.exp(rng.uniform(-40, 48, (60, 40)))
    a[rng.random(a.shape) < 0.5] *= -1
    columns = sparse.csc_matrix(a)
    doubles = {
        "value": columns.data,
        "c": rng.random(40),
        "col_lower": np.zeros(40),
        "col_upper": np.ones(40),
        "row_lower": np.full(60, -np.inf),
        "row_upper": np.full(60, 1.0),
    }
    integers = {"start": columns.indptr, "index": columns.indices, "integers": []}
    problem = {
        **{name: as_buffer(array, np.float64) for name, array in doubles.items()},
        **{name: as_buffer(array, np.int32) for name, array in integers.items()},
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


def abort_like_cbc(problem: dict[str, Any]) -> dict[str, Any]:
    os.write(2, b"Error while solving the linear program.\n\nERROR while running Cbc. Getting stack trace.\n")
    os.write(2, b"libc.so.6(abort+0xd3) [0x7fa710644472]\n")
    os.abort()


def test_aborted_solver_tries_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    # CBC does so on a 9 x 9 grid at the tightest tolerance (800 s): "Error while solving the linear program."
    attempts = []

    def first_aborts(conditioned: ScaledForm, options: Options, attempt: int) -> dict[str, Any]:
        attempts.append(attempt)
        if attempt == 0:
            monkeypatch.setattr("privopt.backends.workers.solve_problem", abort_like_cbc)
        else:
            monkeypatch.undo()
        return solver_options(conditioned, options, attempt)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("privopt.backends.cbc.solver_options", first_aborts)
        assert get("cbc").solve(tiny()).objective == pytest.approx(1.0)
    assert attempts == [0, 1]
    monkeypatch.setattr("privopt.backends.workers.solve_problem", abort_like_cbc)
    with pytest.raises(SolverError, match=r"^cbc died by SIGABRT"):
        get("cbc").solve(tiny())


def _child_ids() -> set[int]:
    ids = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended since it was listed
            ids |= {int(x) for x in (task / "children").read_text().split()}
    return ids


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the worker under /proc")
def test_worker_killed_in_a_solve_is_a_solver_error() -> None:
    idle.close()
    earlier_children = _child_ids()

    def kill() -> None:
        for _ in range(6000):  # a busy machine takes seconds until there is a worker
            time.sleep(0.05)
            new_children = _child_ids() - earlier_children
            if new_children:
                time.sleep(0.7)
                for pid in new_children:
                    os.kill(pid, signal.SIGKILL)
                return

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(SolverError, match="died by SIGKILL"):
        get("cbc").solve(hard_form())
    thread.join()
    assert get("cbc").solve(tiny()).objective == pytest.approx(1.0)


def test_overrunning_worker_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privopt.backends.workers.GRACE_SECONDS", 0.0)
    monkeypatch.setattr(
        "privopt.backends.cbc.solver_options", lambda *arguments: solver_options(*arguments) | {"time_limit": None}
    )
    result = Cbc().solve(hard_form(), time_limit=0.5)
    assert result.outcome is Outcome.STOPPED
    assert "time limit" in result.message


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
        time.sleep(3000)
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
    for _ in range(6000):  # only a guard against hanging
        state = Path(f"/proc/{worker}/stat")
        if not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the worker lives on")


def test_forked_children_use_their_own_workers() -> None:
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


def test_overrunning_highs_keeps_its_best_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privopt.backends.highs._highs_limit", lambda seconds, start_seconds: 1e9)
    values: list[Any] = []

    def hear(self: Worker, value: Any) -> None:
        self.latest = value
        values.append(value)

    monkeypatch.setattr(Worker, "hear", hear)
    monkeypatch.setattr("privopt.backends._highs_calls.ask", lambda solver, problem, limit: ask(solver, problem, 3.0))
    clock = SimpleNamespace(monotonic=lambda: 1e9 if values else 0.0)  # the time has come when there is a point
    monkeypatch.setattr("privopt.backends.workers.time", clock)
    result = Highs().solve(hard_form(), time_limit=3.0)
    assert result.outcome is Outcome.FEASIBLE
    assert "time limit" in result.message
    assert result.bound is not None
    assert result.bound <= result.objective


def test_interrupted_highs_hands_over_its_best_point(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = threading.Event()

    def hear(self: Worker, value: Any) -> None:
        self.latest = value
        if not sent.is_set():
            sent.set()
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    monkeypatch.setattr(Worker, "hear", hear)
    with pytest.raises(SolveInterrupt) as excinfo:
        Highs().solve(hard_form())
    assert excinfo.value.result.outcome is Outcome.FEASIBLE
    assert excinfo.value.result.violation <= 1e-6


def test_early_interrupt_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    idle.close()
    monkeypatch.setattr(Worker, "hear", lambda self, value: None)  # no point comes, however late the interrupt does

    def solve() -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        Highs().solve(hard_form())

    with pytest.raises(KeyboardInterrupt) as excinfo:
        solve()
    assert not isinstance(excinfo.value, SolveInterrupt)
    assert not idle.workers.get("highs")  # the worker was ended, and did not finish the model


def test_interrupted_model_is_feasible(monkeypatch: pytest.MonkeyPatch) -> None:
    form = tiny(integrality=[1, 1])
    result = Highs().solve(form)

    def raise_interrupt(self: Highs, form: Any, **options: Any) -> Any:
        raise SolveInterrupt(evolve(result, outcome=Outcome.FEASIBLE))

    monkeypatch.setattr(Highs, "solve", raise_interrupt)
    assert solve_form(form, "highs").status == "feasible"


def test_integer_clash_is_sought_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    solver_names: list[str] = []

    def count_and_ask(solver: str, problem: dict[str, Any], limit: float | None) -> Any:
        solver_names.append(solver)
        return ask(solver, problem, limit)

    monkeypatch.setattr("privopt.backends._highs_calls.ask", count_and_ask)
    odd_sum = tiny(A=[[2, 2]], row_lower=[3], row_upper=[3], integrality=[1, 1])
    assert str(get("highs").explain(odd_sum)) == "row cannot be satisfied"
    assert solver_names == ["highs", "highs"]


def test_worker_of_cbc_loads_no_numpy() -> None:
    program = (
        "import privopt.backends._cbc_library, sys; assert not [m for m in sys.modules if m.startswith('numpy')]; "
        "import numpy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
