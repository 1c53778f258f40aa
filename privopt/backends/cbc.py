"""The CBC backend, which runs python-mip in a worker process because CBC can crash or ignore its time limit."""

from __future__ import annotations

import time
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
from attrs import evolve

from privopt.arrays import Floats
from privopt.backends.base import Backend, Capabilities, Options, Outcome, Raw, RejectedAnswerError
from privopt.backends.workers import ask, start_worker
from privopt.dsl.condition import CoefficientRange, ScaledForm

LIBRARY = "privopt.backends._cbc_library"
"""The module that the worker process imports to call its ``answer`` function."""

BEARING = CoefficientRange(smallest=1e-9, largest=1e12, log_cap=22.0)
"""The range of coefficients that CBC can handle, and its cap on privacy-row exponents (see ``condition``)."""
TOLERANCE, TIGHT = 1e-9, 1e-12
"""Tolerances on rows: the usual one, and the one for models with privacy rows (see ``solver_options``)."""
CBC_INFINITY = 1e18
"""The magnitude at or above which a column value is considered infinite."""

_OUTCOMES = {
    "OPTIMAL": Outcome.OPTIMAL,
    "FEASIBLE": Outcome.FEASIBLE,
    "INFEASIBLE": Outcome.INFEASIBLE,
    "INT_INFEASIBLE": Outcome.INFEASIBLE,
    "UNBOUNDED": Outcome.UNBOUNDED,
    "NO_SOLUTION_FOUND": Outcome.STOPPED,
    "TRUNCATED": Outcome.STOPPED,
}
"""The outcomes for the python-mip statuses that count as an answer. Any other status means that CBC gave up."""


@cache
def installed_version() -> str:
    """Return the version of the installed python-mip.

    The version is cached because every result contains it, and reading it from the package's metadata takes 5 ms.
    """
    return version("mip")


def problem_arrays(conditioned: ScaledForm) -> dict[str, bytes]:
    """Convert a scaled form to buffers for the worker, with the matrix stored by columns.

    The buffers "start", "index" and "value" describe the matrix, "integers" contains the indices of the integer
    columns, and the other buffers are named as in the form.

    Rows without entries are dropped from integer models, because CBC's preprocessing aborts on such rows. They are kept
    in linear programs, where dropping them would assign the multipliers to the wrong rows.
    """
    form = conditioned.form
    entries = np.diff(conditioned.A.tocsr().indptr)
    rows = np.flatnonzero(entries) if form.integrality.any() else np.arange(len(entries))
    columns = conditioned.A.tocsr()[rows].tocsc()
    doubles = {
        "value": columns.data,
        "c": conditioned.c,
        "col_lower": form.col_lower,
        "col_upper": form.col_upper,
        "row_lower": conditioned.row_lower[rows],
        "row_upper": conditioned.row_upper[rows],
    }
    integers = {
        "start": columns.indptr,
        "index": columns.indices,
        "integers": np.flatnonzero(form.integrality),
    }
    return {name: as_buffer(array, np.float64) for name, array in doubles.items()} | {
        name: as_buffer(array, np.int32) for name, array in integers.items()
    }


def as_buffer(array: Any, dtype: Any) -> bytes:
    """Convert an array to the given type, and return its elements as bytes that can be read without NumPy."""
    return np.ascontiguousarray(array, dtype=dtype).tobytes()


def read_doubles(buffer: Any) -> Floats | None:
    """Return the doubles in a buffer sent by the worker, or None if ``buffer`` is None."""
    return None if buffer is None else np.frombuffer(buffer, dtype=np.float64)


class Cbc(Backend):
    """The CBC backend, which runs CBC in a worker process.

    If the worker dies, a ``SolverError`` is raised. If it is killed at the time limit, the outcome is "stopped".
    """

    name = "cbc"
    substitute = "highs"
    capabilities = Capabilities(bearing=BEARING)
    attempts = 3

    def version(self) -> str:
        """Return the version of python-mip, which includes CBC."""
        return f"(python-mip {installed_version()})"

    def prepare(self) -> None:
        """Start a worker process unless one is idle. The worker loads CBC while the caller compiles its model."""
        start_worker("cbc", LIBRARY)

    def solve_scaled(self, conditioned: ScaledForm, options: Options, attempt: int) -> Raw:
        """Solve the scaled form in the worker process. The answer is not checked here.

        Args:
            conditioned: The scaled form to solve.
            options: The options for the solve.
            attempt: The number of earlier attempts, from 0 to 2, which determines the settings (see
                ``solver_options``).

        Raises:
            RejectedAnswerError: CBC gave up.
        """
        started = time.monotonic()
        # A row without entries says that lower <= 0 <= upper, which is checked here.
        empty = np.diff(conditioned.A.tocsr().indptr) == 0
        if (conditioned.row_lower[empty] > 0).any() or (conditioned.row_upper[empty] < 0).any():
            return Raw(outcome=Outcome.INFEASIBLE)
        # Without columns, all rows are empty and have just been checked.
        if conditioned.form.shape[1] == 0:
            return Raw(outcome=Outcome.OPTIMAL, x=np.zeros(0))
        problem = problem_arrays(conditioned) | solver_options(conditioned, options, attempt)
        reply = ask("cbc", {**problem, "solver": LIBRARY}, options.time_limit)
        raw = read_answer(reply.answer, time.monotonic() - started, options.time_limit)
        # CBC may report a point far out on an unbounded ray as optimal.
        if raw.x is not None and bool((np.abs(raw.x) >= CBC_INFINITY).any()):
            raw = Raw(outcome=Outcome.UNBOUNDED, seconds=raw.seconds)
        return evolve(raw, interrupted=reply.interrupted)


