"""CBC through python-mip, in a process of its own: it may crash, overrun its limit or print as it likes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import privopt
from privopt.backends.base import Backend, Capabilities, Outcome, Raw
from privopt.dsl.condition import Bearing, Conditioned
from privopt.errors import SolverError

__all__ = ["BEARING", "Cbc", "problem_arrays"]

BEARING = Bearing(smallest=1e-9, largest=1e12, privacy="symmetric", log_cap=20.0)
TOLERANCE = 1e-9
GRACE_SECONDS = 2.0
"""What a solve may take beyond its limit, for loading and tear-down, before the worker is killed."""

_OUTCOMES = {
    "OPTIMAL": Outcome.OPTIMAL, "FEASIBLE": Outcome.FEASIBLE, "INFEASIBLE": Outcome.INFEASIBLE,
    "INT_INFEASIBLE": Outcome.INFEASIBLE, "UNBOUNDED": Outcome.UNBOUNDED, "NO_SOLUTION_FOUND": Outcome.STOPPED,
    "TRUNCATED": Outcome.STOPPED,
}


def problem_arrays(conditioned: Conditioned) -> dict[str, Any]:
    """A scaled form by columns, as the worker loads it."""
    form = conditioned.form
    columns = conditioned.A.tocsc()
    return {
        "start": columns.indptr.astype(np.int32), "index": columns.indices.astype(np.int32), "value": columns.data,
        "c": conditioned.c, "col_lower": form.col_lower, "col_upper": form.col_upper,
        "row_lower": conditioned.row_lower, "row_upper": conditioned.row_upper, "integrality": form.integrality,
    }


def _environment() -> dict[str, str]:
    """The worker imports what this process can import."""
    home = str(Path(privopt.__file__).parent.parent)
    return os.environ | {"PYTHONPATH": os.pathsep.join([home, *(p for p in sys.path if p)]), "PYTHONSAFEPATH": "1"}


class Cbc(Backend):
    """CBC. A dead worker is a ``SolverError``; a worker killed at the limit is a stopped solve."""

    name = "cbc"
    capabilities = Capabilities(isolated=True, bearing=BEARING)

    def version(self) -> str:
        """Version of python-mip, which brings its CBC."""
        return f"(python-mip {version('mip')})"

    def _solve(
        self, conditioned: Conditioned, *, time_limit: float | None, gap: float | None, method: str, threads: int,
        seed: int,
    ) -> Raw:
        form = conditioned.form
        if form.shape[1] == 0:
            feasible = bool((conditioned.row_lower <= 0).all() and (conditioned.row_upper >= 0).all())
            return Raw(outcome=Outcome.OPTIMAL, x=np.zeros(0)) if feasible else Raw(outcome=Outcome.INFEASIBLE)
        started = time.monotonic()
        problem = problem_arrays(conditioned) | {
            "tolerance": TOLERANCE, "gap": 0.0 if gap is None else gap, "method": method, "threads": threads,
            "seed": seed, "time_limit": np.inf if time_limit is None else time_limit,
        }
        answer = run_worker(problem, None if time_limit is None else time_limit + GRACE_SECONDS)
        seconds = time.monotonic() - started
        if answer is None:
            return Raw(outcome=Outcome.STOPPED, seconds=seconds, message="killed at the time limit")
        status = str(answer["status"])
        if status not in _OUTCOMES:
            raise SolverError(f"cbc ended with status {status}")
        outcome = _OUTCOMES[status]
        if outcome is Outcome.STOPPED and time_limit is None:
            raise SolverError("cbc gave up without a limit and found nothing")
        bound = float(answer["bound"]) if "bound" in answer else None
        optimal = outcome is Outcome.OPTIMAL
        return Raw(
            outcome=outcome, x=answer.get("x"), bound=bound, iterations=int(answer.get("iterations", 0)),
            seconds=seconds, message=f"loaded in {float(answer.get('loaded', 0)):.2f} s",
            duals=answer.get("duals") if optimal else None, reduced=answer.get("reduced") if optimal else None)


def run_worker(problem: dict[str, Any], hard_limit: float | None) -> dict[str, Any] | None:
    """Solve in a fresh process; None where it was killed at the limit.

    Raises:
        SolverError: the process died, or wrote no answer.
    """
    packed = io.BytesIO()
    np.savez(packed, **problem)
    if not sys.executable:
        raise SolverError("cbc needs a Python interpreter to run in, and sys.executable is empty")
    process = subprocess.Popen(
        [sys.executable, "-m", "privopt.backends._cbc_worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=_environment())
    try:
        out, err = process.communicate(packed.getvalue(), timeout=hard_limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # also on an interrupt: no solver outlives the call
        if process.poll() is None:
            process.kill()
            process.communicate()
    if process.returncode != 0 or not out:
        raise SolverError(f"cbc died {_cause(process.returncode)}{_tail(err)}")
    try:
        with np.load(io.BytesIO(out), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (ValueError, OSError, EOFError) as error:
        raise SolverError(f"cbc's worker wrote no answer: {error}") from None


def _cause(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    import signal

    names = {int(s): s.name for s in signal.Signals}
    return f"by {names.get(-code, f'signal {-code}')}"


def _tail(err: bytes) -> str:
    lines = [x for x in err.decode(errors="replace").strip().splitlines() if x.strip()]
    return f": {lines[-1][:200]}" if lines else ""
