"""Which method for which instance, decided by what was measured (docs/benchmarks.md).

A connected part first tries the star: where its weights are not negative, pricing proves its gap, and
where that is small enough this is the answer. Next comes column generation where the star is a
mechanism (its rays are then near the optimum's), the interior point where it is not. A method that
fails hands over to the other one, and the best mechanism and the best bound of all are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from attrs import evolve

from privopt.errors import SolverError, StoppedError, UnknownNameError
from privopt.metric.optimal.blocks import make_layout
from privopt.metric.optimal.column_generation import solve_column_generation
from privopt.metric.optimal.instance import Instance, Progress, Solution
from privopt.metric.optimal.interior_point import solve_interior_point
from privopt.metric.optimal.reduce import solve_by_component
from privopt.metric.optimal.star import solve_star

__all__ = ["METHODS", "interior_point_bytes", "interior_point_fits", "solve"]

METHODS = ("auto", "star", "column-generation", "interior-point")
MEMORY = 8e9
"""The interior point is not begun where its arrays would take more bytes than this."""


def interior_point_bytes(instance: Instance) -> float:
    """About how much memory the interior point takes, symmetry not counted."""
    width = np.diff(make_layout(instance).bounds).astype(float)
    factors = float((width**2).sum()) * 3
    return 8.0 * instance.outputs * (14 * len(instance.pairs) * 2 + factors)


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


def _solve_connected(instance: Instance, gap: float, deadline: float | None, progress: Progress | None) -> Solution:
    tried: list[str] = []
    best: Solution | None = None
    plan: list[tuple[str, Callable[..., Solution]]] = [("star", solve_star)]
    while plan:
        name, method = plan.pop(0)
        if best is not None and deadline is not None and time.monotonic() >= deadline:
            break
        tried.append(name)
        try:
            answer = method(instance, gap=gap, deadline=deadline, progress=progress)
        except (SolverError, np.linalg.LinAlgError) as fault:
            tried[-1] += f" ({fault})"
            answer = None
        if name == "star":
            large = not interior_point_fits(instance)
            column = ("column-generation", solve_column_generation)
            inner = ("interior-point", solve_interior_point)
            plan = [column, inner] if answer is not None or large else [inner, column]
            plan = plan[:1] if large else plan
        if answer is not None:
            best = _better(best, answer)
            if instance.reached(best.objective, best.lower_bound, gap) or answer.status == "stopped":
                break
    if best is None:
        raise StoppedError(f"no method gave a mechanism: {'; '.join(tried)}")
    done = instance.reached(best.objective, best.lower_bound, gap)
    status = "optimal" if done else "stopped" if best.status == "stopped" else "feasible"
    return evolve(best, status=status, details={**best.details, "path": ", ".join(tried)})


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
        StoppedError: no method gave a mechanism in time.
    """
    keywords = {"gap": gap, "deadline": deadline, "progress": progress}
    single: dict[str, Callable[..., Solution]] = {
        "star": solve_star,
        "column-generation": solve_column_generation,
        "interior-point": solve_interior_point,
    }
    if method == "auto":
        return solve_by_component(instance, lambda part: _solve_connected(part, gap, deadline, progress))
    if method not in single:
        raise UnknownNameError("method", method, METHODS)
    return single[method](instance, **keywords)
