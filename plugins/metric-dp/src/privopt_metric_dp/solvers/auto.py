"""Which method for which instance, decided by what was measured (docs/benchmarks.md).

A connected part first tries the star: where its weights are not negative, pricing proves its gap, and
where that is small enough this is the answer. Next comes column generation where the star is a
mechanism (its rays are then near the optimum's), the interior point where it is not, over a spanner first where most
pairs are required. What does not fit into memory is solved with few outputs. A method that
fails hands over to the other one, and the best mechanism and the best bound of all are kept; where a limit may
come, these begin with what is known within moments (`privopt_metric_dp.solvers.quick_star`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial

import numpy as np
from attrs import define, evolve, field

from privopt.errors import SolverError, StoppedError, UnknownNameError
from privopt.execution.limits import allowed_threads, ending_at
from privopt.interfaces import Progress
from privopt_metric_dp.solvers.column_generation import solve_column_generation
from privopt_metric_dp.solvers.components import solve_by_component
from privopt_metric_dp.solvers.few_outputs import few_outputs_bytes, most_outputs, solve_few_outputs
from privopt_metric_dp.solvers.instance import Instance, Solution
from privopt_metric_dp.solvers.interior_point import (
    interior_point_bytes,
    interior_point_seconds,
    solve_interior_point,
)
from privopt_metric_dp.solvers.quick_star import known_at_once
from privopt_metric_dp.solvers.spanner import solve_spanner
from privopt_metric_dp.solvers.star import Star, make_star, solution_of, solve_star
from privopt_metric_dp.solvers.symmetry import Symmetry, find_symmetry

__all__ = ["METHODS", "column_generation_bytes", "solve", "star_bytes"]

METHODS = ("auto", "star", "column-generation", "interior-point")
SCATTERED = 100
"""Records from which on a spanner of all pairs is worth its making."""
DENSE = 12
"""Pairs a record beyond which few of them imply the others: a spanner's program comes first."""
MEMORY = 8e9
"""What a caller who says nothing of memory is taken to have: nothing that would take more bytes is begun."""


def star_bytes(instance: Instance) -> float:
    """About how much memory the star and its proof take."""
    return 8.0 * (5 * instance.records**2 + 5 * instance.records * instance.outputs)


def column_generation_bytes(instance: Instance) -> float:
    """About how much memory column generation takes: the star's kernel and trees, and several rays a record."""
    return star_bytes(instance) + 8.0 * 6 * instance.records**2


def _better(first: Solution | None, second: Solution) -> Solution:
    """Mechanism of the better one, bound and multipliers of the one with the better bound."""
    if first is None:
        return second
    low, high = (first, second) if first.objective <= second.objective else (second, first)
    bound = low if low.lower_bound >= high.lower_bound else high
    return evolve(
        low,
        lower_bound=bound.lower_bound,
        multipliers=bound.multipliers,
        details={**low.details, "bound_from": bound.method},
    )


@define(eq=False)
class _Search:
    """Methods tried on one connected part, and the best of what they gave."""

    instance: Instance
    gap: float
    deadline: float | None
    progress: Progress | None
    symmetry: Symmetry
    memory: float = MEMORY
    star: Star | None = None
    best: Solution | None = None
    stopped: bool = False
    tried: list[str] = field(factory=list)

    @property
    def late(self) -> bool:
        """Whether the limit has come."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def reached(self) -> bool:
        """Whether the best mechanism and the best bound are near enough."""
        best = self.best
        return best is not None and self.instance.reached(best.objective, best.lower_bound, self.gap)

    def take(self, name: str, method: Callable[[], Solution], needed: float = 0.0) -> bool:
        """Try a method that takes so many bytes, where there are so many; whether it gave a mechanism."""
        if needed > self.memory:
            self.tried.append(f"{name} (needs {needed / 1e9:.2g} GB of {self.memory / 1e9:.2g} left)")
            return False
        self.tried.append(name)
        try:
            found = method()
        except MemoryError:
            self.tried[-1] += " (out of memory)"
            return False
        except (SolverError, StoppedError, np.linalg.LinAlgError) as fault:
            self.tried[-1] += f" ({fault})"
            return False
        except KeyboardInterrupt:
            self.tried[-1] += " (interrupted)"
            self.stopped = True
            self.deadline = None if self.deadline is None else time.monotonic()  # what still comes takes moments
            return False
        self.stopped = self.stopped or found.status == "stopped"
        self.best = _better(self.best, found)
        return True

    def priced_star(self) -> Solution:
        """The star, and its gap by pricing."""
        with ending_at(self.deadline):
            self.star = make_star(self.instance, self.symmetry)
        return solution_of(self.instance, self.symmetry, self.star, self.gap, self.deadline, self.progress)

    def known(self) -> Solution:
        """What is known at once."""
        return known_at_once(self.instance, self.symmetry, self.star, self.deadline)

    def result(self) -> Solution:
        """The best of all.

        Raises:
            KeyboardInterrupt: nothing gave a mechanism before an interrupt came.
            SolverError: nothing gave a mechanism.
        """
        if self.best is None and self.stopped:
            raise KeyboardInterrupt
        if self.best is None:
            raise SolverError(f"no method gave a mechanism: {'; '.join(self.tried)}")
        stopped = self.stopped or self.late
        status = "optimal" if self.reached else "stopped" if stopped else "feasible"
        return evolve(self.best, status=status, details={**self.best.details, "path": ", ".join(self.tried)})


Before = Callable[[], float | None]
"""Called before a long method begins, as often as one does; gives the deadline from then on."""


Needed = Callable[[Instance], float]


def _long_methods(memory: float, whole: Needed) -> dict[str, tuple[Callable[..., Solution], Needed]]:
    """By name: the method, and the bytes that it takes; `whole` are those of the interior point."""
    return {
        "column-generation": (solve_column_generation, column_generation_bytes),
        "interior-point": (solve_interior_point, whole),
        "spanner": (partial(solve_spanner, memory=memory), whole),  # its programs take less
        "few-outputs": (partial(_few_outputs, memory=memory), lambda instance: few_outputs_bytes(instance, 8)),
    }


def _few_outputs(
    instance: Instance, *, memory: float, gap: float, deadline: float | None, progress: Progress | None
) -> Solution:
    """As many outputs as there is room for, a quarter of all at most."""
    count = min(most_outputs(instance, memory), -(-instance.outputs // 4))
    return solve_few_outputs(instance, count=count, gap=gap, deadline=deadline, progress=progress, memory=memory)


def _order(instance: Instance, memory: float, whole: Needed, *, star: bool) -> tuple[str, ...]:
    """The long methods of ``auto``, best first."""
    if star:
        return "column-generation", "interior-point"
    if whole(instance) > memory:
        return "interior-point", "few-outputs", "column-generation"  # the first to say what it would need
    return ("spanner", "interior-point") if _dense(instance) else ("interior-point", "column-generation")


def _dense(instance: Instance) -> bool:
    """Whether a spanner of the pairs is worth its making."""
    return instance.records >= SCATTERED and len(instance.pairs) > DENSE * instance.records


def _too_slow(search: _Search, name: str) -> bool:
    """Whether the interior point over all pairs would not end in what is left of the time, where a spanner's may."""
    if name != "interior-point" or search.deadline is None or not _dense(search.instance):
        return False
    needed = interior_point_seconds(search.symmetry.reduced(search.instance), search.gap, threads=allowed_threads())
    left = search.deadline - time.monotonic()
    if needed <= left:
        return False
    search.tried.append(f"{name} (needs about {needed:.2g} s of {max(0.0, left):.2g} left)")
    return True


