"""Solvers in processes of their own: one may crash, overrun its limit, not hear an interrupt or print as it likes."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from attrs import define

import privopt
from privopt.backends._worker import pack, read_frame, unpack, write_frame
from privopt.errors import SolverError

__all__ = ["GRACE_SECONDS", "Reply", "ask", "idle"]

REUSED: Final = 200
"""After so many solves a worker is replaced."""
KEPT: Final = 2
"""So many workers wait for the next solve."""
GRACE_SECONDS: Final = 2.0
"""What a solve may take beyond its limit, for loading and tear-down, before the worker is killed."""


@define
class Reply:
    """What a worker sent.

    Attributes:
        answer: of the solver; None where the worker was ended before.
        latest: the last thing said before the answer, None where nothing was.
        interrupted: whether an interrupt ended it.
    """

    answer: dict[str, Any] | None = None
    latest: dict[str, Any] | None = None
    interrupted: bool = False


def _environment() -> dict[str, str]:
    """The worker imports what this process can import."""
    home = str(Path(privopt.__file__).parent.parent)
    return os.environ | {"PYTHONPATH": os.pathsep.join([home, *(p for p in sys.path if p)]), "PYTHONSAFEPATH": "1"}


class Worker:
    """One worker process; it answers one problem after another until it is closed."""

    def __init__(self) -> None:
        if not sys.executable:
            raise SolverError("solvers need a Python interpreter to run in, and sys.executable is empty")
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "privopt.backends._worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=_environment(),
        )
        self.answered = 0

    def ask(self, body: bytes, limit: float | None) -> Reply:
        """Send a problem and wait; without an answer where the limit or an interrupt came first, or the process died.

        Raises:
            KeyboardInterrupt: an interrupt came, and nothing had been said.
        """
        reply = Reply()

        def exchange() -> None:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            with suppress(OSError, ValueError):
                write_frame(self.process.stdin, body)
                while (frame := read_frame(self.process.stdout)) is not None:
                    heard = unpack(frame)
                    if "last" in heard:
                        reply.answer = heard
                        return
                    reply.latest = heard

        thread = threading.Thread(target=exchange, daemon=True)
        thread.start()
        try:
            thread.join(limit)
        except KeyboardInterrupt:
            reply.interrupted = True
        finally:
            # no solver outlives the call
            if thread.is_alive():
                self.process.kill()
                thread.join()
        self.answered += 1
        if reply.interrupted and reply.latest is None and reply.answer is None:
            raise KeyboardInterrupt
        return reply

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
        self.workers: dict[str, list[Worker]] = {}

    def take(self, solver: str) -> Worker:
        with self.lock:
            waiting = self.workers.get(solver, [])
            while waiting:
                worker = waiting.pop()
                if worker.alive():
                    return worker
                worker.close()
        return Worker()

    def give(self, solver: str, worker: Worker) -> None:
        with self.lock:
            waiting = self.workers.setdefault(solver, [])
            if worker.alive() and worker.answered < REUSED and len(waiting) < KEPT:
                waiting.append(worker)
                return
        worker.close()

    def close(self) -> None:
        with self.lock:
            for worker in [w for waiting in self.workers.values() for w in waiting]:
                worker.close()
            self.workers.clear()

    def forget(self) -> None:
        """In a forked child: the workers are the parent's."""
        self.lock = threading.Lock()
        self.workers = {}


idle = _Idle()
atexit.register(idle.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=idle.forget)


def ask(solver: str, problem: dict[str, Any], limit: float | None) -> Reply:
    """Solve in a worker process.

    Args:
        solver: in words; each has workers of its own, for solvers do not share a process.
        problem: arrays, and under ``solver`` the module whose ``answer`` reads them.
        limit: seconds of wall time that the solver was given; GRACE_SECONDS later the worker is killed.

    Returns:
        The answer; none, where the worker was killed at the limit or by an interrupt.

    Raises:
        SolverError: the process died.
        KeyboardInterrupt: an interrupt came, and the solver had nothing to hand over.
    """
    allowed = None if limit is None else limit + GRACE_SECONDS
    worker = idle.take(solver)
    started = time.monotonic()
    reply = Reply()
    try:
        reply = worker.ask(pack(problem), allowed)
        late = allowed is not None and time.monotonic() - started >= allowed
        if reply.answer is None and not (late or reply.interrupted):
            raise SolverError(f"{solver} died {worker.death()}")
    finally:
        # one that was killed may still look alive for a moment
        if reply.answer is None:
            worker.close()
        else:
            idle.give(solver, worker)
    return reply
