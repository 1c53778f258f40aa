"""Numbers at the edge of what a problem file can say: each works, or is refused with one line."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import pytest
from helpers.command import run
from helpers.grids import by_pairs

from privopt.errors import InputError, UsageError
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt_hierarchical_dp.fits.half_prices import largest_weight, relax_counts
from privopt_hierarchical_dp.fits.projection import project_jointly
from privopt_hierarchical_dp.mechanism import HierarchicalDP
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.tree import Tree, add_up

ROWS = [("NY", 1, 4), ("NY", 2, 3), ("GA", 1, 5), ("GA", 3, 2), ("AK", 2, 7)]
VALID = [name for name, rule in METHODS.items() if rule.valid]


def _problem(folder, rows=tuple(ROWS), *, sizes=3, epsilon="0.5", more="", root="US,"):
    header = "level_1,level_2,size,groups\n" if root else "level_1,size,groups\n"
    (folder / "c.csv").write_text(header + "".join(f"{root}{','.join(map(str, row))}\n" for row in rows))
    path = folder / "p.toml"
    path.write_text(
        f'[hierarchy]\ncounts = "c.csv"\nsizes = {sizes}\n[privacy]\nepsilon = {epsilon}\n[hierarchical-dp]\n{more}\n'
    )
    return path


def _released(folder, path, method):
    """Return counts by region; what does not hold is not written."""
    solve("hierarchical-dp", path, folder / "out", Options(method=method, allow_unsafe=True, force=True))
    table = pl.read_csv(folder / "out" / "release.csv").group_by("region", maintain_order=True)
    return dict(table.agg(pl.col("groups").sum()).iter_rows())


@pytest.mark.parametrize("method", [None, "cumulative-dp", "hierarchical-dp"])
def test_a_relation_that_hides_nothing_is_refused(tmp_path, method):
    """Numbers of groups are exact, and one size is all that a group can have: the true table would be released."""
    more = "region_totals = true" if method else ""
    path = _problem(tmp_path, [("NY", 1, 4), ("GA", 1, 5)], sizes=1, more=more)
    (tmp_path / "like.csv").write_bytes((tmp_path / "c.csv").read_bytes())
    text = path.read_text().replace("[privacy]", 'like = "like.csv"\n[privacy]')
    path.write_text(text)
    for command in (["solve", "--out", f"{tmp_path}/out"], ["plan"]):
        asked = [command[0], "hierarchical-dp", str(path), *command[1:], *(["--method", method] if method else [])]
        told = run(*asked)
        assert told.exit_code == 2
        assert "p.toml: privacy.relation" in told.stderr
        assert '"individuals"' in told.stderr
    assert not (tmp_path / "out").exists()
    path.write_text(text.replace("[hierarchical-dp]", 'relation = "groups"').replace("region_totals = true", ""))
    solve("hierarchical-dp", path, tmp_path / "out")


def test_faults_name_the_problem_file_and_the_mechanism_that_takes_a_key(tmp_path):
    path = _problem(tmp_path, more="region_totals = false")
    with pytest.raises(InputError, match=r"^p\.toml: hierarchical-dp\.region_totals"):
        solve("hierarchical-dp", path, tmp_path / "out")
    path.write_text(path.read_text().replace("[privacy]", '[hierarchy.tables.t]\nby = ["dx"]\n[privacy]'))
    with pytest.raises(
        InputError, match=r"hierarchy\.tables: expected .*, got an unknown key \(hierarchical-tables takes it\)"
    ):
        solve("hierarchical-dp", path, tmp_path / "out")


def test_exact_numbers_of_groups_are_warned_of(tmp_path):
    path = _problem(tmp_path)
    for method, exact in ((None, True), ("hierarchical-dp", False)):
        done = solve("hierarchical-dp", path, tmp_path / "out", Options(method=method, force=True))
        assert any("published exactly, without noise" in line for line in done.warnings) is exact
    assert "Every region's number of groups is published exactly" in HierarchicalDP.scope


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "c.csv: expected a header row and a row for each entry, got an empty file"),
        (
            "level_1,level_2,size,groups\nUS,NY,1,4\n".encode("utf-16"),
            "c.csv: expected text in UTF-8, got text in UTF-16",
        ),
        (
            b"level_1,level_2,size,groups\nUS,NY,1,4\nUS,G\xe9,1,4\n",
            "c.csv: row 3: expected text in UTF-8, got text in another encoding",
        ),
        (
            b"level_1,level_2,size,groups\nUS,NY,1,4\nUS,GA,1,4,7\n",
            "c.csv: row 3: expected 4 fields, as the header has, got 5 fields",
        ),
        (
            b"level_1;level_2;size;groups\nUS;NY;1;4\n",
            "c.csv: header: expected commas between fields, a point before decimals, got ';' between fields",
        ),
        (
            b"level_1,level_2,size,groups\nUS,NY,1,4\n\n",
            "c.csv: row 3: expected a row, or the end of the file, got an empty line",
        ),
        (
            b"level_1,level_2,size,groups\nUS,NY,1,4\n\nUS,GA,1,4\n",
            "c.csv: row 3, column size: expected a whole number, got nothing",
        ),
    ],
)
def test_a_table_that_is_none_is_named_by_row_and_reason(tmp_path, raw, words):
    path = _problem(tmp_path)
    (tmp_path / "c.csv").write_bytes(raw)
    with pytest.raises(InputError, match=re.escape(words)):
        solve("hierarchical-dp", path, tmp_path / "out")


@pytest.mark.parametrize("method", METHODS)
def test_one_region_alone_and_a_level_of_weight_0(tmp_path, method):
    released = _released(tmp_path, _problem(tmp_path, [("r", 1, 6)], root=""), method)
    assert released.keys() == {"r"}
    assert released["r"] == 6 or not METHODS[method].valid
    totals = METHODS[method].totals != "never"
    more = "level_weights = [0, 1]" + "\nregion_totals = true" * totals
    released = _released(tmp_path, _problem(tmp_path, more=more), method)
    assert released["US"] == 21 or not METHODS[method].valid
    assert not totals or released == {"AK": 7, "GA": 7, "NY": 7, "US": 21}


@pytest.mark.parametrize("rows", ["monotone", "simplex"])
def test_the_bound_holds_where_a_level_weighs_nothing(rows):
    """Against the same projection on the other levels' limit: a weight of 1e-6."""
    rng = np.random.default_rng(3)
    tree = Tree.from_paths([("r", f"a{i % 2}", f"b{i}") for i in range(5)])
    totals = add_up(tree, rng.integers(5, 30, size=5))
    noisy = [rng.integers(-5, 30, size=(width, 4)) for width in tree.widths]
    found = []
    for light in (0.0, 1e-6):
        weights = [np.full(4, w) for w in (1.0, light, 0.5)]
        found.append(project_jointly(tree, noisy, weights=weights, totals=totals, rows=rows, gap=1e-4, iterations=4000))
    none, little = found
    assert none.gap <= 1e-4
    assert none.value == pytest.approx(little.value, rel=1e-3)
    levels = add_up(tree, none.leaves)
    again = sum(w * ((x - t) ** 2).sum() for w, x, t in zip((1.0, 0.0, 0.5), levels, noisy, strict=True))
    assert none.value == pytest.approx(again)


