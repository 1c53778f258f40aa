"""Programs with more outputs than memory or time allow: few of them at first, the others by their prices.

Any output may be left out: what remains is a mechanism for all records. A sample by farthest points costs little (400
cells of Rome at epsilon 1 with a quarter of the cells .9377 for .9156 with all; the optimum itself puts 99 % of its
mass on 173 outputs). The bound has to speak of all outputs: all are priced by network simplex at the prices of the
records (`privopt_metric_dp.solvers.tree_pricing`); those priced worst join the next round. Gaps there were 20, 9.6, 2.7
and .4 % over four rounds.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

import numpy as np
from attrs import evolve

from privopt.arrays import Floats, Ints
from privopt.errors import StoppedError
from privopt.interfaces import Progress
from privopt_metric_dp.solvers.components import solve_by_component
from privopt_metric_dp.solvers.instance import Instance, Solution, dual_bound, one_output
from privopt_metric_dp.solvers.interior_point import interior_point_bytes, solve_interior_point
from privopt_metric_dp.solvers.path_graph import make_graph
from privopt_metric_dp.solvers.star import GRACE, price_all, proof, star_trees
from privopt_metric_dp.solvers.symmetry import Symmetry

__all__ = ["few_outputs_bytes", "most_outputs", "sample_outputs", "solve_few_outputs"]

SHARE: Final = 0.25
"""Outputs of the first round, of all."""
JOIN: Final = 0.5
"""Outputs that join, at most, of those at hand."""
PRICING: Final = 0.4
"""Share of the time left that pricing may take in a round."""
PIVOTS: Final = 2_000
"""An output is priced by so many pivots, at most."""


def sample_outputs(instance: Instance, count: int) -> Ints:
    """So many outputs, each as far as can be from those before: by the sum over records of the difference in cost.

    The loss rises by no more when one output takes the other's place. The first is the cheapest for all.
    """
    cost = instance.cost
    chosen = [int(cost.sum(axis=0).argmin())]
    near = np.abs(cost - cost[:, chosen]).sum(axis=0)
    while len(chosen) < min(count, instance.outputs):
        chosen.append(int(near.argmax()))
        near = np.minimum(near, np.abs(cost - cost[:, chosen[-1:]]).sum(axis=0))
    return np.unique(chosen)


def few_outputs_bytes(instance: Instance, count: int) -> float:
    """About how much memory a round takes: its program, and the trees and rays of all outputs."""
    part = evolve(instance, cost=instance.cost[:, : min(count, instance.outputs)])
    return interior_point_bytes(part) + 8.0 * 7 * instance.cost.size


def most_outputs(instance: Instance, memory: float) -> int:
    """How many outputs a round may have that takes no more bytes than `memory`; 0 where not even 8 fit."""
    if memory == np.inf:
        return instance.outputs
    few, many = (few_outputs_bytes(instance, count) for count in (8, 16))
    if few > memory:
        return 0
    return min(instance.outputs, 8 * (1 + int((memory - few) / max(many - few, 1.0))))


def _solve_connected(
    instance: Instance,
    count: int | None,
    gap: float,
    deadline: float | None,
    progress: Progress | None,
    threads: int | None,
    memory: float,
) -> Solution:
    began, best, most = time.monotonic(), one_output(instance, "few-outputs"), most_outputs(instance, memory)
    trajectory: list[tuple[float, float, float]] = []
    chosen = sample_outputs(instance, count or max(2, int(np.ceil(SHARE * instance.outputs))))
    status, rounds = "feasible", 0
    while True:
        part, until = evolve(instance, cost=instance.cost[:, chosen]), deadline
        if deadline is not None:
            until = deadline - PRICING * (deadline - time.monotonic())

        def tell(phase: str, iteration: int, _lower: float | None, upper: float | None, known: Solution = best) -> None:
            if progress is not None:
                least = known.objective if upper is None else min(upper, known.objective)
                progress(f"few outputs, {phase}", iteration, known.lower_bound, least)

        found = solve_interior_point(part, gap=gap / 4, deadline=until, progress=tell, threads=threads)
        rounds += 1
        interrupted = found.status == "stopped" and (until is None or time.monotonic() < until)
        if found.objective < best.objective:
            z = np.zeros(instance.cost.shape)
            z[:, chosen] = found.z
            best = evolve(best, z=z, objective=found.objective)
        best, values = _priced(instance, best, part, found, deadline)
        trajectory.append((time.monotonic() - began, best.lower_bound, best.objective))
        if instance.reached(best.objective, best.lower_bound, gap):
            status = "optimal"
            break
        if interrupted or (deadline is not None and time.monotonic() >= deadline):
            status = "stopped"
            break
        values[chosen] = 0.0
        new = np.argsort(values)[: max(0, min(max(1, int(JOIN * len(chosen))), most - len(chosen)))]
        new = new[values[new] < 0]
        if not len(new):
            break
        chosen = np.union1d(chosen, new)
    details = {"outputs": len(chosen), "of": instance.outputs}
    return evolve(best, status=status, iterations=rounds, trajectory=tuple(trajectory), details=details)


def _priced(
    instance: Instance, best: Solution, part: Instance, found: Solution, deadline: float | None
) -> tuple[Solution, Floats]:
    """The best so far with the bound that the program's prices prove over all outputs, and their values ``(K,)``.

    Where pricing does not end in time, by shortest-path trees without a pivot; the values are then those of the roots.
    """
    assert found.multipliers is not None  # the interior point always has some
    prices = dual_bound(part, found.multipliers)[1]
    graph, whole = make_graph(instance), Symmetry.trivial(instance)
    reduced = instance.cost - prices[:, None]
    trees = star_trees(graph, reduced.argmin(axis=0))
    values = reduced.min(axis=0)
    with suppress(StoppedError):
        values = price_all(graph, instance, prices, trees, most=PIVOTS, deadline=deadline).value
    until = None if deadline is None else max(deadline, time.monotonic() + GRACE)
    multipliers = proof(instance, whole, prices, trees, deadline=until)
    bound, _ = dual_bound(instance, multipliers)
    if bound > best.lower_bound:
        best = evolve(best, lower_bound=min(bound, best.objective), multipliers=multipliers)
    return best, values


def solve_few_outputs(
    instance: Instance,
    *,
    count: int | None = None,
    gap: float = 1e-2,
    deadline: float | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
    memory: float = np.inf,
) -> Solution:
    """Solve with few outputs by the interior point, price all, and go on with those that are missed.

    Args:
        instance: the problem.
        count: outputs of the first round; a quarter of all where None.
        gap: relative gap to stop at.
        deadline: `time.monotonic` value at which the best so far is returned.
        progress: called with lower bound, loss, iteration and phase.
        threads: workers of the interior point.
        memory: bytes; no outputs join that would make a round take more.
    """
    return solve_by_component(
        instance,
        lambda part: _solve_connected(part, count, gap, deadline, progress, threads, memory),
        gap,
        deadline=deadline,
    )
