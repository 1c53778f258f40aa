"""The process in which CBC lives and dies: ``python -m privopt.backends._cbc_worker``.

Standard input: one problem (npz). Standard output: one answer (npz) and nothing else: whatever the C library prints
goes to the null device, because standard output is handed to this module alone before CBC is loaded.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np

__all__ = ["main"]


def _private_output() -> int:
    """Keep the real standard output for the answer; file descriptor 1 becomes the null device."""
    own = os.dup(1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    return own


def _die_with_parent() -> None:
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _solve(problem: dict[str, Any]) -> dict[str, Any]:
    import mip

    from privopt.backends._cbc_library import CbcModel

    started = time.monotonic()
    made = CbcModel()
    if "mps" in problem:
        made.load_mps(str(problem["mps"]))
    else:
        made.load(problem)
    loaded = time.monotonic() - started
    model = made.model
    model.infeas_tol = model.opt_tol = float(problem["tolerance"])
    model.integer_tol = 1e-6
    model.max_mip_gap, model.max_mip_gap_abs = float(problem["gap"]), 1e-10
    model.threads, model.seed = int(problem["threads"]), int(problem["seed"])
    method = str(problem["method"])
    if method != "auto":
        model.lp_method = mip.LP_Method.BARRIER if method == "ipm" else mip.LP_Method.DUAL
    limit = float(problem["time_limit"])
    status = model.optimize(max_seconds=limit) if np.isfinite(limit) else model.optimize()
    kinds = mip.OptimizationStatus
    answer: dict[str, Any] = {"status": status.name, "loaded": loaded, "iterations": made.iterations()}
    is_mip = bool(problem["integrality"].any())
    if status in (kinds.OPTIMAL, kinds.FEASIBLE):
        answer["x"] = made.vector()
        answer["bound"] = made.bound() if is_mip else float(model.objective_value)
        if not is_mip:
            answer["duals"], answer["reduced"] = made.duals(), made.reduced()
    elif status in (kinds.INFEASIBLE, kinds.INT_INFEASIBLE):
        # CBC calls unbounded models infeasible: without costs nothing is unbounded
        answer["status"] = _second_opinion(problem)
    answer["seconds"] = time.monotonic() - started
    return {k: v for k, v in answer.items() if v is not None}


def _second_opinion(problem: dict[str, Any]) -> str:
    if "mps" in problem or not np.any(problem["c"]):
        return "INFEASIBLE"
    from privopt.backends._cbc_library import CbcModel

    made = CbcModel()
    made.load(problem | {"c": np.zeros_like(problem["c"])})
    made.model.infeas_tol = float(problem["tolerance"])
    status = made.model.optimize()
    return "UNBOUNDED" if status.name in ("OPTIMAL", "FEASIBLE") else "INFEASIBLE"


def main() -> None:
    """Read a problem, solve it, write the answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = _private_output()
    _die_with_parent()
    with np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False) as stored:
        problem = {name: stored[name] for name in stored.files}
    packed = io.BytesIO()
    np.savez(packed, **_solve(problem))
    with os.fdopen(out, "wb") as stream:
        stream.write(packed.getvalue())
        stream.flush()
    # CBC's own tear-down may crash after the answer is out
    os._exit(0)


if __name__ == "__main__":
    main()
