"""Select outputs among the records: those that receive the most probability in a rough solution of a sample.

A few outputs lose little if they are well chosen. On 2,032 street nodes of Rome at an epsilon of 3 per km, the loss is
0.5543 with 120 outputs selected in this way, and 0.6097 with 120 outputs that are as far apart as possible. No
mechanism over all 2,032 outputs loses less than 0.5342. The sample only selects outputs; no guarantee and no proof
depends on it.
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

__all__ = ["choose_outputs", "sample_program"]

MAX_SAMPLE_RECORDS: Final = 2_000
"""Largest number of records in the sample."""
MAX_SAMPLE_SHARE: Final = 0.5
"""Largest share of all records in the sample, unless there are more candidates. A sample of half of Rome's 2,032 street
nodes led to outputs as good as all nodes did, in half of the time and memory. (For 120 outputs at 1 and 3 per km, the
lower bounds over either selection agree within 0.03 %.)"""
CANDIDATES: Final = (4, 480, 1_000)
"""Candidates per selected output, and the smallest and largest number of candidates. If more outputs than
`RETRIED_SHARE` of the largest number are to be selected, the records farthest apart are used instead, since hardly any
candidate would be dropped."""
RETRIED_SHARE: Final = 0.5
"""Share of the candidates that is kept in each round. The next round is solved without the others, which changes how
the remaining ones are used."""
SAMPLE_GAP: Final = 0.1
"""Relative gap to which the sample is solved. The ranking of the candidates settles early."""


def choose_outputs(data: MetricData, *, search_time: Clock | None = None, progress: Progress | None = None) -> Ints:
    """Select ``data.choose`` of the records as outputs.

    Args:
        data: A problem whose outputs are chosen (`MetricData.over`).
        search_time: Time scope in which samples are solved. When it expires, the best solution so far is used.
        progress: Called with phase, iteration, lower bound and loss of the sample.

    Returns:
        ``(K,)`` record numbers, in rising order.

    Raises:
        OutOfTime: The caller's time limit has expired.
    """
    assert data.over is not None  # checked by the caller
    assert data.choose is not None
    count, records, output_count = data.choose, len(data.records), len(data.outputs)
    if count == output_count:
        return np.arange(output_count)
    # `tried` candidates compete for the `count` places. If `count` is so large that hardly any candidate would be
    # dropped, only `count` candidates are taken, and no program is solved.
    times, min_tried, max_tried = CANDIDATES
    tried = (
        min(output_count, max(count, min(max_tried, max(min_tried, times * count))))
        if count <= RETRIED_SHARE * max_tried
        else count
    )
    pairs, lengths = data.needed
    # The sampled records, which are far apart. There must be at least `tried` of them.
    seeds = _select_farthest(
        records, pairs, lengths, max(tried, min(MAX_SAMPLE_RECORDS, int(MAX_SAMPLE_SHARE * records)))
    )
    listed = seeds[seeds < output_count]  # a region's further vertices are not outputs
    # The seeds that may be outputs, in the order of selection, then the others: the first `tried` of these.
    candidates = np.sort(np.append(listed, np.setdiff1d(np.arange(output_count), listed))[:tried])
    if tried == count:
        return candidates
    epsilon = Instance.reduce_epsilon(data.epsilon)
    # The sample's records are the seeds, its outputs the candidates. If candidates are dropped later, only its costs
    # change.
    instance, prior = sample_program(data.with_outputs(candidates).weighted, data.prior, pairs, lengths, seeds, epsilon)

    def report(phase: str, iteration: int, lower: float | None, upper: float | None) -> None:
        """Report the progress of the sample's solver, with "choosing outputs" in front of the phase."""
        if progress is not None:
            progress(f"choosing outputs, {phase}", iteration, lower, upper)

    while len(candidates) > count:
        solution = solve(
            instance, method=InteriorPoint(symmetry=False), gap=SAMPLE_GAP, search_time=search_time, progress=report
        )
        # Candidates by their probability under the prior, largest first. The sort is stable, so that of equal ones the
        # first is kept.
        by_use = np.argsort(-(prior @ solution.z), kind="stable")
        del solution  # its multipliers are as large as the costs, and the next solve needs that memory
        selection = np.sort(by_use[: max(count, int(RETRIED_SHARE * len(candidates)))])
        candidates, instance = candidates[selection], evolve(instance, cost=instance.cost[:, selection])
    return candidates


