"""Choose and run solvers for the optimal mechanism, in an order that is based on measurements (docs/benchmarks.md).

The star (:mod:`privopt_metric_dp.solvers.star`) is a matrix with a closed form. It is a mechanism if none of its
weights is negative. Each connected part is first solved with the star, unless it has many more records than outputs. If
the star is a mechanism, pricing yields an upper bound on its optimality gap. If this bound is small enough, the star is
the answer. If not, column generation continues from the star's columns, which are close to optimal.

If the star is not a mechanism, the interior-point method runs instead. It starts with a spanner (a few pairs that
nearly imply the others) if there are many pairs per record. Instances with many records are first solved with a sample
of the outputs. If a method fails, the next one takes over, and earlier offers remain valid. Parts with at least
`MIN_EARLY_RECORDS` records (:mod:`privopt_metric_dp.solvers.solver`) get early offers even without a time limit, in
case an interrupt ends the run.
"""

from __future__ import annotations

import math
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext

import numpy as np

from privopt.arrays import Floats
from privopt.errors import SolverError, StoppedError, UnknownNameError
from privopt.execution.clock import Clock, OutOfTime, check, clock
from privopt.execution.resources import GB
from privopt.interfaces import Progress
from privopt.search.incumbent import Incumbent
from privopt.search.run_search import run_search
from privopt_metric_dp.proof.lagrangian_bound import Multipliers
from privopt_metric_dp.solvers.column_generation import ColumnGeneration
from privopt_metric_dp.solvers.components import ReducedInstance
from privopt_metric_dp.solvers.few_outputs import FewOutputs
from privopt_metric_dp.solvers.instance import Instance, Solution, dual_bound, one_output
from privopt_metric_dp.solvers.interior_point import InteriorPoint
from privopt_metric_dp.solvers.solver import Part, PartOffers, Solver
from privopt_metric_dp.solvers.spanner import FewPairs
from privopt_metric_dp.solvers.star import (
    StarSolver,
    fits_granted_time,
    is_star_affordable,
    quick_bound,
    quick_bound_operations,
)

__all__ = [
    "METHODS",
    "InDoubles",
    "Ladder",
    "Room",
    "auto",
    "begins_with_star",
    "make_ladder",
    "run_ladder",
    "search",
    "solve",
]

METHODS = ("auto", "star", "column-generation", "interior-point")
"""The names of the methods."""
MIN_SPANNER_RECORDS = 100
"""The smallest number of records for which a spanner is worth its time."""
DENSE_PAIRS_PER_RECORD = 12
"""The number of pairs per record above which a spanner's program comes first, because a few pairs then nearly imply the
others."""
MANY, SAMPLE = 1_000, 64
"""The number of records above which a program over a sample of outputs comes first, and the size of that sample (which
is at most a quarter of the outputs)."""
STARRED, FEW = 1_000, 4
"""The star is skipped if there are more than STARRED records and more than FEW times as many records as outputs,
because its kernel has an entry for each pair of records. With 8,000 places and 120 outputs, it took 6 GB and minutes,
and some weights were negative. Weights were also negative with 2,032 places at 3 and 30 per km."""
DEFAULT_MEMORY_BYTES = 8e9
"""The memory limit in bytes if the caller gives none. A method that needs more is not started."""

AT_ONCE = 0.1
"""The largest share of the time that the quick bound may take. It usually takes much less (:func:`_offer_quick_bound`).
"""

Room = Callable[[], float]
"""A function that returns the number of bytes that may still be allocated."""
Ladder = Callable[[Part, Room], Iterator[Solver]]
"""A generator of the solvers to run on a part, in order. It is resumed after each solver, so it can use that result."""


