"""Choose as outputs the records that receive the most probability in a rough solution for a sample of records.

A few well-chosen outputs are enough for a loss near the optimum. For 2,032 street nodes in Rome at an epsilon of 3 per
km, the loss is 0.5543 with 120 outputs selected in this way, and 0.6097 with 120 outputs that are as far apart as
possible. No mechanism over all 2,032 outputs has a loss below 0.5342. The sample is only used to select outputs, so no
guarantee or proof depends on it.
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
"""The maximum number of records in the sample."""
MAX_SAMPLE_SHARE: Final = 0.5
"""The largest fraction of all records that the sample may contain, unless there are more candidates.

Sampling half of Rome's 2,032 street nodes led to outputs as good as those found with all nodes, in half the time and
memory. (For 120 outputs at 1 and 3 per km, the lower bounds for the two selections agree to within 0.03 %.)"""
CANDIDATES: Final = (4, 480, 1_000)
"""The number of candidates per selected output, and the minimum and maximum numbers of candidates.

If the number of outputs to select exceeds `RETRIED_SHARE` times that maximum, hardly any candidates would be dropped.
In this case, records that are as far apart as possible are selected instead."""
RETRIED_SHARE: Final = 0.5
"""The fraction of the candidates kept in each round.

The next round's LP has no other outputs, so it shows how much probability these candidates receive once the others are
gone."""
SAMPLE_GAP: Final = 0.1
"""The relative gap at which to stop solving the LP over the sample.

