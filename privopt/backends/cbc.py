"""CBC through python-mip, in a process of its own: it may crash, overrun its limit or print as it likes."""

from __future__ import annotations

import atexit
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import privopt
from privopt.backends._cbc_worker import read_frame, write_frame
from privopt.backends.base import Backend, Capabilities, Options, Outcome, Raw, Unsound
from privopt.dsl.condition import Bearing, Conditioned
from privopt.errors import SolverError

__all__ = ["BEARING", "Cbc", "problem_arrays", "solve_mps"]

BEARING = Bearing(smallest=1e-9, largest=1e12, privacy="symmetric", log_cap=22.0)
TOLERANCE, TIGHT = 1e-9, 1e-12
ENDLESS = 1e18
REUSED, KEPT = 200, 2
"""After so many solves a worker is replaced; so many wait for the next solve."""
GRACE_SECONDS = 2.0
"""What a solve may take beyond its limit, for loading and tear-down, before the worker is killed."""

_OUTCOMES = {
    "OPTIMAL": Outcome.OPTIMAL,
    "FEASIBLE": Outcome.FEASIBLE,
    "INFEASIBLE": Outcome.INFEASIBLE,
    "INT_INFEASIBLE": Outcome.INFEASIBLE,
    "UNBOUNDED": Outcome.UNBOUNDED,
    "NO_SOLUTION_FOUND": Outcome.STOPPED,
    "TRUNCATED": Outcome.STOPPED,
}


def problem_arrays(conditioned: Conditioned) -> dict[str, Any]:
    """A scaled form by columns, as the worker loads it.

    Rows without entries are left out of integer models, which have no duals to give back: CBC's preprocessing aborts
    on them.
    """
    form = conditioned.form
    entries = np.diff(conditioned.A.tocsr().indptr)
    kept = np.flatnonzero(entries) if form.integrality.any() else np.arange(len(entries))
    columns = conditioned.A.tocsr()[kept].tocsc()
    return {
        "start": columns.indptr.astype(np.int32),
        "index": columns.indices.astype(np.int32),
        "value": columns.data,
        "c": conditioned.c,
        "col_lower": form.col_lower,
        "col_upper": form.col_upper,
        "row_lower": conditioned.row_lower[kept],
        "row_upper": conditioned.row_upper[kept],
        "integrality": form.integrality,
    }


def _environment() -> dict[str, str]:
    """The worker imports what this process can import."""
    home = str(Path(privopt.__file__).parent.parent)
    return os.environ | {"PYTHONPATH": os.pathsep.join([home, *(p for p in sys.path if p)]), "PYTHONSAFEPATH": "1"}


class Cbc(Backend):
    """CBC. A dead worker is a ``SolverError``; a worker killed at the limit is a stopped solve."""

    name = "cbc"
    capabilities = Capabilities(isolated=True, bearing=BEARING)
    attempts = 3

    def version(self) -> str:
        """Version of python-mip, which brings its CBC."""
        return f"(python-mip {version('mip')})"

    def _solve(self, conditioned: Conditioned, options: Options, attempt: int) -> Raw:
        started = time.monotonic()
        empty = np.diff(conditioned.A.tocsr().indptr) == 0
        if (conditioned.row_lower[empty] > 0).any() or (conditioned.row_upper[empty] < 0).any():
            return Raw(outcome=Outcome.INFEASIBLE)
        if conditioned.form.shape[1] == 0:
            return Raw(outcome=Outcome.OPTIMAL, x=np.zeros(0))
        answer = run_worker(
            problem_arrays(conditioned) | solver_options(conditioned, options, attempt),
            None if options.time_limit is None else options.time_limit + GRACE_SECONDS,
        )
        raw = read_answer(answer, time.monotonic() - started, options.time_limit)
        runaway = raw.x is not None and bool((np.abs(raw.x) >= ENDLESS).any())
        # CBC may call a point far out on an unbounded ray optimal
        return Raw(outcome=Outcome.UNBOUNDED, seconds=raw.seconds) if runaway else raw


def solver_options(conditioned: Conditioned, options: Options, attempt: int = 0) -> dict[str, Any]:
    """Options as the worker reads them.

    Scaled privacy rows hold entries of ``e^(L/2)``, so that an error of 1e-9 in a column is one of 1e-5 in a row:
    they need the tightest tolerance that CBC keeps (measured: with 1e-9 it misses rows by 1e-5 from L = 20 on, with
    1e-12 by 1e-8 or less up to L = 22).
    """
    tight = any(len(b) and b.log_ratio is not None for b in conditioned.form.families)
    tolerances = (TIGHT, TOLERANCE, 1e-10) if tight else (TOLERANCE, 1e-8, 1e-10)
    return {
        "tolerance": tolerances[attempt],
        "integer_tolerance": 1e-6 if attempt == 0 else 1e-9,
        "gap": options.gap,
        "method": "simplex" if attempt and options.method == "auto" else options.method,
        "threads": options.threads,
        "seed": options.seed,
        "time_limit": _limit_told(options.time_limit),
    }