def sample_program(
    weighted: Floats, prior: Floats, pairs: Ints, lengths: Floats, seeds: Ints, epsilon: float
) -> tuple[Instance, Floats]:
    """Return the program of a sample of records, in which each sampled record represents all records nearest to it.

    The records nearest to one sampled record are called its part.

    Args:
        weighted: ``(N, K)`` costs, prior included.
        prior: ``(N,)`` probabilities.
        pairs, lengths: ``(P, 2)`` pairs that imply all others, and their lengths ``(P,)``.
        seeds: ``(M,)`` numbers of the sampled records.
        epsilon: Epsilon of the program.

    Returns:
        The program over the ``M`` sampled records, and the prior ``(M,)`` of their parts. Two sampled records are a
        pair if some pair joins their parts; their distance is the shortest path between them that crosses one such
        pair.
    """
    from scipy.sparse.csgraph import dijkstra

    graph = edge_matrix(len(prior), pairs, lengths, both=True)
    nearest_distances, _, nearest = dijkstra(
        graph, directed=True, indices=seeds, min_only=True, return_predecessors=True
    )
    # The number of each record among the seeds; -1 if it is not one.
    seed_number = np.full(len(prior) + 1, -1)
    seed_number[seeds] = np.arange(len(seeds))
    # Records that no path joins to a seed belong to no part, -1. The extra entry of `seed_number`, -1, is for them.
    part = seed_number[np.where(nearest < 0, len(prior), nearest)]
    part_pairs = np.sort(part[pairs], axis=1)
    # The length of the path from one seed to another that crosses the pair.
    crossing_lengths = nearest_distances[pairs[:, 0]] + lengths + nearest_distances[pairs[:, 1]]
    # Either both records of a pair are joined to a seed, or neither is.
    part_pairs, crossing_lengths = part_pairs[part_pairs[:, 0] >= 0], crossing_lengths[part_pairs[:, 0] >= 0]
    shortest = shortest_rows(part_pairs, crossing_lengths)
    cost, part_prior = np.zeros((len(seeds), weighted.shape[1])), np.zeros(len(seeds))
    np.add.at(cost, part[part >= 0], weighted[part >= 0])
    np.add.at(part_prior, part[part >= 0], prior[part >= 0])
    return Instance(
        cost=cost, pairs=part_pairs[shortest], distances=crossing_lengths[shortest], epsilon=epsilon
    ), part_prior


def _select_farthest(records: int, pairs: Ints, lengths: Floats, count: int) -> Ints:
    """Select records one by one, each as far as possible from those selected before along paths over pairs.

    Record 0 is selected first.

    Args:
        records: N, the number of records.
        pairs, lengths: (P, 2) pairs, and their lengths (P,).
        count: Number of records to select.

    Returns:
        (count,) record numbers, in the order of selection.
    """
    from scipy.sparse.csgraph import dijkstra

    graph = edge_matrix(records, pairs, lengths, both=True)
    min_distances = np.full(records, np.inf)
    selected: Ints = np.empty(count, dtype=np.int64)
    for round_number in range(count):
        seed = int(min_distances.argmax())
        selected[round_number] = seed
        # No record is farther than this limit from its nearest seed, so none beyond the limit changes.
        np.minimum(
            min_distances, dijkstra(graph, directed=True, indices=seed, limit=min_distances[seed]), out=min_distances
        )
        min_distances[seed] = -1.0  # never selected again
    return selected
