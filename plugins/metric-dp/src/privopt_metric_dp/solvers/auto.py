"""The order in which methods are tried, decided by measurements (docs/benchmarks.md).

A connected part first tries the star: if its weights are not negative, pricing proves its gap, and a small gap makes it
the answer. Otherwise column generation follows if the star is a mechanism, because its rays are then near those of the
optimum, and the interior point if it is not, first over a spanner if most pairs are required. Under a time limit, and
if memory is short, many records begin with few outputs. If a method fails, the next one takes over, and the offers of
the first remain.
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

__all__ = ["METHODS", "InDoubles", "Ladder", "Room", "auto", "make_ladder", "run_ladder", "search", "solve"]

METHODS = ("auto", "star", "column-generation", "interior-point")
MIN_SPANNER_RECORDS = 100
"""Number of records from which on a spanner of all pairs pays."""
DENSE_PAIRS_PER_RECORD = 12
"""Pairs per record beyond which few pairs imply the others, so that a spanner's program comes first."""
MANY, SAMPLE = 1_000, 64
"""Records beyond which, under a limit, a program over a sample of outputs comes first, and the size of that sample (at
most a quarter of the outputs)."""
STARRED, FEW = 1_000, 4
"""If there are more than STARRED records, and FEW times as many as outputs, no star is made: its kernel is records by
records (8,000 places with 120 outputs: 6 GB and minutes, for weights below 0; likewise 2,032, at 3 and 30 per km: .1
GB)."""
DEFAULT_MEMORY_BYTES = 8e9
"""Memory that callers are assumed to have if they do not say. A method that needs more is not started."""

AT_ONCE = 0.1
"""Share of the time for the quick bound, which usually takes moments."""

Room = Callable[[], float]
"""Returns the bytes that may still be allocated."""
Ladder = Callable[[Part, Room], Iterator[Solver]]
"""Yields the solvers to run on a part, in order. It is resumed after each, so it can use what that one found out."""