def _limit_told(seconds: float | None) -> float:
    """What CBC is told; what holds is the parent's own limit."""
    return np.inf if seconds is None else seconds


def solve_mps(path: Path, *, time_limit: float | None = None) -> Raw:
    """Solve an MPS file as CBC itself reads it: the way in that needs none of its internals. Nothing is checked."""
    started = time.monotonic()
    problem = {
        "mps": str(path),
        "tolerance": TOLERANCE,
        "integer_tolerance": 1e-6,
        "gap": 1e-6,
        "method": "auto",
        "threads": 1,
        "seed": 0,
        "time_limit": _limit_told(time_limit),
    }
    answer = run_worker(problem, None if time_limit is None else time_limit + GRACE_SECONDS)
    return read_answer(answer, time.monotonic() - started, time_limit)


def read_answer(answer: dict[str, Any] | None, seconds: float, time_limit: float | None) -> Raw:
    """The worker's arrays as a raw answer; None is a worker that was killed at the limit."""
    if answer is None:
        return Raw(outcome=Outcome.STOPPED, seconds=seconds, message="killed at the time limit")
    status = str(answer["status"])
    if status not in _OUTCOMES:
        raise Unsound(f"cbc ended with status {status}")
    outcome = _OUTCOMES[status]
    if outcome is Outcome.STOPPED and time_limit is None:
        raise Unsound("cbc gave up without a limit and found nothing")
    optimal = outcome is Outcome.OPTIMAL
    return Raw(
        outcome=outcome,
        x=answer.get("x"),
        bound=float(answer["bound"]) if "bound" in answer else None,
        iterations=int(answer.get("iterations", 0)),
        seconds=seconds,
        message=f"loaded in {float(answer.get('loaded', 0)):.2f} s",
        duals=answer.get("duals") if optimal else None,
        reduced=answer.get("reduced") if optimal else None,
    )


class _Worker:
    """One worker process; it answers one problem after another until it is closed."""

    def __init__(self) -> None:
        if not sys.executable:
            raise SolverError("cbc needs a Python interpreter to run in, and sys.executable is empty")
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "privopt.backends._cbc_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=_environment(),
        )
        self.answered = 0

    def ask(self, body: bytes, limit: float | None) -> bytes | None:
        """Send a problem and wait; None where the limit came first, or the process died."""
        answers: list[bytes | None] = []

        def exchange() -> None:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            with suppress(OSError, ValueError):
                write_frame(self.process.stdin, body)
                answers.append(read_frame(self.process.stdout))

        thread = threading.Thread(target=exchange, daemon=True)
        thread.start()
        try:
            thread.join(limit)
        finally:
            # also on an interrupt: no solver outlives the call
            if thread.is_alive():
                self.process.kill()
                thread.join()
        self.answered += 1
        return answers[0] if answers else None

    def alive(self) -> bool:
        """Whether it can take another problem."""
        return self.process.poll() is None

    def death(self) -> str:
        """How it died, after its end."""
        code = self.process.wait()
        self.errors.seek(0)
        lines = [x for x in self.errors.read().decode(errors="replace").splitlines() if x.strip()]
        names = {int(s): s.name for s in signal.Signals}
        cause = f"with exit code {code}" if code >= 0 else f"by {names.get(-code, f'signal {-code}')}"
        return f"{cause}{f': {lines[-1][:200]}' if lines else ''}"

    def close(self) -> None:
        """Stop it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


class _Idle:
    """Workers that wait for their next problem: starting one takes longer than most solves."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.workers: list[_Worker] = []

    def take(self) -> _Worker:
        with self.lock:
            while self.workers:
                worker = self.workers.pop()
                if worker.alive():
                    return worker
                worker.close()
        return _Worker()

    def give(self, worker: _Worker) -> None:
        with self.lock:
            if worker.alive() and worker.answered < REUSED and len(self.workers) < KEPT:
                self.workers.append(worker)
                return
        worker.close()

    def close(self) -> None:
        with self.lock:
            for worker in self.workers:
                worker.close()
            self.workers.clear()

    def forget(self) -> None:
        """In a forked child: the workers are the parent's."""
        self.lock = threading.Lock()
        self.workers = []


_idle = _Idle()
atexit.register(_idle.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.forget)


def run_worker(problem: dict[str, Any], hard_limit: float | None) -> dict[str, Any] | None:
    """Solve in a worker process; None where it was killed at the limit.

    Raises:
        SolverError: the process died.
    """
    packed = io.BytesIO()
    np.savez(packed, **problem)
    worker = _idle.take()
    started = time.monotonic()
    try:
        out = worker.ask(packed.getvalue(), hard_limit)
        if out is None:
            if hard_limit is not None and time.monotonic() - started >= hard_limit:
                return None
            raise SolverError(f"cbc died {worker.death()}")  # noqa: TRY301
        with np.load(io.BytesIO(out), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except BaseException:
        worker.process.kill()
        raise
    finally:
        _idle.give(worker)