def solver_options(conditioned: ScaledForm, options: Options, attempt: int = 0) -> dict[str, Any]:
    """Return the worker's options for an attempt. Attempts are counted from 0.

    Models with privacy rows ``z_i <= exp(L) z_j`` get the tightest tolerance that CBC supports. After scaling, such a
    row has an entry of ``e^(L/2)``, so for L = 20, an error of 1e-9 in a column becomes an error of 1e-5 in the row. In
    measurements with a tolerance of 1e-9, CBC violated rows by 1e-5 for L = 20 and above. With a tolerance of 1e-12, it
    violated them by at most 1e-8 up to L = 22.
    """
    # Only families of privacy rows have a `log_ratio`, which contains the exponent of each row.
    has_privacy_rows = any(len(b) and b.log_ratio is not None for b in conditioned.form.families)
    tolerances = (TIGHT, TOLERANCE, 1e-10) if has_privacy_rows else (TOLERANCE, 1e-8, 1e-10)
    method = options.method
    if method == "auto" and not conditioned.form.is_mip and attempt != 1:
        # On sparse models with 1e5 nonzeros, CBC's own choice takes four times as long as its dual simplex, and it is
        # also slower on the matrices of metric privacy. The second attempt uses it nevertheless, to try another method.
        method = "simplex"
    # Later attempts use no preprocessing and a tighter tolerance on integers, so as not to fail in the same way.
    return {
        "tolerance": tolerances[attempt],
        "integer_tolerance": 1e-6 if attempt == 0 else 1e-9,
        "gap": options.gap,
        "preprocess": attempt == 0,
        "method": method,
        "threads": options.threads,
        "seed": options.seed,
        "mip_start": start_buffers(options.start) if attempt == 0 and conditioned.form.is_mip else None,
        "log_file": options.log_file,
        "time_limit": options.time_limit,
    }


def start_buffers(start: Floats | None) -> tuple[bytes, bytes] | None:
    """Return the indices and values of a starting point's finite entries as buffers, or None if ``start`` is None."""
    if start is None:
        return None
    columns = np.flatnonzero(np.isfinite(start))
    return as_buffer(columns, np.int32), as_buffer(start[columns], np.float64)


def read_answer(answer: dict[str, Any] | None, seconds: float, time_limit: float | None) -> Raw:
    """Convert the worker's answer to a :class:`Raw` answer.

    Args:
        answer: The dict returned by ``_cbc_library.answer``, or None if the worker was killed at the time limit.
        seconds: The duration of the solve, including the start of the worker.
        time_limit: CBC's time limit in seconds, or None for no limit.

    Raises:
        RejectedAnswerError: CBC gave up.
    """
    if answer is None:
        return Raw(outcome=Outcome.STOPPED, seconds=seconds, message="killed at the time limit")
    status = answer["status"]
    if status not in _OUTCOMES:
        raise RejectedAnswerError(f"cbc ended with status {status}")
    outcome = _OUTCOMES[status]
    # If there is no time limit, nothing else can have stopped the solve.
    if outcome is Outcome.STOPPED and time_limit is None:
        raise RejectedAnswerError("cbc gave up before any limit and found nothing")
    is_optimal = outcome is Outcome.OPTIMAL
    return Raw(
        outcome=outcome,
        x=read_doubles(answer.get("x")),
        bound=answer.get("bound"),
        iterations=answer.get("iterations", 0),
        seconds=seconds,
        message=f"loaded in {answer.get('loaded', 0.0):.2f} s",
        duals=read_doubles(answer.get("duals")) if is_optimal else None,
        reduced=read_doubles(answer.get("reduced")) if is_optimal else None,
    )
