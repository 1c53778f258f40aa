"""Functions that drive a HiGHS instance through highspy: create it, load a model, run it and read the answer."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray
from scipy import sparse

from privopt.arrays import Floats
from privopt.backends.raw import Raw
from privopt.backends.workers import ask
from privopt.dsl.condition import CoefficientRange, ScaledForm
from privopt.dsl.outcome import Basis, Outcome
from privopt.errors import SolverError
from privopt.execution.child import send_progress
from privopt.execution.clock import DaemonCall, clock

if TYPE_CHECKING:
    from highspy import Highs, HighsCallbackEvent, HighsStatus
else:
    Highs = HighsCallbackEvent = HighsStatus = Any

BEARING = CoefficientRange(smallest=1e-9, largest=1e15, log_cap=34.0)
"""The range of coefficients that HiGHS can handle, and its cap on the exponents of privacy rows."""
ROW_TOLERANCE = 1e-9
"""HiGHS's tolerance on scaled rows and reduced costs."""

MAX_KEPT_ENTRIES = 5_000_000
"""Maximum number of coefficients in a model whose basis keeps the solver instance for the next solve."""

QUADRATIC_ORDERS = 8
"""The number of column orders to try in one attempt at a quadratic program."""

LOG_FILE = "log_file"
"""The settings key for the path of the file to which the log is appended. It is not passed on to HiGHS, whose own
option of this name would overwrite the file in each solve."""

_REDIRECTION_LOCK = threading.Lock()
"""A lock held while standard output is redirected, because all threads in the process share its file descriptor."""


def highspy_module() -> ModuleType:
    """Import and return highspy. It is imported here so that only processes that use HiGHS load it."""
    import highspy

    return highspy


@contextmanager
def _native_output_dropped() -> Iterator[None]:
    """Discard what native code writes to standard output inside a ``with`` block, by redirecting file descriptor 1.

    All threads share this descriptor, so the output of other threads is discarded too. The block should therefore be
    short.
    """
    # printf has a buffer of its own, which must be flushed before and after the redirection.
    c_library = ctypes.CDLL(None if os.name == "posix" else "ucrtbase")
    with _REDIRECTION_LOCK:
        try:
            original = os.dup(1)
        except OSError:  # standard output is closed, so nothing can be printed
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
    """Create a HiGHS instance, suppressing the banner that HiGHS 1.16 prints before options can be set."""
    highspy = highspy_module()
    with _native_output_dropped():
        return highspy.Highs()


def check_status(status: HighsStatus, action: str) -> None:
    """Raise a SolverError if a call to HiGHS returned an error. The message names the ``action`` that failed."""
    if status == highspy_module().HighsStatus.kError:
        raise SolverError(f"highs refused to {action}")


def settings_of(
    *, tolerance: float, threads: int, seed: int, method: str = "auto", gap: float | None = None, presolve: str = ""
) -> dict[str, Any]:
    """Return a dict of HiGHS options with an infinite time limit.

    Args:
        tolerance: The tolerance on rows and reduced costs.
        threads: The number of threads.
        seed: The seed for HiGHS's own random choices.
        method: "simplex", "ipm", or "auto" to let HiGHS choose.
        gap: The relative gap at which a search over integers may stop, or None for HiGHS's default.
        presolve: "choose", "on" or "off", or an empty string for HiGHS's default.
    """
    settings: dict[str, Any] = {
        "output_flag": False,
        "log_to_console": False,
        "primal_feasibility_tolerance": tolerance,
        "dual_feasibility_tolerance": tolerance,
        "threads": threads,
        "random_seed": seed,
        # Otherwise, HiGHS's own absolute gap would end the search early if the objective is small.
        "mip_abs_gap": 0.0,
        "time_limit": np.inf,
    }
    options = {"mip_rel_gap": gap, "solver": None if method == "auto" else method, "presolve": presolve or None}
    return settings | {name: value for name, value in options.items() if value is not None}


