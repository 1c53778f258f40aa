"""What trees prove, against rationals and the multipliers that they were made from; losses to the last bit."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from helpers.grids import by_pairs
from hypothesis import given
from hypothesis import strategies as st

from privopt.checker import check
from privopt.numbers.stated_rounding import stated_above
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import load_release, verify
from privopt_metric_dp.proof import Rows, Trees, read_proof
from privopt_metric_dp.proof.lagrangian_bound import SparseMultipliers


def grow_trees(rng, records, outputs):
    """Costs, factors of all pairs (powers of 2), and trees with multipliers of their rows."""
    cost = rng.integers(0, 64, (records, outputs)) / 64.0
    growth = 2.0 ** rng.integers(1, 4, (records, records))
    growth = np.maximum(growth, growth.T)
    entries = []
    for k in range(outputs):
        for i in range(1, records):
            if rng.random() < 0.8:
                row = [i, int(rng.integers(0, i))]
                entries.append((k, *(row if rng.random() < 0.5 else row[::-1]), rng.integers(1, 16) / 64.0))
    pairs = sorted({entry[1:3] for entry in entries})
    entries.sort(key=lambda entry: (entry[0], pairs.index(entry[1:3])))
    multipliers = SparseMultipliers(
        pairs=np.array(pairs, dtype=np.int64).reshape(-1, 2),
        growth=np.array([growth[pair] for pair in pairs]),
        starts=np.searchsorted([entry[0] for entry in entries], range(outputs + 1)).astype(np.int64),
        rows=np.array([pairs.index(entry[1:3]) for entry in entries], dtype=np.uint32),
        values=np.array([entry[3] for entry in entries]),
    )
    return cost, growth, multipliers


def exact_bound(forest, cost, growth):
    """Return the bound that trees prove, in rationals, records taken one by one by recursion."""
    parents, totals = forest.parents, []
    for k, is_above in enumerate(forest.trees % 2):
        own_values = {}

        def climb(i, k=k, is_above=is_above, own_values=own_values):
            g = Fraction(cost[i, k]) - Fraction(forest.prices[i])
            for child in np.flatnonzero((parents[k] == i) & (np.arange(len(cost)) != i)).tolist():
                factor, handed = Fraction(growth[child, i]), climb(child)
                g += min(handed, 0) * factor if is_above[child] else max(handed, 0) / factor
            root = parents[k, i] == i
            own_values[i] = g if root else max(g, 0) if is_above[i] else min(g, 0)
            return g

        for root in np.flatnonzero(parents[k] == np.arange(len(cost))).tolist():
            climb(root)
        totals.append([own_values[i] for i in range(len(cost))])
    return sum(map(Fraction, forest.prices)) + sum(map(min, zip(*totals, strict=True)))


@given(st.integers(0, 2**30), st.integers(2, 7), st.integers(1, 5))
def test_trees_prove_no_less_than_multipliers(seed, records, outputs):
    cost, growth, multipliers = grow_trees(np.random.default_rng(seed), records, outputs)
    forest = Trees.of(multipliers, cost)
    pairs, places = forest.edges()
    factors = growth[pairs[:, 0], pairs[:, 1]]
    low, high = forest.enclose_with(cost, cost, 0.0, np.zeros(records), places, (factors, factors))
    exact = exact_bound(forest, cost, growth)
    assert Fraction(low) <= exact <= Fraction(high)
    assert high - low <= 1e-12
    # multipliers here are multiples of 1/64, factors powers of 2: all sums of doubles are exact
    assert exact >= Fraction(multipliers.bound(cost))


def test_rows_that_make_no_trees_stay_rows():
    cycle = np.array([[0, 1], [1, 2], [2, 0]], dtype=np.int64)
    cyclic_rows = SparseMultipliers(
        pairs=cycle,
        growth=np.full(3, 2.0),
        starts=np.array([0, 3]),
        rows=np.arange(3, dtype=np.uint32),
        values=np.ones(3),
    )
    assert Trees.of(cyclic_rows, np.ones((3, 1))) is None
    opposite_rows = SparseMultipliers(
        pairs=np.array([[0, 1], [1, 0]]),
        growth=np.full(2, 2.0),
        starts=np.array([0, 2]),
        rows=np.arange(2, dtype=np.uint32),
        values=np.ones(2),
    )
    assert Trees.of(opposite_rows, np.ones((3, 1))) is None


POINTS = {
    "near the other side of the earth": ("a,10.000001,20.5\nb,-10.000002,-159.500003\nc,-9.99999,-159.49999\n", "1e-3"),
    "a nanometre apart": ("a,41.86,12.44\nb,41.86000000000001,12.44\nc,41.86,12.44000000000001\n", "1e8"),
    "less than an atom apart": (
        "a,41.86,12.44\nb,41.86000000000000000001,12.44\nc,41.86,12.44000000000000000002\n",
        "1e15",
    ),
    "across the date line": ("a,0.1,179.9999\nb,-0.1,-179.9999\nc,0.0,180\n", "0.2"),
}
MECHANISMS = ("optimal-lp", "exponential", "planar-laplace", "const-opt")


@by_pairs("name, mechanism", POINTS, MECHANISMS)
def test_losses_are_equal_to_the_last_bit(tmp_path, name, mechanism):
    places, epsilon = POINTS[name]
    (tmp_path / "points.csv").write_text("id,lat,lon\n" + places)
    text = '[records]\npoints = "points.csv"\n[distance]\nkind = "haversine"\n[privacy]\n'
    settings = "[const-opt]\nradius = 1e5\n" if mechanism == "const-opt" else ""
    (tmp_path / "problem.toml").write_text(f'{text}epsilon = {epsilon}\n[utility]\nkind = "distance"\n{settings}')
    folder = solve(mechanism, tmp_path / "problem.toml", tmp_path / "out", Options()).folder
    lines: list[str] = []
    assert (verify(folder).complaints, check(folder, lines.append)) == ((), 0), lines
    result = json.loads((folder / "result.json").read_text())
    value, unit = result["objective"]["value"], result["details"]["value_unit"]
    assert value * 2.0**-48 <= unit <= 2.0**-30 * max(1.0, value)
    release = load_release(folder)
    low, high = release.mechanism.utility(release.problem, release.result.method).enclose(release.release)
    assert stated_above(low, unit) == stated_above(high, unit) == value
    assert 0.0 <= value - high <= unit


def solve_grid(folder: Path, method: str) -> Path:
    grid = "grid = { rows = 3, cols = 4, cell_km = 0.7 }"
    text = f'[records]\n{grid}\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = 1.5\nneighbours_within = 1.0\n'
    (folder / "problem.toml").write_text(text + '[utility]\nkind = "distance"\n')
    return solve("optimal-lp", folder / "problem.toml", folder / "out", Options(method=method, solver="highs")).folder


@pytest.mark.parametrize("method", ["full", "column-generation", "interior-point"])
def test_stores_trees_if_there_are_any(tmp_path, method):
    folder = solve_grid(tmp_path, method)
    release = load_release(folder)
    proof, size = read_proof(folder, release.problem.data.shape), (folder / "proof.npz").stat().st_size
    assert isinstance(proof, Rows if method == "interior-point" else Trees)
    assert size < 1500 or method == "interior-point"
