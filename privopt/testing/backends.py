"""Checks of solvers: optimality by their own multipliers and by other means.

::

    from privopt.testing.backends import check_backend

    def test_acme():
        assert [r for r in check_backend("acme") if r.status == "failed"] == []
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, Final

import hypothesis
import numpy as np
from attrs import evolve
from hypothesis import strategies as st

from privopt.arrays import Floats
from privopt.backends import Backend, Outcome, Result, get
from privopt.dsl.form import StandardForm
from privopt.errors import PrivoptError
from privopt.testing.efforts import Effort, effort
from privopt.testing.fingerprints import fingerprint
from privopt.testing.models import SOLVER_TOLERANCE, fail, kkt_faults, linear_programs
from privopt.testing.runner import CheckResult, run_examples
from privopt.testing.under_trial import error_text


def _optimal(backend: Backend, form: StandardForm) -> tuple[Result, Floats]:
    before = fingerprint(form)
    try:
        result = backend.solve(form)
    except PrivoptError as error:
        fail(f"it raised {error_text(error)}", form)
    if fingerprint(form) != before:
        fail("solve changed the form it was given", form)
    if result.outcome is not Outcome.OPTIMAL or result.x is None:
        fail(f"a bounded, feasible model is called {result.outcome.value}; expected optimal", form)
    return result, result.x


def _kkt(backend: Backend, data: Any) -> None:
    form = data.draw(linear_programs())
    result, x = _optimal(backend, form)
    if backend.capabilities.duals and form.shape[0] and result.duals is None:
        fail("the backend declares multipliers, and gives none for an LP solved to optimality", form)
    for fault in kkt_faults(form, x, result.duals, result.reduced):
        fail(fault, form)
    value = float(form.c @ x) + form.c0
    if result.objective is None or abs(result.objective - value) > SOLVER_TOLERANCE * (1 + abs(value)):
        fail(f"the objective is said to be {result.objective!r}; at its vector it is {value!r}", form)


def _optimum(backend: Backend, data: Any) -> None:
    from scipy.optimize import linprog

    form = data.draw(linear_programs())
    result, _ = _optimal(backend, form)
    sign = 1.0 if form.sense == "min" else -1.0
    A = form.A.toarray()
    upper, lower = np.isfinite(form.row_upper), np.isfinite(form.row_lower)
    sides = np.concatenate([form.row_upper[upper], -form.row_lower[lower]])
    rows = np.vstack([A[upper], -A[lower]])
    box = list(zip(form.col_lower, form.col_upper, strict=True))
    solved = linprog(sign * form.c, A_ub=rows if len(rows) else None, b_ub=sides if len(rows) else None, bounds=box)
    optimum = sign * solved.fun
    if solved.status == 0 and abs(optimum - float(result.objective or 0.0)) > SOLVER_TOLERANCE * (1 + abs(optimum)):
        fail(f"the optimum is {optimum!r} by SciPy, {result.objective!r} by this backend", form)
    _bounded(form, result, optimum)


def _bounded(form: StandardForm, result: Result, optimum: float) -> None:
    if result.bound is None:
        return
    over = result.bound - optimum if form.sense == "min" else optimum - result.bound
    if over > SOLVER_TOLERANCE * (1 + abs(optimum)):
        fail(f"the bound {result.bound!r} is on the wrong side of the optimum {optimum!r}", form)


def _integers(backend: Backend, data: Any) -> None:
    form = data.draw(linear_programs(columns=3, rows=3, integers=True))
    hypothesis.assume(bool((form.integrality == 1).all()))
    result, x = _optimal(backend, form)
    if not np.array_equal(x, np.round(x)):
        fail(f"integer columns came out as {x.tolist()}", form)
    A = form.A.toarray()
    best = None
    for point in product(*(range(int(b) + 1) for b in form.col_upper.tolist())):
        activity = A @ np.array(point, dtype=np.float64)
        if (activity >= form.row_lower - 1e-9).all() and (activity <= form.row_upper + 1e-9).all():
            value = float(form.c @ np.array(point))
            better = best is None or (value < best if form.sense == "min" else value > best)
            best = value if better else best
    if best is None or result.objective is None or abs(best - result.objective) > SOLVER_TOLERANCE * (1 + abs(best)):
        fail(f"the optimum over all whole points is {best!r}; the backend says {result.objective!r}", form)
    _bounded(form, result, best)


def _infeasible(backend: Backend, data: Any) -> None:
    form = data.draw(linear_programs())
    n = form.shape[1]
    A = np.vstack([form.A.toarray(), np.ones((1, n))])
    beyond = float(form.col_upper.sum()) + data.draw(st.integers(1, 3))
    sides = np.append(form.row_lower, beyond), np.append(form.row_upper, math.inf)
    clash = evolve(form, A=A, row_lower=sides[0], row_upper=sides[1])
    outcome = backend.solve(clash).outcome
    if outcome is not Outcome.INFEASIBLE:
        fail(f"a model without solution is called {outcome.value}", clash)


def _repeats(backend: Backend, data: Any) -> None:
    form = data.draw(linear_programs(integers=backend.capabilities.mip))
    (_, one), (_, two) = _optimal(backend, form), _optimal(backend, form)
    if not np.array_equal(one, two):
        fail(f"the same model gave {one.tolist()} and then {two.tolist()}", form)


BACKEND_CHECKS: Final[dict[str, Callable[[Backend, Any], None]]] = {
    "kkt": _kkt,
    "optimum": _optimum,
    "integers": _integers,
    "infeasible": _infeasible,
    "repeats": _repeats,
}


def check_backend(backend: Backend | str, *, how: Effort | str | None = None, seed: int = 0) -> list[CheckResult]:
    """Run every check of solvers on a backend.

    Args:
        backend: itself, or its name.
        how: dev, ci or nightly, or an effort of one's own; PRIVOPT_PROFILE's, else ci, where None.
        seed: of the models drawn.
    """
    tried = get(backend) if isinstance(backend, str) else backend
    how = effort(how)
    results = []
    for name, function in BACKEND_CHECKS.items():
        if name == "integers" and not tried.capabilities.mip:
            results.append(CheckResult(check=name, version=1, status="skipped", reason="takes no integers"))
            continue
        results.append(run_examples(name, partial(function, tried), how, seed))
    return results