def auto(part: Part, memory_limit: Room) -> Iterator[Solver]:
    """Yield the methods that fit a part, best first."""
    instance, inner = part.instance, InteriorPoint()
    few_outputs = FewOutputs(min(SAMPLE, -(-instance.outputs // 4)), inner)
    if instance.records > max(STARRED, FEW * instance.outputs):
        yield inner
        return
    yield StarSolver()
    if part.starred:
        yield from (ColumnGeneration(), inner)
    elif inner.peak_bytes(part) > memory_limit():
        yield from (inner, few_outputs, ColumnGeneration())  # the first says what it would need
    elif instance.records >= MIN_SPANNER_RECORDS and len(instance.pairs) > DENSE_PAIRS_PER_RECORD * instance.records:
        yield from (FewPairs(inner), inner)
    else:
        if clock().left < math.inf and instance.records > MANY:
            yield few_outputs
        yield from (inner, ColumnGeneration())


def make_ladder(method: str) -> Ladder:
    """Return the ladder that begins with a method and continues only if that method fails.

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
    fallbacks = [solvers[name] for name in METHODS[2:] if name != method]

    def ladder(part: Part, memory_limit: Room) -> Iterator[Solver]:
        yield solvers[method]
        if method == "star" and solvers[method].peak_bytes(part) <= memory_limit():
            if not part.starred:
                raise SolverError("the star does not exist here; use interior-point or column-generation")
            return
        yield from fallbacks

    return ladder


def run_ladder(part: Part, offers: PartOffers, memory_limit: Room, ladder: Ladder, *, only_first: bool = False) -> None:
    """Run the solvers of a ladder one after the other, until the gap is certified and proved.

    Args:
        part: A connected part.
        offers: Receives the offers of the part.
        memory_limit: Returns the bytes that may be allocated. A method that needs more is not started.
        ladder: Yields the solvers.
        only_first: Whether to stop after the first solver that runs to its end.

    Raises:
        OutOfTime: The time limit has come.
        SolverError: The method that was requested by name does not apply.
    """
    best = one_output(part.instance)
    offers.offer(best.method, candidate=best.z, value=best.objective, bound=best.lower_bound, proof=best.multipliers)
    # If the single output is the cheapest one of every record, no mechanism has a lower loss.
    if not (np.einsum("ik,ik->i", part.instance.cost, best.z) > part.instance.cost.min(axis=1)).any():
        offers.note(best.method)
        return
    if clock().left < math.inf and StarSolver().peak_bytes(part) <= memory_limit():
        with clock().share(AT_ONCE):
            quick_bound(part, offers)
    for solver in ladder(part, memory_limit):
        if offers.reached and offers.confirm():
            return
        needed, free_bytes = solver.peak_bytes(part), memory_limit()
        if needed > free_bytes:
            offers.note(f"{solver.name} (needs {needed / GB:.2g} GB of {free_bytes / GB:.2g} left)")
        elif _run_solver(solver, part, offers) and only_first:
            return


def _run_solver(solver: Solver, part: Part, offers: PartOffers) -> bool:
    """Run one solver and note its outcome in the path; return whether it ran to its end."""
    try:
        solver.solve(part, offers)
    except OutOfTime:
        offers.note(f"{solver.name} (the time was over)")
        raise
    except (SolverError, StoppedError, MemoryError, np.linalg.LinAlgError) as fault:
        check()
        offers.note(f"{solver.name} ({str(fault) or 'out of memory'})")
        return False
    except Exception as fault:  # a bug in one solver must not cost the release: the others still run
        offers.note(f"{solver.name} (a fault of it: {fault!r})")
        warnings.warn(f"{solver.name} failed, and the next method went on:\n{traceback.format_exc()}", stacklevel=2)
        return False
    offers.note(solver.name)
    return True


def search(instance: Instance, offers: PartOffers, memory_limit: Room, method: str | Solver | Ladder = "auto") -> None:
    """Reduce an instance and solve its connected parts, each in a share of the time that is proportional to its size.

    Args:
        instance: The whole instance.
        offers: Receives offers for the whole instance.
        memory_limit: Returns the bytes that may be allocated.
        method: One of `METHODS`, a solver, or another ladder.

    Raises:
        OutOfTime: The time limit has come.
        UnknownNameError: There is no such method.
        SolverError: The method that was requested by name does not apply. The message names what to try instead.
    """
    ladder, reduced = _to_ladder(method), ReducedInstance(instance)
    remaining_entries = sum(part.instance.cost.size for part in reduced.parts)
    for part, view in zip(reduced.parts, reduced.views(offers), strict=True):
        with clock().share(part.instance.cost.size / remaining_entries):
            run_ladder(part, view, memory_limit, ladder, only_first=isinstance(method, str) and method != "auto")
        remaining_entries -= part.instance.cost.size
        check()


def _to_ladder(method: str | Solver | Ladder) -> Ladder:
    if isinstance(method, str):
        return make_ladder(method)
    if isinstance(method, Solver):
        single_solver = method
        return lambda part, memory_limit: iter((single_solver,))
    return method


class InDoubles:
    """A certifier that accepts mechanisms in doubles unchecked; the caller repairs and proves them."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    def certify(self, candidate: Floats) -> tuple[float, Floats]:
        """Return the loss of a mechanism, and the mechanism."""
        return self.instance.loss(candidate), candidate

    def prove(self, proof: Multipliers, value: float) -> tuple[float, Multipliers]:
        """Return the bound that multipliers prove in doubles, and the multipliers."""
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
        instance: The problem.
        method: As in :func:`search`.
        gap: Relative gap between loss and lower bound to reach.
        search_time: Time scope of the methods, inside the caller's. None for the caller's own.
        progress: Called with each offer.
        memory: Bytes that may be allocated. A method that needs more is skipped.

    Returns:
        The best mechanism and the best bound. The status is "stopped" if the time limit or an interrupt ended it early.

    Raises:
        UnknownNameError: There is no such method.
        SolverError: The requested method does not apply. The message names what to try instead.
    """
    incumbent: Incumbent[Floats, Multipliers, Floats] = Incumbent(
        InDoubles(instance), gap, noise=instance.noise, progress=progress
    )
    constant = one_output(instance)

    def offer_constant() -> None:
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
        first_offers=[offer_constant],
    )
    bound = -math.inf if answer.bound is None else answer.bound
    reached = instance.reached(answer.value, bound, gap)
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
