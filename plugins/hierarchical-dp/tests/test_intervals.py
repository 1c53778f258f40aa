"""Least squares over the tree against a dense solve, and intervals that hold the truth as often as they say."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from helpers.grids import by_pairs
from helpers.mended_sums import mend
from hypothesis import example, given
from hypothesis import strategies as st

from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_hierarchical_dp.least_squares import Ends, Noise, intervals, least_squares, quantile
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.noise_distributions import GAUSSIAN, GEOMETRIC
from privopt_hierarchical_dp.relations import Relation
from privopt_hierarchical_dp.sizes import compute_query
from privopt_hierarchical_dp.tree import Tree, add_up


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.booleans())
def test_least_squares_match_the_dense_table(random_tree, seed, depth, known):
    """Means, variances and fourth cumulants against the matrix of the whole problem."""
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, depth)
    leaves = np.eye(tree.widths[-1], dtype=np.int64)
    rows = np.concatenate(add_up(tree, leaves)).astype(float)  # a row a region: which leaves it sums
    noise = [Noise(variance=v, fourth=3 * v**2) for v in rng.uniform(0.5, 20, depth)]
    values = [rng.integers(-50, 50, (width, 2)) for width in tree.widths]
    root = rng.integers(0, 50, 2) if known else None
    estimates = least_squares(tree, values, noise, root=root)

    scale = np.concatenate([np.full(w, law.variance) for w, law in zip(tree.widths, noise, strict=True)])
    target = np.concatenate(values).astype(float)
    if known:
        scale[0], target[0] = 1e-7, root
    weights = np.linalg.solve((rows.T / scale) @ rows, rows.T / scale)
    gain = rows @ weights  # a row a region: what each measurement counts
    np.testing.assert_allclose(np.concatenate([e.mean for e in estimates]), gain @ target, atol=1e-3)
    variance = (gain**2 * scale).sum(axis=1)
    fourth = (gain**4 * 3 * scale**2).sum(axis=1)
    np.testing.assert_allclose(np.concatenate([e.variance for e in estimates])[:, 0], variance, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.concatenate([e.fourth for e in estimates])[:, 0], fourth, rtol=1e-3, atol=1e-4)


def test_quantiles_of_known_distributions():
    unit = np.ones(1)
    assert quantile(unit, 0 * unit, 0.95)[0] == pytest.approx(1.95996, abs=1e-4)
    assert quantile(unit, 3 * unit, 0.95)[0] == pytest.approx(np.log(20) / np.sqrt(2), abs=2e-3)  # one Laplace value
    draws = np.random.default_rng(1).laplace(size=(400_000, 3)).sum(axis=1) / np.sqrt(6)
    assert quantile(unit, unit, 0.95)[0] == pytest.approx(np.quantile(np.abs(draws), 0.95), abs=0.01)


@given(st.floats(0.05, 30.0), st.integers(1, 6), st.sampled_from([GEOMETRIC, GAUSSIAN]))
@example(0.2, 5, GEOMETRIC)  # with the quantile of a Laplace error of the same variance, 10 times too many are outside
def test_rounded_intervals_of_one_value_cover_at_high_confidence(scale, digits, law):
    """The interval's ends are rounded outwards, and the exact distribution of the noise says how much is outside."""
    confidence = 1.0 - 10.0**-digits
    moments = law.moments(Fraction(scale))
    reach = quantile(np.full(1, moments.variance), np.full(1, moments.fourth), confidence)[0]
    noise = np.arange(-2000, 2001)
    exponents = np.abs(noise) / scale if law is GEOMETRIC else noise**2 / (2.0 * scale)
    chances = np.exp(-exponents) / np.exp(-exponents).sum()
    assert chances[np.abs(noise) > np.ceil(reach)].sum() <= (1.0 - confidence) * 1.001


