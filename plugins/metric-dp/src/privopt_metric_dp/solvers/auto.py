"""Choose and run solvers for the optimal mechanism, in an order based on measurements (docs/benchmarks.md).

The star (:mod:`privopt_metric_dp.solvers.star`) is a matrix with a closed form. It is a mechanism if none of its
weights is negative. Each connected part is first solved with the star, unless it has many more records than outputs. If
the star is a mechanism, pricing gives an upper bound on its optimality gap. If this bound is small enough, the star is
the answer. Otherwise, column generation continues from the star's columns, which are close to optimal.

If the star is not a mechanism, the interior-point method runs instead. If there are many pairs per record, it starts
with a spanner (a few pairs that nearly imply the rest). Instances with many records are first solved with a sample of
the outputs. If a method fails, the next one takes over, and earlier offers remain valid. For parts with at least
`MIN_EARLY_RECORDS` records (:mod:`privopt_metric_dp.solvers.solver`), early offers are made even without a time limit,
in case the run is interrupted.
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
"""The names of the methods that can be requested."""
MIN_SPANNER_RECORDS = 100
"""The smallest number of records for which a spanner is worth the time needed to compute it."""
DENSE_PAIRS_PER_RECORD = 12
"""The number of pairs per record above which the LP over a spanner is solved first.

With this many pairs, a few of them nearly imply the rest."""
MANY, SAMPLE = 1_000, 64
"""The number of records above which the LP over a sample of outputs is solved first, and the size of that sample.

The sample contains at most a quarter of the outputs."""
STARRED, FEW = 1_000, 4
"""The limits above which the star is skipped.

It is skipped if there are more than STARRED records and more than FEW times as many records as outputs, because its
kernel has an entry for each pair of records. With 8,000 places and 120 outputs, it took 6 GB and several minutes, and
some weights were negative. Weights were also negative with 2,032 places at 3 and 30 per km."""
DEFAULT_MEMORY_BYTES = 8e9
"""The default memory limit in bytes. A method that needs more is not started."""

AT_ONCE = 0.1
"""The largest fraction of the available time that the quick bound may take (:func:`_offer_quick_bound`).

It usually takes much less."""

Room = Callable[[], float]
"""A function that returns the number of bytes that may still be allocated."""
Ladder = Callable[[Part, Room], Iterator[Solver]]
"""A generator function that yields the solvers to run on a part, in order.

Its generator is resumed after each solver, so it can take that solver's result into account."""


