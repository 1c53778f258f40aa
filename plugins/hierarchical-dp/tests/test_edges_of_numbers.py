"""Numbers at the edge of what a problem file can say: each works, or is refused with one line."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import pytest
from helpers.command import run
from helpers.grids import by_pairs

from privopt.errors import InputError, UsageError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt_hierarchical_dp.fits.half_prices import largest_weight, relax_counts
from privopt_hierarchical_dp.fits.projection import project_jointly
from privopt_hierarchical_dp.mechanism import HierarchicalDP
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.tree import Tree, add_up

ROWS = [("NY", 1, 4), ("NY", 2, 3), ("GA", 1, 5), ("GA", 3, 2), ("AK", 2, 7)]
VALID = [name for name, rule in METHODS.items() if rule.valid]


def _problem(folder, rows=tuple(ROWS), *, sizes=3, epsilon="0.5", settings="", root="US,"):
    header = "level_1,level_2,size,groups\n" if root else "level_1,size,groups\n"
    (folder / "c.csv").write_text(header + "".join(f"{root}{','.join(map(str, row))}\n" for row in rows))
    path = folder / "p.toml"
    path.write_text(
        f'[hierarchy]\ncounts = "c.csv"\nsizes = {sizes}\n'
        f"[privacy]\nepsilon = {epsilon}\n[hierarchical-dp]\n{settings}\n"
    )
    return path


def _solve_counts(folder, path, method):
    """Return counts by region; what does not hold is not written."""
    solve("hierarchical-dp", path, folder / "out", Options(method=method, allow_unsafe=True, force=True))
    table = pl.read_csv(folder / "out" / "release.csv").group_by("region", maintain_order=True)
    return dict(table.agg(pl.col("groups").sum()).iter_rows())


@pytest.mark.parametrize("method", [None, "cumulative-dp", "hierarchical-dp"])
def test_refuses_relation_that_hides_nothing(tmp_path, method):
    """Numbers of groups are exact, and one size is all that a group can have: the true table would be released."""
    extra_settings = "region_totals = true" if method else ""
    path = _problem(tmp_path, [("NY", 1, 4), ("GA", 1, 5)], sizes=1, settings=extra_settings)
    (tmp_path / "like.csv").write_bytes((tmp_path / "c.csv").read_bytes())
    text = path.read_text().replace("[privacy]", 'like = "like.csv"\n[privacy]')
    path.write_text(text)
    for command in (["solve", "--out", f"{tmp_path}/out"], ["plan"]):
        arguments = [command[0], "hierarchical-dp", str(path), *command[1:], *(["--method", method] if method else [])]
        completed = run(*arguments)
        assert completed.exit_code == 2
        assert "p.toml: privacy.relation" in completed.stderr
        assert '"individuals"' in completed.stderr
    assert not (tmp_path / "out").exists()
    path.write_text(text.replace("[hierarchical-dp]", 'relation = "groups"').replace("region_totals = true", ""))
    solve("hierarchical-dp", path, tmp_path / "out")


def test_unknown_key_names_its_mechanism(tmp_path):
    path = _problem(tmp_path, settings="region_totals = false")
    with pytest.raises(InputError, match=r"^p\.toml: hierarchical-dp\.region_totals"):
        solve("hierarchical-dp", path, tmp_path / "out")
    path.write_text(path.read_text().replace("[privacy]", '[hierarchy.tables.t]\nby = ["dx"]\n[privacy]'))
    with pytest.raises(InputError, match=r"hierarchy\.tables: .*unknown key.*\(hierarchical-tables"):
        solve("hierarchical-dp", path, tmp_path / "out")


def test_warns_of_exact_group_numbers(tmp_path):
    path = _problem(tmp_path)
    for method, exact in ((None, True), ("hierarchical-dp", False)):
        release = solve("hierarchical-dp", path, tmp_path / "out", Options(method=method, force=True))
        assert any("published exactly" in line for line in release.warnings) is exact
    assert "is published exactly" in HierarchicalDP.scope


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "c.csv: expected a header"),
        (
            "level_1,level_2,size,groups\nUS,NY,1,4\n".encode("utf-16"),
            "text in UTF-16",
        ),
        (
            b"level_1,level_2,size,groups\nUS,NY,1,4\nUS,G\xe9,1,4\n",
            "row 3: expected text",
        ),
        (
            b"level_1,level_2,size,groups\nUS,NY,1,4\nUS,GA,1,4,7\n",
            "4 fields",
        ),
        (
            b"level_1;level_2;size;groups\nUS;NY;1;4\n",
            "header: expected commas",
        ),
        (
            b"level_1,level_2,size,groups\nUS,NY,1,4\n\n",
            "an empty line",
        ),
        (
            b"level_1,level_2,size,groups\nUS,NY,1,4\n\nUS,GA,1,4\n",
            "row 3, column size",
        ),
    ],
)
def test_names_row_and_reason_of_unreadable_table(tmp_path, raw, words):
    path = _problem(tmp_path)
    (tmp_path / "c.csv").write_bytes(raw)
    with pytest.raises(InputError, match=re.escape(words)):
        solve("hierarchical-dp", path, tmp_path / "out")


@pytest.mark.parametrize("method", METHODS)
def test_single_region_and_zero_weight_level(tmp_path, method):
    counts_by_region = _solve_counts(tmp_path, _problem(tmp_path, [("r", 1, 6)], root=""), method)
    assert counts_by_region.keys() == {"r"}
    assert counts_by_region["r"] == 6 or not METHODS[method].valid
    totals = METHODS[method].totals != "never"
    extra_settings = "level_weights = [0, 1]" + "\nregion_totals = true" * totals
    counts_by_region = _solve_counts(tmp_path, _problem(tmp_path, settings=extra_settings), method)
    assert counts_by_region["US"] == 21 or not METHODS[method].valid
    assert not totals or counts_by_region == {"AK": 7, "GA": 7, "NY": 7, "US": 21}


@pytest.mark.parametrize("rows", ["monotone", "simplex"])
def test_bound_holds_with_a_level_of_weight_0(rows):
    """Against the same projection on the other levels' limit: a weight of 1e-6."""
    rng = np.random.default_rng(3)
    tree = Tree.from_paths([("r", f"a{i % 2}", f"b{i}") for i in range(5)])
    totals = add_up(tree, rng.integers(5, 30, size=5))
    noisy = [rng.integers(-5, 30, size=(width, 4)) for width in tree.widths]
    projections = []
    for light in (0.0, 1e-6):
        weights = [np.full(4, w) for w in (1.0, light, 0.5)]
        projections.append(
            project_jointly(tree, noisy, weights=weights, totals=totals, rows=rows, gap=1e-4, iterations=4000)
        )
    zero_weight, little = projections
    assert zero_weight.gap <= 1e-4
    assert zero_weight.value == pytest.approx(little.value, rel=1e-3)
    levels = add_up(tree, zero_weight.leaves)
    weighted_error = sum(w * ((x - t) ** 2).sum() for w, x, t in zip((1.0, 0.0, 0.5), levels, noisy, strict=True))
    assert zero_weight.value == pytest.approx(weighted_error)


