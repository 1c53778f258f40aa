"""Show 1 of the step: five hot spots over Rome's street nodes, found from 100,000 reports."""

import csv

import numpy as np
import pytest
from helpers.data import data_path
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from privopt.estimate.shares import EstimateOptions, ReportCounts, estimate
from privopt.interfaces import Channel


def street_distances():
    """(N, N) shortest ways in km between all nodes of the published street file, and their ids."""
    min_lengths = {}
    with data_path("lrgeo_rome", "roma_edges.csv").open() as stream:
        for row in csv.DictReader(stream):
            node_pair = tuple(sorted((row["u"], row["v"])))
            if row["u"] != row["v"]:
                min_lengths[node_pair] = min(min_lengths.get(node_pair, np.inf), float(row["length"]) / 1000)
    nodes = sorted({node for node_pair in min_lengths for node in node_pair}, key=int)
    number_by_node = {node: row for row, node in enumerate(nodes)}
    rows, columns = (np.array([number_by_node[node_pair[end]] for node_pair in min_lengths]) for end in (0, 1))
    return shortest_path(
        csr_array((list(min_lengths.values()), (rows, columns)), shape=(len(nodes),) * 2), directed=False
    ), nodes


@pytest.mark.slow
def test_error_is_at_most_a_quarter_of_the_histogram():
    d, nodes = street_distances()
    assert len(nodes) == 2032
    z = np.exp(-1.5 * d)  # the exponential mechanism at 3 per km
    z /= z.sum(axis=1, keepdims=True)
    rng = np.random.default_rng(0)
    bumps = np.exp(-0.5 * (d[rng.choice(len(d), 5, replace=False)] / 0.4) ** 2)
    truth = rng.dirichlet(np.full(5, 3.0)) @ (bumps / bumps.sum(axis=1, keepdims=True))
    people = rng.multinomial(100_000, truth)
    counts = sum(rng.multinomial(n, z[i]) for i, n in enumerate(people.tolist()) if n)
    channel = Channel(inputs=nodes, outputs=nodes, probabilities=z)
    estimated = estimate(
        [ReportCounts(channel=channel, counts=counts)], EstimateOptions(), rows=lambda i: d[i], unit="km"
    )
    errors = [np.abs(shares - truth).sum() / 2 for shares in (estimated.shares, estimated.reported)]
    assert estimated.gap <= 1e-6
    assert errors[0] <= errors[1] / 4
    assert ((estimated.low <= truth + 1e-15) & (truth <= estimated.high)).all()