def auto(part: Part, memory_limit: Room) -> Iterator[Solver]:
    """Yield the solvers to run on a connected part, in the order in which to try them.

    The star comes first: a closed-form mechanism that exists only for some instances. If it exists, column generation
    improves it. If not, the interior-point method solves the LP. Where it saves time, a smaller LP is solved first,
    either over a spanner (a few pairs that nearly imply the others) or over a sample of the outputs. If there are many
    more records than outputs, only the interior-point method runs, because the star's kernel would be too large.

    Args:
        part: The part. The star's solver sets ``part.starred`` to whether the star is a mechanism for this part.
        memory_limit: A function that returns the number of bytes that may still be allocated.
    """
    instance = part.instance
    # Otherwise, the star's kernel would be too large: it has an entry for every two records.
    if not _suits_star(instance.records, instance.outputs):
        yield InteriorPoint()
        return
    yield StarSolver()
    # The ladder is resumed after the star's solver, which has set `starred` by now.
    if part.starred:
        yield ColumnGeneration()
        yield InteriorPoint()
        return
    inner = InteriorPoint()
    # The sample has at most a quarter of the outputs, rounded up.
    few_outputs = FewOutputs(min(SAMPLE, -(-instance.outputs // 4)), inner)
    if inner.peak_bytes(part) > memory_limit():
        # The interior point will not be started, for lack of memory. It is yielded all the same, so that a note in the
        # answer says how much it needs. Over a sample of the outputs, it needs less.
        yield from (inner, few_outputs, ColumnGeneration())
    elif instance.records >= MIN_SPANNER_RECORDS and len(instance.pairs) > DENSE_PAIRS_PER_RECORD * instance.records:
        # If there are many pairs, programs over spanners come first, then the one over all pairs if the gap is not
        # reached.
        yield from (FewPairs(inner), inner)
    else:
        # If there are many records, a rough mechanism comes first. Column generation runs only if the interior point
        # fails.
        if instance.records > MANY:
            yield few_outputs
        yield from (inner, ColumnGeneration())


def _suits_star(records: int, outputs: int) -> bool:
    """Return whether to try the star. It is skipped if there are many more records than outputs."""
    return records <= max(STARRED, FEW * outputs)


def begins_with_star(records: int, outputs: int, method: str) -> bool:
    """Return whether :func:`search` begins with the star, and completes it even past a deadline.

    This is the case if the method tries the star, the instance is suitable, and an idle machine would need at most half
    of the time limit to compute the star.

    Args:
        records, outputs: The number of records and number of outputs of the whole instance.
        method: The name of a method. Only "auto" and "star" try the star.
    """
    return method in ("auto", "star") and _suits_star(records, outputs) and is_star_affordable(records, outputs)


def make_ladder(method: str) -> Ladder:
    """Return the ladder for a method: a generator that yields the method's own solver, then its fallbacks.

    Args:
        method: One of `METHODS`.

    Raises:
        UnknownNameError: There is no such method.
    """
    if method not in METHODS:
        raise UnknownNameError("method", method, METHODS)
    if method == "auto":
        return auto
    solvers: dict[str, Solver] = {
        "star": StarSolver(),
        "column-generation": ColumnGeneration(),
        "interior-point": InteriorPoint(),
    }
    # The first two methods, "auto" and the star, are no fallbacks: the star does not exist for every part.
    fallbacks = [solvers[name] for name in METHODS[2:] if name != method]

    def ladder(part: Part, memory_limit: Room) -> Iterator[Solver]:
        """Yield the requested solver, then its fallbacks.

        Raises:
            SolverError: The star was requested but is not a mechanism for this part.
        """
        yield solvers[method]
        # The ladder is resumed here after the requested solver was tried. If the star was requested and had enough
        # memory, no fallback follows.
        if method == "star" and solvers[method].peak_bytes(part) <= memory_limit():
            if not part.starred:
                raise SolverError(
                    "the star mechanism does not exist for this problem; use interior-point or column-generation"
                )
            return
        yield from fallbacks

    return ladder


def run_ladder(
    part: Part,
    offers: PartOffers,
    memory_limit: Room,
    ladder: Ladder,
    *,
    only_first: bool = False,
    after_solver: Callable[[], None] = lambda: None,
) -> None:
    """Run the solvers of a ladder one after the other, until a certified loss and a proved bound reach the gap.

    Args:
        part: A connected part.
        offers: Receives the offers for the part.
        memory_limit: A function that returns the number of bytes that may be allocated. A solver that needs more is not
            started.
        ladder: A generator of the solvers.
        only_first: Whether to stop after the first solver that completes without an error.
        after_solver: Called after each solver, even after one that was skipped.

    Raises:
        OutOfTime: The time limit has expired.
        SolverError: The method that was requested by name does not apply.
    """
    best = one_output(part.instance)
    # The clock is held, because no deadline must end this block: an affordable star may follow although the time is up.
    with clock().hold():
        offers.offer(
            best.method, candidate=best.z, value=best.objective, bound=best.lower_bound, proof=best.multipliers
        )
    # If the single output is the cheapest one for every record, no mechanism has a lower loss.
    if not (np.einsum("ik,ik->i", part.instance.cost, best.z) > part.instance.cost.min(axis=1)).any():
        offers.note(best.method)
        return
    # If early offers are needed, a bound that takes little time comes before any solver that may not finish in time.
    needs_quick_bound = part.needs_early_offers and StarSolver().peak_bytes(part) <= memory_limit()
    for solver in ladder(part, memory_limit):
        # `has_reached_gap` relies on the values that solvers stated. The ladder ends only once these are certified and
        # proved.
        if offers.has_reached_gap and offers.confirm():
            return
        # An affordable star comes before the quick bound, because it brings a better bound of its own.
        is_held = isinstance(solver, StarSolver) and is_star_affordable(*part.instance.cost.shape)
        if needs_quick_bound and not is_held:
            needs_quick_bound = False
            _offer_quick_bound(part, offers)
        needed, free_bytes = solver.peak_bytes(part), memory_limit()
        if needed > free_bytes:
            offers.note(f"{solver.name} (needs {needed / GB:.2g} GB of {free_bytes / GB:.2g} left)")
            after_solver()
            continue
        try:
            is_complete = _run_solver(solver, part, offers)
        except StoppedError:
            # The star was stopped, perhaps before it offered a bound.
            if needs_quick_bound:
                _offer_quick_bound(part, offers)
            raise
        finally:
            after_solver()
        needs_quick_bound = needs_quick_bound and not is_complete
        if is_complete and only_first:
            return
    if needs_quick_bound:  # the star failed and was the last solver, or no solver was started
        _offer_quick_bound(part, offers)


def _offer_quick_bound(part: Part, offers: PartOffers) -> None:
    """Offer lower bounds that take little time to compute.

    If an idle machine could compute all of them within the fraction `AT_ONCE` of the time limit, they are computed even
    past a deadline. If not, the computation stops without an error after that fraction of the remaining time.

    Args:
        part: The part.
        offers: Receives the bounds.
    """
    is_short = fits_granted_time(quick_bound_operations(part.instance), AT_ONCE)
    with clock().hold() if is_short else clock().limit_to_share(AT_ONCE):
        quick_bound(part, offers)


def _run_solver(solver: Solver, part: Part, offers: PartOffers) -> bool:
    """Run one solver on a part, record its outcome as a note, and return whether it completed.

    If the solver fails, the failure is recorded rather than raised, so that the next solver in the ladder runs.

    Args:
        solver: The solver.
        part: The part.
        offers: Receives the solver's offers and the note about its outcome.

    Raises:
        OutOfTime: The time limit has expired.
    """
    try:
        solver.solve(part, offers)
    except OutOfTime:
        # The offers that the solver made before remain valid.
        offers.note(f"{solver.name} (the time limit was reached)")
        raise
    except (SolverError, StoppedError, MemoryError, np.linalg.LinAlgError) as fault:
        # If the time is up, `check` raises and ends the ladder, whatever the fault was. Otherwise the next solver runs.
        check()
        offers.note(f"{solver.name} ({str(fault) or 'out of memory'})")
        return False
    except Exception as fault:  # a bug in one solver must not cost the release: the others still run
        offers.note(f"{solver.name} (internal error: {fault!r})")
        warnings.warn(f"{solver.name} failed; the next method is tried:\n{traceback.format_exc()}", stacklevel=2)
        return False
    offers.note(solver.name)
    return True


def search(instance: Instance, offers: PartOffers, memory_limit: Room, method: str | Solver | Ladder = "auto") -> None:
    """Reduce an instance and solve its connected parts. Each part gets time in proportion to its size.

    Args:
        instance: The whole instance.
        offers: Receives offers for the whole instance.
        memory_limit: A function that returns the number of bytes that may be allocated.
        method: One of `METHODS`, a solver, or a ladder.

    Raises:
        OutOfTime: The time limit has expired.
        UnknownNameError: There is no such method.
        SolverError: The method that was requested by name does not apply. The message names what to try instead.
    """
    ladder, only_first = _to_ladder(method), isinstance(method, str) and method != "auto"
    # On a busy machine, the time may be up before the star begins. An affordable star is completed all the same.
    is_held = isinstance(method, str) and begins_with_star(instance.records, instance.outputs, method)
    with ExitStack() as waiting:
        if is_held:
            waiting.enter_context(clock().keep_waiting())
        with clock().hold() if is_held else nullcontext():
            # Reducing means merging records at distance 0, dropping implied pairs and separating connected parts.
            reduced = ReducedInstance(instance)
            views = reduced.views(offers)
        remaining_entries = sum(part.instance.cost.size for part in reduced.parts)
        for part, view in zip(reduced.parts, views, strict=True):
            # A part gets its share of the time that remains, so that it passes on the time that it saves.
            with clock().limit_to_share(part.instance.cost.size / remaining_entries):
                # Callers keep waiting only until the first solver has run: closing `waiting` again does nothing.
                run_ladder(part, view, memory_limit, ladder, only_first=only_first, after_solver=waiting.close)
            remaining_entries -= part.instance.cost.size
            check()


def _to_ladder(method: str | Solver | Ladder) -> Ladder:
    """Return the ladder (a generator of solvers) for a method's name or for a single solver.

    A ladder is returned unchanged.

    Args:
        method: One of `METHODS`, a solver, or a ladder.

    Raises:
        UnknownNameError: There is no method with this name.
    """
    if isinstance(method, str):
        return make_ladder(method)
    if isinstance(method, Solver):
        # Inside a lambda, type checkers know only the declared type of `method`. A variable of its own has the type
        # `Solver`.
        single_solver = method
        return lambda part, memory_limit: iter((single_solver,))
    return method


class InDoubles:
    """A certifier that accepts floating-point mechanisms unchecked. The caller must repair and certify the result.

    Attributes:
        instance: The problem.
    """

    def __init__(self, instance: Instance) -> None:
        """Create the certifier for a problem."""
        self.instance = instance

    def certify(self, candidate: Floats) -> tuple[float, Floats]:
        """Return the loss of a mechanism, and the mechanism unchanged."""
        return self.instance.loss(candidate), candidate

    def prove(self, proof: Multipliers, value: float) -> tuple[float, Multipliers]:
        """Return the bound that multipliers prove in floating point, and the multipliers unchanged.

        Args:
            proof: The multipliers.
            value: Unused.
        """
        return dual_bound(self.instance, proof)[0], proof


def solve(
    instance: Instance,
    *,
    method: str | Solver | Ladder = "auto",
    gap: float = 1e-6,
    search_time: Clock | None = None,
    progress: Progress | None = None,
    memory: float = DEFAULT_MEMORY_BYTES,
) -> Solution:
    """Solve the LP for the optimal mechanism in floating point, without repairing or certifying the result.

    Args:
        instance: The problem.
        method: One of `METHODS`, a solver, or a ladder (a generator of the solvers to try on a part, in order).
        gap: The relative gap between loss and lower bound at which to stop.
        search_time: The time scope in which the methods run, nested in the caller's; None to use the caller's scope.
        progress: Called with each offer.
        memory: The number of bytes that may be allocated. A method that needs more is skipped.

    Returns:
        The best mechanism and the best bound. The status is "stopped" if a time limit or an interrupt ended the search
        early.

    Raises:
        UnknownNameError: There is no such method.
        SolverError: The requested method does not apply. The message names what to try instead.
    """
    # The incumbent stores the best offers from all methods. With `InDoubles`, it takes mechanisms as they are.
    incumbent: Incumbent[Floats, Multipliers, Floats] = Incumbent(
        InDoubles(instance), gap, noise=instance.noise, progress=progress
    )
    constant = one_output(instance)

    def offer_constant() -> None:
        """Offer the best mechanism that always reports the same output, which takes almost no time to compute."""
        incumbent.offer(
            constant.method,
            candidate=constant.z,
            value=constant.objective,
            bound=constant.lower_bound,
            proof=constant.multipliers,
        )

    answer = run_search(
        lambda: search(instance, incumbent, lambda: memory, method),
        incumbent,
        search_time or Clock(None, clock()),
        # This offer comes before the search, so that there is an answer even if the search has no time at all.
        first_offers=[offer_constant],
    )
    bound = -math.inf if answer.bound is None else answer.bound
    reached = instance.is_gap_reached(answer.value, bound, gap)
    return Solution(
        z=answer.release,
        objective=answer.value,
        lower_bound=bound,
        multipliers=answer.proof,
        method=answer.origin,
        iterations=answer.offers,
        trajectory=answer.trajectory,
        status="optimal" if reached else "stopped" if answer.stopped else "feasible",
        details={**answer.details, "path": answer.path},
    )
