"""Shares of a budget and the errors that they are chosen by: against a fine grid, sums over the noise, and the tree."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product
from math import sinh

import numpy as np
import pytest
from helpers.command import run
from helpers.grids import by_pairs
from helpers.mended_sums import mend
from helpers.mentions import assert_mentions
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privopt.declare import load_problem
from privopt.interfaces import SolveContext
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_hierarchical_dp.alike import AlikeRegions, find_alike_regions
from privopt_hierarchical_dp.forecast import errors_of_counts, errors_of_cumulative, moments_of
from privopt_hierarchical_dp.least_squares import UNMEASURED, Estimate, Noise, mean_absolute
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.noise_distributions import GAUSSIAN, GEOMETRIC
from privopt_hierarchical_dp.plan import plan
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.shares import as_split, best_point
from privopt_hierarchical_dp.tree import Tree, add_up

LEAF_CELLS = 72
"""The cells of the leaves in :func:`_problem`: 24 counties of 3 sizes."""
RARE_NOISE = 0.1
"""The mean absolute noise below which most cells have none."""
TREES = {
    "two": [("r", "a"), ("r", "b")],
    "wide": [("r", str(k)) for k in range(60)],
    "three": [("r", s, f"{s}{k}") for s in "abc" for k in range(8)],
}


def _cost(law, tree, weights, budget):
    regions = Tree.from_paths(TREES[tree])

    def cost_of(point):
        scales = [law.ideal_scale(budget * Fraction(float(fraction)), 1) if fraction else None for fraction in point[0]]
        return float(errors_of_counts(find_alike_regions(regions), list(map(law.moments, scales))) @ np.array(weights))

    return lambda points: np.array([cost_of(point) for point in points])


@pytest.mark.parametrize(
    ("law", "tree", "weights", "budget"),
    [
        pytest.param(
            [GEOMETRIC, GAUSSIAN][(row + column) % 2],
            tree,
            weights,
            [Fraction(1, 20), Fraction(3)][column % 2],
            marks=[pytest.mark.slow] * ((row, column) == (2, 1)),  # as long as all others together
        )
        for row, tree in enumerate(TREES)
        for column, weights in enumerate([(1.0, 1.0, 1.0), (100.0, 3.0, 1.0), (0.0, 0.0, 1.0)])
    ],
)
def test_best_shares_match_a_fine_grid(law, tree, weights, budget):
    depth = len(TREES[tree][0])
    cost = _cost(law, tree, weights[:depth], budget)
    even = (np.full(depth, 1 / depth),)
    (best_cost,) = cost([best_point(cost, even)])
    parts = 100 if depth == 2 else 20
    grid = [np.array([*first, parts - sum(first)]) / parts for first in product(range(parts), repeat=depth - 1)
            if sum(first) < parts]  # fmt: skip
    assert best_cost <= min(cost([(shares,) for shares in grid])) * (1 + 1e-4)


def test_pure_dp_prefers_the_corner():
    """Root and two leaves, weights 4.76 : 1: levels that are combined make errors that are not convex in the shares."""
    cost = _cost(GEOMETRIC, "two", (4.76, 1.0), Fraction(1, 100))
    best_split = best_point(cost, (np.array([0.567, 0.433]),))
    assert best_split[0].tolist() == [0.0, 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6).filter(lambda shares: sum(shares) > 0.01))
def test_split_sums_to_one_and_keeps_zeros(shares):
    split = as_split(np.array(shares) / sum(shares))
    assert sum(split) == 1
    assert all(
        (part == 0) == (original == 0) for part, original in zip(split, np.array(shares) / sum(shares), strict=True)
    )


@pytest.mark.parametrize(
    "scale", [Fraction(1, 20), Fraction(1, 10), Fraction(1, 3), Fraction(1), Fraction(7), Fraction(500)], ids=str
)
def test_mean_absolute_value_is_that_of_the_discrete_law(scale):
    moments = GEOMETRIC.moments(scale)
    error = Estimate(
        mean=np.zeros((1, 1)), variance=np.array([[moments.variance]]), fourth=np.array([[moments.fourth]])
    )
    assert mean_absolute(error)[0, 0] == pytest.approx(1 / sinh(1 / scale), rel=0.01)


@pytest.mark.parametrize(("variance", "rel"), [*((v, 1e-6) for v in (0.03, 0.1, 0.3, 0.7, 1.5, 3.9)), (20.0, 0.06)])
def test_discrete_gaussian_errors_match_forecast(variance, rel):
    values = np.arange(-60, 61)
    chances = np.exp(-(values**2) / (2 * variance))
    chances /= chances.sum()
    moments = GAUSSIAN.moments(Fraction(str(variance)))
    error = Estimate(
        mean=np.zeros((1, 1)), variance=np.array([[moments.variance]]), fourth=np.array([[moments.fourth]])
    )
    assert mean_absolute(error)[0, 0] == pytest.approx(chances @ np.abs(values), rel=rel)


def _dense(tree, weights, *, down, root_known):
    """Return for each level the matrix (R_l, all regions) by which a fit makes its estimates of all noisy values."""
    aggregations = [level.astype(float) for level in add_up(tree, np.eye(tree.widths[-1], dtype=np.int64))]
    offsets = np.concatenate([[0], np.cumsum(tree.widths)])
    identity = np.eye(offsets[-1])
    if not down:
        rows, weight = np.concatenate(aggregations), np.repeat(np.array(weights), tree.widths)
        normal = (rows.T * weight) @ rows
        right = rows.T * weight
        if root_known:  # the leaves add up to 0: noise alone is looked at
            normal = np.block([[normal, np.ones((len(normal), 1))], [np.ones((1, len(normal))), np.zeros((1, 1))]])
            right = np.concatenate([right, np.zeros((1, offsets[-1]))])
        leaves = np.linalg.lstsq(normal, right, rcond=None)[0][: tree.widths[-1]]
        return [level_rows @ leaves for level_rows in aggregations]
    estimators = [np.zeros((1, offsets[-1])) if root_known else identity[:1]]
    for level, start in enumerate(tree.start, start=1):
        level_rows = identity[offsets[level] : offsets[level + 1]]
        corrections = (estimators[-1] - np.add.reduceat(level_rows, start[:-1], axis=0)) / np.diff(start)[:, None]
        estimators.append(level_rows + corrections[tree.parents(level)])
    return estimators


@pytest.mark.parametrize("root_known", [False, True])
@pytest.mark.parametrize("down", [False, True])
def test_fit_errors_match_the_matrix(down, root_known, random_tree):
    """Weights that are not the precision of the noise, levels fitted to the one above, a root that is known."""
    rng = np.random.default_rng(8)
    for depth in (1, 2, 3, 4):
        for _ in range(8):
            tree = random_tree(rng, depth, 4)
            noise = [GEOMETRIC.moments(Fraction(int(rng.integers(20, 90)), 10)) for _ in range(depth)]
            weights = [1.0] * depth if down else rng.uniform(0.1, 3, depth).tolist()
            if depth > 2 and not down:
                noise[1], weights[1] = UNMEASURED, 0.0
            moments = moments_of(_each_by_itself(tree), noise, weights, down=down, known_levels=int(root_known))
            variances = np.repeat([0.0 if n is UNMEASURED else n.variance for n in noise], tree.widths)
            expected = [(m**2 @ variances).sum() for m in _dense(tree, weights, down=down, root_known=root_known)]
            forecast = [float(level.variance.sum()) for level in moments]
            np.testing.assert_allclose(forecast, expected, rtol=1e-7, atol=1e-9)


def _problem(folder, privacy="epsilon = 1.0", extra_settings=""):
    folder.mkdir(exist_ok=True)
    paths = [("US", f"S{s}", f"S{s}C{c}") for s in range(4) for c in range(6)]
    levels = "level_1,level_2,level_3"
    (folder / "r.csv").write_text("\n".join([levels, *map(",".join, paths)]) + "\n")
    rows = [",".join([*path, str(z), str(20 + 7 * z + n)]) for n, path in enumerate(paths) for z in (1, 2, 3)]
    (folder / "c.csv").write_text("\n".join([f"{levels},size,groups", *rows]) + "\n")
    path = folder / "p.toml"
    path.write_text(
        f'[hierarchy]\nregions = "r.csv"\ncounts = "c.csv"\nsizes = 3\n[privacy]\n{privacy}\n{extra_settings}', "utf-8"
    )
    return path


PRIVACY = ["epsilon = 0.1", "epsilon = 1", "epsilon = 10", *(f'kind = "zcdp"\nrho = {r}' for r in (0.005, 0.5, 50))]
METHOD = ["cumulative-smoothed", "hierarchical-dp"]
WISHES = ["level_1 = 1, level_2 = 1, level_3 = 1", "level_1 = 10, level_2 = 3, level_3 = 1", "level_1 = 1"]
TRIED = ((1, 0), (2, 1), (4, 1))
"""Each wish, method and notion once."""


@pytest.mark.parametrize(
    ("privacy", "wish", "method"),
    [
        pytest.param(
            privacy, WISHES[(row + column) % 3], method, marks=[pytest.mark.slow] * ((row, column) not in TRIED)
        )
        for row, privacy in enumerate(PRIVACY)
        for column, method in enumerate(METHOD)
    ],
)
def test_no_plan_loses_to_leaves_only(tmp_path, privacy, wish, method):
    path = _problem(tmp_path, privacy, f"[plan]\nerrors = {{ {wish} }}\n")
    forecast = plan(load_problem(HierarchyProblem, path), "p.toml", SolveContext(method=method))
    (simple,) = forecast.to_json()["baselines"]
    assert (simple["name"], len(simple["errors"])) == ("leaves-only", 5)
    weights = np.array([float(weight) for weight in forecast.weights])
    tolerance = 1e-6 * weights.sum()  # of a person: at rho 50 all splits err by 1e-7
    # Where most cells have no noise at all, a method that keeps the exact total makes up for each unit of noise in
    # another cell, which leaves-only does not.
    factor = 1.02 if simple["by_part"][-1] > RARE_NOISE * LEAF_CELLS else 2.0
    assert weights @ np.array(forecast.best[1]) <= factor * (weights @ np.array(simple["by_part"])) + tolerance
    lines = forecast.lines()
    assert "leaves-only" in lines[1]
    assert max(map(len, lines[1:-1])) <= 100


def test_names_weight_of_unknown_level(tmp_path):
    path = _problem(tmp_path, extra_settings="[plan]\nerrors = { level_4 = 1 }\n")
    completed = run("plan", "hierarchical-dp", str(path))
    assert completed.exit_code == 2
    assert_mentions(completed.output, "p.toml: plan.errors.level_4", "level_1 to level_3")


@by_pairs(
    "method, settings",
    [name for name, row in METHODS.items() if row.query != "chain"],
    [("sizes", "[0, 0, 1]"), ("individuals", "[1, 0, 3]")],
)
def test_level_without_share_sums_the_one_below(tmp_path, method, settings):
    relation, budget = settings
    path = _problem(tmp_path, f'epsilon = 2.0\nrelation = "{relation}"', f"[hierarchical-dp]\nbudget = {budget}\n")
    release = solve("hierarchical-dp", path, tmp_path / "out", Options(method=method))
    assert verify(release.folder).complaints == ()
    with np.load(tmp_path / "out" / "noisy.npz") as arrays:
        assert arrays["scales"][1] == ""
        noisy = {name: arrays[name] for name in arrays.files}
    by_state = noisy["level_3"].reshape(4, 6, -1).sum(axis=1)
    assert (noisy["level_2"] == by_state).all()
    assert release.result.certificate.worst <= 2.0
    noisy["level_2"] = by_state + 1
    np.savez_compressed(tmp_path / "out" / "noisy.npz", **noisy)
    mend(tmp_path / "out")
    assert any("level 2 has no noise" in line for line in verify(release.folder).complaints)


def test_leaves_always_have_a_share(tmp_path):
    path = _problem(tmp_path, extra_settings="[hierarchical-dp]\nbudget = [1, 1, 0]\n")
    completed = run("solve", "hierarchical-dp", str(path), "--out", str(tmp_path / "out"))
    assert completed.exit_code == 2
    assert "the last above 0" in completed.output


@pytest.mark.slow
def test_release_behaves_as_planned(tmp_path):
    """Errors of unbiased estimates where counts are far from 0: those of releases, at the best split too."""
    path = _problem(tmp_path, "epsilon = 4")
    forecast = plan(load_problem(HierarchyProblem, path), "p.toml", SolveContext(method="hierarchical-dp"))
    assert forecast.best is not None
    # 400 releases at the best split, which errs by .3 of a person a cell: 14 and 13 % above what was forecast
    for (shares, expected), tolerance in zip(
        ((forecast.shares, forecast.errors[Fraction(4)]), forecast.best), (0.1, 0.2), strict=True
    ):
        split_problem = _problem(
            tmp_path / "own", "epsilon = 4", f"[hierarchical-dp]\nbudget = {list(map(float, shares))}\n"
        )
        measured = []
        for seed in range(60):
            options = Options(method="hierarchical-dp", seed=seed, force=True)
            solve("hierarchical-dp", split_problem, tmp_path / "out", options)
            measured.append(json.loads((tmp_path / "out/private/truth.json").read_text())["l1_error_by_level"])
        ratio = np.array(expected)[1:] / np.mean(measured, axis=0)[1:]
        assert (abs(ratio - 1.0) < tolerance).all()


def _each_by_itself(tree):
    """Return the regions for a forecast without leaving out those that are alike."""
    ones = [np.ones(width) for width in tree.widths]
    return AlikeRegions(tree=tree, times=tuple(level[:, None] for level in ones), counts=tuple(ones))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=5),
    st.integers(0, 3),
    st.booleans(),
)
def test_regions_that_are_alike_have_one_forecast(families, known, is_down):
    """Of a tree whose branches have any numbers of children; 0: the branch ends there."""
    paths = [
        (*("r", f"s{i}", f"c{i}.{k}"), *([f"b{i}.{k}.{n}"] if count else []))
        for i, counts in enumerate(families)
        for k, count in enumerate(counts)
        for n in range(max(1, count))
    ]
    tree = Tree.from_paths(paths)
    alike = find_alike_regions(tree)
    assert [int(counts.sum()) for counts in alike.counts] == list(tree.widths)
    noise = [Noise(variance=1.0 + level, fourth=0.5) for level in range(tree.depth)]
    known = min(known, tree.depth)
    for forecast in (
        lambda regions: errors_of_counts(regions, noise, part=0.25, known_levels=known, down=is_down),
        lambda regions: errors_of_cumulative(regions, noise, 5, known_levels=known),
    ):
        np.testing.assert_allclose(forecast(alike), forecast(_each_by_itself(tree)), rtol=1e-9, atol=1e-9)


@given(
    st.one_of(
        st.integers(1, 1_000).map(lambda count: [1.0] * count),
        st.lists(st.one_of(st.just(0.0), st.floats(1e-9, 1.0)), min_size=1, max_size=300),
    ).filter(any)
)
@example([1.0] * 51)
@example([1.0] * 57)
@example([1.0] + [1e-9] * 299)
def test_rounded_shares_sum_to_one_and_stay_positive(weights):
    shares = np.array(weights) / sum(weights)
    rounded = as_split(shares)
    assert sum(rounded) == 1
    assert all((part > 0) == (share > 0) for part, share in zip(rounded, shares, strict=True))
    # The largest share pays for the small ones that are raised to one part.
    raised = int(np.count_nonzero((shares > 0) & (shares < 1e-3)))
    errors = np.abs(np.array([float(part) for part in rounded]) - shares)
    assert errors.max() <= (1 + raised) / 1000 + 1e-12
    if not raised:
        assert errors.max() <= 1 / 1000 + 1e-12