def _solve_connected(search: _Search, before: Before | None, names: tuple[str, ...] | None) -> Solution:
    """The star, then what is known at once where a limit may come, then the long methods.

    Args:
        search: with nothing tried yet.
        before: see `Before`.
        names: the long methods to begin with, where they were asked for; None for the order that fits the star.
    """
    instance = search.instance
    star = search.take("star", search.priced_star, star_bytes(instance)) if names is None else False
    if not search.reached and search.deadline is not None:
        if names is not None and star_bytes(instance) <= search.memory:
            with (
                suppress(SolverError, StoppedError),
                ending_at(search.deadline),
            ):  # a singular kernel: the calibrated star does without its prices
                search.star = make_star(instance, search.symmetry)
        search.take("calibrated-star", search.known, star_bytes(instance))
    whole = cache(interior_point_bytes)
    methods = _long_methods(search.memory, whole)
    for name in names or _order(instance, search.memory, whole, star=star):
        if search.reached or search.stopped or search.late:
            break
        takes = methods[name][1](instance)
        if before is not None and takes <= search.memory:
            search.deadline = before()
        slow = _too_slow(search, name)
        if slow and names is None:
            search.stopped = True
            continue
        chosen = "spanner" if slow else name
        options = {"gap": search.gap, "deadline": search.deadline, "progress": search.progress}
        search.take(chosen, partial(methods[chosen][0], instance, **options), takes)
        if names is not None and search.best is not None and search.best.method == chosen:
            break  # asked for by name: the others only where it could not be had
    if search.deadline is None and not search.reached and (names is None or search.best is None):
        search.take("calibrated-star", search.known, star_bytes(instance))
    return search.result()


def solve(
    instance: Instance,
    *,
    method: str = "auto",
    gap: float = 1e-6,
    deadline: float | None = None,
    progress: Progress | None = None,
    memory: float = MEMORY,
    before: Before | None = None,
) -> Solution:
    """Solve the optimal-mechanism LP.

    Args:
        instance: the problem.
        method: one of `METHODS`.
        gap: relative gap between loss and lower bound to reach.
        deadline: `time.monotonic` value at which the best mechanism so far is returned.
        progress: called with lower bound, loss, iteration and phase.
        memory: bytes that may be taken; a method that would take more is not begun, but the next of the ladder.
        before: called before a long method begins; gives the deadline from then on.

    Raises:
        UnknownNameError: no such method.
        SolverError: the method asked for does not apply, or failed; what to try next is named.
    """
    if method not in METHODS:
        raise UnknownNameError("method", method, METHODS)
    if method == "star" and star_bytes(instance) <= memory:
        return solve_star(instance, gap=gap, deadline=deadline, progress=progress)
    long = ("column-generation", "interior-point")
    names = None if method == "auto" else (method, *(name for name in long if name != method))
    if method == "star":
        names = long

    interrupted = False

    def part(connected: Instance) -> Solution:
        nonlocal interrupted
        until = time.monotonic() if interrupted else deadline  # an interrupt holds for the parts after it
        search = _Search(connected, gap, until, progress, find_symmetry(connected, deadline=until), memory)
        found = _solve_connected(search, before, names)
        interrupted = interrupted or search.stopped
        return found

    return solve_by_component(instance, part, gap, deadline=deadline)
