"""Bounds over reports anywhere on the streets: pieces, evaluation, and never above what points in between reach."""

import json
import shutil
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from helpers.chosen_outputs import CHOOSE, REST, ROADS, STREETS, data_of
from helpers.grids import often
from helpers.mended_sums import edit, rewrite
from scipy.optimize import linprog
from scipy.sparse import lil_array
from scipy.sparse.csgraph import dijkstra

from privopt import checker
from privopt.errors import CertificationError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_metric_dp.proof.make_proof import prove_over_streets
from privopt_metric_dp.solvers.street_bound import priced_records, solve_street_bound
from privopt_metric_dp.space.street_pieces import crossings, pieces_of

TEXT = STREETS + CHOOSE.replace("9", "4") + ROADS + REST


def network(folder, seed, *, crossing=5, longest=6):
    """Crossings joined by streets of several records each; all nodes are records. Roads (a, b, km in 16ths)."""
    rng = np.random.default_rng(seed)
    roads, count = [], crossing
    road_ends = [(int(rng.integers(j)), j) for j in range(1, crossing)]
    road_ends += [tuple(map(int, rng.choice(crossing, 2, replace=False))) for _ in range(2)]
    for a, b in road_ends:
        chain = [a, *range(count, count + int(rng.integers(0, longest))), b]
        count += len(chain) - 2
        roads += [(u, v, int(rng.integers(1, 8))) for u, v in pairwise(chain)]
    (folder / "edges.csv").write_text("from,to,km\n" + "".join(f"n{a},n{b},{w / 16}\n" for a, b, w in roads))
    (folder / "points.csv").write_text("id\n" + "".join(f"n{j}\n" for j in range(count)))
    return roads, count


def optimum(roads, count, epsilon, prior, between):
    """Return the optimum over all records and some points in between of each road as outputs, by HiGHS."""
    graph = lil_array((count, count))
    for a, b, w in roads:
        if not graph[a, b] or w / 16 < graph[a, b]:
            graph[a, b] = graph[b, a] = w / 16
    d = dijkstra(graph.tocsr(), directed=False)
    columns = [d[:, k] for k in range(count)]
    for a, b, _ in roads:
        km = graph[a, b]
        for part in np.linspace(0, 1, between + 2)[1:-1]:
            columns.append(np.minimum(d[:, a] + part * km, d[:, b] + (1 - part) * km))
    cost = prior[:, None] * np.stack(columns, axis=1)
    k = cost.shape[1]
    coo = graph.tocoo()
    rows = lil_array((coo.nnz * k, count * k))
    for r, (i, j, km) in enumerate(zip(*coo.coords, coo.data, strict=True)):
        for c in range(k):
            rows[r * k + c, i * k + c], rows[r * k + c, j * k + c] = 1.0, -np.exp(epsilon * km)
    sums = np.kron(np.eye(count), np.ones(k))
    solution = linprog(cost.ravel(), A_ub=rows.tocsr(), b_ub=np.zeros(rows.shape[0]), A_eq=sums, b_eq=np.ones(count))
    assert solution.status == 0
    return solution.fun


def problem(monkeypatch, folder, seed, **shape):
    monkeypatch.setattr("helpers.chosen_outputs.streets", lambda folder: network(folder, seed, **shape))
    return data_of(folder, TEXT)