It can be large because the ranking of the candidates settles early."""


def choose_outputs(data: MetricData, *, search_time: Clock | None = None, progress: Progress | None = None) -> Ints:
    """Select ``data.choose`` of the records as outputs.

    Args:
        data: A problem whose outputs are to be chosen (see `MetricData.over`).
        search_time: The clock that limits the time for solving LPs over samples. When it expires, the best solution so
            far is used.
        progress: A function that is called with the phase, the iteration, and the lower bound and loss of the LP over
            the sample.

    Returns:
        Array of shape (K,) with the indices of the selected records in ascending order.

    Raises:
        OutOfTime: The caller's time limit expired.
    """
    assert data.over is not None  # checked by the caller
    assert data.choose is not None
    count, records, output_count = data.choose, len(data.records), len(data.outputs)
    if count == output_count:
        return np.arange(output_count)
    # `tried` candidates compete to be among the `count` outputs. If `count` is so large that hardly any candidate would
    # be dropped, only `count` candidates are taken and no LP is solved.
    times, min_tried, max_tried = CANDIDATES
    tried = (
        min(output_count, max(count, min(max_tried, max(min_tried, times * count))))
        if count <= RETRIED_SHARE * max_tried
        else count
    )
    pairs, lengths = data.needed
    # The seeds are the sampled records, which are far apart. At least `tried` of them are needed.
    seeds = _select_farthest(
        records, pairs, lengths, max(tried, min(MAX_SAMPLE_RECORDS, int(MAX_SAMPLE_SHARE * records)))
    )
    listed = seeds[seeds < output_count]  # a region's further vertices are not outputs
    # Candidates are taken first from the seeds that may be outputs, in the order of selection, and then from other
    # records.
    candidates = np.sort(np.append(listed, np.setdiff1d(np.arange(output_count), listed))[:tried])
    if tried == count:
        return candidates
    epsilon = Instance.reduce_epsilon(data.epsilon)
    # The sample's records are the seeds, and its outputs are the candidates. When candidates are dropped later, only
    # the costs change.
    instance, prior = sample_program(data.with_outputs(candidates).weighted, data.prior, pairs, lengths, seeds, epsilon)

    def report(phase: str, iteration: int, lower: float | None, upper: float | None) -> None:
        """Report the progress of the solver for the sample, prefixing the phase with "choosing outputs"."""
        if progress is not None:
            progress(f"choosing outputs, {phase}", iteration, lower, upper)

    while len(candidates) > count:
        solution = solve(
            instance, method=InteriorPoint(symmetry=False), gap=SAMPLE_GAP, search_time=search_time, progress=report
        )
        # Candidates are sorted by their probability under the prior in descending order. The sort is stable, so the
        # first of several equal ones is kept.
        by_use = np.argsort(-(prior @ solution.z), kind="stable")
        del solution  # its multipliers take as much memory as the costs, which the next solve needs
        selection = np.sort(by_use[: max(count, int(RETRIED_SHARE * len(candidates)))])
        candidates, instance = candidates[selection], evolve(instance, cost=instance.cost[:, selection])
    return candidates


def sample_program(
    weighted: Floats, prior: Floats, pairs: Ints, lengths: Floats, seeds: Ints, epsilon: float
) -> tuple[Instance, Floats]:
    """Return an LP over a sample of records, each of which represents the records nearest to it.

    Args:
        weighted: Array of shape (N, K) with the costs times the prior.
        prior: Array of shape (N,) with the probabilities of the records.
        pairs: Array of shape (P, 2) with pairs that imply all others.
        lengths: Array of shape (P,) with the distances between the records of each pair.
        seeds: Array of shape (M,) with the indices of the sampled records.
        epsilon: The epsilon to use in the LP.

    Returns:
        The LP over the M sampled records, and an array of shape (M,) with the total prior probability of the records
        represented by each of them. Two sampled records form a pair if a pair of the problem connects records that they
        represent. Their distance is the length of the shortest path between them that uses such a pair.
    """
    from scipy.sparse.csgraph import dijkstra

    graph = edge_matrix(len(prior), pairs, lengths, both=True)
    nearest_distances, _, nearest = dijkstra(
        graph, directed=True, indices=seeds, min_only=True, return_predecessors=True
    )
    # The index of each record among the seeds, or -1 if it is not a seed.
    seed_number = np.full(len(prior) + 1, -1)
    seed_number[seeds] = np.arange(len(seeds))
    # If no path joins a record to a seed, the record belongs to no part and gets -1 from the extra last entry of
    # `seed_number`.
    part = seed_number[np.where(nearest < 0, len(prior), nearest)]
    part_pairs = np.sort(part[pairs], axis=1)
    # The length of the path between the two nearest seeds that crosses each pair.
    crossing_lengths = nearest_distances[pairs[:, 0]] + lengths + nearest_distances[pairs[:, 1]]
    # Either both records of a pair are joined to a seed, or neither is, so checking one of them is enough.
    part_pairs, crossing_lengths = part_pairs[part_pairs[:, 0] >= 0], crossing_lengths[part_pairs[:, 0] >= 0]
    shortest = shortest_rows(part_pairs, crossing_lengths)
    cost, part_prior = np.zeros((len(seeds), weighted.shape[1])), np.zeros(len(seeds))
    np.add.at(cost, part[part >= 0], weighted[part >= 0])
    np.add.at(part_prior, part[part >= 0], prior[part >= 0])
    return Instance(
        cost=cost, pairs=part_pairs[shortest], distances=crossing_lengths[shortest], epsilon=epsilon
    ), part_prior


def _select_farthest(records: int, pairs: Ints, lengths: Floats, count: int) -> Ints:
    """Select records one by one, each as far as possible from those already selected.

    Distances are measured along paths of the given pairs. Record 0 is selected first.

    Args:
        records: The number of records, N.
        pairs: Array of shape (P, 2) with pairs of records.
        lengths: Array of shape (P,) with the distances between the records of each pair.
        count: The number of records to select.

    Returns:
        Array of shape (count,) with the indices of the records in the order of selection.
    """
    from scipy.sparse.csgraph import dijkstra

    graph = edge_matrix(records, pairs, lengths, both=True)
    min_distances = np.full(records, np.inf)
    selected: Ints = np.empty(count, dtype=np.int64)
    for round_number in range(count):
        seed = int(min_distances.argmax())
        selected[round_number] = seed
        # No record is farther than this limit from its nearest seed, so a record beyond the limit cannot get nearer to
        # one.
        np.minimum(
            min_distances, dijkstra(graph, directed=True, indices=seed, limit=min_distances[seed]), out=min_distances
        )
        min_distances[seed] = -1.0  # never selected again
    return selected
