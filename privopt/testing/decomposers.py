"""Checks that compare a decomposer's solutions and bounds with the optimum of the undecomposed program.

The models have the structure that decomposers exploit: blocks of columns that are connected only by linking columns.
"""

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
from privopt.testing.backends import SOLVER_TOLERANCE, check_infeasible, check_optimum, draw_feasible_program
from privopt.testing.efforts import Effort
from privopt.testing.runner import CheckResult, run_examples

__all__ = ["infeasible", "whole"]

Split = tuple[StandardForm, list[list[int]]]
"""A linear program, and the column indices of each block. No row contains columns from two blocks."""

TOLERANCE = 10 * SOLVER_TOLERANCE
"""The tolerance for rounding errors. It is ten times a solver's, because a decomposition combines several solves."""


@st.composite
def split_programs(draw: st.DrawFn) -> Split:
    """Draw a feasible program with one or two linking columns, followed by one to three blocks of columns.

    Each row is a lower bound on a combination of linking columns and the columns of at most one block. The blocks are
    therefore independent of one another once the linking columns are fixed.
    """
    linking_count = draw(st.integers(1, 2))
    block_sizes = draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))
    starts = np.cumsum([linking_count, *block_sizes]).tolist()
    blocks = [list(range(a, b)) for a, b in pairwise(starts)]
    # The empty block gives rows with linking columns only.
    rows = [block for block in [*blocks, []] for _ in range(draw(st.integers(1, 2)))]
    may_be_nonzero = np.array(
        [[column < linking_count or column in block for column in range(starts[-1])] for block in rows]
    )
    return draw_feasible_program(draw, may_be_nonzero, "G"), blocks


def whole(name: str, how: Effort, seed: int) -> CheckResult:
    """Check a decomposer's solutions and bounds against the optimum of the undecomposed program.

    Args:
        name: The decomposer's registered name.
        how: The effort, which limits the number of examples.
        seed: The seed for drawing models.
    """

    def example(data: st.DataObject) -> None:
        """Draw a program with blocks, and compare the decomposer's result with SciPy's optimum."""
        form, blocks = data.draw(split_programs())
        check_optimum(partial(_solve_in_blocks, name, blocks), form, TOLERANCE)

    return run_examples("whole", example, how, seed)


def infeasible(name: str, how: Effort, seed: int) -> CheckResult:
    """Check that a decomposer reports infeasible models as infeasible.

    Args:
        name: The decomposer's registered name.
        how: The effort, which limits the number of examples.
        seed: The seed for drawing models.
    """

    def example(data: st.DataObject) -> None:
        """Draw a program with blocks, add a row that the first block cannot satisfy, and check the outcome."""
        form, blocks = data.draw(split_programs())
        check_infeasible(partial(_solve_in_blocks, name, blocks), form, blocks[0], data.draw(st.integers(1, 3)))

    return run_examples("infeasible", example, how, seed)


def _solve_in_blocks(name: str, blocks: list[list[int]], form: StandardForm) -> Result:
    """Solve a program with a registered decomposer, and return its answer as a solver's result.

    This allows the checks on solvers (:mod:`privopt.testing.backends`) to be used for decomposers as well.

    Args:
        name: The decomposer's registered name.
        blocks: The column indices of each block.
        form: The program.
    """
    decomposer = registry().kind("decomposer", name).load()()
    try:
        answer: Any = decomposer.solve(form, blocks, SolveContext(method="under-trial", solver="highs"))
    except InfeasibleError:
        return Result(outcome=Outcome.INFEASIBLE, solver=name)
    bound = None if answer.bound is None else float(answer.bound)
    x, objective = np.asarray(answer.x, dtype=np.float64), float(answer.objective)
    return Result(outcome=Outcome.OPTIMAL, solver=name, x=x, objective=objective, bound=bound)