def new_solver(*, tolerance: float = ROW_TOLERANCE, method: str = "auto") -> Highs:
    """Create a HiGHS instance that prints nothing and uses one thread.

    ``tolerance`` applies to rows and reduced costs.
    """
    solver = create_solver()
    for name, value in settings_of(tolerance=tolerance, threads=1, seed=0, method=method).items():
        check_status(solver.setOptionValue(name, value), f"set {name}")
    return solver


def problem_arrays(conditioned: ScaledForm, *, integers: bool = True) -> dict[str, Any]:
    """Convert a scaled form to the arrays expected by :func:`load_arrays`, with the matrix stored by rows.

    Args:
        conditioned: The scaled form, with m rows and n columns.
        integers: Whether integer columns stay integer. If False, the arrays are those of the linear relaxation.
    """
    form, matrix = conditioned.form, conditioned.A
    return {
        # In CSR format, row r has the entries from start[r] up to start[r + 1], and index contains their columns.
        "start": matrix.indptr.astype(np.int32),
        "index": matrix.indices.astype(np.int32),
        "value": matrix.data,
        "c": conditioned.c,
        "col_lower": form.col_lower,
        "col_upper": form.col_upper,
        "row_lower": conditioned.row_lower,
        "row_upper": conditioned.row_upper,
        "integrality": form.integrality.astype(np.int32) if integers else np.zeros(form.shape[1], dtype=np.int32),
        # HiGHS takes only the lower triangle of the symmetric matrix, stored by columns.
        "Q": None if form.Q is None else sparse.tril(form.Q * conditioned.cost_scale, format="csc"),
    }


def load_arrays(solver: Highs, arrays: dict[str, Any]) -> None:
    """Pass a model returned by :func:`problem_arrays` to HiGHS.

    Raises:
        SolverError: HiGHS did not accept the model, or dropped coefficients.
    """
    count = len(arrays["value"])
    # 2 means that the matrix is stored by rows, 1 means minimisation, and 0.0 is the constant of the objective.
    sizes = (len(arrays["c"]), len(arrays["row_lower"]), count, 2, 1, 0.0)
    order = ("c", "col_lower", "col_upper", "row_lower", "row_upper", "start", "index", "value", "integrality")
    check_status(solver.passModel(*sizes, *(arrays[name] for name in order)), "take the model")
    triangle = arrays.get("Q")
    if triangle is not None:
        # 1 means that only the lower triangle is passed.
        start, index = triangle.indptr.astype(np.int32), triangle.indices.astype(np.int32)
        status = solver.passHessian(triangle.shape[0], triangle.nnz, 1, start, index, triangle.data)
        check_status(status, "take the quadratic objective")
    # HiGHS drops coefficients below 1e-9 without an error.
    if solver.getNumNz() != count:
        raise SolverError(f"highs kept {solver.getNumNz()} of {count} coefficients")


def outcome_of(solver: Highs) -> Outcome | None:
    """Return the outcome that HiGHS reports after a run, or None if HiGHS gave up or could not determine it."""
    kinds = highspy_module().HighsModelStatus
    status = solver.getModelStatus()
    outcomes = {
        kinds.kOptimal: Outcome.OPTIMAL,
        kinds.kModelEmpty: Outcome.OPTIMAL,
        kinds.kInfeasible: Outcome.INFEASIBLE,
        kinds.kUnbounded: Outcome.UNBOUNDED,
    }
    # The statuses of runs that ended before reaching the optimum.
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
        # Such a run may already have found a feasible point.
        return Outcome.FEASIBLE if is_feasible else Outcome.STOPPED
    return outcomes.get(status)


def read_basis(solver: Highs) -> Basis | None:
    """Return the basis after a solve, or None if HiGHS has none."""
    basis = solver.getBasis()
    return HighsBasis(basis, (solver.getNumRow(), solver.getNumCol())) if basis.valid else None


