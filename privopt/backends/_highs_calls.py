"""One HiGHS instance through highspy: create it, load a model, run it, and read the answer."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve

from privopt.backends.raw import Raw
from privopt.backends.workers import ask
from privopt.dsl.condition import CoefficientRange, ScaledForm
from privopt.dsl.outcome import Outcome
from privopt.errors import SolverError
from privopt.execution.clock import DaemonCall, clock
from privopt.execution.worker import send_progress

if TYPE_CHECKING:
    from highspy import Highs, HighsCallbackEvent, HighsStatus
else:
    Highs = HighsCallbackEvent = HighsStatus = Any

BEARING = CoefficientRange(smallest=1e-9, largest=1e15, log_cap=34.0)
ROW_TOLERANCE = 1e-9

_REDIRECTION_LOCK = threading.Lock()
"""Held while standard output is redirected: descriptors belong to the whole process."""


def highspy_module() -> ModuleType:
    """Import highspy late, so that a process without HiGHS models does not load it."""
    import highspy

    return highspy


@contextmanager
def _native_output_dropped() -> Iterator[None]:
    """Drop what a native library prints on standard output, by its file descriptor.

    Descriptor 1 is that of every thread, so keep the block short: what another thread prints meanwhile is dropped too.
    """
    # printf has a buffer of its own, so that it is flushed before and after the redirection
    c_library = ctypes.CDLL(None if os.name == "posix" else "ucrtbase")
    with _REDIRECTION_LOCK:
        try:
            original = os.dup(1)
        except OSError:  # standard output is closed: nothing can be printed there
            yield
            return
        null_device = os.open(os.devnull, os.O_WRONLY)
        try:
            c_library.fflush(None)
            os.dup2(null_device, 1)
            yield
        finally:
            c_library.fflush(None)
            os.dup2(original, 1)
            os.close(original)
            os.close(null_device)


def create_solver() -> Highs:
    """Create a HiGHS instance without its banner: HiGHS 1.16 prints one before any option can be set."""
    highspy = highspy_module()
    with _native_output_dropped():
        return highspy.Highs()


def check_status(status: HighsStatus, action: str) -> None:
    """Raise an error if a call of HiGHS returned one."""
    if status == highspy_module().HighsStatus.kError:
        raise SolverError(f"highs refused to {action}")


def settings_of(
    *, tolerance: float, threads: int, seed: int, method: str = "auto", gap: float | None = None, presolve: str = ""
) -> dict[str, Any]:
    """Return HiGHS's options by name, without a time limit."""
    settings: dict[str, Any] = {
        "output_flag": False,
        "log_to_console": False,
        "primal_feasibility_tolerance": tolerance,
        "dual_feasibility_tolerance": tolerance,
        "threads": threads,
        "random_seed": seed,
        "mip_abs_gap": 0.0,
        "time_limit": np.inf,
    }
    options = {"mip_rel_gap": gap, "solver": None if method == "auto" else method, "presolve": presolve or None}
    return settings | {name: value for name, value in options.items() if value is not None}


def new_solver(*, tolerance: float = ROW_TOLERANCE, method: str = "auto") -> Highs:
    """Create a silent HiGHS instance of one thread."""
    solver = create_solver()
    for name, value in settings_of(tolerance=tolerance, threads=1, seed=0, method=method).items():
        check_status(solver.setOptionValue(name, value), f"set {name}")
    return solver


def problem_arrays(conditioned: ScaledForm, *, integers: bool = True) -> dict[str, Any]:
    """Return a scaled form by rows, as :func:`load_arrays` reads it."""
    form, matrix = conditioned.form, conditioned.A
    return {
        "start": matrix.indptr.astype(np.int32),
        "index": matrix.indices.astype(np.int32),
        "value": matrix.data,
        "c": conditioned.c,
        "col_lower": form.col_lower,
        "col_upper": form.col_upper,
        "row_lower": conditioned.row_lower,
        "row_upper": conditioned.row_upper,
        "integrality": form.integrality.astype(np.int32) if integers else np.zeros(form.shape[1], dtype=np.int32),
    }


def load_arrays(solver: Highs, arrays: dict[str, Any]) -> None:
    """Pass a model to HiGHS in one call, and check that it took every coefficient."""
    count = len(arrays["value"])
    # 2 stands for a matrix by rows, 1 for minimisation, 0.0 for the constant of the objective.
    sizes = (len(arrays["c"]), len(arrays["row_lower"]), count, 2, 1, 0.0)
    order = ("c", "col_lower", "col_upper", "row_lower", "row_upper", "start", "index", "value", "integrality")
    check_status(solver.passModel(*sizes, *(arrays[name] for name in order)), "take the model")
    if solver.getNumNz() != count:
        raise SolverError(f"highs kept {solver.getNumNz()} of {count} coefficients")


def outcome_of(solver: Highs) -> Outcome | None:
    """Return the outcome that HiGHS claims, or None if it gave up."""
    kinds = highspy_module().HighsModelStatus
    status = solver.getModelStatus()
    outcomes = {
        kinds.kOptimal: Outcome.OPTIMAL,
        kinds.kModelEmpty: Outcome.OPTIMAL,
        kinds.kInfeasible: Outcome.INFEASIBLE,
        kinds.kUnbounded: Outcome.UNBOUNDED,
    }
    limits = (
        kinds.kTimeLimit,
        kinds.kIterationLimit,
        kinds.kSolutionLimit,
        kinds.kInterrupt,
        kinds.kHighsInterrupt,
        kinds.kObjectiveBound,
        kinds.kObjectiveTarget,
    )
    if status in limits:
        is_feasible = solver.getInfo().primal_solution_status == highspy_module().kSolutionStatusFeasible
        return Outcome.FEASIBLE if is_feasible else Outcome.STOPPED
    return outcomes.get(status)


