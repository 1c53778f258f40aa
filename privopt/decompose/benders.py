"""Benders decomposition of any compiled model whose columns are split into complicating ones and blocks.

Multi-cut (one a block and round), feasibility cuts from rays, stabilised by in-out steps (Ben-Ameur and Neto 2007),
cuts moved towards the core (Magnanti and Wong 1981). Every lower bound is evaluated on the whole form from the
multipliers of master and cuts together, so it holds whatever a solver's tolerance; every upper bound is the cost of a
point that was found. A dual vector of the whole form splits into one valid cut a block: ``Start`` takes such vectors,
and a hook may bring more in every round (cross decomposition, Van Roy 1983).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, Ints
from privopt.backends import Outcome
from privopt.decompose.block import BlockAnswer
from privopt.decompose.blocks import Blocks
from privopt.decompose.checkpoint import read_checkpoint, write_checkpoint
from privopt.decompose.diagnose import explained, tell_unbounded
from privopt.decompose.master import Master, MasterAnswer, ValidRows, proved
from privopt.decompose.result import Start, inside
from privopt.decompose.split import Cut, Split, cut_of, split_form
from privopt.decompose.state import State
from privopt.dsl.form import StandardForm
from privopt.errors import InfeasibleError, SolverError, StoppedError
from privopt.execution.clock import OutOfTime, clock, limit
from privopt.execution.memory import resident
from privopt.interfaces import Decomposed, Decomposer, SolveContext

__all__ = ["Benders", "Start", "ValidRows"]

LARGEST_BOX: Final = 1e8
"""Columns without bounds are kept within it, at most."""
MEMORY_GROWTH_FACTOR: Final = 2.0
"""Under a limit on memory a round begins where so many times the growth of the largest one so far is left."""
MAX_STALLED_ROUNDS: Final = 10
"""Rounds without a better bound or point after which cuts count for nothing: far out, rounding makes them."""

#: (multipliers of the best bound, best point), both of the form as it was given -> what to use beside them
Hook = Callable[[Floats | None, Floats | None], Start | None]
Separator = Callable[[Floats], ValidRows | None]


@frozen(kw_only=True)
class Benders(Decomposer):
    """Benders decomposition.

    >>> import numpy as np
    >>> from privopt.interfaces import SolveContext
    >>> form = StandardForm(c=[1.0, 2.0], A=[[1, 1]], row_lower=[2], row_upper=[np.inf], col_lower=[0, 0],
    ...                     col_upper=[1.5, 9], integrality=[0, 0])
    >>> Benders().solve(form, [[1]], SolveContext(method="benders", solver="highs")).objective
    2.5

    Attributes:
        solver: "highs" (warm) or "cbc" (from new each time, elastic blocks for rays); None: the context's.
        rounds: at most.
        checkpoint_every: seconds between checkpoints, where the context has a folder for them.
        clean_after: a cut without a multiplier in this number of master solves is dropped, while a block has more than
            ``keep`` cuts.
        keep: see there.
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
        """Solve a form whose columns outside ``blocks`` are complicating.

        Args:
            form: linear, without integer columns.
            blocks: column numbers of each block; no row may join two blocks.
            context: gap, executor, progress, checkpoint and resume.
            start: a feasible point and multipliers to begin with.
            valid: called with the master's z (scaled as the form), gives rows over the complicating columns that it
                misses, with their proof, or None.
            improve: called once a round with the multipliers of the best bound and the best x; what it brings is
                checked and used.

        Raises:
            InfeasibleError, UnboundedError: the form is.
            StoppedError: stopped with nothing feasible.
            ModelError: the blocks do not split the form.
            SolverError: a solver failed, or bounds crossed.
        """
        options = self if self.solver else evolve(self, solver=context.solver)
        run = _Run(options, split_form(form, blocks), context, valid, improve)
        return run.solve(form, start)