@frozen(eq=False)
class LoadedModel:
    """A HiGHS instance, together with the model and the options that were passed to it.

    Attributes:
        solver: The HiGHS instance.
        arrays: The model, as returned by :func:`problem_arrays`.
        settings: The options that were set, keyed by name.
    """

    solver: Highs
    arrays: dict[str, Any]
    settings: dict[str, Any]

    def fits(self, arrays: dict[str, Any], settings: dict[str, Any]) -> bool:
        """Return whether this instance can be reused for another model by changing only costs and bounds.

        The other model must have the same matrix and the same integer columns. Its settings must also be the same,
        except for the time limit and the choice of a simplex method, which are set for each run.

        Args:
            arrays: The other model, as returned by :func:`problem_arrays`.
            settings: HiGHS's options for the other model, keyed by name.
        """
        ignored = {"time_limit", "simplex_strategy"}
        names = ("start", "index", "value", "integrality")
        return {k: v for k, v in self.settings.items() if k not in ignored} == {
            k: v for k, v in settings.items() if k not in ignored
        } and all(np.array_equal(self.arrays[name], arrays[name]) for name in names)

    def change(self, arrays: dict[str, Any], settings: dict[str, Any]) -> LoadedModel:
        """Replace the instance's model with another one that has the same matrix (see :meth:`fits`).

        Costs and bounds are passed to HiGHS only if they differ. The time limit is left for the caller to set.

        Args:
            arrays: The other model, as returned by :func:`problem_arrays`.
            settings: HiGHS's options for the other model, keyed by name.

        Returns:
            A new object with the same HiGHS instance and the other model.
        """
        columns, rows = (np.arange(len(arrays[name]), dtype=np.int32) for name in ("c", "row_lower"))
        solver = self.solver
        if not np.array_equal(self.arrays["c"], arrays["c"]):
            check_status(solver.changeColsCost(len(columns), columns, arrays["c"]), "change costs")
        for kind, places, change in (("col", columns, solver.changeColsBounds), ("row", rows, solver.changeRowsBounds)):
            lower, upper = f"{kind}_lower", f"{kind}_upper"
            if not all(np.array_equal(self.arrays[name], arrays[name]) for name in (lower, upper)):
                check_status(change(len(places), places, arrays[lower], arrays[upper]), f"change {kind} bounds")
        for name, value in settings.items():
            if name != "time_limit":
                check_status(solver.setOptionValue(name, value), f"set {name}")
        return LoadedModel(solver, arrays, settings)


class HighsBasis(Basis):
    """A basis in HiGHS's own representation, which is converted to arrays only when its statuses are read.

    It can also keep the solver instance that it comes from, for reuse in one later solve with the same matrix.

    Attributes:
        native: HiGHS's own basis object, which a later solve can use without conversion.
        _shape: The number of rows and the number of columns.
        _instances: A list with the :class:`LoadedModel` that was kept, or an empty list.
    """

    __slots__ = ("_instances", "_shape", "native")

    def __init__(self, native: Any, shape: tuple[int, int]) -> None:
        """Wrap HiGHS's basis for a model with ``shape[0]`` rows and ``shape[1]`` columns."""
        self.native, self._shape = native, shape
        self._instances: list[LoadedModel] = []

    def keep_instance(self, instance: LoadedModel) -> None:
        """Keep the solver instance that the basis comes from, unless its model is too large."""
        if len(instance.arrays["value"]) <= MAX_KEPT_ENTRIES:
            self._instances = [instance]

    def take_instance(self, arrays: dict[str, Any], settings: dict[str, Any]) -> LoadedModel | None:
        """Return the kept instance if it can be reused for a model (:meth:`LoadedModel.fits`), or None otherwise.

        In either case, the instance is removed from the basis. This happens atomically, so two solves never share it.
        """
        try:
            instance = self._instances.pop()
        except IndexError:
            return None
        return instance if instance.fits(arrays, settings) else None

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and the number of columns."""
        return self._shape

    @property
    def columns(self) -> NDArray[np.int8]:
        """The status of each column, as an array of shape (n,)."""
        return np.array([int(status) for status in self.native.col_status], dtype=np.int8)

    @property
    def rows(self) -> NDArray[np.int8]:
        """The status of each row, as an array of shape (m,)."""
        return np.array([int(status) for status in self.native.row_status], dtype=np.int8)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the basis as a plain :class:`Basis`, which stores its statuses in arrays."""
        return _plain_basis, (self.columns, self.rows)


