"""Column weights: what is drawn with keeps epsilon for every pair and output, by rationals and by brute force."""

from __future__ import annotations

import random
from fractions import Fraction

import flint
import numpy as np
import pytest
from attrs import evolve
from scipy.stats import chisquare

from privopt.errors import UsageError
from privopt_clients.client import open_artefact
from privopt_clients.column_weights import column_weights
from privopt_clients.export import export
from privopt_metric_dp.matrix.release import MatrixRelease


def town(side, seed=0):
    """Pairs and lengths of the streets of a town of side x side crossings."""
    rng = np.random.default_rng(seed)
    number = np.arange(side * side).reshape(side, side)
    pairs = np.concatenate(
        [
            np.column_stack([number[:, :-1].ravel(), number[:, 1:].ravel()]),
            np.column_stack([number[:-1].ravel(), number[1:].ravel()]),
        ]
    )
    return pairs, 0.1 + 0.1 * rng.random(len(pairs))


def street(count):
    """Pairs and lengths along one street: equal sums are possible there."""
    pairs = np.column_stack([np.arange(count - 1), np.arange(1, count)])
    return pairs, 0.1 + 0.1 * np.random.default_rng(1).random(count - 1)


def whole_weights(columns):
    """(N, N) integers, straight from the definition."""
    table = [columns.top]
    for _ in range(columns.longest):
        table.append(-(-table[-1] * columns.factor // 2**64))
    return [
        [int(x) * table[d] for x, d in zip(columns.weights, line, strict=True)] for line in columns.step_counts.tolist()
    ]


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(4), Fraction(20)])
def test_every_inequality_holds_exactly(epsilon):
    """w_ik S_j <= exp(eps d) w_jk S_i, for each pair and output, with balls of 200 bits."""
    pairs, distances = town(5)
    columns = column_weights(pairs, distances, 25, epsilon)
    weights = whole_weights(columns)
    assert [sum(row) for row in weights] == list(columns.sums)
    flint.ctx.prec = 200
    for (i, j), distance in zip(pairs.tolist(), distances.tolist(), strict=True):
        exponent = epsilon * Fraction(distance)
        factor = flint.arb(flint.fmpq(exponent.numerator, exponent.denominator)).exp()
        for k in range(25):
            left_side, right_side = weights[i][k] * columns.sums[j], weights[j][k] * columns.sums[i]
            assert factor * right_side >= left_side
            assert factor * left_side >= right_side


def test_excessive_rate_or_sums_do_not_certify():
    pairs, distances = street(16)
    columns = column_weights(pairs, distances, 16, Fraction(4))
    assert columns.holds(pairs, distances, Fraction(4))
    assert not columns.holds(pairs, distances, Fraction(399, 100))
    faster = evolve(columns, factor=columns.factor - (columns.factor >> 16))
    assert not faster.holds(pairs, distances, Fraction(4))
    sums = list(columns.sums)
    sums[3] -= sums[3] >> 10
    assert not evolve(columns, sums=tuple(sums)).holds(pairs, distances, Fraction(4))


def test_sums_are_equal_where_graph_allows():
    """With equal sums all of epsilon is in the rate, not half of it."""
    columns = column_weights(*street(16), 16, Fraction(4))
    assert max(columns.sums) / min(columns.sums) < 1.0001


def test_unconnected_or_equal_places_have_no_columns():
    pairs = np.array([[0, 1], [2, 3]])
    assert column_weights(pairs, np.ones(2), 4, Fraction(1)) is None
    assert column_weights(pairs[:1], np.zeros(1), 2, Fraction(1)) is None


def test_streets_are_undirected():
    columns = column_weights(np.array([[0, 2], [1, 2]]), np.ones(2), 3, Fraction(1))
    assert columns is not None
    assert columns.step_counts[0, 1] == columns.step_counts[1, 0] == 2 * columns.step_counts[0, 2]


def test_reports_follow_the_weights(export_folders):
    client = open_artefact((export_folders["columns"] / "mechanism.bin").read_bytes())
    source, count = random.Random(3), 20_000
    probabilities = client_probabilities(client, 12)
    observed = np.zeros(len(client.ids))
    for _ in range(count):
        report = client.report_from(client.ids[12], source.randbytes(client.entropy))
        observed[client.ids.index(report["id"])] += 1
    expected = probabilities * count
    often = expected >= 5
    observed, expected = (np.append(x[often], x[~often].sum()) for x in (observed, expected))
    assert chisquare(observed[expected > 0], expected[expected > 0]).pvalue > 1e-6


def client_probabilities(client, row):
    """From what the client reads, by shortest ways of another library."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    part = client._mechanism
    edges = [(a, b, length) for a, neighbours in enumerate(part._after) for b, length in neighbours]
    tails, heads, steps = map(np.array, zip(*edges, strict=True))
    graph = csr_array((steps.astype(float), (tails, heads)), shape=(len(client.ids),) * 2)
    table = np.array(part._table, dtype=float)
    weights = np.array(part._weights) * table[dijkstra(graph, indices=row).astype(int)]
    return weights / weights.sum()


def test_price_on_streets_is_small_and_stated(releases, tmp_path):
    exported = export(releases["streets"], tmp_path / "columns", form="columns", allow_larger_loss=True)
    release = MatrixRelease.read_without_problem(releases["streets"])
    assert exported.form == "columns"
    assert 0 <= exported.price < 0.2 * exported.loss, (exported.price, exported.loss, release.weights.shape)
    assert "one weight" in exported.notes[0]


def test_uses_column_weights_if_rows_do_not_fit(releases, tmp_path):
    exported = export(releases["streets"], tmp_path / "few", max_bytes=8 * 25 * 3, allow_larger_loss=True)
    assert exported.form == "columns"
    assert exported.size < 3_000


def test_too_many_pairs_make_no_graph(releases, tmp_path, monkeypatch):
    monkeypatch.setattr("privopt_clients.export.MAX_EDGES_PER_RECORD", 1)
    with pytest.raises(UsageError, match="column weights"):
        export(releases["words"], tmp_path / "columns", form="columns", allow_larger_loss=True)
