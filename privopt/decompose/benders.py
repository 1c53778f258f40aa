"""Benders decomposition of a compiled model whose columns are split into |Y| complicating columns and several blocks.

Each round solves the master, then every block at a query point, and adds one cut per block (the multi-cut variant). An
infeasible block yields a feasibility cut from its dual ray (multipliers that prove its infeasibility). In-out steps
stabilise the method: query points lie between the best known point and the master's point (Ben-Ameur and Neto 2007).
Cuts are moved towards a core point (Magnanti and Wong 1981). Here, the core point is the best known point.

Every lower bound is computed from the whole form, using the combined multipliers of the master and the cuts, so it is
valid regardless of the solver's tolerance. Every upper bound is the cost of a known point. A dual vector of the whole
form yields a valid cut for each block. Such vectors can be given in ``Start``, and a hook can supply more in every
round (cross decomposition, Van Roy 1983).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, Ints
from privopt.backends import Outcome
from privopt.decompose.block import BlockAnswer
from privopt.decompose.blocks import Blocks
from privopt.decompose.checkpoint import read_checkpoint, write_checkpoint
from privopt.decompose.diagnose import explain_clash, raise_unbounded_form
from privopt.decompose.master import Master, MasterAnswer, ValidRows, prove_bound
from privopt.decompose.result import Start, check_start
from privopt.decompose.split import Cut, Split, cut_of, split_form
from privopt.decompose.state import State
from privopt.dsl.form import StandardForm, has_crossed_bounds
from privopt.errors import InfeasibleError, SolverError, StoppedError
from privopt.execution.clock import OutOfTime, clock, limit
from privopt.execution.resources import peak_resident, resident
from privopt.interfaces import Decomposed, Decomposer, SolveContext

__all__ = ["Benders", "Start", "ValidRows"]

LARGEST_BOX: Final = 1e9
"""The maximum size of the box, which limits the absolute values of columns without bounds.

If an optimum lies on the boundary of a box of this size, the model is assumed to be unbounded.
"""
MEMORY_GROWTH_FACTOR: Final = 2.0
"""The free memory required for the next round, as a multiple of the largest memory growth in any round so far."""
MAX_STALLED_ROUNDS: Final = 10
"""The number of rounds without an improved bound or point after which new cuts no longer count as progress.

Far from the optimum, rounding errors alone can produce cuts.
"""

Hook = Callable[[Floats | None, Floats | None], Start | None]
"""A function of two arguments (the multipliers that prove the best bound, and the best point) that suggests a point and
multipliers.

Either argument may be None. Both are in terms of the user's form. The function returns None if it has no suggestion.
"""
Separator = Callable[[Floats], ValidRows | None]
"""A function that takes the master's point and returns valid rows that the point violates, or None."""


