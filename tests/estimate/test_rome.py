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
    least = {}
    with data_path("lrgeo_rome", "roma_edges.csv").open() as stream:
        for row in csv.DictReader(stream):
            ends = tuple(sorted((row["u"], row["v"])))
            if row["u"] != row["v"]:
                least[ends] = min(least.get(ends, np.inf), float(row["length"]) / 1000)
    nodes = sorted({node for ends in least for node in ends}, key=int)
    place = {node: row for row, node in enumerate(nodes)}
    rows, columns = (np.array([place[ends[side]] for ends in least]) for side in (0, 1))
    return shortest_path(
        csr_array((list(least.values()), (rows, columns)), shape=(len(nodes),) * 2), directed=False
    ), nodes


@pytest.mark.slow
def test_a_quarter_of_the_histograms_error_at_most():
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
    found = estimate([ReportCounts(channel=channel, counts=counts)], EstimateOptions(), rows=lambda i: d[i], unit="km")
    off = [np.abs(shares - truth).sum() / 2 for shares in (found.shares, found.reported)]
    assert found.gap <= 1e-6
    assert off[0] <= off[1] / 4
    assert ((found.low <= truth + 1e-15) & (truth <= found.high)).all()
