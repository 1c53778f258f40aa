"""The interface of decomposers: split a compiled model into master and blocks, and solve it."""

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
    """What a decomposition found, in the form's own sense and units.

    Attributes:
        status: "optimal" (the gap asked for is reached), "feasible" (it stalled), "stopped" (limit or interrupt).
        x: (n,) best point.
        objective: at x.
        bound: proved bound on the optimum: below it where the form minimises, above where it maximises; None where
            there is none.
        duals: (m,) multipliers that prove the bound; None without one.
        rounds: of the method.
        trajectory: (seconds, lower, upper) by round; infinite where unknown.
        details: figures of the method.
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
    """Splits a compiled model into a master and blocks, and solves it.

    Registered as a kind of role ``"decomposer"``, and made without arguments, its name is a method of every mechanism
    that decomposes (:attr:`privopt.specs.MechanismSpec.decomposes`).
    """

    @abstractmethod
    def solve(
        self, form: dsl.StandardForm, blocks: Sequence[Sequence[int] | Ints], context: SolveContext
    ) -> Decomposed:
        """Solve a form whose columns outside ``blocks`` are complicating.

        Args:
            form: linear, without integer columns.
            blocks: column numbers of each block; no row joins two blocks.
            context: solver of the parts, gap, executor, progress, checkpoint and resume.

        Raises:
            InfeasibleError, UnboundedError: the form is.
            StoppedError: stopped with nothing feasible.
        """
