"""Call CBC's C functions through python-mip's cffi handle, to load models in bulk and to read result arrays.

python-mip cannot load models in bulk, and building a model with its operators takes 16 s for 1.2e6 rows. This module
therefore declares additional functions of the C library, and so requires a pinned version of python-mip.

Only worker processes import this module. Importing NumPy there would take as long as a small solve, so arrays are plain
buffers of C doubles and 32-bit integers instead.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from privopt.backends.redirection import output_appended

# python-mip works without NumPy, which it uses only for tensors of variables. While the entry is None, ``import numpy``
# raises ImportError, as if NumPy were not installed.
_numpy = sys.modules.get("numpy")
sys.modules["numpy"] = None  # type: ignore[assignment]
try:
    import mip
    from mip import cbc
finally:
    del sys.modules["numpy"]
    if _numpy is not None:
        sys.modules["numpy"] = _numpy

DOUBLE_BYTES = 8
"""Size of a C double in bytes."""
Buffer = bytes | bytearray | memoryview
"""The elements of an array as contiguous bytes, without their shape or type."""

_DECLARATIONS = """
void Cbc_loadProblem(Cbc_Model *model, const int numcols, const int numrows, const int *start, const int *index,
    const double *value, const double *collb, const double *colub, const double *obj, const double *rowlb,
    const double *rowub);
int Cbc_getIterationCount(Cbc_Model *model);
int Cbc_status(Cbc_Model *model);
int Cbc_secondaryStatus(Cbc_Model *model);
int Cbc_isInitialSolveProvenPrimalInfeasible(Cbc_Model *model);
"""


def _declare_functions() -> None:
    """Declare the C functions missing from python-mip's cffi declarations, unless this has already been done."""
    try:
        cbc.cbclib.Cbc_loadProblem  # noqa: B018
    except AttributeError:
        cbc.ffi.cdef(_DECLARATIONS)


def _pointer(kind: str, buffer: Buffer) -> Any:
    """Return a C pointer to a buffer of numbers. The pointer keeps the buffer alive.

    Args:
        kind: The C type of the numbers, "int" or "double".
        buffer: The buffer to point to.
    """
    return cbc.ffi.from_buffer(f"{kind}[]", buffer)


class CbcModel:
    """A CBC model that minimises ``c x``, with rows and columns that are loaded in bulk.

    Attributes:
        model: python-mip's model, used for setting options and for solving.
        handle: cffi's pointer to the CBC model inside ``model``, in the form expected by the C functions.
        rows, columns: The numbers of rows and columns that were loaded.
    """

    def __init__(self) -> None:
        """Create an empty model that prints nothing."""
        _declare_functions()
        self.model = mip.Model("privopt", sense=mip.MINIMIZE, solver_name=mip.CBC)
        self.model.verbose = 0
        # python-mip gives no public access to the handle of its C model.
        self.handle = self.model.solver._model
        self.rows = self.columns = 0

    def load(self, problem: dict[str, Any]) -> None:
        """Load all rows and columns of a problem at once.

        Args:
            problem: The buffers, keyed by name, as returned by ``privopt.backends.cbc.problem_arrays``.

        Raises:
            ValueError: CBC did not accept all rows and columns.
        """
        self.columns, self.rows = len(problem["c"]) // DOUBLE_BYTES, len(problem["row_lower"]) // DOUBLE_BYTES
        # In the order of the C function's parameters.
        doubles = ("value", "col_lower", "col_upper", "c", "row_lower", "row_upper")
        pointers = [_pointer("int", problem[name]) for name in ("start", "index")]
        pointers += [_pointer("double", problem[name]) for name in doubles]
        cbc.cbclib.Cbc_loadProblem(self.handle, self.columns, self.rows, *pointers)
        for column in memoryview(problem["integers"]).cast("i"):
            cbc.cbclib.Cbc_setInteger(self.handle, column)
        self._check_size()

    def set_start(self, columns: Buffer, values: Buffer) -> None:
        """Make CBC begin its search from a partial solution, which gives values for only some of the columns.

        Args:
            columns: The indices of the columns with values, as 32-bit integers.
            values: The values of these columns, as doubles.
        """
        count = len(values) // DOUBLE_BYTES
        cbc.cbclib.Cbc_setMIPStartI(self.handle, count, _pointer("int", columns), _pointer("double", values))

    def _check_size(self) -> None:
        """Raise a ValueError if CBC does not have the numbers of rows and columns that were loaded."""
        # python-mip's own lists of variables and rows stay empty. They are not needed here, and filling them for 1.2e6
        # rows would take a second and 0.5 GB.
        got = (cbc.cbclib.Cbc_getNumRows(self.handle), cbc.cbclib.Cbc_getNumCols(self.handle))
        if got != (self.rows, self.columns):
            raise ValueError(f"CBC holds {got[0]} rows and {got[1]} columns of {self.rows} and {self.columns}")

    def optimise(self, options: dict[str, Any]) -> str:
        """Solve the model and return python-mip's name for the resulting status.

        Args:
            options: The options returned by ``privopt.backends.cbc.solver_options``.
        """
        model = self.model
        model.infeas_tol = model.opt_tol = float(options["tolerance"])
        model.integer_tol = float(options["integer_tolerance"])
        # The absolute gap is so small that only the relative one matters.
        model.max_mip_gap, model.max_mip_gap_abs = float(options["gap"]), 1e-10
        model.threads, model.seed = int(options["threads"]), int(options["seed"])
        if not options.get("preprocess", True):
            model.preprocess = 0
        method = str(options["method"])
        if method != "auto":
            model.lp_method = mip.LP_Method.BARRIER if method == "ipm" else mip.LP_Method.DUAL
        limit = options["time_limit"]
        log_file = options.get("log_file")
        model.verbose = 1 if log_file else 0
        with output_appended(log_file):
            status = model.optimize() if limit is None else model.optimize(max_seconds=float(limit))
        return str(status.name)

    def integers(self) -> int:
        """Return the number of integer columns."""
        return int(cbc.cbclib.Cbc_getNumIntegers(self.handle))

    def objective(self) -> float:
        """Return the objective value of the solution."""
        return float(self.model.objective_value)

    def _copy_array(self, pointer: Any, size: int) -> bytes | None:
        """Return a copy of an array of ``size`` doubles owned by CBC, or None if the pointer is null."""
        if pointer == cbc.ffi.NULL:
            return None
        return bytes(cbc.ffi.buffer(pointer, size * DOUBLE_BYTES))

    def vector(self) -> bytes | None:
        """Return the values of the columns as the bytes of an array of doubles, or None if CBC has no solution."""
        return self._copy_array(cbc.cbclib.Cbc_getColSolution(self.handle), self.columns)

    def duals(self) -> bytes | None:
        """Return the multipliers of the rows as the bytes of an array of doubles, or None if CBC has none."""
        return self._copy_array(cbc.cbclib.Cbc_getRowPrice(self.handle), self.rows)

    def reduced_costs(self) -> bytes | None:
        """Return the reduced costs of the columns as the bytes of an array of doubles, or None if CBC has none."""
        return self._copy_array(cbc.cbclib.Cbc_getReducedCost(self.handle), self.columns)

    def bound(self) -> float:
        """Return CBC's bound on the optimal objective value."""
        return float(cbc.cbclib.Cbc_getBestPossibleObjValue(self.handle))

    def iterations(self) -> int:
        """Return the number of simplex iterations."""
        return int(cbc.cbclib.Cbc_getIterationCount(self.handle))


