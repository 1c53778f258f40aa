"""The blocks (Benders subproblems) of a split form, which are solved by an executor's workers.

The blocks are independent once the |Y| complicating columns z, which join them, have fixed values.
"""

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
    """The blocks of a split form. Each block is always solved on the same worker, whose solver has already loaded it.

    Attributes:
        split: The form and its blocks.
        solver: The name of the solver that the workers run.
        context: The run's context, which provides the executor.
        _token: A random string that keeps this run's solver sessions on a worker apart from those of other runs.
        _pieces: The executor's references to the blocks, so that each block is sent only once.
    """

    def __init__(self, split: Split, solver: str, context: SolveContext) -> None:
        """Hand each block over to the executor.

        Args:
            split: The form and its blocks.
            solver: The name of the solver that the workers run.
            context: The run's context, which provides the executor.
        """
        self.split, self.solver, self.context = split, solver, context
        self._token = uuid4().hex
        self._pieces = [context.executor.hold(piece) for piece in split.pieces]

    def __len__(self) -> int:
        return len(self._pieces)

    def _run_on_all(self, function: Callable[..., BlockAnswer], arguments: Sequence[Any]) -> list[BlockAnswer]:
        """Call a function for every block in parallel, and return the answers in the order of the blocks.

        Args:
            function: ``relax_block`` or ``solve_block``. It is called with the run's token, the block and the block's
                additional arguments.
            arguments: A tuple of additional arguments for each block.
        """
        submit, token = self.context.executor.submit, self._token
        futures = [
            # With this key, the executor sends a block to the same worker each time.
            submit(("benders", token, number), function, token, piece, *extra_arguments)
            for number, (piece, extra_arguments) in enumerate(zip(self._pieces, arguments, strict=True))
        ]
        return [future.result() for future in futures]

    def relax_all(self, state: State) -> list[Cut]:
        """Return a constant cut for every block that has one.

        A constant cut is a lower bound on the block's cost. It is derived from those rows of the block that contain no
        complicating columns. There is no cut if these rows do not bound the block's cost, or if the solve of the block
        was stopped. The solve times are added to ``state``.

        Raises:
            InfeasibleError: A block has no solution, whatever the values of the complicating columns.
        """
        cuts: list[Cut] = []
        for number, answer in enumerate(self._run_on_all(relax_block, [(self.solver,)] * len(self))):
            state.block_times[number] += answer.seconds
            if answer.outcome is Outcome.INFEASIBLE:
                raise InfeasibleError(f"block {number} has no solution, whatever the complicating columns are")
            cuts += answer.cuts
        return cuts

    def solve_all(self, state: State, z: Floats, core: Floats | None) -> list[BlockAnswer]:
        """Solve every block with the complicating columns fixed at ``z``, and update the times and bases in ``state``.

        Args:
            state: The state of the run.
            z: (|Y|,) The values of the complicating columns.
            core: (|Y|,) A feasible point, or None. If it is given, cuts are also computed at points moved slightly from
                ``z`` towards it. Otherwise, all cuts are computed at ``z``.

        Returns:
            The answers, in the order of the blocks.
        """
        answers = self._run_on_all(solve_block, [(self.solver, z, core, basis) for basis in state.bases])
        for number, answer in enumerate(answers):
            state.block_times[number] += answer.seconds
            if answer.outcome is Outcome.OPTIMAL and not state.first_feasible[number]:
                state.first_feasible[number] = state.rounds
            # A solve that was stopped may leave a basis that does not belong to a vertex, so the previous basis is
            # kept.
            if answer.outcome in (Outcome.OPTIMAL, Outcome.INFEASIBLE):
                state.bases[number] = answer.basis
        return answers