@pytest.mark.parametrize("epsilon", ["1" + "0" * 309, "1e309", "1e-301"])
def test_refuses_epsilon_beyond_doubles(tmp_path, epsilon):
    with pytest.raises(InputError, match=r"privacy\.epsilon: .*1e-300 and 1e300"):
        solve("hierarchical-dp", _problem(tmp_path, epsilon=epsilon), tmp_path / "out", Options())


@by_pairs(
    "settings, method",
    [("1e-300", ""), ("1e-18", ""), ("1", "budget = [1e-300, 1]"), ("1", "max_quantity = 9000000000000000000")],
    ["cumulative-smoothed", "cumulative-dp", "cumulative-chain-as-published"],
)
def test_refuses_noise_beyond_64_bits(tmp_path, settings, method):
    epsilon, extra_settings = settings
    path = _problem(tmp_path, epsilon=epsilon, settings=extra_settings)
    with pytest.raises(InputError, match=r"privacy\.epsilon: .*level 1: noise"):
        solve("hierarchical-dp", path, tmp_path / "out", Options(method=method, allow_unsafe=True))


@by_pairs("method, epsilon", VALID, ["1e-9", "1e20", "1e300"])
def test_large_and_vanishing_noise(tmp_path, method, epsilon):
    path = _problem(tmp_path, epsilon=epsilon)
    if epsilon == "1e-9" and method in ("cumulative", "hierarchical"):
        with pytest.raises(InputError, match="at most 1,048,576"):
            _solve_counts(tmp_path, path, method)
        return
    counts_by_region = _solve_counts(tmp_path, path, method)
    assert counts_by_region["US"] == 21
    if epsilon != "1e-9":
        assert counts_by_region == {"AK": 7, "GA": 7, "NY": 7, "US": 21}


@pytest.mark.parametrize("method", ["hierarchical-dp", "hierarchical-relaxed", "cumulative-dp"])
def test_counts_near_limit_with_uneven_weights(tmp_path, method):
    rows = [("NY", 1, 2**50 - 8), ("GA", 2, 7)]
    counts_by_region = _solve_counts(
        tmp_path, _problem(tmp_path, rows, settings="level_weights = [1, 0.1234567]"), method
    )
    assert counts_by_region["US"] == 2**50 - 1 or not METHODS[method].valid


def test_large_weights_are_coarsened_or_refused():
    tree = Tree.from_paths([("r", "a"), ("r", "b")])
    large_values = [np.array([[2**56]]), np.array([[2**55], [2**55]])]
    assert largest_weight(tree, large_values, 2**56) == 1
    grid, relaxed = relax_counts(tree, large_values, total=2**56, weights=[1, 1])
    assert grid == 1
    assert relaxed[0][0, 0] == 2**56
    with pytest.raises(UsageError, match="exceed 64 bits"):
        largest_weight(tree, [level * 16 for level in large_values], 2**60)


def test_refuses_counts_that_overflow_when_added(tmp_path):
    rows = [(f"r{k}", 1, 2**50 - 1) for k in range(9)]
    with pytest.raises(InputError, match=r"c.csv: column groups: .*2\^50"):
        solve("hierarchical-dp", _problem(tmp_path, rows), tmp_path / "out", Options())
