"""The process in which CBC lives and dies: ``python -m privopt.backends._cbc_worker``.

Standard input: problems (npz), each behind its length in 8 bytes. Standard output: one answer to each, in the same
way, and nothing else: whatever the C library prints goes to the null device, because standard output is handed to
this module alone before CBC is loaded. Ends when its input ends, or with the process that started it.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from typing import IO, Any

import numpy as np

__all__ = ["main", "read_frame", "write_frame"]


def read_frame(stream: IO[bytes]) -> bytes | None:
    """One message; None where the stream ended."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "little")
    body = stream.read(size)
    return body if len(body) == size else None


def write_frame(stream: IO[bytes], body: bytes) -> None:
    """Send one message."""
    stream.write(len(body).to_bytes(8, "little"))
    stream.write(body)
    stream.flush()


def _private_output() -> int:
    """Keep the real standard output for answers; file descriptor 1 becomes the null device."""
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
    from privopt.backends._cbc_library import CbcModel

    started = time.monotonic()
    made = CbcModel()
    if "mps" in problem:
        made.load_mps(str(problem["mps"]))
    else:
        made.load(problem)
    loaded = time.monotonic() - started
    if "load_only" in problem:
        return {"status": "LOADED", "loaded": loaded}
    status = made.optimise(problem)
    answer: dict[str, Any] = {"status": status, "loaded": loaded, "iterations": made.iterations()}
    is_mip = made.integers() > 0
    if status in ("OPTIMAL", "FEASIBLE"):
        answer["x"] = made.vector()
        answer["bound"] = made.bound() if is_mip else made.objective()
        if not is_mip:
            answer["duals"], answer["reduced"] = made.duals(), made.reduced()
    elif status in ("INFEASIBLE", "INT_INFEASIBLE"):
        answer["status"] = _second_opinion(problem, made)
    answer["seconds"] = time.monotonic() - started
    return {k: v for k, v in answer.items() if v is not None}


def _second_opinion(problem: dict[str, Any], made: Any) -> str:
    """CBC calls unbounded models infeasible; without costs nothing is unbounded."""
    again = type(made)()
    if "mps" in problem:
        again.load_mps(str(problem["mps"]))
        again.drop_costs()
    elif np.any(problem["c"]):
        again.load(problem | {"c": np.zeros_like(problem["c"])})
    else:
        return "INFEASIBLE"
    return "UNBOUNDED" if again.optimise(problem) in ("OPTIMAL", "FEASIBLE") else "INFEASIBLE"


def main() -> None:
    """Answer problems until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(_private_output(), "wb")
    _die_with_parent()
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        with np.load(io.BytesIO(frame), allow_pickle=False) as stored:
            problem = {name: stored[name] for name in stored.files}
        packed = io.BytesIO()
        np.savez(packed, **_solve(problem))
        write_frame(out, packed.getvalue())
    # CBC's own tear-down may crash after the last answer is out
    os._exit(0)


if __name__ == "__main__":
    main()