class _Run:
    """One solve."""

    def __init__(
        self, options: Benders, split: Split, context: SolveContext, valid: Separator | None, improve: Hook | None
    ) -> None:
        self.options, self.split, self.context = options, split, context
        self.valid, self.improve = valid, improve
        self.master = Master(split, options.solver)
        self.state = State.begin(len(split.pieces))
        self.blocks = Blocks(split, options.solver, context)
        self.began = time.monotonic()
        self.unmoved = 0
        self.grown, self.full = 0, False
        self.saved = -np.inf  # the first round is kept at once

    # --- bounds -------------------------------------------------------------------------------------

    def done(self) -> bool:
        """Check whether the gap asked for is reached."""
        state = self.state
        if not (np.isfinite(state.upper) and np.isfinite(state.lower)):
            return False
        constant = self.split.form.c0
        size = max(abs(state.upper + constant), 1e-12 * abs(self.split.scale))
        return bool(state.upper - state.lower <= self.context.gap * size)

    def take(self, brought: Start, *, cuts: bool = True) -> bool:
        """Use a point and multipliers of the whole form from outside."""
        better = False
        if brought.x is not None:
            x = inside(self.split.form, brought.x)
            if self.state.lower_upper(float(self.split.form.c @ x), x):
                better = True
                self.state.centre = x[self.split.outer]
        found = []
        for multipliers in brought.multipliers:
            duals = np.asarray(multipliers, dtype=np.float64) * self.split.scale
            better = self.state.raise_lower(*proved(self.split, duals)) or better
            if cuts:
                made = [cut_of(piece, duals[piece.rows]) for piece in self.split.pieces]
                found += [cut for cut in made if cut is not None]
        self.add(found)
        return better

    def add(self, cuts: Sequence[Cut]) -> None:
        """Put cuts into the master."""
        self.master.add_cuts(cuts)
        self.state.cuts += len(cuts)

    # --- the run ------------------------------------------------------------------------------------

    def solve(self, form: StandardForm, start: Start | None) -> Decomposed:
        """Run the decomposition from a checkpoint or a start to its end."""
        status = "stopped"
        try:
            with limit(self.context.remaining):
                if not self.resumed():
                    if start is not None:
                        self.take(start)
                    if not self.done():
                        self.add(self.blocks.relax(self.state))
                status = self.loop()
        except (OutOfTime, KeyboardInterrupt):  # whoever goes on with what there is looks at the clock
            if self.state.x is None:
                raise
        if status == "stopped":
            self.save(always=True)
        if self.state.x is None:
            raise StoppedError(f"stopped after {self.state.rounds} rounds with nothing feasible")
        return self.result(form, status)

    def loop(self) -> str:
        """Run rounds until there is a reason to stop, and return it: the status."""
        stuck = 0
        for _ in range(self.options.rounds):
            if self.done():
                return "optimal"
            if clock().left == 0.0:
                return "stopped"
            if self.improve is not None:
                duals = None if self.state.duals is None else self.state.duals / self.split.scale
                brought = self.improve(duals, self.state.x)
                if brought is not None:
                    self.take(brought)
                self.note()
                if self.done():
                    return "optimal"
            if MEMORY_GROWTH_FACTOR * self.grown > self.context.free_memory:
                self.full = True
                return "feasible"
            held = resident()
            went = self.round()
            self.grown = max(self.grown, resident() - held)
            if went is None:
                return "stopped"
            stuck = 0 if went else stuck + 1
            self.note()
            self.save()
            if stuck > 3:
                return "optimal" if self.done() else "feasible"
        return "feasible"

    def note(self) -> None:
        """Append to the trajectory and report progress."""
        state = self.state
        one, other = self.shown(state.lower), self.shown(state.upper)
        lower, upper = min(one, other), max(one, other)
        state.trajectory.append((self.seconds(), lower, upper))
        self.context.report("benders", state.rounds, lower, upper)

    def seconds(self) -> float:
        """Seconds spent, those before a resume counted."""
        return self.state.seconds + time.monotonic() - self.began

    def shown(self, value: float) -> float:
        """Return a scaled cost in the user's units."""
        return float((value + self.split.form.c0) / self.split.scale)

    def round(self) -> bool | None:
        """Master, query, blocks, cuts. Whether anything moved; None where time ran out."""
        state = self.state
        answer = self.solve_master()
        if answer is None or answer.z is None or answer.w is None:
            return None
        state.rounds += 1
        moved = self.state.raise_lower(answer.bound, answer.duals)
        if self.done():
            return True
        query = self.query(answer.z)
        answers = self.ask(query)
        if answers is None:
            return None
        feasible = all(a.outcome is Outcome.OPTIMAL for a in answers)
        if feasible:
            x = np.zeros(self.split.form.shape[1])
            x[self.split.outer] = query
            for piece, one in zip(self.split.pieces, answers, strict=True):
                x[piece.columns] = one.x
            if self.state.lower_upper(float(self.split.form.c @ x), x) or state.centre is None:
                state.centre, moved = query, True
        cuts = [cut for one in answers for cut in one.cuts]
        separated = any(_cuts_off(cut, answer.z, answer.w) for cut in cuts)
        self.add([cut for cut in cuts if _cuts_off(cut, answer.z, answer.w) or _cuts_off(cut, query, answer.w)])
        if not feasible:
            state.share = max(0.1, 0.7 * state.share)
        self.unmoved = 0 if moved else self.unmoved + 1
        if feasible and (not separated or self.unmoved >= MAX_STALLED_ROUNDS):
            full, state.share = state.share >= 1.0, min(1.0, 2.0 * state.share)
            moved = moved or not full or self.larger_box(answer.z)
        state.dropped += self.master.clean(self.options.clean_after, self.options.keep * len(self.split.pieces))
        return moved or separated

    def query(self, z: Floats) -> Floats:
        """Return the point at which blocks are asked: between the best point and the master's."""
        state = self.state
        if state.centre is None or state.share >= 1.0:
            return z
        return np.asarray(state.centre + state.share * (z - state.centre))

    def ask(self, z: Floats) -> list[BlockAnswer] | None:
        """Solve every block at ``z``; None where time ran out.

        Raises:
            UnboundedError: a block has no bound.
        """
        state = self.state
        core = state.centre if state.centre is not z else None
        answers = self.blocks.ask(state, z, core)
        for number, answer in enumerate(answers):
            if answer.outcome is Outcome.UNBOUNDED:
                self.unbounded(f"block {number}")
        return None if any(a.outcome in (Outcome.STOPPED, Outcome.FEASIBLE) for a in answers) else answers

    def solve_master(self) -> MasterAnswer | None:
        """Return the master's minimum, after the valid rows that it missed; None where time ran out.

        Raises:
            InfeasibleError: the master is, and with it the whole.
            UnboundedError: the whole is.
        """
        times = self.state.master_times
        times.append(0.0)
        for _ in range(50):
            answer = self.master.solve()
            times[-1] += answer.seconds
            if answer.outcome is Outcome.INFEASIBLE:
                if self.master.box < LARGEST_BOX:
                    self.master.set_box(self.master.box * 100)
                    continue
                if self.state.x is not None:
                    raise SolverError("the master is called infeasible although a feasible point is known")
                raise InfeasibleError(f"the model has no solution: {explained(self.split)}")
            if answer.outcome is Outcome.UNBOUNDED:
                if LARGEST_BOX <= self.master.box < np.inf:
                    self.unbounded("the master")
                self.master.set_box(1e3 if np.isinf(self.master.box) else self.master.box * 100)
                continue
            if answer.outcome is not Outcome.OPTIMAL or answer.z is None:
                return None
            rows = self.valid(answer.z) if self.valid is not None else None
            if rows is None or not len(rows):
                return answer
            self.master.add_valid(rows)
        return answer

    def larger_box(self, z: Floats) -> bool:
        """Move the box out where the master's optimum leans on it; whether it was moved.

        Raises:
            UnboundedError: it leans on the largest one.
        """
        if np.isinf(self.master.box) or not (np.abs(z) >= 0.999 * self.master.box).any():
            return False
        if self.master.box >= LARGEST_BOX:
            self.unbounded("the master")
        self.master.set_box(self.master.box * 100)
        return True

    def unbounded(self, what: str) -> None:
        """Raise what an unbounded part means for the whole form.

        Raises:
            UnboundedError, InfeasibleError, SolverError: as of :func:`privopt.decompose.diagnose.tell_unbounded`.
        """
        tell_unbounded(self.split, self.options.solver, what, LARGEST_BOX)

    # --- checkpoints and the end --------------------------------------------------------------------

    def save(self, *, always: bool = False) -> None:
        """Write a checkpoint where it is time."""
        folder = self.context.checkpoint
        if folder is None or (not always and time.monotonic() - self.saved < self.options.checkpoint_every):
            return
        write_checkpoint(folder, self.split, self.master, evolve(self.state, seconds=self.seconds()))
        self.saved = time.monotonic()

    def resumed(self) -> bool:
        """Go on from the checkpoint, where that is asked for and there is one."""
        if not self.context.resume or self.context.checkpoint is None:
            return False
        found = read_checkpoint(self.context.checkpoint, self.split, self.master)
        if found is None:
            return False
        self.state = found
        return True

    def result(self, form: StandardForm, status: str) -> Decomposed:
        """In the user's units."""
        state = self.state
        assert state.x is not None
        bound = self.shown(state.lower) if np.isfinite(state.lower) else None
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
                **({"ended": "no room for another round"} if self.full else {}),
                "rows_in_master": len(self.master.rows),
                "master_seconds": sum(state.master_times),
                "block_seconds": float(state.block_times.sum()),
                "master_seconds_by_round": list(state.master_times),
                "seconds_by_block": state.block_times.tolist(),
                "rounds_to_feasible_by_block": state.first_feasible.tolist(),
            },
        )


def _cuts_off(cut: Cut, z: Floats, w: Floats) -> bool:
    """Check whether a point of the master violates a cut."""
    value, height = cut.value(z), 0.0 if cut.feasibility else float(w[cut.block])
    return not np.isfinite(height) or value - height > 1e-9 * (1.0 + abs(height))
