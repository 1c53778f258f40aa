"""CBC's process: killed, late, left behind, forked; nothing of it outlives or harms the program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from solver_forms import hard, tiny

from privopt.backends import Outcome, get
from privopt.backends.cbc import Cbc, _idle, run_worker
from privopt.errors import SolverError


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
    }
    try:
        run_worker(problem, 10.0)
    except SolverError as error:
        assert "cbc died" in str(error)  # noqa: PT017
    assert get("cbc").solve(tiny()).objective == pytest.approx(1.0)


def _children() -> set[int]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        found |= {int(x) for x in (task / "children").read_text().split()}
    return found


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the worker under /proc")
def test_a_worker_killed_in_a_solve_is_a_solver_error() -> None:
    _idle.close()
    before = _children()

    def kill() -> None:
        for _ in range(200):
            time.sleep(0.05)
            started = _children() - before
            if started:
                time.sleep(1.5)
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
    monkeypatch.setattr("privopt.backends.cbc.GRACE_SECONDS", 0.0)
    monkeypatch.setattr("privopt.backends.cbc._limit_told", lambda seconds: 1e9)
    started = time.monotonic()
    found = Cbc().solve(hard(), time_limit=2.0)
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
        from privopt.backends.cbc import _idle, _Worker
        worker = _Worker()
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
    for _ in range(100):
        state = Path(f"/proc/{worker}/stat")
        if not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the worker lives on")


def test_forked_children_use_workers_of_their_own() -> None:
    get("cbc").solve(tiny())
    assert len(_idle.workers) >= 1
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, str(len(_idle.workers)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reader, 10) == b"0"
    os.close(reader)
    os.close(writer)