def _plain_basis(columns: NDArray[np.int8], rows: NDArray[np.int8]) -> Basis:
    """Create a plain basis, which stores its statuses in arrays."""
    return Basis(columns=columns, rows=rows)


def set_basis(solver: Highs, basis: Basis) -> None:
    """Make HiGHS start the next solve from a basis."""
    if isinstance(basis, HighsBasis):
        check_status(solver.setBasis(basis.native), "take the basis")
        return
    highspy = highspy_module()
    kinds = [highspy.HighsBasisStatus(number) for number in range(5)]
    solver_basis = highspy.HighsBasis()
    solver_basis.col_status = [kinds[s] for s in basis.columns.tolist()]
    solver_basis.row_status = [kinds[s] for s in basis.rows.tolist()]
    solver_basis.valid = True
    check_status(solver.setBasis(solver_basis), "take the basis")


def set_start(solver: Highs, start: Floats) -> None:
    """Make HiGHS begin its search over integers from ``start``, which is NaN for columns without a value."""
    columns = np.flatnonzero(np.isfinite(start)).astype(np.int32)
    check_status(solver.setSolution(len(columns), columns, start[columns]), "take the start")


def run_solver(solver: Highs) -> None:
    """Run HiGHS in another thread, so that an interrupt or an expired time limit can stop it.

    In these cases, HiGHS stops at its next callback. highspy's own handling of interrupts is not used, because it
    prints to standard output.
    """
    stop = threading.Event()

    def interrupt_if_stopped(event: HighsCallbackEvent) -> None:
        """End HiGHS's run from within a callback once the stop event is set."""
        if stop.is_set():
            event.interrupt()

    # Each of HiGHS's methods has a callback of its own in which it checks whether to go on.
    channels = (solver.cbSimplexInterrupt, solver.cbIpmInterrupt, solver.cbMipInterrupt)
    for channel in channels:
        channel.subscribe(interrupt_if_stopped)
    running, scope = DaemonCall(solver.run), clock()
    try:
        # Meanwhile, this thread can receive interrupts and watch the clock.
        while not running.wait(0.2):
            if scope.is_cancelled:
                stop.set()
    except KeyboardInterrupt:
        stop.set()
        # The instance must not be used until HiGHS has stopped at its next callback.
        running.thread.join()
        raise
    finally:
        for channel in channels:
            channel.unsubscribe(interrupt_if_stopped)


def read_answer(solver: Highs, *, is_mip: bool) -> Raw:
    """Read the answer of a HiGHS instance after a run, in terms of the scaled rows and columns.

    Args:
        solver: The HiGHS instance.
        is_mip: Whether the model has integer columns. If so, the answer contains no multipliers, and the bound is the
            one proved by the search.
    """
    status, info, outcome = solver.getModelStatus(), solver.getInfo(), outcome_of(solver)
    x = duals = reduced = basis = None
    bound = float(info.mip_dual_bound) if is_mip else None
    if outcome in (Outcome.OPTIMAL, Outcome.FEASIBLE):
        solution = solver.getSolution()
        x = np.array(solution.col_value, dtype=np.float64)
        is_quadratic = solver.getHessianNumNz() > 0
        if solver.getNumCol() and not x.size:
            raise SolverError("highs gives no vector")
        if outcome is Outcome.OPTIMAL and not is_mip:
            # The optimum of a linear program is also its bound. The multipliers that prove it are checked elsewhere.
            bound = float(info.objective_function_value)
            duals = np.array(solution.row_dual, dtype=np.float64)
            reduced = np.array(solution.col_dual, dtype=np.float64)
            basis = None if is_quadratic else read_basis(solver)
    return Raw(
        outcome=outcome,
        either=status == highspy_module().HighsModelStatus.kUnboundedOrInfeasible,
        message=solver.modelStatusToString(status),
        x=x,
        bound=bound,
        duals=duals,
        reduced=reduced,
        basis=basis,
        # HiGHS returns -1 for a count that does not apply.
        iterations=max(info.simplex_iteration_count, 0) + max(info.ipm_iteration_count, 0),
    )


