"""Structural zeros: not measured, 0 in every release and interval, and the best fit that keeps them, by brute force."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from helpers.grids import by_pairs

from privopt.errors import InputError
from privopt.files.release_folder import sums_text
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt.testing import conformance
from privopt_hierarchical_dp.fits.fit import FitInput, fit
from privopt_hierarchical_dp.kit import related
from privopt_hierarchical_dp.least_squares import intervals
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.noise_distributions import GEOMETRIC, noise_of
from privopt_hierarchical_dp.structural_zeros import Zeros, within
from privopt_hierarchical_dp.tree import Tree, add_up

CHECKS = [
    "solves", "certificate-holds", "sensitivity", "epsilon-attack", "non-interference", "oracle", "round-trip",
    "use-verifies",
]  # fmt: skip
test_zeros_of_regions = pytest.mark.slow(
    conformance(
        "hierarchical-dp",
        profile=related("sizes", zeros="regions"),
        methods=["cumulative-dp"],
        checks=CHECKS,
        how="dev",
    )
)
test_zeros_everywhere = conformance(
    "hierarchical-dp",
    profile=related("individuals", zeros="everywhere"),
    methods=["cumulative-smoothed"],
    checks=CHECKS,
    how="dev",
)
ABLE = [name for name in METHODS if METHODS[name].zeros]
ANY = [name for name in METHODS if METHODS[name].query != "chain"]


def _zeros(tree, leaves):
    levels = [np.asarray(leaves, dtype=bool)]
    for start in reversed(tree.start):
        levels.insert(0, np.logical_and.reduceat(levels[0], start[:-1], axis=0))
    return Zeros(levels=levels)


def test_what_an_unmeasured_entry_repeats():
    tree = Tree.from_paths([("r",)])
    zeros = _zeros(tree, [[True, False, True, False, True]])
    values, total = np.array([[90, 4, 91, 7, 92]]), np.array([9])
    assert zeros.filled(0, "counts", values, total).tolist() == [[0, 4, 0, 7, 0]]
    assert zeros.filled(0, "less", values, total).tolist() == [[0, 4, 4, 7, 7]]
    assert zeros.filled(0, "more", values, total).tolist() == [[4, 4, 7, 7, 0]]
    assert zeros.filled(0, "inner", values[:, :4], total).tolist() == [[0, 4, 4, 9]]
    assert zeros.measured(0, "inner").tolist() == [[False, True, False, False]]
    assert within(zeros, np.array([[3, 1, 2, 1, 4]])).tolist() == [[0, 6, 0, 5, 0]]


def _best(tree, noisy, zeros, total, compositions, *, cumulative):
    """Return the least objective of all counts that keep the zeros; of cumulative counts over what is measured."""
    free = np.argwhere(~zeros.levels[-1])
    order = "less" if cumulative else "counts"
    best = np.inf
    for groups in compositions(total, len(free)):
        leaves = np.zeros(zeros.levels[-1].shape, dtype=np.int64)
        leaves[tuple(free.T)] = groups
        cost = 0
        for level, (own, seen) in enumerate(zip(add_up(tree, leaves), noisy, strict=True)):
            value = np.cumsum(own, axis=1) if cumulative else own
            cost += int(((value - seen)[zeros.measured(level, order)] ** 2).sum())
        best = min(best, cost)
    return best


@pytest.mark.parametrize("method", ["hierarchical-dp", "hierarchical", "cumulative"])
def test_the_fit_is_the_best_that_keeps_the_zeros(method, random_tree, compositions):
    rng = np.random.default_rng(6)
    cumulative, tried = method == "cumulative", 0
    for _ in range(60 if method == "hierarchical-dp" else 8):
        tree = random_tree(rng, 3, 2)
        mask = rng.random((tree.widths[-1], 3)) < 0.4
        mask[0] = [False, False, mask[0, 2]]
        if (~mask).sum() > 7 or mask.all(axis=0).any():
            continue
        zeros, total = _zeros(tree, mask), 4
        noisy = [rng.integers(-3, 6, level.shape) for level in zeros.levels]
        order = "less" if cumulative else "counts"
        noisy = [zeros.filled(at, order, level, np.zeros(len(level))) for at, level in enumerate(noisy)]
        task = FitInput(
            method=method, tree=tree, noisy=noisy, total=total, totals=None, weights=(1, 1, 1),
            noise=(noise_of(2),) * 3, zeros=zeros,
        )  # fmt: skip
        counts = fit(task).counts
        found = 0
        for level, (own, seen, zero) in enumerate(zip(counts, noisy, zeros.levels, strict=True)):
            assert not own[zero].any()
            value = np.cumsum(own, axis=1) if cumulative else own
            found += int(((value - seen)[zeros.measured(level, order)] ** 2).sum())
        assert found == _best(tree, noisy, zeros, total, compositions, cumulative=cumulative)
        tried += 1
    assert tried >= 3


REGIONS = "region,size\nb,2\nc,1\nc,4\na,3\n"
EVERYWHERE = "size\n3\n"


def _problem(folder, zeros, *, privacy="epsilon = 0.6\n", skip=(), more="", rows=None):
    cells = [(r, s) for r in "abc" for s in range(1, 5) if (r, s) not in skip]
    rows = rows or [f"all,{r},{s},{30 + 7 * s}" for r, s in cells]
    (folder / "counts.csv").write_text("\n".join(["level_1,level_2,size,groups", *rows]), "utf-8")
    (folder / "zeros.csv").write_text(zeros, "utf-8")
    path = folder / "problem.toml"
    path.write_text(
        f'[hierarchy]\ncounts = "counts.csv"\nimpossible = "zeros.csv"\nsizes = 4\n[privacy]\n{privacy}{more}', "utf-8"
    )
    return path


SKIP = (("b", 2), ("c", 1), ("c", 4), ("a", 3))
OUT = tuple((r, 3) for r in "abc")


def _released(out):
    table = pl.read_csv(out / "release.csv").join(pl.read_csv(out / "intervals.csv"), on=["region", "size"])
    return {
        (r, s): (g, low, high)
        for r, s, g, low, high in table.select("region", "size", "groups", "low", "high").iter_rows()
    }


@by_pairs(
    "asked, relation",
    [*((m, REGIONS, SKIP) for m in ABLE), *((m, EVERYWHERE, OUT) for m in ANY)],
    ["sizes", "individuals"],
)
def test_nothing_is_measured_or_released_where_nothing_can_be(tmp_path, asked, relation):
    (method, zeros, skip), out = asked, tmp_path / "out"
    privacy = f'epsilon = 0.6\nrelation = "{relation}"\n'
    done = solve("hierarchical-dp", _problem(tmp_path, zeros, skip=skip, privacy=privacy), out, Options(method=method))
    assert verify(out).complaints == ()
    released = _released(out)
    assert all(released[cell] == (0, 0, 0) for cell in skip)
    if zeros == EVERYWHERE:
        assert released["all", 3] == (0, 0, 0)
    for groups, low, high in released.values():
        assert low <= groups <= high
    drawn = [noise["draws"] for noise in done.result.details.told["noise"]]
    known = METHODS[method].totals == "always" and relation == "sizes"
    per = {EVERYWHERE: (3, 9), REGIONS: (4, 8)}[zeros]
    assert drawn == [per[0] - known, per[1] - 3 * known]
    assert "declared impossible are public" in done.result.guarantee.statement


@by_pairs(
    "method, relation", ["hierarchical-dp", "cumulative-dp", "hierarchical-relaxed"], ["sizes", "individuals", "groups"]
)
def test_counts_of_impossible_sizes_are_told_apart_by_nothing(tmp_path, method, relation):
    """All cells have groups, those that cannot be too; who measures them does not change more than one who does not."""
    out = tmp_path / "out"
    problem = _problem(tmp_path, REGIONS, privacy=f'epsilon = 0.6\nrelation = "{relation}"\n')
    solve("hierarchical-dp", problem, out, Options(method=method))
    assert verify(out).complaints == ()
    assert all(_released(out)[cell] == (0, 0, 0) for cell in SKIP)
    assert json.loads((out / "private/truth.json").read_text())["groups_of_impossible_sizes"] == 44 + 37 + 58 + 51


@pytest.mark.parametrize("method", ["hierarchical-dp", "hierarchical-relaxed"])
def test_groups_that_cannot_be_are_found_in_a_release(tmp_path, method):
    out = tmp_path / "out"
    solve("hierarchical-dp", _problem(tmp_path, REGIONS, skip=SKIP), out, Options(method=method))
    lines = (out / "release.csv").read_text().splitlines()
    for place, line in enumerate(lines):
        region, parent, size, groups = line.split(",")
        by = {("b", "2"): 1, ("a", "2"): -1}.get((region, size), 0)
        lines[place] = line if not by else ",".join((region, parent, size, str(int(groups) + by)))
    (out / "release.csv").write_text("\n".join(lines) + "\n")
    (out / "SHA256SUMS").write_text(sums_text(out))
    assert any("region 'b', size 2: has groups, which is impossible there" in line for line in verify(out).complaints)


@pytest.mark.parametrize(
    ("zeros", "method", "more", "words"),
    [
        (
            REGIONS,
            "cumulative-smoothed",
            "",
            "hierarchical, hierarchical-relaxed, top-down take others",
        ),
        (REGIONS, "cumulative-dp", "[hierarchical-dp]\nregion_totals = true\n", "exact region totals"),
        ("region,size\nd,1\n", "cumulative-dp", "", "row 2, column region: found 'd'"),
        ("region,size\na,5\n", "cumulative-dp", "", "from 1 to 4"),
        ("region\na\n", "cumulative-dp", "", "no column 'size'"),
        ("size\n1\n2\n3\n4\n", "cumulative-dp", "", "every size of every region"),
        (EVERYWHERE, "cumulative-chain-as-published", "", "as it was printed"),
    ],
)
def test_what_cannot_be_done_or_read_is_refused(tmp_path, zeros, method, more, words):
    skip = OUT if zeros == EVERYWHERE else SKIP
    rows = ["all,a,1,0"] if "4" in zeros and "3" in zeros and zeros.startswith("size") else None
    problem = _problem(tmp_path, zeros, skip=skip, more=more, rows=rows)
    with pytest.raises(InputError) as raised:
        solve("hierarchical-dp", problem, tmp_path / "out", Options(method=method, allow_unsafe=True))
    assert words in str(raised.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("cumulative", [True, False])
def test_intervals_hold_beside_zeros(cumulative):
    tree = Tree.from_paths([("r", f"c{k}") for k in range(4)])
    mask = np.zeros((4, 5), dtype=bool)
    mask[1, 2] = mask[2, 0] = mask[3, 4] = True
    zeros = _zeros(tree, mask)
    true = add_up(tree, np.where(mask, 0, 4_000))
    order = "less" if cumulative else "counts"
    held = np.zeros((2, 2))
    for seed in range(200):
        noisy = []
        for level, counts in enumerate(true):
            value = np.cumsum(counts, axis=1) if cumulative else counts
            drawn = GEOMETRIC.draw(value, Fraction(1, 20 + 10 * level), 1, seed=2 * seed + level)[0]
            noisy.append(zeros.filled(level, order, drawn, counts.sum(axis=1)))
        bounds = intervals(
            tree, noisy, true, [true[0].sum(axis=1)], noise=[noise_of(20), noise_of(30)], cumulative=cumulative,
            confidence=0.9, zeros=zeros,
        )  # fmt: skip
        for level, ends in enumerate(bounds):
            low, high = ends.rounded()
            free = ~zeros.levels[level]
            held[level] += ((low < true[level]) & (true[level] < high))[free].sum(), free.sum()
            assert not high[~free].any()
    share = held[:, 0] / held[:, 1]
    assert (share > 0.87).all()
    assert (share < 0.96).all()
