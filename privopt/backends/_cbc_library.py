"""CBC's C functions, reached through python-mip's cffi handle: a bulk load, and arrays of results.

python-mip has no public bulk load, and building a model by its operators takes 16 s for 1.2e6 rows. This module
declares the functions of the library that python-mip omits, so that python-mip's version is pinned. Only the worker
process imports it.
"""

from __future__ import annotations

import time
from typing import Any

import mip
import numpy as np
from mip import cbc

from privopt.arrays import Floats

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
    """Declare the omitted functions to cffi, unless this version of python-mip has them."""
    try:
        cbc.cbclib.Cbc_loadProblem  # noqa: B018
    except AttributeError:
        cbc.ffi.cdef(_DECLARATIONS)


class CbcModel:
    """One CBC model: minimise ``c x``, with rows and columns loaded in bulk."""

    def __init__(self) -> None:
        _declare_functions()
        self.model = mip.Model("privopt", sense=mip.MINIMIZE, solver_name=mip.CBC)
        self.model.verbose = 0
        self.handle = self.model.solver._model
        self.rows = self.columns = 0

    def _int_pointer(self, array: Any) -> Any:
        """Return a pointer to an array of C ints, and the array, which must outlive the pointer."""
        converted = np.ascontiguousarray(array, dtype=np.int32)
        return cbc.ffi.cast("int *", cbc.ffi.from_buffer(converted)), converted

    def _double_pointer(self, array: Any) -> Any:
        """Return a pointer to an array of C doubles, and the array, which must outlive the pointer."""
        converted = np.ascontiguousarray(array, dtype=np.float64)
        return cbc.ffi.cast("double *", cbc.ffi.from_buffer(converted)), converted

    def load(self, problem: dict[str, Any]) -> None:
        """Load a problem by columns (keys start, index, value, c, col_lower ... as ``problem_arrays`` makes them)."""
        self.columns, self.rows = len(problem["c"]), len(problem["row_lower"])
        doubles = ("value", "col_lower", "col_upper", "c", "row_lower", "row_upper")
        arrays = [self._int_pointer(problem[n]) for n in ("start", "index")] + [
            self._double_pointer(problem[n]) for n in doubles
        ]
        cbc.cbclib.Cbc_loadProblem(self.handle, self.columns, self.rows, *(pointer for pointer, _ in arrays))
        for column in np.flatnonzero(problem["integrality"]).tolist():
            cbc.cbclib.Cbc_setInteger(self.handle, column)
        self._check_size()

    def _check_size(self) -> None:
        # python-mip's own lists of variables and rows stay empty: they take a second and 0.5 GB for 1.2e6 rows, and
        # nothing here goes through them
        """Check that CBC has as many rows and columns as were loaded."""
        got = (cbc.cbclib.Cbc_getNumRows(self.handle), cbc.cbclib.Cbc_getNumCols(self.handle))
        if got != (self.rows, self.columns):
            raise ValueError(f"CBC holds {got[0]} rows and {got[1]} columns of {self.rows} and {self.columns}")

    def optimise(self, options: dict[str, Any]) -> str:
        """Solve the model, and return the name of python-mip's status."""
        model = self.model
        model.infeas_tol = model.opt_tol = float(options["tolerance"])
        model.integer_tol = float(options["integer_tolerance"])
        model.max_mip_gap, model.max_mip_gap_abs = float(options["gap"]), 1e-10
        model.threads, model.seed = int(options["threads"]), int(options["seed"])
        if not options.get("preprocess", True):
            model.preprocess = 0
        method = str(options["method"])
        if method != "auto":
            model.lp_method = mip.LP_Method.BARRIER if method == "ipm" else mip.LP_Method.DUAL
        limit = float(options["time_limit"])
        status = model.optimize(max_seconds=limit) if np.isfinite(limit) else model.optimize()
        return str(status.name)

    def integers(self) -> int:
        """Return how many columns are integer."""
        return int(cbc.cbclib.Cbc_getNumIntegers(self.handle))

    def objective(self) -> float:
        """Return the cost of the vector."""
        return float(self.model.objective_value)

    def _copy_array(self, pointer: Any, size: int) -> Floats | None:
        """Copy an array of CBC's, or return None if there is none."""
        if pointer == cbc.ffi.NULL:
            return None
        return np.frombuffer(cbc.ffi.buffer(pointer, size * 8), dtype=np.float64).copy()

    def vector(self) -> Floats | None:
        """Return the columns' values, or None."""
        return self._copy_array(cbc.cbclib.Cbc_getColSolution(self.handle), self.columns)

    def duals(self) -> Floats | None:
        """Return the rows' multipliers, or None."""
        return self._copy_array(cbc.cbclib.Cbc_getRowPrice(self.handle), self.rows)

    def reduced_costs(self) -> Floats | None:
        """Return the reduced costs, or None."""
        return self._copy_array(cbc.cbclib.Cbc_getReducedCost(self.handle), self.columns)

    def bound(self) -> float:
        """Return CBC's bound on the optimum."""
        return float(cbc.cbclib.Cbc_getBestPossibleObjValue(self.handle))

    def iterations(self) -> int:
        """Return the simplex iterations."""
        return int(cbc.cbclib.Cbc_getIterationCount(self.handle))


def answer(problem: dict[str, Any]) -> dict[str, Any]:
    """Solve a problem of arrays (see :mod:`privopt.backends.workers`) without reporting progress."""
    started = time.monotonic()
    model = CbcModel()
    model.load(problem)
    load_seconds = time.monotonic() - started
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
    """Tell unbounded from infeasible: CBC calls unbounded models infeasible, and without costs none is unbounded."""
    if not np.any(problem["c"]):
        return "INFEASIBLE"
    feasibility_model = CbcModel()
    feasibility_model.load(problem | {"c": np.zeros_like(problem["c"])})
    return "UNBOUNDED" if feasibility_model.optimise(problem) in ("OPTIMAL", "FEASIBLE") else "INFEASIBLE"
