"""Checks of decompositions: the optimum of the whole, bounds on the right side, whatever the blocks.

::

    from privopt.testing.decomposers import check_decomposer

    def test_acme():
        assert [r for r in check_decomposer(Acme()) if r.status == "failed"] == []

What ``solve`` returns must have ``x``, ``objective`` and ``bound`` (None without one).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from attrs import evolve

from privopt.backends import get
from privopt.dsl.form import StandardForm
from privopt.errors import InfeasibleError, PrivoptError
from privopt.interfaces import Decomposer, SolveContext
from privopt.testing.efforts import Effort, effort
from privopt.testing.fingerprints import fingerprint
from privopt.testing.models import SOLVER_TOLERANCE, fail, kkt_faults, split_programs
from privopt.testing.runner import CheckResult, run_examples
from privopt.testing.under_trial import error_text


def _answer(decomposer: Decomposer, form: StandardForm, blocks: list[list[int]]) -> Any:
    try:
        return decomposer.solve(form, blocks, SolveContext(method="under-trial", solver="highs"))
    except PrivoptError as error:
        fail(f"with the blocks {blocks} it raised {error_text(error)}", form)


def _whole(decomposer: Decomposer, data: Any) -> None:
    """Check that the optimum is that of the whole model, at a feasible point."""
    form, blocks = data.draw(split_programs())
    before = fingerprint(form)
    answer = _answer(decomposer, form, blocks)
    if fingerprint(form) != before:
        fail("solve changed the form it was given", form)
    x = np.asarray(answer.x, dtype=np.float64)
    for fault in kkt_faults(form, x, None, None):
        fail(f"with the blocks {blocks}: {fault}", form)
    optimum = get("highs").solve(form).objective
    assert optimum is not None  # bounded and feasible by construction
    size = 1 + abs(optimum)
    if abs(float(form.c @ x) + form.c0 - float(answer.objective)) > SOLVER_TOLERANCE * size:
        fail(f"the objective is said to be {answer.objective!r}; at its point it is {float(form.c @ x)!r}", form)
    if abs(float(answer.objective) - optimum) > 10 * SOLVER_TOLERANCE * size:
        fail(f"with the blocks {blocks} the objective is {answer.objective!r}; of the whole it is {optimum!r}", form)


def _bound(decomposer: Decomposer, data: Any) -> None:
    """Check that the bound is on its side of the optimum, and near it."""
    form, blocks = data.draw(split_programs())
    answer = _answer(decomposer, form, blocks)
    optimum = get("highs").solve(form).objective
    assert optimum is not None  # as above
    if answer.bound is None:
        return
    sign = 1.0 if form.sense == "min" else -1.0
    if sign * (float(answer.bound) - optimum) > SOLVER_TOLERANCE * (1 + abs(optimum)):
        fail(f"with the blocks {blocks} the bound {answer.bound!r} is beyond the optimum {optimum!r}", form)


def _infeasible(decomposer: Decomposer, data: Any) -> None:
    """Check that a model without solution is reported as infeasible."""
    form, blocks = data.draw(split_programs())
    n = form.shape[1]
    row = np.zeros((1, n))
    row[0, blocks[0]] = 1.0
    clash = evolve(
        form,
        A=np.vstack([form.A.toarray(), row]),
        row_lower=np.append(form.row_lower, float(form.col_upper[blocks[0]].sum()) + 1.0),
        row_upper=np.append(form.row_upper, np.inf),
    )
    try:
        answer = decomposer.solve(clash, blocks, SolveContext(method="under-trial", solver="highs"))
    except InfeasibleError:
        return
    except PrivoptError as error:
        fail(f"no point is feasible, and it raised {error_text(error)}; expected InfeasibleError", clash)
    fail(f"no point is feasible, and its objective is {answer.objective!r}; expected InfeasibleError", clash)


DECOMPOSER_CHECKS: Final[dict[str, Callable[[Decomposer, Any], None]]] = {
    "whole": _whole,
    "bound": _bound,
    "infeasible": _infeasible,
}


def check_decomposer(decomposer: Decomposer, *, how: Effort | str | None = None, seed: int = 0) -> list[CheckResult]:
    """Run every check of decompositions.

    Args:
        decomposer: to try.
        how: dev, ci or nightly, or an effort of one's own; PRIVOPT_PROFILE's, else ci, where None.
        seed: of the models drawn.
    """
    how = effort(how)
    checks = DECOMPOSER_CHECKS.items()
    return [run_examples(name, partial(check, decomposer), how, seed) for name, check in checks]
