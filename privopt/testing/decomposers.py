"""Checks of registered decompositions: answers and bounds against the optimum of the whole, as of solvers."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from privopt.backends import Outcome, Result
from privopt.dsl.form import StandardForm
from privopt.errors import InfeasibleError
from privopt.interfaces import SolveContext
from privopt.registry import registry
from privopt.testing.backends import SOLVER_TOLERANCE, around_a_point, hold_infeasible, hold_optimum
from privopt.testing.efforts import Effort
from privopt.testing.runner import CheckResult, run_examples

__all__ = ["infeasible", "whole"]

Split = tuple[StandardForm, list[list[int]]]
"""A linear program, and blocks of its columns, which no row joins."""

TOLERANCE = 10 * SOLVER_TOLERANCE
"""Tenfold of a solver's, which a decomposition asks several times."""


@st.composite
def split_programs(draw: st.DrawFn) -> Split:
    """Draw a program in blocks: each row, a lower bound, holds the one or two columns of no block, and one block's."""
    outer, sizes = draw(st.integers(1, 2)), draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))
    starts = np.cumsum([outer, *sizes]).tolist()
    blocks = [list(range(a, b)) for a, b in pairwise(starts)]
    rows = [block for block in [*blocks, []] for _ in range(draw(st.integers(1, 2)))]
    held = np.array([[column < outer or column in block for column in range(starts[-1])] for block in rows])
    return around_a_point(draw, held, "G"), blocks


def whole(name: str, how: Effort, seed: int) -> CheckResult:
    """Hold a decomposition's answers and bounds against the optimum of the whole, whatever the blocks."""

    def example(data: st.DataObject) -> None:
        form, blocks = data.draw(split_programs())
        hold_optimum(partial(_solved, name, blocks), form, TOLERANCE)

    return run_examples("whole", example, how, seed)


def infeasible(name: str, how: Effort, seed: int) -> CheckResult:
    """Ask a decomposition for the solution of models that have none."""

    def example(data: st.DataObject) -> None:
        form, blocks = data.draw(split_programs())
        hold_infeasible(partial(_solved, name, blocks), form, blocks[0], data.draw(st.integers(1, 3)))

    return run_examples("infeasible", example, how, seed)


def _solved(name: str, blocks: list[list[int]], form: StandardForm) -> Result:
    """Return a decomposition's answer, put as a solver's."""
    tried = registry().kind("decomposer", name).load()()
    try:
        answer: Any = tried.solve(form, blocks, SolveContext(method="under-trial", solver="highs"))
    except InfeasibleError:
        return Result(outcome=Outcome.INFEASIBLE, solver=name)
    bound = None if answer.bound is None else float(answer.bound)
    x, objective = np.asarray(answer.x, dtype=np.float64), float(answer.objective)
    return Result(outcome=Outcome.OPTIMAL, solver=name, x=x, objective=objective, bound=bound)