def solve_arrays(arrays: dict[str, Any], settings: dict[str, Any], basis: Basis | None = None) -> Raw:
    """Solve an LP in this process, or an integer program in a worker process that can be killed.

    HiGHS checks for interrupts and for its time limit only between the steps of its search, and some steps take
    minutes. If the worker has to be killed, the best point that it has reported so far is returned, with its latest
    bound.

    Args:
        arrays: The model, as returned by :func:`problem_arrays`.
        settings: HiGHS's options, keyed by name, including ``time_limit``, which is infinite if there is no limit.
        basis: The starting basis for the simplex method, used only for LPs.

    Raises:
        KeyboardInterrupt: The solve was interrupted and, in the case of an integer program, no feasible point is known.
        SolverError: HiGHS rejected the model, or the worker process died.
    """
    if not arrays["integrality"].any():
        return _solve_linear(arrays, settings, basis)
    limit = settings["time_limit"]
    reply = ask(
        "highs", {"solver": __name__, "arrays": arrays, "settings": settings}, limit if limit < np.inf else None
    )
    if reply.answer is None:
        # The worker was killed, but the last point that it reported is still a point of the model.
        best = reply.latest or {}
        return Raw(
            outcome=Outcome.FEASIBLE if "x" in best else Outcome.STOPPED,
            message="interrupted" if reply.interrupted else "killed at the time limit",
            x=best.get("x"),
            bound=best.get("bound"),
            interrupted=reply.interrupted,
        )
    raw: Raw = reply.answer["raw"]
    return evolve(raw, interrupted=reply.interrupted)


def _solve_linear(arrays: dict[str, Any], settings: dict[str, Any], basis: Basis | None) -> Raw:
    """Solve a linear program in this process.

    If the basis keeps a solver instance whose model has the same matrix, that instance is reused.

    Args:
        arrays: The model, as returned by :func:`problem_arrays`.
        settings: HiGHS's options, keyed by name, with ``time_limit`` in seconds.
        basis: The basis to start from, or None to start from scratch.
    """
    started = time.monotonic()
    if LOG_FILE in settings:
        return _solve_here(arrays, settings, None if basis is None else partial(set_basis, basis=basis))
    instance = basis.take_instance(arrays, settings) if isinstance(basis, HighsBasis) else None
    if instance is None:
        solver = create_solver()
        for name, value in settings.items():
            check_status(solver.setOptionValue(name, value), f"set {name}")
        load_arrays(solver, arrays)
        if basis is not None:
            set_basis(solver, basis)
        instance = LoadedModel(solver, arrays, settings)
    else:
        instance = instance.change(arrays, settings)
    # HiGHS's clock is not reset between an instance's solves.
    remaining_seconds = max(settings["time_limit"] - (time.monotonic() - started), 0.0)
    limit = instance.solver.getRunTime() + remaining_seconds
    check_status(instance.solver.setOptionValue("time_limit", limit), "set time_limit")
    run_solver(instance.solver)
    raw = read_answer(instance.solver, is_mip=False)
    if isinstance(raw.basis, HighsBasis):
        raw.basis.keep_instance(instance)
    return raw


def solve_quadratic(arrays: dict[str, Any], settings: dict[str, Any], first_order: int) -> Raw:
    """Solve a quadratic program, trying several column orders until HiGHS reports an outcome.

    If the quadratic part is singular, HiGHS's method sometimes ends in NaN, depending on the order of the columns.

    Args:
        arrays: The model, as returned by :func:`problem_arrays`.
        settings: HiGHS's options, keyed by name, including ``time_limit``, which applies to all orders together.
        first_order: The number of the first order to try. 0 keeps the columns as they are, and any other number is the
            seed of a random order.
    """
    end_time, n = time.monotonic() + settings["time_limit"], len(arrays["c"])
    matrix = sparse.csr_matrix((arrays["value"], arrays["index"], arrays["start"]), shape=(len(arrays["row_lower"]), n))
    triangle = arrays["Q"]
    symmetric = (triangle + sparse.tril(triangle, -1).T).tocsr()
    raw = Raw(outcome=None)
    for number in range(first_order, first_order + QUADRATIC_ORDERS):
        # The number is the seed, so that each solve tries the same orders.
        order = np.random.default_rng(number).permutation(n) if number else np.arange(n)
        columns = {name: arrays[name][order] for name in ("c", "col_lower", "col_upper", "integrality")}
        rows = matrix[:, order].tocsr()
        rows.sort_indices()
        entries = {"start": rows.indptr.astype(np.int32), "index": rows.indices.astype(np.int32), "value": rows.data}
        quadratic = sparse.tril(symmetric[order][:, order], format="csc")
        remaining_seconds = max(end_time - time.monotonic(), 0.0)
        model = {**arrays, **columns, **entries, "Q": quadratic}
        raw = _solve_here(model, settings | {"time_limit": remaining_seconds})
        if raw.outcome is not None or remaining_seconds == 0.0:
            positions = np.argsort(order)
            x, reduced = (None if part is None else part[positions] for part in (raw.x, raw.reduced))
            return evolve(raw, x=x, reduced=reduced)
    return raw


