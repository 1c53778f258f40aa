"""Least squares over the tree against a dense solve, and intervals that hold the truth as often as they say."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from helpers.grids import by_pairs
from helpers.mended_sums import mend
from hypothesis import given
from hypothesis import strategies as st

from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_hierarchical_dp.least_squares import Ends, Noise, intervals, least_squares, quantile
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.noise_distributions import GAUSSIAN, GEOMETRIC
from privopt_hierarchical_dp.relations import Relation
from privopt_hierarchical_dp.sizes import compute_query
from privopt_hierarchical_dp.tree import Tree, add_up


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.booleans())
def test_least_squares_is_that_of_the_whole_table(random_tree, seed, depth, known):
    """Means, variances and fourth cumulants against the matrix of the whole problem."""
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, depth)
    leaves = np.eye(tree.widths[-1], dtype=np.int64)
    rows = np.concatenate(add_up(tree, leaves)).astype(float)  # a row a region: which leaves it sums
    noise = [Noise(variance=v, fourth=3 * v**2) for v in rng.uniform(0.5, 20, depth)]
    values = [rng.integers(-50, 50, (width, 2)) for width in tree.widths]
    root = rng.integers(0, 50, 2) if known else None
    found = least_squares(tree, values, noise, root=root)

    scale = np.concatenate([np.full(w, law.variance) for w, law in zip(tree.widths, noise, strict=True)])
    target = np.concatenate(values).astype(float)
    if known:
        scale[0], target[0] = 1e-7, root
    weights = np.linalg.solve((rows.T / scale) @ rows, rows.T / scale)
    gain = rows @ weights  # a row a region: what each measurement counts
    np.testing.assert_allclose(np.concatenate([e.mean for e in found]), gain @ target, atol=1e-3)
    variance = (gain**2 * scale).sum(axis=1)
    fourth = (gain**4 * 3 * scale**2).sum(axis=1)
    np.testing.assert_allclose(np.concatenate([e.variance for e in found])[:, 0], variance, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.concatenate([e.fourth for e in found])[:, 0], fourth, rtol=1e-3, atol=1e-4)


def test_quantiles_are_those_of_known_distributions():
    one = np.ones(1)
    assert quantile(one, 0 * one, 0.95)[0] == pytest.approx(1.95996, abs=1e-4)
    assert quantile(one, 3 * one, 0.95)[0] == pytest.approx(np.log(20) / np.sqrt(2), abs=2e-3)  # one Laplace value
    draws = np.random.default_rng(1).laplace(size=(400_000, 3)).sum(axis=1) / np.sqrt(6)
    assert quantile(one, one, 0.95)[0] == pytest.approx(np.quantile(np.abs(draws), 0.95), abs=0.01)


@by_pairs(
    "method, confidence, law, relation",
    ["cumulative-smoothed", "cumulative-dp", "hierarchical-dp"],
    [0.95, 0.5],
    [GEOMETRIC, GAUSSIAN],
    ["individuals", "sizes"],
)
def test_intervals_hold_the_truth_as_often_as_they_say(method, confidence, law, relation):
    """400 draws; of individuals who come and go no total is known."""
    rng = np.random.default_rng(5)
    tree = Tree.from_paths([("r", f"s{i}", f"s{i}c{k}") for i in range(3) for k in range(4)])
    true = add_up(tree, rng.integers(3_000, 9_000, (12, 6)))
    own = Relation(name=relation, classes=6)
    known = own.exact and METHODS[method].totals == "always"
    totals = [level.sum(axis=1) for level in true][: 3 if known else int(own.exact)]
    budgets = [Fraction(1, 10), Fraction(1, 15), Fraction(1, 30)]
    values = compute_query(method, true, totals=known, relation=own)
    held = np.zeros((3, 2))
    for seed in range(400):
        drawn = [law.measure(v, b, 1, seed=(seed, n)) for n, (v, b) in enumerate(zip(values, budgets, strict=True))]
        bounds = intervals(
            tree,
            [noisy for noisy, _ in drawn],
            true,
            totals,
            noise=[law.moments(record.scale) for _, record in drawn],
            cumulative=METHODS[method].query == "cumulative",
            confidence=confidence,
        )
        for level, ends in enumerate(bounds):
            low, high = ends.round_outwards()  # which are widened to the released counts, here the true ones
            inside = (low < true[level]) & (true[level] < high)
            held[level] += inside.sum(), inside.size
    share = held[:, 0] / held[:, 1]
    error = 3 * np.sqrt(confidence * (1 - confidence) / held[:, 1])
    assert (share > confidence - 0.02 - error).all()
    assert (share < confidence + 0.03 + error).all()


def test_intervals_are_written_and_a_narrowed_one_is_found(tmp_path):
    (tmp_path / "c.csv").write_text("level_1,level_2,size,groups\nUS,GA,1,40\nUS,GA,2,70\nUS,NY,1,90\nUS,NY,3,11\n")
    (tmp_path / "p.toml").write_text(
        '[hierarchy]\ncounts = "c.csv"\nsizes = 3\n[privacy]\nepsilon = 0.5\n[hierarchical-dp]\nconfidence = 0.9\n'
    )
    out = tmp_path / "out"
    solve("hierarchical-dp", tmp_path / "p.toml", out, Options(method="hierarchical-dp"))
    both = pl.read_csv(out / "intervals.csv").join(pl.read_csv(out / "release.csv"), on=["region", "size"])
    assert (both["low"] <= both["groups"]).all()
    assert (both["groups"] <= both["high"]).all()
    told = json.loads((out / "result.json").read_text())["details"]
    assert told["confidence"] == 0.9
    assert len(told["tables"]["groups by size"]["mean_width_by_level"]) == 2
    assert verify(out).complaints == ()
    before = (out / "intervals.csv").read_text()
    rows = [line.split(",") for line in before.splitlines()[1:]]
    sides = {3: ("low is", 1), 4: ("high is", -1)}
    for place, (said, by) in sides.items():  # by the least that is less, one of them and all of them
        inside = [int(row[place]) != int(row[7 - place]) for row in rows]
        for chosen in (range(len(rows)), [inside.index(True)]):
            forged = [list(row) for row in rows]
            for number in chosen:
                if inside[number]:
                    forged[number][place] = str(int(rows[number][place]) + by)
            _rewrite(out, before, forged)
            assert any(said in line for line in verify(out).complaints)
    _rewrite(out, before, rows)
    assert verify(out).complaints == ()


def _rewrite(out, before, rows):
    lines = [before.splitlines()[0], *(",".join(row) for row in rows)]
    (out / "intervals.csv").write_text("\n".join(lines) + "\n")
    mend(out)


def test_an_end_that_is_whole_may_be_rounded_either_way_and_no_other():
    ends = Ends(
        mean=np.array([[5.0, 5.0, 5.0, 3e8]]),
        reach=np.array([[2 - 1e-9, 2 + 1e-9, 2.4, 1e8 + 1e-6]]),
        max_counts=np.array([[10**9]]),
        released=np.array([[5, 5, 5, 3 * 10**8]]),
    )
    assert [side.tolist() for side in ends.round_outwards()] == [[[3, 2, 2, 199_999_999]], [[7, 8, 8, 400_000_001]]]
    wide, tight = ends.round_outwards(1e-6), ends.round_outwards(-1e-6)
    assert (wide[0] != tight[0]).tolist() == [[True, True, False, True]]
    assert (tight[1] - wide[1]).tolist() == [[-1, -1, 0, -1]]