@frozen(kw_only=True)
class Benders(Decomposer):
    """A decomposer that uses Benders decomposition.

    >>> import numpy as np
    >>> from privopt.interfaces import SolveContext
    >>> form = StandardForm(c=[1.0, 2.0], A=[[1, 1]], row_lower=[2], row_upper=[np.inf], col_lower=[0, 0],
    ...                     col_upper=[1.5, 9], integrality=[0, 0])
    >>> Benders().solve(form, [[1]], SolveContext(method="benders", solver="highs")).objective
    2.5

    Attributes:
        solver: "highs", "cbc", or "" for the context's solver. HiGHS starts each solve from the last basis. CBC starts
            from scratch each time, and must solve an infeasible block a second time, with penalties for violated rows,
            to find a dual ray.
        rounds: The maximum number of rounds.
        checkpoint_every: The number of seconds between checkpoints, if the context has a folder for them.
        clean_after: The number of successive master solves in which a row's multiplier must be 0 before the row may be
            dropped.
        keep: The average number of added rows per block that must remain in the master when rows are dropped.
    """

    solver: str = ""
    rounds: int = 10_000
    checkpoint_every: float = 30.0
    clean_after: int = 30
    keep: int = 20

    def solve(
        self,
        form: StandardForm,
        blocks: Sequence[Sequence[int] | Ints],
        context: SolveContext,
        *,
        start: Start | None = None,
        valid: Separator | None = None,
        improve: Hook | None = None,
    ) -> Decomposed:
        """Solve a form whose blocks are independent once the complicating columns (those in no block) are fixed.

        Args:
            form: The model, which must be linear and without integer columns.
            blocks: The column indices of each block. No row may contain columns from two blocks.
            context: The context, which provides the gap, limits on time and memory, the executor, the progress callback
                and the checkpoint settings.
            start: A feasible point and multipliers to start from. They are ignored if the run resumes from a
                checkpoint.
            valid: A function that is called with the master's values for the complicating columns, as an array of shape
                (|Y|,). It returns valid rows that these values violate, with their proof, or None if it finds no such
                rows. A row over the complicating columns is valid if the form implies it.
            improve: A function that is called once per round with the multipliers that prove the best bound and with
                the best point. Any point and multipliers that it returns are checked and used.

        Returns:
            The best point and its objective, the proved bound and its multipliers, and statistics about the run.

        Raises:
            InfeasibleError, UnboundedError: The form has no feasible point, or its objective is unbounded.
            StoppedError: A limit was reached before a feasible point was found.
            ModelError: The form cannot be split into these blocks, or has integer columns or a quadratic objective.
            UsageError: The point given by ``start`` or ``improve`` violates a row.
            InputError: The checkpoint to resume from belongs to another problem or is damaged.
            SolverError: A solver failed, or the bounds contradict each other.
        """
        options = self if self.solver else evolve(self, solver=context.solver)
        split = split_form(form, blocks)
        # If a lower bound exceeds an upper bound, solvers return no ray, so that no cut could exclude the master's
        # points.
        if has_crossed_bounds(form):
            raise InfeasibleError(f"the model has no solution: {explain_clash(split)}")
        return _Run(options, split, context, valid, improve).solve(form, start)