@often("seed", range(8), range(4))
def test_street_bound_is_below_the_optimum(monkeypatch, tmp_path, seed):
    full_problem = problem(monkeypatch, tmp_path, seed, crossing=4, longest=3)
    roads, count = network(tmp_path, seed, crossing=4, longest=3)
    data = full_problem.over(np.arange(4))
    priced = priced_records(data, count // 2 + 4)
    best = optimum(roads, count, 0.8, data.prior, 1)
    solution = solve_street_bound(data, priced, gap=1e-3)
    proof, bound = prove_over_streets(solution, priced, data, data.weighted, 1.1 * best, gap=1e-3, memory_limit=1e9)
    assert bound <= best * (1 + 1e-9)
    assert bound >= 0.6 * best
    rng = np.random.default_rng(seed)
    for _ in range(20):  # whatever multipliers: weak duality
        is_kept = rng.random(len(proof.values)) < rng.random()
        values = np.where(is_kept, proof.values * rng.uniform(0, 3, len(is_kept)), 1e-30).astype(np.float64)
        changed_proof = type(proof)(
            pairs=proof.pairs, starts=proof.starts, rows=proof.rows, values=values, bound_outputs=priced
        )
        assert changed_proof.bound(data, data.weighted) <= best * (1 + 1e-9)


def test_pieces_join_priced_records_without_crossing():
    half = Fraction(1, 2)
    roads = [(0, 1, half), (1, 2, Fraction(1)), (2, 3, half), (2, 4, half), (4, 5, half), (5, 6, half), (6, 4, half)]
    places = np.arange(7)
    pieces = pieces_of(roads, 7, places, np.array([0, 2, 3, 4]))
    assert pieces.tail.tolist() == [-1, 0, -1, -1, -1, 3, 3]
    assert pieces.head.tolist() == [-1, 1, -1, -1, -1, 3, 3]  # 5 and 6 lie on a round trip from 4
    assert pieces.share[[1, 5, 6]] == pytest.approx([1 / 3, 1 / 3, 2 / 3])
    assert crossings(roads, 7, places, 10.0).tolist() == [0, 2, 3, 4]
    assert crossings(roads, 7, places, 0.9).tolist() == [0, 1, 2, 3, 4, 6]
    for priced in ([0, 2, 3], [0, 3, 4], [1, 2, 3, 4]):  # a crossing, or an end, is not priced
        with pytest.raises(CertificationError, match="record"):
            pieces_of(roads, 7, places, np.array(priced))


def test_crossing_without_record_ends_no_piece():
    roads = [(0, 1, Fraction(1)), (1, 2, Fraction(1)), (2, 3, Fraction(1)), (2, 4, Fraction(1))]
    with pytest.raises(CertificationError, match="record 1"):
        pieces_of(roads, 5, np.array([0, 1, 3, 4]), np.array([0, 2, 3]))


@pytest.fixture(scope="module")
def streets_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streets")
    network(folder, 5)
    (folder / "problem.toml").write_text(TEXT)
    solve("optimal-lp", folder / "problem.toml", folder / "out", Options(gap=1e-2))
    return folder / "out"


def test_street_bound_is_stated_and_verified(streets_dir):
    objective = json.loads((streets_dir / "result.json").read_text())["objective"]
    assert objective["bound_over"] == "all"
    assert verify(streets_dir).verdict == "proved"
    lines = []
    assert checker.check(streets_dir, lines.append) == 0, lines


def test_refuses_changed_proofs(streets_dir, tmp_path):
    with np.load(streets_dir / "proof.npz") as archive:
        priced, values = archive["bound_outputs"], archive["values"]

    def fewer(folder):
        starts = np.load(folder / "proof.npz")["starts"]
        return rewrite(folder, "proof.npz", bound_outputs=priced[1:], starts=starts[1:] - starts[1])

    changes = (
        lambda folder: rewrite(folder, "proof.npz", values=values * np.float32(1.01)),
        fewer,
        lambda folder: rewrite(folder, "proof.npz", bound_outputs=np.roll(priced, 1)),
        lambda folder: edit(folder, lambda result: result["objective"].update(bound_over="chosen")),
        lambda folder: edit(
            folder, lambda result: result["objective"].update(lower_bound=result["objective"]["value"])
        ),
    )
    for number, change in enumerate(changes):
        folder = change(shutil.copytree(streets_dir, tmp_path / str(number)))
        try:
            holds = verify(folder).holds
        except Exception as error:  # what cannot be read
            holds, error_name = False, type(error).__name__
            assert error_name == "InputError"
        assert not holds, number
        assert checker.check(folder, [].append) in (1, 2), number