def _solve_here(
    arrays: dict[str, Any], settings: dict[str, Any], prepare: Callable[[Highs], None] | None = None
) -> Raw:
    """Solve a model in this process.

    Args:
        arrays: The model, as returned by :func:`problem_arrays`.
        settings: HiGHS's options, keyed by name, with ``time_limit`` in seconds.
        prepare: A function to call with the loaded instance before it runs, for example to set a basis or to subscribe
            to callbacks. If None, nothing is called.
    """
    started = time.monotonic()
    solver = create_solver()
    for name, value in settings.items():
        if name != LOG_FILE:
            check_status(solver.setOptionValue(name, value), f"set {name}")
    with ExitStack() as stack:
        if LOG_FILE in settings:
            stream = stack.enter_context(open(settings[LOG_FILE], "a", encoding="utf-8"))
            solver.cbLogging.subscribe(partial(_append_message, stream))
        return _load_and_run(solver, arrays, settings, prepare, started)


def _append_message(stream: TextIO, event: HighsCallbackEvent) -> None:
    """Append a message from HiGHS's log to a file, and flush the file."""
    stream.write(event.message)
    stream.flush()


def _load_and_run(
    solver: Highs,
    arrays: dict[str, Any],
    settings: dict[str, Any],
    prepare: Callable[[Highs], None] | None,
    started: float,
) -> Raw:
    """Load a model, run the solver for the time that is left, and return its answer.

    Args:
        solver: The HiGHS instance, with all options set except the time limit.
        arrays, settings, prepare: The arguments of :func:`_solve_here`, which calls this function.
        started: The clock reading at the start of the solve, from which the time limit is counted.
    """
    load_arrays(solver, arrays)
    if arrays.get("mip_start") is not None:
        # HiGHS does not accept values outside the bounds. A value from an earlier solution may be outside if the bounds
        # have changed since.
        set_start(solver, np.clip(arrays["mip_start"], arrays["col_lower"], arrays["col_upper"]))
    # Loading counts against the time limit too.
    remaining_seconds = max(settings["time_limit"] - (time.monotonic() - started), 0.0)
    check_status(solver.setOptionValue("time_limit", remaining_seconds), "set time_limit")
    if prepare is not None:
        prepare(solver)
    run_solver(solver)
    return read_answer(solver, is_mip=bool(arrays["integrality"].any()))


def answer(problem: dict[str, Any]) -> dict[str, Any]:
    """Solve a model in a worker process, and report every improved point and bound to the parent process.

    :mod:`privopt.backends.workers` calls this function. ``problem`` contains the ``arrays`` and ``settings`` of
    :func:`solve_arrays`. The returned dict contains the resulting ``Raw`` object under the key "raw".
    """

    def report_point(event: HighsCallbackEvent) -> None:
        """Send an improved point and the current bound to the parent process, in case it has to kill this process."""
        progress = event.data_out
        send_progress({"x": np.array(progress.mip_solution, dtype=np.float64), "bound": float(progress.mip_dual_bound)})

    def prepare(solver: Highs) -> None:
        """Subscribe to HiGHS's callback for improved points."""
        solver.cbMipImprovingSolution.subscribe(report_point)

    return {"raw": _solve_here(problem["arrays"], problem["settings"], prepare)}