def auto(part: Part, memory_limit: Room) -> Iterator[Solver]:
    """Yield the solvers to run on a connected part of an instance, in the order in which to try them.

    The first solver computes the star, a closed-form mechanism that exists only for some instances. If it exists,
    column generation improves on it. Otherwise, the interior-point method solves the LP. If this saves time, a smaller
    LP is solved first, either over a spanner (a few pairs that nearly imply the rest) or over a sample of the outputs.
    If there are many more records than outputs, only the interior-point method runs, because the matrix from which the
    star is computed would be too large.

    Args:
        part: The part. The star's solver sets ``part.starred`` to whether the star is a mechanism for this part.
        memory_limit: A function that returns the number of bytes that may still be allocated.
    """
    instance = part.instance
    # If there are many more records than outputs, the star's kernel would be too large, because it has an entry for
    # every two records.
    if not _suits_star(instance.records, instance.outputs):
        yield InteriorPoint()
        return
    yield StarSolver()
    # The generator is resumed after the star's solver, which has set `starred` by now.
    if part.starred:
        yield ColumnGeneration()
        yield InteriorPoint()
        return
    inner = InteriorPoint()
    # The sample has at most a quarter of the outputs, rounded up.
    few_outputs = FewOutputs(min(SAMPLE, -(-instance.outputs // 4)), inner)
    if inner.peak_bytes(part) > memory_limit():
        # The interior point will not be started because it needs too much memory. It is yielded anyway, so that a note
        # in the answer says how much it needs. Over a sample of the outputs, it needs less.
        yield from (inner, few_outputs, ColumnGeneration())
    elif instance.records >= MIN_SPANNER_RECORDS and len(instance.pairs) > DENSE_PAIRS_PER_RECORD * instance.records:
        # If there are many pairs, LPs over spanners are solved first, and the LP over all pairs only if they miss the
        # gap.
        yield from (FewPairs(inner), inner)
    else:
        # If there are many records, a rough mechanism comes first. Column generation runs only if the interior point
        # fails.
        if instance.records > MANY:
            yield few_outputs
        yield from (inner, ColumnGeneration())


def _suits_star(records: int, outputs: int) -> bool:
    """Return whether the star, a closed-form mechanism, is worth trying, given the numbers of records and outputs."""
    return records <= max(STARRED, FEW * outputs)


def begins_with_star(records: int, outputs: int, method: str) -> bool:
    """Return whether :func:`search` computes the star first and completes it even after the time limit has expired.

    The star is a closed-form mechanism that exists only for some instances. It is completed if the method tries it, the
    instance is suitable, and an idle machine would need at most half the time limit to compute it.

    Args:
        records, outputs: The numbers of records and outputs of the whole instance.
        method: The name of a method. Only "auto" and "star" try the star.
    """
    return method in ("auto", "star") and _suits_star(records, outputs) and is_star_affordable(records, outputs)


def make_ladder(method: str) -> Ladder:
    """Return a generator function that yields the solvers to try for a method.

    For a method other than "auto", its own solver comes first, followed by any fallbacks.

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
    # The first two methods, "auto" and the star, cannot serve as fallbacks, because the star does not exist for every
    # part.
    fallbacks = [solvers[name] for name in METHODS[2:] if name != method]

    def ladder(part: Part, memory_limit: Room) -> Iterator[Solver]:
        """Yield the requested solver, followed by its fallbacks.

        Raises:
            SolverError: The star was requested but is not a mechanism for this part.
        """
        yield solvers[method]
        # The generator is resumed here after the requested solver was tried. If the star was requested and had enough
        # memory, there are no fallbacks.
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
    """Run solvers one after another until the gap between the loss and the lower bound is small enough.

    Before the run ends for this reason, the search confirms the gap (:meth:`Offers.confirm`). At that point, a search
    that certifies its results has certified the loss and proved the bound.

    Args:
        part: A connected part.
        offers: The search that receives the part's results.
        memory_limit: A function that returns the number of bytes that may be allocated. Solvers that need more are not
            started.
        ladder: A generator function that yields the solvers to try on the part, in order.
        only_first: Whether to stop after the first solver that completes without an error.
        after_solver: A function that is called after each solver, including those that were skipped.

    Raises:
        OutOfTime: The time limit expired.
        SolverError: The method requested by name does not apply.
    """
    best = one_output(part.instance)
    # The clock is held so that no deadline ends this block, because an affordable star may follow even if the time is
    # up.
    with clock().hold():
        offers.offer(
            best.method, candidate=best.z, value=best.objective, bound=best.lower_bound, proof=best.multipliers
        )
    # If the single output is the cheapest one for every record, no mechanism has a smaller loss.
    if not (np.einsum("ik,ik->i", part.instance.cost, best.z) > part.instance.cost.min(axis=1)).any():
        offers.note(best.method)
        return
    # If early offers are needed, a bound that takes little time comes before any solver that may not finish in time.
    needs_quick_bound = part.needs_early_offers and StarSolver().peak_bytes(part) <= memory_limit()
    for solver in ladder(part, memory_limit):
        # `has_reached_gap` relies on the values that solvers reported. A search that certifies its results first
        # certifies and proves these in `confirm`.
        if offers.has_reached_gap and offers.confirm():
            return
        # An affordable star comes before the quick bound, because it gives a better bound itself.
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
            # The star was stopped, possibly before it offered a bound.
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
    """Offer lower bounds that are quick to compute.

    If an idle machine could compute all of them within the fraction `AT_ONCE` of the time limit, they are computed even
    after a deadline. Otherwise, the computation stops without an error once that fraction of the remaining time is used
    up.

    Args:
        part: The part.
        offers: The search that receives the bounds.
    """
    is_short = fits_granted_time(quick_bound_operations(part.instance), AT_ONCE)
    with clock().hold() if is_short else clock().limit_to_share(AT_ONCE):
        quick_bound(part, offers)


def _run_solver(solver: Solver, part: Part, offers: PartOffers) -> bool:
    """Run one solver on a part, record its outcome, and return whether it completed without an error.

    If the solver fails, the failure is recorded in a note instead of being raised, so that the next solver can run.

    Args:
        solver: The solver.
        part: The part.
        offers: The search that receives the solver's results and its outcome.

    Raises:
        OutOfTime: The time limit expired.
    """
    try:
        solver.solve(part, offers)
    except OutOfTime:
        # Earlier offers of the solver remain valid.
        offers.note(f"{solver.name} (the time limit was reached)")
        raise
    except (SolverError, StoppedError, MemoryError, np.linalg.LinAlgError) as fault:
        # If the time is up, `check` raises an error and thus ends the ladder, whatever the fault was. Otherwise the
        # next solver runs.
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
    """Reduce an instance and solve its connected parts, giving each part time in proportion to its size.

    Args:
        instance: The whole instance.
        offers: The search that receives results for the whole instance.
        memory_limit: A function that returns the number of bytes that may be allocated.
        method: One of `METHODS`, a solver, or a ladder (a generator function that yields the solvers to try on a part).

    Raises:
        OutOfTime: The time limit expired.
        UnknownNameError: There is no such method.
        SolverError: The method requested by name does not apply. The message says what to try instead.
    """
    ladder, only_first = _to_ladder(method), isinstance(method, str) and method != "auto"
    # On a busy machine, the time may be up before the star begins. An affordable star is completed anyway.
    is_held = isinstance(method, str) and begins_with_star(instance.records, instance.outputs, method)
    with ExitStack() as waiting:
        if is_held:
            waiting.enter_context(clock().keep_waiting())
        with clock().hold() if is_held else nullcontext():
            # This merges records at distance 0, drops implied pairs and separates connected parts.
            reduced = ReducedInstance(instance)
            views = reduced.views(offers)
        remaining_entries = sum(part.instance.cost.size for part in reduced.parts)
        for part, view in zip(reduced.parts, views, strict=True):
            # Each part gets its share of the remaining time, so time that it does not use goes to later parts.
            with clock().limit_to_share(part.instance.cost.size / remaining_entries):
                # Callers keep waiting only until the first solver has run. Closing `waiting` again has no effect.
                run_ladder(part, view, memory_limit, ladder, only_first=only_first, after_solver=waiting.close)
            remaining_entries -= part.instance.cost.size
            check()


def _to_ladder(method: str | Solver | Ladder) -> Ladder:
    """Return the ladder for a method's name or for a single solver.

    A ladder is a generator function that yields the solvers to run. If ``method`` is a ladder, it is returned
    unchanged.

    Args:
        method: One of `METHODS`, a solver, or a ladder.

    Raises:
        UnknownNameError: There is no method with this name.
    """
    if isinstance(method, str):
        return make_ladder(method)
    if isinstance(method, Solver):
        # Within a lambda, type checkers know only the declared type of `method`. A separate variable has the type
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
        """Return the loss of a mechanism and the mechanism itself, unchanged."""
        return self.instance.loss(candidate), candidate

    def prove(self, proof: Multipliers, value: float) -> tuple[float, Multipliers]:
        """Return the bound proved by multipliers in floating point, and the multipliers unchanged.

        Args:
            proof: The multipliers.
            value: Not used.
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
        method: One of `METHODS`, a solver, or a ladder (a generator function that yields the solvers to try on a part,
            in order).
        gap: The relative gap between the loss and the lower bound at which to stop.
        search_time: The time scope in which the methods run. It must be nested in the caller's. If None, the caller's
            scope applies.
        progress: A function that is called with each offer.
        memory: The number of bytes that may be allocated. Methods that need more are skipped.

    Returns:
        The best mechanism and the best bound. The status is "stopped" if a time limit or an interrupt ended the search
        early.

    Raises:
        UnknownNameError: There is no such method.
        SolverError: The requested method does not apply. The message says what to try instead.
    """
    # The incumbent stores the best offers of all methods. With `InDoubles`, it accepts mechanisms as they are.
    incumbent: Incumbent[Floats, Multipliers, Floats] = Incumbent(
        InDoubles(instance), gap, noise=instance.noise, progress=progress
    )
    constant = one_output(instance)

    def offer_constant() -> None:
        """Offer the best mechanism that always reports the same output. This takes almost no time."""
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
        # This offer is made before the search, so that there is an answer even if the search has no time at all.
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
