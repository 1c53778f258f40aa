"""The order of methods, decided by measurements (docs/benchmarks.md).

A connected part first tries the star: where its weights are not negative, pricing proves its gap, and where that is
small enough this is the answer. Next comes column generation where the star is a mechanism (its rays are then near the
optimum's), the interior point where it is not, over a spanner first where most pairs are required. Under a limit many
records begin with few outputs, and so does what does not fit into memory. A method that fails hands over to the next
one, and its offers are kept.
"""

from __future__ import annotations

import math
import traceback
import warnings
from collections.abc import Callable, Iterator

import numpy as np

from privopt.arrays import Floats
from privopt.errors import SolverError, StoppedError, UnknownNameError
from privopt.execution.clock import Clock, OutOfTime, check, clock
from privopt.execution.memory import GB
from privopt.interfaces import Progress
from privopt.search.incumbent import Incumbent
from privopt.search.run_search import run_search
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers.column_generation import ColumnGeneration
from privopt_metric_dp.solvers.components import ReducedInstance
from privopt_metric_dp.solvers.few_outputs import FewOutputs
from privopt_metric_dp.solvers.instance import Instance, Solution, dual_bound, one_output
from privopt_metric_dp.solvers.interior_point import InteriorPoint
from privopt_metric_dp.solvers.solver import Part, PartOffers, Solver
from privopt_metric_dp.solvers.spanner import FewPairs
from privopt_metric_dp.solvers.star import StarSolver, quick_bound

__all__ = ["METHODS", "InDoubles", "Ladder", "Room", "auto", "climb", "named", "search", "solve"]

METHODS = ("auto", "star", "column-generation", "interior-point")
MIN_SPANNER_RECORDS = 100
"""Records from which on a spanner of all pairs is worth its making."""
DENSE_PAIRS_PER_RECORD = 12
"""Pairs a record beyond which few of them imply the others: a spanner's program comes first."""
MANY, SAMPLE = 1_000, 64
"""Records beyond which, under a limit, a program over so many outputs comes first (a quarter of them, if fewer)."""
STARRED, FEW = 1_000, 4
"""Records beyond which no star is made where they are so many times the outputs: its kernel is records by records
(8,000 places with 120 outputs: 6 GB and minutes, for weights below 0; likewise 2,032, at 3 and 30 per km: .1 GB)."""
DEFAULT_MEMORY_BYTES = 8e9
"""What a caller who says nothing of memory is taken to have: nothing that would take more bytes is begun."""

AT_ONCE = 0.1
"""Share of the time in which a bound is looked for that takes moments."""

Room = Callable[[], float]
"""Bytes that may still be taken."""
Ladder = Callable[[Part, Room], Iterator[Solver]]
"""Which methods in which order; resumed after each, so it sees what the ones before found out."""


