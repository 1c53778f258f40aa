"""Delayed rows: most rows of a private mechanism never bind, so rows of blocks are added when they are violated."""

import numpy as np
from attrs import evolve

from privopt.backends import Outcome, get
from privopt.errors import InfeasibleError, StoppedError, UnboundedError
from privopt.interfaces import Decomposed, Decomposer

MISSED = 1e-7
"""A row that is violated by more than this, relative to its size, is added."""


class LazyRows(Decomposer):
    """`--method lazy-rows`: first the equations and the rows outside all blocks, then violated rows of each block.

    The optimum of each round is a bound for the whole program, which has more rows. If no row is violated, it is the
    optimum of the whole program.
    """

    def solve(self, form, blocks, context):
        """Solve the program in rounds, each with more rows, until no row is violated.

        Raises:
            InfeasibleError: Some of the rows have no solution.
            UnboundedError: The whole program has no bound.
            StoppedError: The time ran out.
        """
        backend = get(context.solver)
        block_of_row = self.block_of_row(form, blocks)
        is_used = (block_of_row < 0) | (form.row_lower == form.row_upper)
        size = abs(form.A).max(axis=1).toarray().ravel() + 1.0
        for rounds in range(1, form.shape[0] + 2):
            if context.remaining == 0.0:
                raise StoppedError(f"stopped after {rounds - 1} rounds with nothing feasible")
            answer = backend.solve(self.with_rows(form, is_used), time_limit=context.remaining, gap=context.gap)
            if answer.outcome is Outcome.INFEASIBLE:
                raise InfeasibleError("the model has no solution: some of its rows have none")
            if answer.outcome is Outcome.UNBOUNDED:
                if is_used.all():
                    raise UnboundedError("the model has no bound")
                is_used[:] = True
                continue
            if answer.outcome is not Outcome.OPTIMAL:
                raise StoppedError(f"stopped in round {rounds} with nothing feasible")
            assert answer.x is not None  # an optimum has a point
            activity = form.A @ answer.x
            missed = np.maximum(form.row_lower - activity, activity - form.row_upper) / size
            new = self.worst(missed * ~is_used, block_of_row, len(blocks))
            context.report("delayed rows", rounds, answer.bound)
            if not len(new):
                duals = np.zeros(form.shape[0])
                duals[is_used] = 0.0 if answer.duals is None else answer.duals
                return Decomposed(
                    status="optimal",
                    x=answer.x,
                    objective=float(form.c @ answer.x) + form.c0,
                    bound=answer.bound,
                    duals=None if answer.duals is None else duals,
                    rounds=rounds,
                    details={"rows": int(is_used.sum()), "rows_of_the_whole": form.shape[0]},
                )
            is_used[new] = True
        raise AssertionError("every round brings a row in")

    @staticmethod
    def with_rows(form, is_used):
        """Return the form with some of its rows, without the names of their constraints."""
        lower, upper = form.row_lower[is_used], form.row_upper[is_used]
        return evolve(form, A=form.A[is_used], row_lower=lower, row_upper=upper, families=())

    @staticmethod
    def block_of_row(form, blocks):
        """Return the (m,) block of each row, -1 for rows over complicating columns alone."""
        block_of_column = np.full(form.shape[1], -1)
        for number, columns in enumerate(blocks):
            block_of_column[np.asarray(columns)] = number
        entries = form.A.tocoo()
        block_numbers = np.full(form.shape[0], -1)
        np.maximum.at(block_numbers, entries.row, block_of_column[entries.col])
        return block_numbers

    @staticmethod
    def worst(missed, block_of_row, blocks):
        """Return the rows to add: of each block, the half of its violated rows that are violated most."""
        new = []
        for block in range(blocks):
            rows = np.flatnonzero((block_of_row == block) & (missed > MISSED))
            new.append(rows[np.argsort(-missed[rows], kind="stable")][: (len(rows) + 1) // 2])
        return np.concatenate(new) if new else np.zeros(0, dtype=int)
