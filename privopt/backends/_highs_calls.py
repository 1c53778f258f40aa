"""One HiGHS instance through highspy: made, loaded, run, read."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from privopt.backends.base import Options, Outcome
from privopt.dsl.condition import Bearing, Conditioned
from privopt.errors import SolverError

__all__ = [
    "BEARING",
    "TOLERANCE",
    "call",
    "highspy_module",
    "infeasible_or_unbounded",
    "load",
    "new_solver",
    "outcome_of",
    "run",
]

BEARING = Bearing(smallest=1e-9, largest=1e15, privacy="symmetric", log_cap=34.0)
TOLERANCE = 1e-9


def highspy_module() -> Any:
    """The library, imported late."""
    import highspy

    return highspy


def call(status: Any, what: str) -> None:
    """Hold a status.

    Raises:
        SolverError: HiGHS refused.
    """
    if status == highspy_module().HighsStatus.kError:
        raise SolverError(f"highs refused to {what}")


def new_solver(*, tolerance: float, threads: int, seed: int, method: str, gap: float | None = None) -> Any:
    """A silent HiGHS instance."""
    solver = highspy_module().Highs()
    options: dict[str, Any] = {
        "output_flag": False,
        "log_to_console": False,
        "primal_feasibility_tolerance": tolerance,
        "dual_feasibility_tolerance": tolerance,
        "threads": threads,
        "random_seed": seed,
    }
    if gap is not None:
        options["mip_rel_gap"] = gap
    if method != "auto":
        options["solver"] = method
    for name, value in options.items():
        call(solver.setOptionValue(name, value), f"set {name}")
    return solver


def load(solver: Any, conditioned: Conditioned, *, integers: bool = True) -> None:
    """Hand a scaled form over in one call."""
    form, matrix = conditioned.form, conditioned.A
    m, n = form.shape
    whole = form.integrality if integers else np.zeros(n, dtype=np.uint8)
    status = solver.passModel(
        n,
        m,
        matrix.nnz,
        2,
        1,
        0.0,
        conditioned.c,
        form.col_lower,
        form.col_upper,
        conditioned.row_lower,
        conditioned.row_upper,
        matrix.indptr.astype(np.int32),
        matrix.indices.astype(np.int32),
        matrix.data,
        whole.astype(np.int32),
    )
    call(status, "take the model")
    if solver.getNumNz() != matrix.nnz:
        raise SolverError(f"highs kept {solver.getNumNz()} of {matrix.nnz} coefficients")


def outcome_of(solver: Any) -> Outcome | None:
    """The outcome that HiGHS claims; None where it gave up."""
    kinds = highspy_module().HighsModelStatus
    status = solver.getModelStatus()
    if status in (kinds.kOptimal, kinds.kModelEmpty):
        return Outcome.OPTIMAL
    if status == kinds.kInfeasible:
        return Outcome.INFEASIBLE
    if status == kinds.kUnbounded:
        return Outcome.UNBOUNDED
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
        feasible = solver.getInfo().primal_solution_status == highspy_module().kSolutionStatusFeasible
        return Outcome.FEASIBLE if feasible else Outcome.STOPPED
    return None


def run(solver: Any) -> None:
    """Run HiGHS so that an interrupt stops it at once (highspy's own way prints on standard output)."""
    if threading.current_thread() is not threading.main_thread():
        solver.run()
        return
    stop = threading.Event()

    def asked(event: Any) -> None:
        if stop.is_set():
            event.interrupt()

    channels = (solver.cbSimplexInterrupt, solver.cbIpmInterrupt, solver.cbMipInterrupt)
    for channel in channels:
        channel.subscribe(asked)
    thread = threading.Thread(target=solver.run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.2)
    except KeyboardInterrupt:
        stop.set()
        thread.join()
        raise
    finally:
        for channel in channels:
            channel.unsubscribe(asked)


def infeasible_or_unbounded(conditioned: Conditioned, options: Options, started: float) -> Outcome | None:
    """Infeasible, or unbounded: a solve without costs tells; None where it gives up."""
    solver = new_solver(tolerance=TOLERANCE, threads=options.threads, seed=options.seed, method="auto")
    load(solver, conditioned)
    n = conditioned.form.shape[1]
    call(solver.changeColsCost(n, np.arange(n, dtype=np.int32), np.zeros(n)), "drop the costs")
    if options.time_limit is not None:
        left = max(options.time_limit - (time.monotonic() - started), 0.0)
        call(solver.setOptionValue("time_limit", left), "set time_limit")
    run(solver)
    found = outcome_of(solver)
    return Outcome.UNBOUNDED if found is Outcome.OPTIMAL else found
