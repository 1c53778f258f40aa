"""Which method for which instance, decided by what was measured (docs/benchmarks.md).

A connected part first tries the star: where its weights are not negative, pricing proves its gap, and
where that is small enough this is the answer. Next comes column generation where the star is a
mechanism (its rays are then near the optimum's), the interior point where it is not. A method that
fails hands over to the other one, and the best mechanism and the best bound of all are kept; where a limit may
come, these begin with what is known within moments (`privopt.metric.optimal.calibrated`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import numpy as np
from attrs import define, evolve, field

from privopt.errors import SolverError, StoppedError, UnknownNameError
from privopt.interfaces import Progress
from privopt.metric.optimal.calibrated import known_at_once
from privopt.metric.optimal.column_generation import solve_column_generation
from privopt.metric.optimal.instance import Instance, Solution
from privopt.metric.optimal.interior_point import interior_point_bytes, solve_interior_point
from privopt.metric.optimal.reduce import solve_by_component
from privopt.metric.optimal.star import Star, make_star, solution_of, solve_star
from privopt.metric.optimal.symmetry import Symmetry, find_symmetry

__all__ = ["METHODS", "interior_point_bytes", "interior_point_fits", "solve"]

METHODS = ("auto", "star", "column-generation", "interior-point")
MEMORY = 8e9
"""The interior point is not begun where its arrays would take more bytes than this."""


def interior_point_fits(instance: Instance) -> bool:
    """Whether the interior point's arrays are small enough to begin it."""
    return interior_point_bytes(instance) <= MEMORY


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

    def take(self, name: str, method: Callable[[], Solution]) -> bool:
        """Try a method; whether it gave a mechanism."""
        self.tried.append(name)
        try:
            found = method()
        except (SolverError, StoppedError, np.linalg.LinAlgError) as fault:
            self.tried[-1] += f" ({fault})"
            return False
        self.stopped = self.stopped or found.status == "stopped"
        self.best = _better(self.best, found)
        return True

    def priced_star(self) -> Solution:
        """The star, and its gap by pricing."""
        self.star = make_star(self.instance, self.symmetry)
        return solution_of(self.instance, self.symmetry, self.star, self.gap, self.deadline, self.progress)

    def known(self) -> Solution:
        """What is known at once."""
        return known_at_once(self.instance, self.symmetry, self.star, self.deadline)

    def result(self) -> Solution:
        """The best of all.

        Raises:
            SolverError: nothing gave a mechanism.
        """
        if self.best is None:
            raise SolverError(f"no method gave a mechanism: {'; '.join(self.tried)}")
        stopped = self.stopped or self.late
        status = "optimal" if self.reached else "stopped" if stopped else "feasible"
        return evolve(self.best, status=status, details={**self.best.details, "path": ", ".join(self.tried)})


_ITERATIVE: Final[dict[str, Callable[..., Solution]]] = {
    "column-generation": solve_column_generation,
    "interior-point": solve_interior_point,
}


def _solve_connected(instance: Instance, gap: float, deadline: float | None, progress: Progress | None) -> Solution:
    """The star, then the iterative methods; before them, where a limit may come, what is known at once."""
    search = _Search(instance, gap, deadline, progress, find_symmetry(instance))
    star, large = search.take("star", search.priced_star), not interior_point_fits(instance)
    if not search.reached and deadline is not None:
        search.take("calibrated-star", search.known)
    names = list(_ITERATIVE) if star or large else list(_ITERATIVE)[::-1]
    for name in names[:1] if large else names:
        if search.reached or search.stopped or search.late:
            break
        search.take(name, partial(_ITERATIVE[name], instance, gap=gap, deadline=deadline, progress=progress))
    if deadline is None and not search.reached:
        search.take("calibrated-star", search.known)
    return search.result()


def _solve_singly(
    method: str, instance: Instance, gap: float, deadline: float | None, progress: Progress | None
) -> Solution:
    """An iterative method asked for by name; where a limit stops it, the better of what it has and what is cheap."""
    search = _Search(instance, gap, deadline, progress, find_symmetry(instance))
    if deadline is not None:
        with suppress(SolverError):  # a singular kernel: the calibrated star does without its prices
            search.star = make_star(instance, search.symmetry)
        search.take("calibrated-star", search.known)
    found = _ITERATIVE[method](instance, gap=gap, deadline=deadline, progress=progress)
    if found.status != "stopped":
        return found
    search.take(method, lambda: found)
    return search.result()


def solve(
    instance: Instance,
    *,
    method: str = "auto",
    gap: float = 1e-6,
    deadline: float | None = None,
    progress: Progress | None = None,
) -> Solution:
    """Solve the optimal-mechanism LP.

    Args:
        instance: the problem.
        method: one of `METHODS`.
        gap: relative gap between loss and lower bound to reach.
        deadline: `time.monotonic` value at which the best mechanism so far is returned.
        progress: called with lower bound, loss, iteration and phase.

    Raises:
        UnknownNameError: no such method.
        SolverError: the method asked for does not apply, or failed.
    """
    if method == "auto":
        return solve_by_component(instance, lambda part: _solve_connected(part, gap, deadline, progress))
    if method == "star":
        return solve_star(instance, gap=gap, deadline=deadline, progress=progress)
    if method not in METHODS:
        raise UnknownNameError("method", method, METHODS)
    return solve_by_component(instance, lambda part: _solve_singly(method, part, gap, deadline, progress))
