"""The state of a Benders run: its bounds, its best point, the blocks' bases and the log."""

from __future__ import annotations

from typing import Final

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from privopt.arrays import Floats
from privopt.backends import Basis
from privopt.errors import SolverError

BOUND_TOLERANCE: Final = 1e-6
"""The largest amount by which the lower bound may exceed the upper bound, relative to the bound if that is above 1.

A larger excess raises an error, and a smaller one is attributed to rounding.
"""


@define(eq=False)
class State:
    """The state of a run between rounds, except for the cuts in the master. Costs are scaled and minimised.

    Attributes:
        lower: The proved lower bound on the optimum.
        upper: The cost of the best point.
        x: (n,) The best point, or None if no feasible point is known yet.
        duals: (m,) The multipliers of the form's rows that prove the lower bound, or None if no bound is known yet.
        centre: (|Y|,) The values of the complicating columns at a feasible point, or None if no such point is known
            yet.
        share: The position of the query (the point at which the blocks are solved) on the line from the centre to the
            master's point, from 0 at the centre to 1 at the master's point.
        rounds: The number of rounds so far.
        bases: The basis from which each block's next solve starts, or None before its first solve.
        trajectory: A tuple (seconds, lower, upper) for each time progress was logged, in the user's units.
        seconds: The time spent before the run was resumed, in seconds, or 0 for a run that was not resumed.
        master_times: The time spent in the master in each round, in seconds.
        block_times: (blocks,) The total time spent in each block, in seconds.
        first_feasible: (blocks,) The first round in which each block was feasible, or 0 if there was no such round.
        cuts: The number of cuts added so far.
        dropped: The number of idle rows dropped from the master so far.
    """

    lower: float = -np.inf
    upper: float = np.inf
    x: Floats | None = None
    duals: Floats | None = None
    centre: Floats | None = None
    share: float = 0.5
    rounds: int = 0
    bases: list[Basis | None] = field(factory=list)
    trajectory: list[tuple[float, float, float]] = field(factory=list)
    seconds: float = 0.0
    master_times: list[float] = field(factory=list)
    block_times: Floats = field(factory=lambda: np.zeros(0))
    first_feasible: NDArray[np.int64] = field(factory=lambda: np.zeros(0, dtype=np.int64))
    cuts: int = 0
    dropped: int = 0

    @classmethod
    def begin(cls, blocks: int) -> State:
        """Create the state for a new run with the given number of blocks, without a point or bound."""
        return cls(bases=[None] * blocks, block_times=np.zeros(blocks), first_feasible=np.zeros(blocks, dtype=np.int64))

    def raise_lower(self, bound: float, duals: Floats | None) -> bool:
        """Store a proved lower bound and the multipliers that prove it, if it is higher than the best one so far.

        Returns:
            Whether the new bound is higher.

        Raises:
            SolverError: The bound exceeds the best point's cost by more than rounding error.
        """
        if bound <= self.lower:
            return False
        # A wrong bound must stop the run, because it would make the gap appear to be closed.
        if bound > self.upper + BOUND_TOLERANCE * max(1.0, abs(self.upper)):
            raise SolverError(f"bounds crossed: {bound:.12g} was proved, {self.upper:.12g} found (scaled costs)")
        # Within the tolerance, the bounds cross only because of rounding, and are taken to be equal.
        self.lower, self.duals = min(bound, self.upper), duals
        return True

    def lower_upper(self, value: float, point: Floats) -> bool:
        """Store a feasible point and its cost, if the cost is lower than that of the best point so far.

        Returns:
            Whether the new point is better.

        Raises:
            SolverError: The cost is below the proved bound by more than rounding error.
        """
        if value >= self.upper:
            return False
        if value < self.lower - BOUND_TOLERANCE * max(1.0, abs(self.lower)):
            raise SolverError(f"bounds crossed: {self.lower:.12g} was proved, {value:.12g} found (scaled costs)")
        # Within the tolerance, the bounds cross only because of rounding, and are taken to be equal.
        self.upper, self.x = max(value, self.lower), point
        return True
