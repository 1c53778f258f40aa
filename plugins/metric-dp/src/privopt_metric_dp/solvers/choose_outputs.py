"""Outputs chosen among the records by their use: those to which a loose solve of a sample gives the greatest mass.

Few outputs lose little if they are the right ones. On 2,032 street nodes of Rome at 3 per km, 120 outputs chosen so
lose .5543, 120 as far apart as possible .6097, and no mechanism over all 2,032 less than .5342. The sample only
chooses: nothing that is promised or proved rests on it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from attrs import evolve

from privopt.arrays import Floats, Ints
from privopt.execution.clock import Clock
from privopt.interfaces import Progress
from privopt.numbers.graphs import edge_matrix, shortest_rows
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.solvers.auto import solve
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.interior_point import InteriorPoint

__all__ = ["choose_outputs", "sampled"]

MAX_SAMPLE_RECORDS: Final = 2_000
"""Records of the sample, at most."""
MAX_SAMPLE_SHARE: Final = 0.5
"""Share of all records that a sample is, at most: half of Rome's 2,032 street nodes chose as well as all of them (120
outputs at 1 and 3 per km: bounds over these within .03 %), in half of the time and memory."""
CANDIDATES: Final = (4, 480, 1_000)
"""Outputs that are tried: so many for each that is wanted, but at least and at most so many. Of more than
`RETRIED_SHARE` of the most, hardly any would go: those as far apart as possible are taken."""
RETRIED_SHARE: Final = 0.5
"""Share of the outputs tried that is tried again without the others, which changes what the rest is used for."""
SAMPLE_GAP: Final = 0.1
"""Relative gap to which the sample is solved: masses settle early."""


def choose_outputs(data: MetricData, *, search_time: Clock | None = None, progress: Progress | None = None) -> Ints:
    """Choose ``data.choose`` of the records.

    Args:
        data: of a problem whose outputs are chosen (`MetricData.over`).
        search_time: the scope of time in which samples are solved; the best so far is taken when it is over.
        progress: called with lower bound, loss, iteration and phase, of the sample.

    Returns:
        ``(K,)`` records, in order.

    Raises:
        OutOfTime: the end of the scope around has come.
    """
    assert data.over is not None  # the caller has looked
    assert data.choose is not None
    count, records, own = data.choose, len(data.records), len(data.outputs)
    if count == own:
        return np.arange(own)
    times, least, most = CANDIDATES
    tried = min(own, max(count, min(most, max(least, times * count)))) if count <= RETRIED_SHARE * most else count
    pairs, lengths = data.needed
    seeds = _far_apart(records, pairs, lengths, max(tried, min(MAX_SAMPLE_RECORDS, int(MAX_SAMPLE_SHARE * records))))
    listed = seeds[seeds < own]  # a region's further vertices are not outputs
    candidates = np.sort(np.append(listed, np.setdiff1d(np.arange(own), listed))[:tried])
    if tried == count:
        return candidates
    epsilon = Instance.solved(data.epsilon)
    instance, prior = sampled(data.with_outputs(candidates).weighted, data.prior, pairs, lengths, seeds, epsilon)

    def report(phase: str, iteration: int, lower: float | None, upper: float | None) -> None:
        if progress is not None:
            progress(f"choosing outputs, {phase}", iteration, lower, upper)

    while len(candidates) > count:
        found = solve(
            instance, method=InteriorPoint(symmetry=False), gap=SAMPLE_GAP, search_time=search_time, progress=report
        )
        by_use = np.argsort(-(prior @ found.z), kind="stable")
        del found  # its multipliers are as large as the costs, and the next solve needs that memory
        kept = np.sort(by_use[: max(count, int(RETRIED_SHARE * len(candidates)))])
        candidates, instance = candidates[kept], evolve(instance, cost=instance.cost[:, kept])
    return candidates


def sampled(
    weighted: Floats, prior: Floats, pairs: Ints, lengths: Floats, seeds: Ints, epsilon: float
) -> tuple[Instance, Floats]:
    """Return the program of a sample, in which each record is represented by the nearest of the sample.

    Args:
        weighted: ``(N, K)`` costs, prior included.
        prior: ``(N,)``.
        pairs, lengths: ``(P, 2)``, ``(P,)`` that imply all others.
        seeds: ``(M,)`` the sample.
        epsilon: of the program.

    Returns:
        The program over ``M`` records, whose pairs are those of neighbouring parts at the least length over one pair
        between them; and the prior of the parts.
    """
    from scipy.sparse.csgraph import dijkstra

    graph = edge_matrix(len(prior), pairs, lengths, both=True)
    near, _, nearest = dijkstra(graph, directed=True, indices=seeds, min_only=True, return_predecessors=True)
    place = np.full(len(prior) + 1, -1)
    place[seeds] = np.arange(len(seeds))
    part = place[np.where(nearest < 0, len(prior), nearest)]
    ends = np.sort(part[pairs], axis=1)
    ways = near[pairs[:, 0]] + lengths + near[pairs[:, 1]]
    ends, ways = ends[ends[:, 0] >= 0], ways[ends[:, 0] >= 0]
    kept = shortest_rows(ends, ways)
    cost, share = np.zeros((len(seeds), weighted.shape[1])), np.zeros(len(seeds))
    np.add.at(cost, part[part >= 0], weighted[part >= 0])
    np.add.at(share, part[part >= 0], prior[part >= 0])
    return Instance(cost=cost, pairs=ends[kept], distances=ways[kept], epsilon=epsilon), share


def _far_apart(records: int, pairs: Ints, lengths: Floats, count: int) -> Ints:
    """Return ``count`` records, each as far as possible from those before, by paths over pairs."""
    from scipy.sparse.csgraph import dijkstra

    graph = edge_matrix(records, pairs, lengths, both=True)
    near = np.full(records, np.inf)
    chosen: Ints = np.empty(count, dtype=np.int64)
    for place in range(count):
        seed = int(near.argmax())
        chosen[place] = seed
        np.minimum(near, dijkstra(graph, directed=True, indices=seed, limit=near[seed]), out=near)
        near[seed] = -1.0  # chosen once
    return chosen
