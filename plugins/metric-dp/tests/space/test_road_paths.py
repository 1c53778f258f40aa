"""Shortest paths over roads, against scipy's and networkx's own."""

from __future__ import annotations

import csv
from fractions import Fraction
from typing import Any

import networkx as nx
import numpy as np
import pytest
from helpers.data import data_path
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from privopt.errors import InputError
from privopt_metric_dp.problem.loss_kinds import travel_cost
from privopt_metric_dp.space.pairs import needed_pairs, not_implied, reduce_pairs, required_pairs
from privopt_metric_dp.space.places import Space
from privopt_metric_dp.space.road_metric import RoadMetric
from privopt_metric_dp.space.roads import Roads


def plain_space(ids: Any) -> Space:
    return Space(ids=ids)


def scipy_table(roads: Roads, tails: list[str], heads: list[str], km: np.ndarray, *, directed: bool) -> np.ndarray:
    """All shortest paths by scipy from the edges as they are in the file."""
    number = {name: index for index, name in enumerate(roads.nodes)}
    best: dict[tuple[int, int], float] = {}
    for a, b, length in zip(tails, heads, km.tolist(), strict=True):
        for edge in [(number[a], number[b])] + ([] if directed else [(number[b], number[a])]):
            best[edge] = min(best.get(edge, np.inf), length)
    row, col = np.array(list(best)).T
    return np.asarray(dijkstra(csr_array((list(best.values()), (row, col)), shape=(len(number),) * 2)))