class _Run:
    """A run of the decomposition, with its master, blocks, state and limits.

    Attributes:
        options: The settings, with the solver's name.
        split: The form, split into complicating columns and blocks. Its costs are minimised, and scaled so that the
            largest is 1.
        context: The run's gap, executor, progress, limits and checkpoint folder.
        valid: The caller's function that finds valid rows violated by the master's point, or None.
        improve: The caller's function that suggests another point and multipliers in each round, or None.
        master: The master problem.
        state: The bounds, the best point and the log.
        blocks: The blocks, each with its worker.
        start_time: The clock reading when the run started or was resumed.
        stalled_rounds: The number of rounds since the bound or the point last improved.
        max_growth: The largest increase in memory use during any round so far, in bytes.
        is_memory_full: Whether the run ended because too little memory was left for another round.
        last_save_time: The clock reading at the last checkpoint.
    """

    def __init__(
        self, options: Benders, split: Split, context: SolveContext, valid: Separator | None, improve: Hook | None
    ) -> None:
        """Create the master and the blocks for a run, without starting it.

        Args:
            options: The settings, with the solver's name.
            split: The form, split into complicating columns and blocks.
            context: The run's gap, executor, progress, limits and checkpoint folder.
            valid: A function that finds valid rows violated by the master's point, or None.
            improve: A function that suggests another point and multipliers in each round, or None.
        """
        self.options, self.split, self.context = options, split, context
        self.valid, self.improve = valid, improve
        self.master = Master(split, options.solver)
        self.state = State.begin(len(split.pieces))
        self.blocks = Blocks(split, options.solver, context)
        self.start_time = time.monotonic()
        self.stalled_rounds = 0
        self.max_growth, self.is_memory_full = 0, False
        self.last_save_time = -np.inf  # The first round is saved in any case.

    # --- bounds -------------------------------------------------------------------------------------

    def has_reached_gap(self) -> bool:
        """Return whether the relative gap between the best point and the proved bound is at most the requested gap."""
        state = self.state
        if not (np.isfinite(state.upper) and np.isfinite(state.lower)):
            return False
        constant = self.split.form.c0
        # The gap is relative to the user's objective, which includes the constant. If the objective is 0, the second
        # term, 1e-12 in the user's units, keeps the size above 0.
        size = max(abs(state.upper + constant), 1e-12 * abs(self.split.scale))
        return bool(state.upper - state.lower <= self.context.gap * size)

    def use_start(self, start: Start, *, cuts: bool = True) -> bool:
        """Use a feasible point and multipliers of the whole form, supplied by the caller or its hook.

        Args:
            start: A feasible point, and multipliers in the user's units.
            cuts: Whether to also derive a cut for each block from the multipliers.

        Returns:
            Whether the best known point or bound has improved.

        Raises:
            UsageError: The point violates a row.
            SolverError: The point or the bound contradicts the known bound or point.
        """
        is_better = False
        if start.x is not None:
            x = check_start(self.split.form, start.x)
            if self.state.lower_upper(float(self.split.form.c @ x), x):
                is_better = True
                # The next queries, at which the blocks are solved, lie between this point and the master's.
                self.state.centre = x[self.split.outer]
        cuts_of_blocks = []
        # Any multipliers of the whole form, restricted to a block's rows, give a valid cut for that block, if they give
        # a bound at all. They are converted from the user's units to scaled costs.
        for multipliers in start.multipliers:
            duals = np.asarray(multipliers, dtype=np.float64) * self.split.scale
            is_better = self.state.raise_lower(*prove_bound(self.split, duals)) or is_better
            if cuts:
                block_cuts = [cut_of(piece, duals[piece.rows]) for piece in self.split.pieces]
                cuts_of_blocks += [cut for cut in block_cuts if cut is not None]
        self.add_cuts(cuts_of_blocks)
        return is_better

    def add_cuts(self, cuts: Sequence[Cut]) -> None:
        """Add cuts to the master and count them."""
        self.master.add_cuts(cuts)
        self.state.cuts += len(cuts)

    # --- the run ------------------------------------------------------------------------------------

    def solve(self, form: StandardForm, start: Start | None) -> Decomposed:
        """Run the decomposition to its end and return the result.

        The run resumes from a checkpoint if the context requests this and there is one.

        Args:
            form: The form as given by the user.
            start: A point and multipliers to start from, unless the run resumes from a checkpoint.

        Raises:
            StoppedError: The run ended without a feasible point.
        """
        status = "stopped"
        try:
            with limit(self.context.remaining):
                if not self.resume_from_checkpoint():
                    if start is not None:
                        self.use_start(start)
                    if not self.has_reached_gap():
                        self.add_cuts(self.blocks.relax_all(self.state))
                status = self.run_rounds()
        except (OutOfTime, KeyboardInterrupt):
            # If a feasible point is known, it is returned with the status "stopped".
            if self.state.x is None:
                raise
        if status == "stopped":
            self.save_checkpoint(always=True)
        if self.state.x is None:
            raise StoppedError(f"stopped after {self.state.rounds} rounds without a feasible point")
        return self.build_result(form, status)

    def run_rounds(self) -> str:
        """Run rounds until a stopping condition is met, and return the status: "optimal", "feasible" or "stopped".

        "Stopped" means that time ran out. "Feasible" means that the run ended without reaching the gap, because rounds
        no longer made progress or because the limit on rounds or memory was reached.
        """
        # The number of successive rounds without any progress. In self.stalled_rounds, by contrast, new cuts do not
        # count as progress.
        stalled_rounds = 0
        for _ in range(self.options.rounds):
            if self.has_reached_gap():
                return "optimal"
            if clock().left == 0.0:
                return "stopped"
            if self.improve is not None:
                duals = None if self.state.duals is None else self.state.duals / self.split.scale
                suggestion = self.improve(duals, self.state.x)
                if suggestion is not None:
                    self.use_start(suggestion)
                self.log_round()
                if self.has_reached_gap():
                    return "optimal"
            # How much memory a round takes is known only afterwards, so the next one is assumed to take as much as any
            # round so far, with a margin.
            if MEMORY_GROWTH_FACTOR * self.max_growth > self.context.free_memory:
                self.is_memory_full = True
                return "feasible"
            bytes_before, peak_before = resident(), peak_resident()
            progressed = self.run_round()
            # A round that raises the process's peak has needed more memory than it holds at its end.
            peak = peak_resident()
            self.max_growth = max(self.max_growth, (peak if peak > peak_before else resident()) - bytes_before)
            if progressed is None:
                return "stopped"
            stalled_rounds = 0 if progressed else stalled_rounds + 1
            self.log_round()
            self.save_checkpoint()
            # The last four rounds did not even yield a new cut, and further rounds would repeat them.
            if stalled_rounds > 3:
                break
        return "optimal" if self.has_reached_gap() else "feasible"

    def log_round(self) -> None:
        """Record the elapsed time and both bounds in the trajectory, in the user's units, and report progress."""
        state = self.state
        # If the user maximises, the scale is negative, so that the two bounds are swapped.
        first, second = self.to_user_units(state.lower), self.to_user_units(state.upper)
        lower, upper = min(first, second), max(first, second)
        state.trajectory.append((self.total_seconds(), lower, upper))
        self.context.report("benders", state.rounds, lower, upper)

    def total_seconds(self) -> float:
        """Return the number of seconds spent so far, including the time before the run was resumed."""
        return self.state.seconds + time.monotonic() - self.start_time

    def to_user_units(self, value: float) -> float:
        """Convert a scaled cost, which excludes the objective's constant, to a value of the user's objective."""
        return float((value + self.split.form.c0) / self.split.scale)

    def run_round(self) -> bool | None:
        """Run one round: solve the master, choose a query, solve the blocks, and add their cuts.

        The master proposes values z for the complicating columns (those that join the blocks) and an estimate w of each
        block's cost. The query is the point at which the blocks are solved. The multipliers of the blocks yield cuts,
        which raise the master's estimates or exclude its point.

        Returns:
            Whether the round made progress. This is the case if it improved a bound, changed where the blocks are
            queried, widened the box around the complicating columns, or cut off the master's point. The result is None
            if time ran out.
        """
        state = self.state
        answer = self.solve_master()
        if answer is None or answer.z is None or answer.w is None:
            return None
        state.rounds += 1
        # Whether the bound, the best point, the fraction for queries or the box changed in this round.
        has_moved = self.state.raise_lower(answer.bound, answer.duals)
        if self.has_reached_gap():
            return True
        query = self.choose_query(answer.z)
        answers = self.solve_blocks(query)
        if answers is None:
            return None
        is_feasible = all(a.outcome is Outcome.OPTIMAL for a in answers)
        # Together, the query and the blocks' optima form a feasible point of the whole form.
        if is_feasible:
            x = np.zeros(self.split.form.shape[1])
            x[self.split.outer] = query
            for piece, answer_of_block in zip(self.split.pieces, answers, strict=True):
                x[piece.columns] = answer_of_block.x
            if self.state.lower_upper(float(self.split.form.c @ x), x) or state.centre is None:
                state.centre, has_moved = query, True
        cuts = [cut for answer_of_block in answers for cut in answer_of_block.cuts]
        # With in-out steps (Ben-Ameur and Neto 2007), the query may lie between the centre and the master's point, and
        # its cuts may not cut off the master's point.
        is_separated = any(_is_cut_off(cut, answer.z, answer.w) for cut in cuts)
        # A cut that excludes neither the master's point nor the query would only make the master larger.
        self.add_cuts(
            [cut for cut in cuts if _is_cut_off(cut, answer.z, answer.w) or _is_cut_off(cut, query, answer.w)]
        )
        if not is_feasible:
            # The query was too far from the centre, which is feasible. Later queries stay closer to it, but not so
            # close that they no longer make progress.
            state.share = max(0.1, 0.7 * state.share)
        self.stalled_rounds = 0 if has_moved else self.stalled_rounds + 1
        # If no cut excludes the master's point, or nothing has improved for many rounds, queries move towards the
        # master's point. If they are already there, the box around unbounded columns may be too small.
        if is_feasible and (not is_separated or self.stalled_rounds >= MAX_STALLED_ROUNDS):
            is_full_step, state.share = state.share >= 1.0, min(1.0, 2.0 * state.share)
            has_moved = has_moved or not is_full_step or self.widen_box(answer.z)
        state.dropped += self.master.drop_idle_rows(
            self.options.clean_after, self.options.keep * len(self.split.pieces)
        )
        return has_moved or is_separated

    def choose_query(self, z: Floats) -> Floats:
        """Choose the values of the complicating columns at which to solve the blocks, using an in-out step.

        The query lies on the line from the best known point (the centre) to the master's point. :attr:`State.share` is
        its position on this line, from 0 at the centre to 1 at the master's point.

        Args:
            z: (|Y|,) The master's values for the complicating columns.
        """
        state = self.state
        if state.centre is None or state.share >= 1.0:
            return z
        return np.asarray(state.centre + state.share * (z - state.centre))

    def solve_blocks(self, z: Floats) -> list[BlockAnswer] | None:
        """Solve every block with the complicating columns fixed at ``z``, an array of shape (|Y|,).

        Returns:
            The blocks' answers, or None if time ran out.

        Raises:
            UnboundedError: A block is unbounded, and so is the form.
            InfeasibleError: A block is unbounded, and the form has no feasible point.
            SolverError: A block is reported as unbounded, although the form has an optimum.
        """
        state = self.state
        # Cuts are moved towards the centre (the best feasible point), unless the query is the centre itself, so that
        # there is no direction to move them in.
        core = None if state.centre is None or np.array_equal(state.centre, z) else state.centre
        answers = self.blocks.solve_all(state, z, core)
        for number, answer in enumerate(answers):
            if answer.outcome is Outcome.UNBOUNDED:
                self.raise_unbounded(f"block {number}")
        return None if any(a.outcome in (Outcome.STOPPED, Outcome.FEASIBLE) for a in answers) else answers

    def solve_master(self) -> MasterAnswer | None:
        """Solve the master until its point violates no valid rows.

        Valid rows are rows over the complicating columns that the whole form implies. The caller's function ``valid``
        finds those that the master's point violates.

        Returns:
            The master's answer, or None if time ran out.

        Raises:
            InfeasibleError: The master is infeasible, and therefore so is the whole form.
            UnboundedError: The whole form is unbounded.
            SolverError: The solver reports the master as infeasible although a feasible point is known, or as unbounded
                although the form has an optimum.
        """
        times = self.state.master_times
        times.append(0.0)
        # Each pass widens the box or adds valid rows. After 50 passes, the last answer is used. It may still violate
        # valid rows, which would only raise its bound.
        for _ in range(50):
            answer = self.master.solve()
            times[-1] += answer.seconds
            if answer.outcome is Outcome.INFEASIBLE:
                # The master may be infeasible only because the box is too small, so it must be infeasible with the
                # largest box.
                if self.master.box < LARGEST_BOX:
                    self.master.set_box(self.master.box * 100)
                    continue
                if self.state.x is not None:
                    raise SolverError("the master is called infeasible although a feasible point is known")
                raise InfeasibleError(f"the model has no solution: {explain_clash(self.split)}")
            if answer.outcome is Outcome.UNBOUNDED:
                # If the master is unbounded without a box, it gets one of size 1000. The box is then enlarged by
                # factors of 100, up to the largest size.
                if LARGEST_BOX <= self.master.box < np.inf:
                    self.raise_unbounded("the master")
                self.master.set_box(1e3 if np.isinf(self.master.box) else self.master.box * 100)
                continue
            if answer.outcome is not Outcome.OPTIMAL or answer.z is None:
                return None
            rows = self.valid(answer.z) if self.valid is not None else None
            if rows is None or not len(rows):
                return answer
            self.master.add_valid(rows)
        return answer

    def widen_box(self, z: Floats) -> bool:
        """Widen the box if the master's optimum lies on its boundary.

        The box limits the absolute values of unbounded complicating columns. Without it, the master could be unbounded.

        Args:
            z: (|Y|,) The master's values for the complicating columns.

        Returns:
            Whether the box was widened.

        Raises:
            UnboundedError: The optimum lies on the boundary of the largest box.
        """
        # Solvers return approximate values, so a point within 0.1 % of the boundary counts as lying on it.
        if np.isinf(self.master.box) or not (np.abs(z) >= 0.999 * self.master.box).any():
            return False
        if self.master.box >= LARGEST_BOX:
            self.raise_unbounded("the master")
        self.master.set_box(self.master.box * 100)
        return True

    def raise_unbounded(self, part: str) -> NoReturn:
        """Raise the error that applies to the whole form, given that one part of it is unbounded.

        Args:
            part: The name of that part in the error message: "the master", or a block.

        Raises:
            UnboundedError: The form is unbounded.
            InfeasibleError: The form has no feasible point.
            SolverError: The form has an optimum, but the solver does not find it.
        """
        raise_unbounded_form(self.split, self.options.solver, part, LARGEST_BOX)

    # --- checkpoints and the end --------------------------------------------------------------------

    def save_checkpoint(self, *, always: bool = False) -> None:
        """Write a checkpoint if the context has a folder for it and a new checkpoint is due.

        A checkpoint is due if the previous one is old enough, or if ``always`` is set.
        """
        folder = self.context.checkpoint
        if folder is None or (not always and time.monotonic() - self.last_save_time < self.options.checkpoint_every):
            return
        write_checkpoint(folder, self.split, self.master, evolve(self.state, seconds=self.total_seconds()))
        self.last_save_time = time.monotonic()

    def resume_from_checkpoint(self) -> bool:
        """Load the checkpoint, if there is one and the context asks to resume from it.

        Returns:
            Whether a checkpoint was loaded.
        """
        if not self.context.resume or self.context.checkpoint is None:
            return False
        state = read_checkpoint(self.context.checkpoint, self.split, self.master)
        if state is None:
            return False
        self.state = state
        return True

    def build_result(self, form: StandardForm, status: str) -> Decomposed:
        """Build the result, in the user's units.

        Args:
            form: The form as given by the user, with unscaled costs.
            status: How the run ended: "optimal", "feasible" or "stopped".
        """
        state = self.state
        assert state.x is not None
        # The state's costs are scaled and always minimised. Here they are converted to the user's units.
        bound = self.to_user_units(state.lower) if np.isfinite(state.lower) else None
        return Decomposed(
            status=status,
            x=state.x,
            objective=float(form.c @ state.x) + form.c0,
            bound=bound,
            duals=None if state.duals is None else state.duals / self.split.scale,
            rounds=state.rounds,
            trajectory=tuple(state.trajectory),
            details={
                "blocks": len(self.split.pieces),
                "complicating_columns": len(self.split.outer),
                "cuts": state.cuts,
                "cuts_dropped": state.dropped,
                **({"ended": "no room for another round"} if self.is_memory_full else {}),
                "rows_in_master": len(self.master.rows),
                "master_seconds": sum(state.master_times),
                "block_seconds": float(state.block_times.sum()),
                "master_seconds_by_round": list(state.master_times),
                "seconds_by_block": state.block_times.tolist(),
                "rounds_to_feasible_by_block": state.first_feasible.tolist(),
            },
        )


def _is_cut_off(cut: Cut, z: Floats, w: Floats) -> bool:
    """Return whether the master's point (z, w) violates a cut by more than rounding error.

    Args:
        cut: The cut to test.
        z: (|Y|,) The values of the complicating columns.
        w: (blocks,) The master's cost estimate for each block.
    """
    # A block's estimate in ``w`` is NaN until the block has a cut. Its first cut always counts.
    value, height = cut.value(z), 0.0 if cut.feasibility else float(w[cut.block])
    return not np.isfinite(height) or value - height > 1e-9 * (1.0 + abs(height))
