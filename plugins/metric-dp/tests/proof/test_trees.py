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
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import load_release, verify
from privopt_metric_dp.proof import Rows, Trees, read_proof
from privopt_metric_dp.proof.lagrangian_bound import SparseMultipliers


def grown(rng, records, outputs):
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
    kept = SparseMultipliers(
        pairs=np.array(pairs, dtype=np.int64).reshape(-1, 2),
        growth=np.array([growth[pair] for pair in pairs]),
        starts=np.searchsorted([entry[0] for entry in entries], range(outputs + 1)).astype(np.int64),
        rows=np.array([pairs.index(entry[1:3]) for entry in entries], dtype=np.uint32),
        values=np.array([entry[3] for entry in entries]),
    )
    return cost, growth, kept


def exactly(forest, cost, growth):
    """Return the bound that trees prove, in rationals, records taken one by one by recursion."""
    parents, left = forest.parents, []
    for k, above in enumerate(forest.trees % 2):
        own = {}

        def climb(i, k=k, above=above, own=own):
            g = Fraction(cost[i, k]) - Fraction(forest.prices[i])
            for child in np.flatnonzero((parents[k] == i) & (np.arange(len(cost)) != i)).tolist():
                factor, handed = Fraction(growth[child, i]), climb(child)
                g += min(handed, 0) * factor if above[child] else max(handed, 0) / factor
            root = parents[k, i] == i
            own[i] = g if root else max(g, 0) if above[i] else min(g, 0)
            return g

        for root in np.flatnonzero(parents[k] == np.arange(len(cost))).tolist():
            climb(root)
        left.append([own[i] for i in range(len(cost))])
    return sum(map(Fraction, forest.prices)) + sum(map(min, zip(*left, strict=True)))


@given(st.integers(0, 2**30), st.integers(2, 7), st.integers(1, 5))
def test_trees_prove_no_less_than_their_multipliers_and_are_enclosed(seed, records, outputs):
    cost, growth, kept = grown(np.random.default_rng(seed), records, outputs)
    forest = Trees.of(kept, cost)
    pairs, places = forest.edges()
    ends = growth[pairs[:, 0], pairs[:, 1]]
    low, high = forest.between(cost, cost, 0.0, np.zeros(records), places, (ends, ends))
    proved = exactly(forest, cost, growth)
    assert Fraction(low) <= proved <= Fraction(high)
    assert high - low <= 1e-12
    # multipliers here are multiples of 1/64, factors powers of 2: all sums of doubles are exact
    assert proved >= Fraction(kept.bound(cost))


def test_rows_that_make_no_trees_stay_rows():
    ends = np.array([[0, 1], [1, 2], [2, 0]], dtype=np.int64)
    kept = SparseMultipliers(
        pairs=ends,
        growth=np.full(3, 2.0),
        starts=np.array([0, 3]),
        rows=np.arange(3, dtype=np.uint32),
        values=np.ones(3),
    )
    assert Trees.of(kept, np.ones((3, 1))) is None
    both = SparseMultipliers(
        pairs=np.array([[0, 1], [1, 0]]),
        growth=np.full(2, 2.0),
        starts=np.array([0, 2]),
        rows=np.arange(2, dtype=np.uint32),
        values=np.ones(2),
    )
    assert Trees.of(both, np.ones((3, 1))) is None


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


@by_pairs("where, mechanism", POINTS, MECHANISMS)
def test_losses_are_the_same_to_the_last_bit(tmp_path, where, mechanism):
    places, epsilon = POINTS[where]
    (tmp_path / "points.csv").write_text("id,lat,lon\n" + places)
    text = '[records]\npoints = "points.csv"\n[distance]\nkind = "haversine"\n[privacy]\n'
    own = "[const-opt]\nradius = 1e5\n" if mechanism == "const-opt" else ""
    (tmp_path / "problem.toml").write_text(f'{text}epsilon = {epsilon}\n[utility]\nkind = "distance"\n{own}')
    folder = solve(mechanism, tmp_path / "problem.toml", tmp_path / "out", Options()).folder
    lines: list[str] = []
    assert (verify(folder).complaints, check(folder, lines.append)) == ((), 0), lines
    result = json.loads((folder / "result.json").read_text())
    value, unit = result["objective"]["value"], result["details"]["value_unit"]
    assert value * 2.0**-48 <= unit <= 2.0**-30 * max(1.0, value)
    opened = load_release(folder)
    low, high = opened.mechanism.utility(opened.problem, opened.result.method).enclose(opened.release)
    assert stated_above(low, unit) == stated_above(high, unit) == value
    assert 0.0 <= value - high <= unit


def solved(folder: Path, method: str) -> Path:
    grid = "grid = { rows = 3, cols = 4, cell_km = 0.7 }"
    text = f'[records]\n{grid}\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = 1.5\nneighbours_within = 1.0\n'
    (folder / "problem.toml").write_text(text + '[utility]\nkind = "distance"\n')
    return solve("optimal-lp", folder / "problem.toml", folder / "out", Options(method=method, solver="highs")).folder


@pytest.mark.parametrize("method", ["full", "column-generation", "interior-point"])
def test_trees_are_stored_where_there_are_trees(tmp_path, method):
    folder = solved(tmp_path, method)
    opened = load_release(folder)
    proof, size = read_proof(folder, opened.problem.data.shape), (folder / "proof.npz").stat().st_size
    assert isinstance(proof, Rows if method == "interior-point" else Trees)
    assert size < 1500 or method == "interior-point"