def run_solver(solver: Highs) -> None:
    """Run HiGHS so that an interrupt stops it at once.

    highspy's own handling of interrupts prints on standard output.
    """
    stop = threading.Event()

    def interrupt_if_stopped(event: HighsCallbackEvent) -> None:
        if stop.is_set():
            event.interrupt()

    # Each of HiGHS's methods asks its own channel whether to go on.
    channels = (solver.cbSimplexInterrupt, solver.cbIpmInterrupt, solver.cbMipInterrupt)
    for channel in channels:
        channel.subscribe(interrupt_if_stopped)
    running, scope = DaemonCall(solver.run), clock()
    try:
        # HiGHS runs in another thread, so that this one can receive interrupts and watch the clock.
        while not running.wait(0.2):
            if scope.cancelled:
                stop.set()
    except KeyboardInterrupt:
        stop.set()
        running.thread.join()
        raise
    finally:
        for channel in channels:
            channel.unsubscribe(interrupt_if_stopped)


def read_answer(solver: Highs, *, is_mip: bool) -> Raw:
    """Read the answer of a solver that has run."""
    status, info, outcome = solver.getModelStatus(), solver.getInfo(), outcome_of(solver)
    x = duals = reduced = None
    bound = float(info.mip_dual_bound) if is_mip else None
    if outcome in (Outcome.OPTIMAL, Outcome.FEASIBLE):
        solution = solver.getSolution()
        x = np.array(solution.col_value, dtype=np.float64)
        if solver.getNumCol() and not x.size:
            raise SolverError("highs gives no vector")
        if outcome is Outcome.OPTIMAL and not is_mip:
            bound = float(info.objective_function_value)
            duals = np.array(solution.row_dual, dtype=np.float64)
            reduced = np.array(solution.col_dual, dtype=np.float64)
    return Raw(
        outcome=outcome,
        either=status == highspy_module().HighsModelStatus.kUnboundedOrInfeasible,
        message=solver.modelStatusToString(status),
        x=x,
        bound=bound,
        duals=duals,
        reduced=reduced,
        iterations=max(info.simplex_iteration_count, 0) + max(info.ipm_iteration_count, 0),
    )


def solve_arrays(arrays: dict[str, Any], settings: dict[str, Any]) -> Raw:
    """Solve a model: an LP in this process, an integer program in a process that can be killed.

    HiGHS looks at its clock and at interrupts between the steps of its search, and some steps take minutes. If the
    process had to be ended, its best point so far is returned, with the bound of that moment.

    Args:
        arrays: as of :func:`problem_arrays`.
        settings: options of HiGHS by their names; ``time_limit`` among them, infinite for none.

    Raises:
        KeyboardInterrupt: an interrupt came before the first feasible point.
        SolverError: it refused the model, or died.
    """
    if not arrays["integrality"].any():
        return _solve_here(arrays, settings)
    limit = settings["time_limit"]
    reply = ask(
        "highs", {"solver": __name__, "arrays": arrays, "settings": settings}, limit if limit < np.inf else None
    )
    if reply.answer is None:
        # The worker was killed: the last point that it reported is still a point of the model.
        best = reply.latest or {}
        return Raw(
            outcome=Outcome.FEASIBLE if "x" in best else Outcome.STOPPED,
            message="interrupted" if reply.interrupted else "killed at the time limit",
            x=best.get("x"),
            bound=best.get("bound"),
            interrupted=reply.interrupted,
        )
    raw: Raw = reply.answer["said"]
    return evolve(raw, interrupted=reply.interrupted)


def _solve_here(
    arrays: dict[str, Any], settings: dict[str, Any], prepare: Callable[[Highs], None] | None = None
) -> Raw:
    """Solve a model in this process."""
    started = time.monotonic()
    solver = create_solver()
    for name, value in settings.items():
        check_status(solver.setOptionValue(name, value), f"set {name}")
    load_arrays(solver, arrays)
    # Loading counts against the time limit too.
    remaining_seconds = max(settings["time_limit"] - (time.monotonic() - started), 0.0)
    check_status(solver.setOptionValue("time_limit", remaining_seconds), "set time_limit")
    if prepare is not None:
        prepare(solver)
    run_solver(solver)
    return read_answer(solver, is_mip=bool(arrays["integrality"].any()))


def answer(problem: dict[str, Any]) -> dict[str, Any]:
    """Solve a model in a worker process (:mod:`privopt.backends.workers`), and report each better point and bound."""

    def report_point(event: HighsCallbackEvent) -> None:
        progress = event.data_out
        send_progress({"x": np.array(progress.mip_solution, dtype=np.float64), "bound": float(progress.mip_dual_bound)})

    def prepare(solver: Highs) -> None:
        solver.cbMipImprovingSolution.subscribe(report_point)

    return {"said": _solve_here(problem["arrays"], problem["settings"], prepare)}
