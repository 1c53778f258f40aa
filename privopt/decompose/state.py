"""The state of a Benders run: bounds, best point, state of each block, and the log of its rounds."""

from __future__ import annotations

from typing import Final

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from privopt.arrays import Floats
from privopt.backends import Basis
from privopt.errors import SolverError

BOUND_TOLERANCE: Final = 1e-6
"""Bounds that cross by more than this, relative to the size of the costs, are a fault; by less, rounding."""


@define(eq=False)
class State:
    """The state between rounds, apart from the cuts in the master (scaled costs, minimised).

    Attributes:
        lower, upper: proved and found.
        x: best point. duals: multipliers behind the bound. centre: complicating columns that queries lean on.
        share: position of a query between the centre (0) and the master's point (1).
        bases: of each block.
        trajectory: (seconds, lower, upper) in the user's units.
        seconds: of the run before it was resumed.
        master_times: (rounds,) seconds in the master.
        block_times: (blocks,) seconds in each block, all rounds together.
        first_feasible: (blocks,) round in which each block was feasible first; 0 if it was not yet.
        cuts, dropped: made, and cleaned away.
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
        """Return the state of a run that knows nothing yet."""
        return cls(bases=[None] * blocks, block_times=np.zeros(blocks), first_feasible=np.zeros(blocks, dtype=np.int64))

    def raise_lower(self, bound: float, duals: Floats | None) -> bool:
        """Use a lower bound if it is better.

        Returns:
            Whether it is better.

        Raises:
            SolverError: It lies above the best point by more than rounding.
        """
        if bound <= self.lower:
            return False
        if bound > self.upper + BOUND_TOLERANCE * max(1.0, abs(self.upper)):
            raise SolverError(f"bounds crossed: {bound:.12g} was proved, {self.upper:.12g} found (scaled costs)")
        # Within the tolerance a crossing is rounding: the bounds meet.
        self.lower, self.duals = min(bound, self.upper), duals
        return True

    def lower_upper(self, value: float, point: Floats) -> bool:
        """Use a point if it is better.

        Returns:
            Whether it is better.

        Raises:
            SolverError: It lies below the proved bound by more than rounding.
        """
        if value >= self.upper:
            return False
        if value < self.lower - BOUND_TOLERANCE * max(1.0, abs(self.lower)):
            raise SolverError(f"bounds crossed: {self.lower:.12g} was proved, {value:.12g} found (scaled costs)")
        self.upper, self.x = max(value, self.lower), point
        return True