@pytest.fixture(scope="module")
def cells() -> tuple[list[str], list[str], np.ndarray]:
    """Rome's published cell graph: 1331 cells, 4764 undirected edges, km."""
    with data_path("lrgeo_rome", "reget_rome_cost_thrhold_2.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [r["u"] for r in rows], [r["v"] for r in rows], np.array([float(r["length"]) for r in rows])


@pytest.fixture(scope="module")
def rome99() -> tuple[list[str], list[str], np.ndarray]:
    with data_path("rome99", "rome99.gr").open() as file:
        rows = [line.split() for line in file if line.startswith("a")]
    return [r[1] for r in rows], [r[2] for r in rows], np.array([float(r[3]) for r in rows])


def test_rome_cells_match_scipy(cells: tuple[list[str], list[str], np.ndarray]) -> None:
    roads = Roads(*cells)
    metric = RoadMetric(roads, plain_space(roads.nodes))
    table = metric.table()
    assert roads.exact
    assert (table == table.T).all()
    np.testing.assert_allclose(table, scipy_table(roads, *cells, directed=False), rtol=1e-13)
    pairs, distances = required_pairs(metric)
    assert (distances == table[pairs[:, 0], pairs[:, 1]]).all()
    needed_rows, lengths = needed_pairs(metric, lambda: (pairs, distances))
    assert len(needed_rows) == 4764  # each published edge is the only shortest way between its ends
    assert len(not_implied(needed_rows, lengths, pairs, distances)) == 0


def test_one_way_travel_is_independent_of_batch() -> None:
    """Sums of doubles depend on the end that a search starts from, and a record's own cost must be 0 exactly."""
    rng = np.random.default_rng(3)
    tails, heads = rng.integers(60, size=(2, 400))
    is_distinct = tails != heads
    names = [f"n{number}" for number in range(60)]
    around = np.arange(60), (np.arange(60) + 1) % 60
    tails, heads = np.concatenate([around[0], tails[is_distinct]]), np.concatenate([around[1], heads[is_distinct]])
    roads = Roads([names[t] for t in tails], [names[h] for h in heads], rng.uniform(0.1, 3, len(tails)), directed=True)
    targets = names[:20]
    assert (roads.travel(names, targets)[:7] == roads.travel(names[:7], targets)).all()


def test_travel_cost_of_rome_matches_definition(cells: tuple[list[str], list[str], np.ndarray]) -> None:
    roads = Roads(*cells)
    rng = np.random.default_rng(0)
    records, targets = rng.permutation(len(roads))[:60], rng.permutation(len(roads))[:200]
    weights = rng.uniform(0, 1, 200)
    names = np.array(roads.nodes)
    travel = roads.travel(names[records], names[targets])
    table = scipy_table(roads, *cells, directed=False)
    np.testing.assert_allclose(travel, table[records][:, targets], rtol=1e-13)
    cost = travel_cost(travel, None, weights)
    differences = np.abs(table[records][:, None, targets] - table[records][None][:, :, targets])
    np.testing.assert_allclose(cost, (differences * weights).sum(axis=2) / weights.sum(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("directed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_rome99_matches_scipy_to_the_bit(rome99: tuple[list[str], list[str], np.ndarray], directed: bool) -> None:
    roads = Roads(*rome99, directed=directed)
    table = scipy_table(roads, *rome99, directed=directed)
    node_names = np.array(roads.nodes)[np.random.default_rng(1).permutation(len(roads))[:300]]
    places = roads.positions(node_names)
    assert (roads.travel(node_names, node_names) == table[np.ix_(places, places)]).all()
    assert (roads.travel(node_names[:20], node_names) == table[np.ix_(places[:20], places)]).all()
    if not directed:
        metric = RoadMetric(roads, plain_space(node_names))
        assert (metric.table() == table[np.ix_(places, places)]).all()
        i, j = np.triu_indices(len(node_names), 1)
        assert (metric.between(j, i) == table[places[i], places[j]]).all()
        limit = float(np.median(metric.between(i, j)))
        pairs, distances = required_pairs(metric, limit)
        is_near = table[places[i], places[j]] <= limit
        assert (pairs == np.column_stack([i, j])[is_near]).all()
        assert (distances == table[places[i], places[j]][is_near]).all()


def test_one_way_streets_of_rome_match_scipy() -> None:
    with data_path("lrgeo_rome", "roma_edges.csv").open() as file:
        rows = list(csv.DictReader(file))
    tails, heads = [r["u"] for r in rows], [r["v"] for r in rows]
    km = np.array([float(r["length"]) / 1000 for r in rows])
    two_way_rows = [n for n, r in enumerate(rows) if r["oneway"] == "False"]
    tails, heads = tails + [heads[n] for n in two_way_rows], heads + [tails[n] for n in two_way_rows]
    km = np.concatenate([km, km[two_way_rows]])
    roads = Roads(tails, heads, km, directed=True)
    table = scipy_table(roads, tails, heads, km, directed=True)
    node_numbers = np.random.default_rng(2).permutation(len(roads))[:150]
    names = np.array(roads.nodes)[node_numbers]
    lengths, expected = roads.travel(names, names), table[np.ix_(node_numbers, node_numbers)]
    np.testing.assert_allclose(lengths, expected, rtol=1e-12)
    assert np.isinf(expected).any()
    assert (expected != expected.T).any()


# decimals of metres: sums in doubles depend on their order
length = st.integers(0, 5000).map(lambda metres: metres / 1000)


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[str], list[str], np.ndarray]:
    n = draw(st.integers(2, 9))
    node = st.integers(0, n - 1).map(str)
    edges = draw(st.lists(st.tuples(node, node, length), min_size=1, max_size=25))
    return [e[0] for e in edges], [e[1] for e in edges], np.array([e[2] for e in edges])


@settings(max_examples=60)
@given(networks(), st.data())
def test_small_networks_match_networkx(edges: tuple[list[str], list[str], np.ndarray], data: st.DataObject) -> None:
    roads = Roads(*edges)
    graph = nx.Graph()
    graph.add_nodes_from(roads.nodes)
    for a, b, km in zip(*edges, strict=True):
        if not graph.has_edge(a, b) or graph[a][b]["weight"] > km:
            graph.add_edge(a, b, weight=float(km))
    ways = dict(nx.all_pairs_dijkstra_path_length(graph))
    chosen_nodes = data.draw(st.lists(st.sampled_from(roads.nodes), min_size=1, unique=True))
    metric = RoadMetric(roads, plain_space(chosen_nodes))
    table = metric.table()
    expected = np.array([[ways[a].get(b, np.inf) for b in chosen_nodes] for a in chosen_nodes])
    assert table == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert (table == table.T).all()
    assert (table[:, :, None] + table[None] >= table[:, None]).all()  # the triangle inequality, to the bit
    pairs, distances = required_pairs(metric)
    assert np.isfinite(distances).all()
    limit = data.draw(st.one_of(st.none(), st.sampled_from([0.0, 1.0, *distances.tolist()])))
    pairs, distances = required_pairs(metric, limit)
    needed_rows, lengths = needed_pairs(metric, lambda: (pairs, distances), within=limit)
    assert (lengths == metric.between(*needed_rows.T)).all()
    assert len(not_implied(needed_rows, lengths, pairs, distances)) == 0
    if (distances > 0).all():
        assert (needed_rows == pairs[reduce_pairs(pairs, distances)]).all()


def test_keeps_lengths_too_different_for_sums() -> None:
    roads = Roads(["a", "b", "c"], ["b", "c", "d"], [1e-9, 0.3, 1e6 + 0.1])
    metric = RoadMetric(roads, plain_space(["d", "a", "c", "b"]))
    assert not roads.exact
    assert metric.implying() is None
    table = metric.table()
    assert (table == table.T).all()
    assert metric.to_outputs().tolist() == table.tolist()
    for i, j, km in ((3, 1, [1e-9]), (1, 2, [1e-9, 0.3]), (1, 0, [1e-9, 0.3, 1e6 + 0.1])):
        exact, pair_lengths = sum(map(Fraction, km)), metric.between(i, j)
        # less what rounding can have added
        assert exact * (1 - Fraction(1, 10**14)) < Fraction(float(pair_lengths)) < exact
        assert Fraction(float(metric.upper_distances(pair_lengths))) >= exact
    pairs, distances = required_pairs(metric, 1.0)
    assert (distances == table[pairs[:, 0], pairs[:, 1]]).all()
    is_kept = reduce_pairs(pairs, distances)
    assert (needed_pairs(metric, lambda: (pairs, distances), within=1.0)[0] == pairs[is_kept]).all()


def test_lengths_on_the_grid_are_never_above() -> None:
    km = [0.1, 0.2, 0.7, 1 / 3]
    metric = RoadMetric(Roads(["a", "b", "c", "d"], ["b", "c", "d", "e"], km), plain_space(["a", "b", "c", "d", "e"]))
    assert metric.roads.exact
    distances = metric.table()[0]
    for number in range(5):
        exact = sum(map(Fraction, km[:number]), Fraction(0))
        assert exact * (1 - Fraction(1, 10**9)) <= Fraction(float(distances[number])) <= exact
        assert Fraction(float(metric.upper_distances(distances)[number])) >= exact


def test_parallel_edges_loops_and_unreachable_nodes() -> None:
    roads = Roads(["a", "b", "a", "c", "d"], ["b", "a", "a", "c", "e"], [3.0, 2.0, 1.0, 5.0, 0.0])
    metric = RoadMetric(roads, plain_space(["a", "b", "c", "d"]), plain_space(["b", "e"]))
    assert metric.table().tolist() == [[0, 2, np.inf, np.inf], [2, 0, np.inf, np.inf], [np.inf, np.inf, 0, np.inf],
                                       [np.inf, np.inf, np.inf, 0]]  # fmt: skip
    assert metric.to_outputs().tolist() == [[2, np.inf], [0, np.inf], [np.inf, np.inf], [np.inf, 0]]
    assert required_pairs(metric)[0].tolist() == [[0, 1]]
    assert not metric.own_outputs


def test_travel_follows_one_way_roads() -> None:
    roads = Roads(["a", "b", "c"], ["b", "c", "a"], [1.0, 2.0, 4.0], directed=True)
    assert roads.travel(["a", "b", "c"], ["a", "c"]).tolist() == [[0, 3], [6, 2], [4, 0]]
    with pytest.raises(InputError, match="one-way"):
        RoadMetric(roads, plain_space(["a"]))


def test_faults_name_rows_and_ids() -> None:
    with pytest.raises(InputError) as excinfo:
        Roads(["a", "b", "c"], ["b", "c", "a"], [1.0, np.nan, -2.0], source="roads.csv")
    rows = [str(fault).partition(", column km")[0] for fault in excinfo.value.faults]
    assert rows == ["roads.csv: row 3", "roads.csv: row 4"]
    with pytest.raises(InputError, match="at least one"):
        Roads([], [], [])
    roads = Roads(["a"], ["b"], [1.0], source="roads.csv")
    with pytest.raises(InputError, match=r"points\.csv: id 'x'"):
        RoadMetric(roads, Space(ids=["a", "x"], source="points.csv"))
    with pytest.raises(InputError, match=r"targets\.csv: id 'y'"):
        roads.travel(["a"], ["y"], targets_source="targets.csv")