def answer(problem: dict[str, Any]) -> dict[str, Any]:
    """Solve a problem in the worker process.

    Args:
        problem: The model's buffers and the options for the solve, keyed by name. The matrix is stored by columns. If
            the key "load_only" is present, the model is loaded but not solved, to measure the loading time.

    Returns:
        A dict with "status" and "loaded" (the time taken to load the model, in seconds). After a solve, it also
        contains "iterations" and "seconds" and, depending on the status, "x", "bound", "duals" and "reduced".
    """
    started = time.monotonic()
    model = CbcModel()
    model.load(problem)
    load_seconds = time.monotonic() - started
    if problem.get("mip_start") is not None:
        model.set_start(*problem["mip_start"])
    if "load_only" in problem:
        return {"status": "LOADED", "loaded": load_seconds}
    status = model.optimise(problem)
    reply: dict[str, Any] = {"status": status, "loaded": load_seconds, "iterations": model.iterations()}
    is_mip = model.integers() > 0
    if status in ("OPTIMAL", "FEASIBLE"):
        reply["x"] = model.vector()
        reply["bound"] = model.bound() if is_mip else model.objective()
        if not is_mip:
            reply["duals"], reply["reduced"] = model.duals(), model.reduced_costs()
    elif status in ("INFEASIBLE", "INT_INFEASIBLE"):
        reply["status"] = _second_opinion(problem)
    reply["seconds"] = time.monotonic() - started
    return reply


def _second_opinion(problem: dict[str, Any]) -> str:
    """Determine whether a problem that CBC reports as infeasible is in fact unbounded.

    The problem is solved without its costs, so that it cannot be unbounded. If it then has a feasible point, the
    original problem is unbounded.

    Returns:
        "INFEASIBLE" or "UNBOUNDED".
    """
    # This problem has no costs in the first place, so it cannot be unbounded and CBC is right.
    if not any(memoryview(problem["c"]).cast("d")):
        return "INFEASIBLE"
    feasibility_model = CbcModel()
    feasibility_model.load(problem | {"c": bytes(len(problem["c"]))})
    return "UNBOUNDED" if feasibility_model.optimise(problem) in ("OPTIMAL", "FEASIBLE") else "INFEASIBLE"
