"""Solve all Benders subproblems (blocks) at a point, on the workers of an executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from privopt.arrays import Floats
from privopt.backends import Outcome
from privopt.decompose.block import BlockAnswer, relax_block, solve_block
from privopt.decompose.split import Cut, Split
from privopt.decompose.state import State
from privopt.errors import InfeasibleError
from privopt.interfaces import SolveContext


class Blocks:
    """The blocks of a split form. Each block stays on the worker that keeps it warm."""

    def __init__(self, split: Split, solver: str, context: SolveContext) -> None:
        self.split, self.solver, self.context = split, solver, context
        self._token = uuid4().hex
        self._pieces = [context.executor.hold(piece) for piece in split.pieces]

    def __len__(self) -> int:
        return len(self._pieces)

    def _run_on_all(self, function: Callable[..., BlockAnswer], arguments: Sequence[Any]) -> list[BlockAnswer]:
        """Call a function with token, block and arguments for every block."""
        submit, token = self.context.executor.submit, self._token
        futures = [
            # The key makes the executor send a block to the same worker each time.
            submit(("benders", token, number), function, token, piece, *extra_arguments)
            for number, (piece, extra_arguments) in enumerate(zip(self._pieces, arguments, strict=True))
        ]
        return [future.result() for future in futures]

    def relax_all(self, state: State) -> list[Cut]:
        """Return a constant cut for every block, from its rows without complicating columns.

        Raises:
            InfeasibleError: A block has no solution, whatever the complicating columns are.
        """
        cuts: list[Cut] = []
        for number, answer in enumerate(self._run_on_all(relax_block, [(self.solver,)] * len(self))):
            state.block_times[number] += answer.seconds
            if answer.outcome is Outcome.INFEASIBLE:
                raise InfeasibleError(f"block {number} has no solution, whatever the complicating columns are")
            cuts += answer.cuts
        return cuts

    def solve_all(self, state: State, z: Floats, core: Floats | None) -> list[BlockAnswer]:
        """Solve every block at ``z``, with cuts moved towards ``core``."""
        answers = self._run_on_all(solve_block, [(self.solver, z, core, basis) for basis in state.bases])
        for number, answer in enumerate(answers):
            state.block_times[number] += answer.seconds
            if answer.outcome is Outcome.OPTIMAL and not state.first_feasible[number]:
                state.first_feasible[number] = state.rounds
            if answer.outcome in (Outcome.OPTIMAL, Outcome.INFEASIBLE):
                state.bases[number] = answer.basis
        return answers