@by_pairs(
    "method, confidence, law, relation",
    ["cumulative-smoothed", "cumulative-dp", "hierarchical-dp"],
    [0.95, 0.5],
    [GEOMETRIC, GAUSSIAN],
    ["individuals", "sizes"],
)
def test_intervals_cover_at_the_stated_rate(method, confidence, law, relation):
    """400 draws; of individuals who come and go no total is known."""
    rng = np.random.default_rng(5)
    tree = Tree.from_paths([("r", f"s{i}", f"s{i}c{k}") for i in range(3) for k in range(4)])
    true = add_up(tree, rng.integers(3_000, 9_000, (12, 6)))
    size_relation = Relation(name=relation, classes=6)
    has_totals = size_relation.exact and METHODS[method].totals == "always"
    totals = [level.sum(axis=1) for level in true][: 3 if has_totals else int(size_relation.exact)]
    budgets = [Fraction(1, 10), Fraction(1, 15), Fraction(1, 30)]
    values = compute_query(method, true, totals=has_totals, relation=size_relation)
    covered_and_all = np.zeros((3, 2))
    for seed in range(400):
        draws = [law.measure(v, b, 1, seed=(seed, n)) for n, (v, b) in enumerate(zip(values, budgets, strict=True))]
        bounds = intervals(
            tree,
            [noisy for noisy, _ in draws],
            true,
            totals,
            noise=[law.moments(record.scale) for _, record in draws],
            cumulative=METHODS[method].query == "cumulative",
            confidence=confidence,
            descending=not totals,
        )
        for level, interval_bounds in enumerate(bounds):
            low, high = interval_bounds.round_outwards()  # which are widened to the released counts, here the true ones
            is_covered = (low < true[level]) & (true[level] < high)
            covered_and_all[level] += is_covered.sum(), is_covered.size
    coverage = covered_and_all[:, 0] / covered_and_all[:, 1]
    error = 3 * np.sqrt(confidence * (1 - confidence) / covered_and_all[:, 1])
    assert (coverage > confidence - 0.02 - error).all()
    assert (coverage < confidence + 0.03 + error).all()


def test_verify_finds_narrowed_intervals(tmp_path):
    (tmp_path / "c.csv").write_text("level_1,level_2,size,groups\nUS,GA,1,40\nUS,GA,2,70\nUS,NY,1,90\nUS,NY,3,11\n")
    (tmp_path / "p.toml").write_text(
        '[hierarchy]\ncounts = "c.csv"\nsizes = 3\n[privacy]\nepsilon = 0.5\n[hierarchical-dp]\nconfidence = 0.9\n'
    )
    output_folder = tmp_path / "out"
    solve("hierarchical-dp", tmp_path / "p.toml", output_folder, Options(method="hierarchical-dp"))
    joined = pl.read_csv(output_folder / "intervals.csv").join(
        pl.read_csv(output_folder / "release.csv"), on=["region", "size"]
    )
    assert (joined["low"] <= joined["groups"]).all()
    assert (joined["groups"] <= joined["high"]).all()
    details = json.loads((output_folder / "result.json").read_text())["details"]
    assert details["confidence"] == 0.9
    assert len(details["tables"]["groups by size"]["mean_width_by_level"]) == 2
    assert verify(output_folder).complaints == ()
    intervals_text = (output_folder / "intervals.csv").read_text()
    rows = [line.split(",") for line in intervals_text.splitlines()[1:]]
    sides = {3: ("low is", 1), 4: ("high is", -1)}
    for column, (keywords, change) in sides.items():  # by the least that is less, one of them and all of them
        has_slack = [int(row[column]) != int(row[7 - column]) for row in rows]
        for row_numbers in (range(len(rows)), [has_slack.index(True)]):
            forged_rows = [list(row) for row in rows]
            for number in row_numbers:
                if has_slack[number]:
                    forged_rows[number][column] = str(int(rows[number][column]) + change)
            _rewrite(output_folder, intervals_text, forged_rows)
            assert any(keywords in line for line in verify(output_folder).complaints)
    _rewrite(output_folder, intervals_text, rows)
    assert verify(output_folder).complaints == ()


def _rewrite(folder, intervals_text, rows):
    lines = [intervals_text.splitlines()[0], *(",".join(row) for row in rows)]
    (folder / "intervals.csv").write_text("\n".join(lines) + "\n")
    mend(folder)


def test_whole_bounds_may_round_either_way():
    interval_bounds = Ends(
        mean=np.array([[5.0, 5.0, 5.0, 3e8]]),
        reach=np.array([[2 - 1e-9, 2 + 1e-9, 2.4, 1e8 + 1e-6]]),
        max_counts=np.array([[10**9]]),
        released=np.array([[5, 5, 5, 3 * 10**8]]),
    )
    assert [bound.tolist() for bound in interval_bounds.round_outwards()] == [
        [[3, 2, 2, 199_999_999]],
        [[7, 8, 8, 400_000_001]],
    ]
    wide_bounds, tight = interval_bounds.round_outwards(1e-6), interval_bounds.round_outwards(-1e-6)
    assert (wide_bounds[0] != tight[0]).tolist() == [[True, True, False, True]]
    assert (tight[1] - wide_bounds[1]).tolist() == [[-1, -1, 0, -1]]
