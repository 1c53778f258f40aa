"""The interface for decomposers, which solve a compiled model by splitting it into a master problem and blocks.

One decomposer (Benders decomposition) is implemented in :mod:`privopt.decompose`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from privopt import dsl
from privopt.arrays import Floats, Ints
from privopt.interfaces.solving import SolveContext


@frozen(kw_only=True, eq=False)
class Decomposed:
    """The result of a decomposition, using the same sense (min or max) and units as the model's compiled form.

    Attributes:
        status: "optimal" (the requested gap was reached), "feasible" (the search ended without reaching it) or
            "stopped" (by a time limit or an interrupt).
        x: (n,) the best feasible point found.
        objective: The objective at ``x``.
        bound: The proved bound on the optimum, or None if no bound was proved. It is a lower bound if the form is a
            minimisation, and an upper bound if it is a maximisation.
        duals: (m,) multipliers that prove the bound, or None if no bound was proved.
        rounds: The number of rounds carried out.
        trajectory: A tuple (seconds, lower bound, upper bound) for each round. Unknown bounds are infinite.
        details: Further statistics about the run.
    """

    status: str
    x: Floats
    objective: float
    bound: float | None = None
    duals: Floats | None = None
    rounds: int = 0
    trajectory: tuple[tuple[float, float, float], ...] = ()
    details: Mapping[str, Any] = field(factory=dict)


class Decomposer(ABC):
    """A method for solving a compiled model by splitting it into a master problem and blocks.

    A decomposer is registered as a kind for the ``"decomposer"`` role, and is created without arguments. Its name
    becomes a method of every mechanism that can be decomposed (:attr:`privopt.specs.MechanismSpec.decomposes`).
    """

    @abstractmethod
    def solve(
        self, form: dsl.StandardForm, blocks: Sequence[Sequence[int] | Ints], context: SolveContext
    ) -> Decomposed:
        """Solve a compiled model. Columns outside ``blocks`` are the complicating variables of the master problem.

        Args:
            form: A linear form without integer columns.
            blocks: The column indices of each block. No row may contain columns from more than one block.
            context: The solver for the master problem and the blocks, and the run's gap, executor, progress display and
                checkpoint.

        Raises:
            InfeasibleError, UnboundedError: The form is infeasible or unbounded.
            StoppedError: The search was stopped before a feasible point was known.
        """