def auto(part: Part, memory_limit: Room) -> Iterator[Solver]:
    """Yield the methods that fit a part, best first."""
    instance, inner = part.instance, InteriorPoint()
    few = FewOutputs(min(SAMPLE, -(-instance.outputs // 4)), inner)
    if instance.records > max(STARRED, FEW * instance.outputs):
        yield inner
        return
    yield StarSolver()
    if part.starred:
        yield from (ColumnGeneration(), inner)
    elif inner.peak_bytes(part) > memory_limit():
        yield from (inner, few, ColumnGeneration())  # the first says what it would need
    elif instance.records >= MIN_SPANNER_RECORDS and len(instance.pairs) > DENSE_PAIRS_PER_RECORD * instance.records:
        yield from (FewPairs(inner), inner)
    else:
        if clock().left < math.inf and instance.records > MANY:
            yield few
        yield from (inner, ColumnGeneration())


def named(method: str) -> Ladder:
    """Return the ladder that begins with a method, and goes on only where that could not be had.

    Raises:
        UnknownNameError: no such method.
    """
    if method not in METHODS:
        raise UnknownNameError("method", method, METHODS)
    if method == "auto":
        return auto
    first: dict[str, Solver] = {
        "star": StarSolver(),
        "column-generation": ColumnGeneration(),
        "interior-point": InteriorPoint(),
    }
    rest = [first[name] for name in METHODS[2:] if name != method]

    def ladder(part: Part, memory_limit: Room) -> Iterator[Solver]:
        yield first[method]
        if method == "star" and first[method].peak_bytes(part) <= memory_limit():
            if not part.starred:
                raise SolverError("the star does not exist here; use interior-point or column-generation")
            return
        yield from rest

    return ladder


def climb(part: Part, offers: PartOffers, memory_limit: Room, ladder: Ladder, *, first: bool = False) -> None:
    """Let one method after the other offer, until the gap is certified and proved.

    Args:
        part: connected.
        offers: of the part.
        memory_limit: bytes that may be taken; a method that needs more is not begun.
        ladder: of methods.
        first: whether the first one that is had is the only one.

    Raises:
        OutOfTime: the time was over.
        SolverError: a ladder that was asked for by name has nothing.
    """
    best = one_output(part.instance)
    offers.offer(best.method, candidate=best.z, value=best.objective, bound=best.lower_bound, proof=best.multipliers)
    if not (np.einsum("ik,ik->i", part.instance.cost, best.z) > part.instance.cost.min(axis=1)).any():
        offers.note(best.method)
        return
    if clock().left < math.inf and StarSolver().peak_bytes(part) <= memory_limit():
        with clock().share(AT_ONCE):
            quick_bound(part, offers)
    for solver in ladder(part, memory_limit):
        if offers.reached and offers.confirm():
            return
        needed, left = solver.peak_bytes(part), memory_limit()
        if needed > left:
            offers.note(f"{solver.name} (needs {needed / GB:.2g} GB of {left / GB:.2g} left)")
        elif _had(solver, part, offers) and first:
            return


def _had(solver: Solver, part: Part, offers: PartOffers) -> bool:
    """Have one method work; whether it came to its end."""
    try:
        solver.solve(part, offers)
    except OutOfTime:
        offers.note(f"{solver.name} (the time was over)")
        raise
    except (SolverError, StoppedError, MemoryError, np.linalg.LinAlgError) as fault:
        check()
        offers.note(f"{solver.name} ({str(fault) or 'out of memory'})")
        return False
    except Exception as fault:  # costs its answer, not the release
        offers.note(f"{solver.name} (a fault of it: {fault!r})")
        warnings.warn(f"{solver.name} failed, and the next method went on:\n{traceback.format_exc()}", stacklevel=2)
        return False
    offers.note(solver.name)
    return True


def search(instance: Instance, offers: PartOffers, memory_limit: Room, method: str | Solver | Ladder = "auto") -> None:
    """Make an instance smaller and solve its connected parts, each in its share of the time.

    Args:
        instance: the whole.
        offers: of the whole.
        memory_limit: bytes that may be taken.
        method: one of `METHODS`, a solver, or another ladder.

    Raises:
        OutOfTime: the time was over.
        UnknownNameError: no such method.
        SolverError: the method asked for by name does not apply; what to try instead is named.
    """
    ladder, reduced = _ladder(method), ReducedInstance(instance)
    left = sum(part.instance.cost.size for part in reduced.parts)
    for part, view in zip(reduced.parts, reduced.views(offers), strict=True):
        with clock().share(part.instance.cost.size / left):
            climb(part, view, memory_limit, ladder, first=isinstance(method, str) and method != "auto")
        left -= part.instance.cost.size
        check()


def _ladder(method: str | Solver | Ladder) -> Ladder:
    if isinstance(method, str):
        return named(method)
    if isinstance(method, Solver):
        alone = method
        return lambda part, room: iter((alone,))
    return method


class InDoubles:
    """Takes mechanisms in doubles, unchecked: the caller repairs and proves them."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    def certify(self, candidate: Floats) -> tuple[float, Floats]:
        """Evaluate it."""
        return self.instance.loss(candidate), candidate

    def prove(self, proof: Multipliers, value: float) -> tuple[float, Multipliers]:
        """Evaluate the bound."""
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
    """Solve the optimal mechanism's program in doubles.

    Args:
        instance: the problem.
        method: as of :func:`search`.
        gap: relative gap between loss and lower bound to reach.
        search_time: the scope of time of the methods, inside the caller's; None for the caller's own.
        progress: called with each offer.
        memory: bytes that may be taken; a method that would take more is not begun, but the next of the ladder.

    Returns:
        The best mechanism and the best bound; "stopped" where the time around, or an interrupt, ended it early.

    Raises:
        UnknownNameError: no such method.
        SolverError: the method asked for does not apply; what to try next is named.
    """
    incumbent: Incumbent[Floats, Multipliers, Floats] = Incumbent(
        InDoubles(instance), gap, noise=instance.noise, progress=progress
    )
    one = one_output(instance)

    def first() -> None:
        incumbent.offer(one.method, candidate=one.z, value=one.objective, bound=one.lower_bound, proof=one.multipliers)

    found = run_search(
        lambda: search(instance, incumbent, lambda: memory, method),
        incumbent,
        search_time or Clock(None, clock()),
        first_offers=[first],
    )
    bound = -math.inf if found.bound is None else found.bound
    reached = instance.reached(found.value, bound, gap)
    return Solution(
        z=found.release,
        objective=found.value,
        lower_bound=bound,
        multipliers=found.proof,
        method=found.origin,
        iterations=found.offers,
        trajectory=found.trajectory,
        status="optimal" if reached else "stopped" if found.stopped else "feasible",
        details={**found.details, "path": found.path},
    )
