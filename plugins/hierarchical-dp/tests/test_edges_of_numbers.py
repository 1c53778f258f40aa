"""Numbers at the edge of what a problem file can say: each works, or is refused with one line."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from privopt.errors import InputError, UsageError
from privopt.run.solve import Options, solve
from privopt_hierarchical_dp.half_prices import largest_weight, relax_counts
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.projection import project_jointly, sum_up
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
    """Counts by region; what does not hold is not written."""
    solve("hierarchical-dp", path, folder / "out", Options(method=method, allow_unsafe=True, force=True))
    table = pl.read_csv(folder / "out" / "release.csv").group_by("region", maintain_order=True)
    return dict(table.agg(pl.col("groups").sum()).iter_rows())


TOTALS = [method for method, rule in METHODS.items() if rule.totals != "never"]


@pytest.mark.parametrize("method", TOTALS)
def test_one_size_with_region_totals_leaves_nothing_to_measure(tmp_path, method):
    path = _problem(tmp_path, [("NY", 1, 4), ("GA", 1, 5)], sizes=1, more="region_totals = true")
    assert _released(tmp_path, path, method) == {"GA": 5, "NY": 4, "US": 9}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sizes", [1, 3])
def test_one_region_alone(tmp_path, method, sizes):
    released = _released(tmp_path, _problem(tmp_path, [("r", 1, 6)], sizes=sizes, root=""), method)
    assert released.keys() == {"r"}
    assert released["r"] == 6 or not METHODS[method].valid


@pytest.mark.parametrize("method", TOTALS)
def test_a_level_of_weight_0_with_region_totals(tmp_path, method):
    path = _problem(tmp_path, more="level_weights = [0, 1]\nregion_totals = true")
    assert _released(tmp_path, path, method) == {"AK": 7, "GA": 7, "NY": 7, "US": 21}


@pytest.mark.parametrize("method", METHODS)
def test_a_level_of_weight_0(tmp_path, method):
    released = _released(tmp_path, _problem(tmp_path, more="level_weights = [0, 1]"), method)
    assert released["US"] == 21 or not METHODS[method].valid


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
    levels = sum_up(tree, none.leaves)
    again = sum(w * ((x - t) ** 2).sum() for w, x, t in zip((1.0, 0.0, 0.5), levels, noisy, strict=True))
    assert none.value == pytest.approx(again)


@pytest.mark.parametrize("epsilon", ["1" + "0" * 309, "1e309", "1e-301"])
def test_epsilon_beyond_doubles_is_refused(tmp_path, epsilon):
    with pytest.raises(InputError, match=r"privacy\.epsilon: found .* wanted a number between 1e-300 and 1e300"):
        solve("hierarchical-dp", _problem(tmp_path, epsilon=epsilon), tmp_path / "out", Options())


@pytest.mark.parametrize(
    ("epsilon", "more"),
    [("1e-300", ""), ("1e-18", ""), ("1", "budget = [1e-300, 1]"), ("1", "max_quantity = 9000000000000000000")],
)
@pytest.mark.parametrize("method", ["cumulative-smoothed", "cumulative-dp", "cumulative-chain-as-published"])
def test_noise_without_room_in_64_bits_is_refused(tmp_path, epsilon, more, method):
    path = _problem(tmp_path, epsilon=epsilon, more=more)
    with pytest.raises(InputError, match=r"privacy\.epsilon: found .* on level 1: noise of scale"):
        solve("hierarchical-dp", path, tmp_path / "out", Options(method=method, allow_unsafe=True))


@pytest.mark.parametrize("epsilon", ["1e-9", "1e20", "1e300"])
@pytest.mark.parametrize("method", VALID)
def test_much_noise_and_none_at_all(tmp_path, epsilon, method):
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
    with pytest.raises(
        InputError, match=r"c.csv: column groups: found 1.01331e\+16 groups in all, wanted fewer than 2\^50"
    ):
        solve("hierarchical-dp", _problem(tmp_path, rows), tmp_path / "out", Options())