@pytest.mark.parametrize("epsilon", ["1" + "0" * 309, "1e309", "1e-301"])
def test_epsilon_beyond_doubles_is_refused(tmp_path, epsilon):
    with pytest.raises(InputError, match=r"privacy\.epsilon: expected a number between 1e-300 and 1e300.*, got .*"):
        solve("hierarchical-dp", _problem(tmp_path, epsilon=epsilon), tmp_path / "out", Options())


@by_pairs(
    "asked, method",
    [("1e-300", ""), ("1e-18", ""), ("1", "budget = [1e-300, 1]"), ("1", "max_quantity = 9000000000000000000")],
    ["cumulative-smoothed", "cumulative-dp", "cumulative-chain-as-published"],
)
def test_noise_without_room_in_64_bits_is_refused(tmp_path, asked, method):
    epsilon, more = asked
    path = _problem(tmp_path, epsilon=epsilon, more=more)
    with pytest.raises(InputError, match=r"privacy\.epsilon: expected .*, got .* on level 1: noise of scale"):
        solve("hierarchical-dp", path, tmp_path / "out", Options(method=method, allow_unsafe=True))


@by_pairs("method, epsilon", VALID, ["1e-9", "1e20", "1e300"])
def test_much_noise_and_none_at_all(tmp_path, method, epsilon):
    path = _problem(tmp_path, epsilon=epsilon)
    if epsilon == "1e-9" and method in ("cumulative", "hierarchical"):
        with pytest.raises(InputError, match="a scale of at most 1,048,576"):
            _released(tmp_path, path, method)
        return
    released = _released(tmp_path, path, method)
    assert released["US"] == 21
    if epsilon != "1e-9":
        assert released == {"AK": 7, "GA": 7, "NY": 7, "US": 21}


@pytest.mark.parametrize("method", ["hierarchical-dp", "hierarchical-relaxed", "cumulative-dp"])
def test_counts_near_the_limit_with_uneven_weights(tmp_path, method):
    rows = [("NY", 1, 2**50 - 8), ("GA", 2, 7)]
    released = _released(tmp_path, _problem(tmp_path, rows, more="level_weights = [1, 0.1234567]"), method)
    assert released["US"] == 2**50 - 1 or not METHODS[method].valid


def test_weights_and_grids_that_pass_64_bits_are_coarser_or_refused():
    tree = Tree.from_paths([("r", "a"), ("r", "b")])
    wide = [np.array([[2**56]]), np.array([[2**55], [2**55]])]
    assert largest_weight(tree, wide, 2**56) == 1
    grid, relaxed = relax_counts(tree, wide, total=2**56, weights=[1, 1])
    assert grid == 1
    assert relaxed[0][0, 0] == 2**56
    with pytest.raises(UsageError, match="pass 64 bits"):
        largest_weight(tree, [level * 16 for level in wide], 2**60)


def test_counts_that_no_integer_adds_up_are_refused(tmp_path):
    rows = [(f"r{k}", 1, 2**50 - 1) for k in range(9)]
    with pytest.raises(InputError, match=r"c.csv: column groups: expected fewer than 2\^50.*, got more groups in all"):
        solve("hierarchical-dp", _problem(tmp_path, rows), tmp_path / "out", Options())
