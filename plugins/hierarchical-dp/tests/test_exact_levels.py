"""Exact levels: the guarantee by brute force over all neighbours, exact numbers in every release, refusals, verify."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from itertools import product

import numpy as np
import polars as pl
import pytest
from helpers.kits import BRIEF, thin_neighbours
from helpers.mended_sums import mend
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.errors import InfeasibleError, InputError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt.testing import conformance
from privopt_hierarchical_dp.exact_levels import count_exact_levels
from privopt_hierarchical_dp.kit import make_profile, related_tables
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.noise_distributions import GEOMETRIC
from privopt_hierarchical_dp.problem import HierarchyProblem, HierarchyTable, Privacy, Settings
from privopt_hierarchical_dp.release import numbers_of
from privopt_hierarchical_dp.sizes import SizesDesign
from privopt_hierarchical_dp.tables.design import TablesDesign
from privopt_hierarchical_dp.totals import estimated_totals
from privopt_hierarchical_dp.tree import Tree, add_up

OF_NOISE = ["solves", "certificate-holds", "guarantee-stated", "sensitivity", "own-scale", "non-interference", "oracle"]
test_tables_with_exact_levels, test_tables_with_an_exact_root = (
    conformance(
        "hierarchical-tables",
        profile=thin_neighbours(related_tables("individuals", exact=exact)),
        checks=[*OF_NOISE, "verify-catches", "round-trip"],
        how=BRIEF,
    )
    for exact in (2, 1)
)
test_households_with_exact_levels = conformance(
    "hierarchical-tables", profile=thin_neighbours(related_tables("replaced", exact=2)), checks=OF_NOISE, how=BRIEF
)
test_sizes_with_exact_levels, test_groups_with_exact_levels, test_groups_with_counts = (
    conformance(
        "hierarchical-dp",
        profile=thin_neighbours(make_profile(relation, exact=2)),
        methods=[method],
        checks=OF_NOISE,
        how=BRIEF,
    )
    for relation, method in (
        ("sizes", "cumulative-dp"),
        ("groups", "cumulative-dp"),
        ("groups", "hierarchical-dp"),
    )
)
PATHS = (("all", "a", "a1"), ("all", "a", "a2"), ("all", "b", "b1"), ("all", "b", "b2"))


def _tables_problem(folder, counts, *, extra="", privacy="epsilon = 1.0", tables=("people", "v")):
    """Individuals of four leaf regions by one attribute of two values."""
    rows = [
        f"{','.join(path)},{value},{count}"
        for path, pair in zip(PATHS, counts, strict=True)
        for value, count in zip("xy", pair, strict=True)
    ]
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "records.csv").write_text("\n".join(["level_1,level_2,level_3,v,count", *rows]))
    (folder / "regions.csv").write_text("\n".join(["level_1,level_2,level_3", *map(",".join, PATHS)]))
    lines = {"people": "tables.people.by = []", "v": 'tables.v.by = ["v"]'}
    path = folder / "problem.toml"
    path.write_text(
        '[hierarchy]\nregions = "regions.csv"\nrecords = "records.csv"\nattributes.v = ["x", "y"]\n'
        + "\n".join(lines[name] for name in tables)
        + f"\n{extra}\n[privacy]\n{privacy}\n"
    )
    return path


def _design(folder, **options):
    from privopt.declare import load_problem
    from privopt_hierarchical_dp.tables.problem import TablesProblem

    path = _tables_problem(folder, [(1, 0)] * 4, **options)
    return TablesDesign.of(load_problem(TablesProblem, path), path.name)


def _log_mass(design, counts, output):
    """Return the log of the probability of noisy values, of which every release is a function."""
    total = 0.0
    for levels, values, scales in zip(design.compute_queries(counts), output, design.scales, strict=True):
        for true, noisy, scale in zip(levels, values, scales, strict=True):
            if scale is not None:
                total -= float(np.abs(noisy - true).sum() / scale)
    return total


def _tables_of(leaves, tree):
    """Return the true counts of both tables: individuals, and individuals by the attribute."""
    return [add_up(tree, leaves.sum(axis=1)), add_up(tree, leaves)]


def _small_inputs(most):
    """Yield all inputs of four leaf regions with two cells and at most so many individuals in all."""
    for cells in product(range(most + 1), repeat=8):
        if sum(cells) == most:
            yield np.array(cells, dtype=np.int64).reshape(4, 2)


@pytest.mark.parametrize("exact", [1, 2, 3])
def test_brute_force_over_all_neighbours_of_tables(tmp_path, exact):
    """The greatest log ratio over all pairs of neighbours and all outputs is epsilon, and is reached.

    Neighbours are found by their definition among all inputs of two individuals: exact numbers agree, and histograms
    differ in one individual. The noise is additive, so for double geometric noise the greatest log ratio over outputs
    is reached at the true values of one of the two.
    """
    design = _design(tmp_path, extra=f'exact = ["level_{exact}"]')
    epsilon, worst, pair_count = 1.0, 0.0, 0
    inputs = list(_small_inputs(2))
    counts = [_tables_of(leaves, design.tree) for leaves in inputs]
    for (a, a_counts), (b, b_counts) in product(zip(inputs, counts, strict=True), repeat=2):
        if np.abs(a - b).sum() != 2:
            continue
        exact_numbers = [np.concatenate(numbers_of(tables)[:exact]) for tables in (a_counts, b_counts)]
        if (exact_numbers[0] != exact_numbers[1]).any():
            continue
        # What is published exactly is the same, and the noisy values are as likely up to exp(epsilon).
        loss = _log_mass(design, a_counts, a_counts) - _log_mass(design, b_counts, a_counts)
        assert loss <= epsilon + 1e-9
        worst, pair_count = max(worst, loss), pair_count + 1
    assert pair_count > 0
    # Budgets are rounded down by less than a millionth. With exact leaf regions, `people` measures nothing.
    assert worst == pytest.approx(epsilon, abs=1e-5)


def test_exchanging_places_costs_twice(tmp_path):
    """As the statement says: individuals of two exact regions exchange places."""
    design = _design(tmp_path, extra='exact = ["level_2"]', tables=("v",))
    a, b = (np.zeros((4, 2), np.int64) for _ in range(2))
    a[0, 0] = a[2, 1] = 1
    b[0, 1] = b[2, 0] = 1
    a_counts, b_counts = (_tables_of(leaves, design.tree)[1:] for leaves in (a, b))
    loss = _log_mass(design, a_counts, a_counts) - _log_mass(design, b_counts, a_counts)
    assert 1.9 < loss <= 2.0 + 1e-9


@pytest.mark.parametrize("exact", [1, 2])
@pytest.mark.parametrize("method", ["hierarchical-dp", "cumulative-dp"])
@pytest.mark.parametrize("relation", ["sizes", "groups"])
def test_brute_force_over_all_neighbours_of_groups(exact, method, relation):
    """All inputs of three groups of up to three sizes in three leaf regions, by the definition of neighbours."""
    tree = Tree.from_paths([("all", "a", "a1"), ("all", "a", "a2"), ("all", "b", "b1")])
    problem = HierarchyProblem(
        hierarchy=HierarchyTable(sizes=3, exact=(f"level_{exact}",)),
        privacy=Privacy(epsilon=Fraction(1), relation=relation),
        settings=Settings(),
    )
    design = SizesDesign.of(problem, method, tree)
    inputs = [np.array(cells, dtype=np.int64).reshape(3, 3) for cells in product(range(3), repeat=9) if sum(cells) == 2]
    counts = [[add_up(tree, leaves)] for leaves in inputs]
    worst = 0.0
    for (a, a_counts), (b, b_counts) in product(zip(inputs, counts, strict=True), repeat=2):
        if np.abs(a - b).sum() != 2 or not all(
            (x == y).all() for x, y in zip(numbers_of(a_counts)[:exact], numbers_of(b_counts)[:exact], strict=True)
        ):
            continue
        if relation == "sizes":
            # One group of one leaf region changes by one size.
            changed = np.argwhere(a != b)
            if len(set(changed[:, 0])) > 1 or abs(int(changed[0, 1]) - int(changed[1, 1])) != 1:
                continue
        worst = max(worst, _log_mass(design, a_counts, design.compute_queries(a_counts))
                    - _log_mass(design, b_counts, design.compute_queries(a_counts)))  # fmt: skip
        assert worst <= 1.0 + 1e-9
    # Cumulative counts of groups that may move are scaled for the largest sizes, which these inputs do not all reach.
    assert worst > (0.44 if relation == "groups" and method == "cumulative-dp" else 0.99)


@settings(max_examples=25, deadline=None)
@given(
    data=st.data(),
    exact=st.integers(1, 3),
    counts=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=4, max_size=4),
)
def test_releases_agree_with_exact_numbers(tmp_path_factory, data, exact, counts):
    """Any noise: the fit keeps the exact numbers, adds up, is non-negative, and intervals there have width 0."""
    design = _design(tmp_path_factory.mktemp("exact"), extra=f'exact = ["level_{exact}"]')
    tree = design.tree
    true = _tables_of(np.array(counts, dtype=np.int64), tree)
    totals = numbers_of(true)[:exact]
    noise = st.integers(-60, 60)
    noisy = [
        [values + np.array(data.draw(st.lists(noise, min_size=values.size, max_size=values.size))).reshape(values.shape)
         for values in levels]
        for levels in true
    ]  # fmt: skip
    noisy = design.fill_unmeasured(noisy, design.budgets, totals)
    fitted = design.fit(noisy, totals)
    for level, numbers in enumerate(numbers_of(fitted.counts)):
        if level < exact:
            np.testing.assert_array_equal(numbers, totals[level])
    for levels in fitted.counts:
        for level, sums in zip(levels, add_up(tree, levels[-1]), strict=True):
            np.testing.assert_array_equal(level, sums)
            assert level.min() >= 0
    np.testing.assert_array_equal(fitted.counts[0][-1], fitted.counts[1][-1].sum(axis=1))
    from privopt_hierarchical_dp.release import HierarchyRelease

    release = HierarchyRelease(
        tree=tree, layout=design.layout, counts=fitted.counts, noisy=noisy, totals=totals, scales=design.scales
    )
    for level, ends in enumerate(design.compute_ends(release)[0][:exact]):
        lower, upper = ends.round_outwards()
        np.testing.assert_array_equal(lower[:, 0], totals[level])
        np.testing.assert_array_equal(upper[:, 0], totals[level])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), known_count=st.integers(1, 3))
def test_estimated_numbers_add_up_to_exact_ones(random_tree, seed, known_count):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 4)
    known = add_up(tree, rng.integers(0, 30, tree.widths[-1]))[:known_count]
    noisy = [rng.integers(-20, 60, (width, 1)) for width in tree.widths]
    totals = estimated_totals(
        tree,
        noisy,
        law=GEOMETRIC,
        scales=[Fraction(2)] * 4,
        order="less",
        root=int(known[0][0]),
        known=known,
    )
    for level, numbers in enumerate(known):
        np.testing.assert_array_equal(totals[level], numbers)
    for level, sums in zip(totals, add_up(tree, totals[-1]), strict=True):
        np.testing.assert_array_equal(level, sums)
        assert level.min() >= 0


def test_result_page_and_files_say_what_is_exact(tmp_path):
    path = _tables_problem(tmp_path, [(30, 12), (25, 9), (18, 7), (40, 2)], extra='exact = ["level_2"]')
    release = solve("hierarchical-tables", path, tmp_path / "out", Options())
    assert verify(tmp_path / "out").complaints == ()
    facts = release.result.details.facts
    assert facts["exact"] == ["level_1", "level_2"]
    assert facts["sensitivity"] == 2
    assert facts["tables"]["people"]["budgets"][:2] == ["0", "0"]
    # Nothing is lost: the table by attribute has what `people` does not use.
    spent = sum(Fraction(budget) for table in facts["tables"].values() for budget in table["budgets"])
    assert 1 - Fraction(1, 1000) < spent <= 1
    statement = release.result.guarantee.statement
    assert "from level_1 to level_2 is published exactly" in statement
    assert "No number of individuals" not in statement
    table = pl.read_csv(tmp_path / "out/tables/people.csv").filter(pl.col("region").is_in(["all", "a", "b"]))
    assert (table["low"] == table["count"]).all()
    assert (table["high"] == table["count"]).all()
    assert dict(table.select("region", "count").iter_rows()) == {"all": 143, "a": 76, "b": 67}


@pytest.mark.parametrize("place", ["totals", "noisy"])
def test_verify_finds_forged_exact_numbers(tmp_path, place):
    path = _tables_problem(tmp_path, [(30, 12), (25, 9), (18, 7), (40, 2)], extra='exact = ["level_2"]')
    folder = solve("hierarchical-tables", path, tmp_path / "out", Options()).folder
    with np.load(folder / "noisy.npz") as archive:
        arrays = dict(archive)
    name = "totals_2" if place == "totals" else "people.level_2"
    arrays[name] = arrays[name] + np.array([1, -1] if place == "totals" else [[1], [0]]).reshape(arrays[name].shape)
    np.savez_compressed(folder / "noisy.npz", **arrays)
    mend(folder)
    complaints = verify(folder).complaints
    words = "the total published is" if place == "totals" else "neither exact numbers nor the sums"
    assert any(words in line for line in complaints), complaints


@pytest.mark.parametrize(
    ("method", "exact"),
    [(name, exact) for name in METHODS for exact in (1, 2) if METHODS[name].totals == "option"],
)
def test_groups_keep_exact_levels(tmp_path, method, exact):
    rows = [f"{','.join(path)},{size},{count}" for path in PATHS for size, count in ((1, 9), (2, 4), (3, 0))]
    (tmp_path / "counts.csv").write_text("\n".join(["level_1,level_2,level_3,size,groups", *rows]))
    path = tmp_path / "p.toml"
    for relation in ("sizes", "groups"):
        path.write_text(
            f'[hierarchy]\ncounts = "counts.csv"\nsizes = 3\nexact = ["level_{exact}"]\n'
            f'[privacy]\nepsilon = 0.2\nrelation = "{relation}"\n'
        )
        release = solve("hierarchical-dp", path, tmp_path / relation, Options(method=method))
        assert verify(tmp_path / relation).complaints == ()
        assert release.result.details.facts["exact"] == ["level_1", "level_2"][:exact]
        if METHODS[method].valid:
            totals = pl.read_csv(tmp_path / relation / "release.csv").group_by("region").agg(pl.col("groups").sum())
            numbers = dict(totals.iter_rows())
            assert numbers["all"] == 52
            assert exact == 1 or numbers["a"] == numbers["b"] == 26


@pytest.mark.parametrize(
    ("extra", "privacy", "words"),
    [
        ('exact = ["level_4"]', "epsilon = 1.0", "levels from level_1 to level_3"),
        ('exact = ["root"]', "epsilon = 1.0", "level_1, ..., level_L"),
        ('exact = ["level_1"]', 'epsilon = 1.0\nrelation = "attributes"', "numbers of all regions are exact"),
    ],
)
def test_refuses_levels_that_are_none(tmp_path, extra, privacy, words):
    path = _tables_problem(tmp_path, [(1, 1)] * 4, extra=extra, privacy=privacy)
    with pytest.raises(InputError) as excinfo:
        solve("hierarchical-tables", path, tmp_path / "out", Options())
    assert words in str(excinfo.value)


def test_refuses_tables_that_show_exact_numbers_alone(tmp_path):
    path = _tables_problem(tmp_path, [(1, 1)] * 4, extra='exact = ["level_3"]', tables=("people",))
    with pytest.raises(InputError, match="two cells"):
        solve("hierarchical-tables", path, tmp_path / "out", Options())


@pytest.mark.parametrize("relation", ["individuals", "moves"])
def test_bounds_that_contradict_exact_numbers_have_no_solution(tmp_path, relation):
    extra = 'exact = ["level_2"]\nbounds = "bounds.csv"'
    path = _tables_problem(
        tmp_path, [(30, 12), (25, 9), (18, 7), (40, 2)], extra=extra, privacy=f'epsilon = 1\nrelation = "{relation}"'
    )
    (tmp_path / "bounds.csv").write_text("region,at_least,at_most\na,80,\nb1,,20\n")
    with pytest.raises(InfeasibleError, match="got exactly 76 individuals, which is off by 4") as excinfo:
        solve("hierarchical-tables", path, tmp_path / "out", Options())
    assert excinfo.value.exit_code == 3
    # Numbers that are not exact are moved into the bounds.
    (tmp_path / "bounds.csv").write_text("region,at_least,at_most\nb1,,20\n")
    solve("hierarchical-tables", path, tmp_path / "out", Options())
    assert verify(tmp_path / "out").complaints == ()
    people = dict(pl.read_csv(tmp_path / "out/tables/people.csv").select("region", "count").iter_rows())
    assert people["b1"] <= 20
    assert people["b1"] + people["b2"] == 67
    truth = json.loads((tmp_path / "out/private/truth.json").read_text())
    assert truth["regions_out_of_bounds"] == 1


def _groups_problem(folder, relation, exact, extra=""):
    """Write a problem of groups of up to eight sizes in four leaf regions."""
    rows = [f"{','.join(path)},{size},{count}" for path in PATHS for size, count in ((1, 9), (2, 4), (8, 1))]
    (folder / "counts.csv").write_text("\n".join(["level_1,level_2,level_3,size,groups", *rows]))
    path = folder / "p.toml"
    path.write_text(
        f'[hierarchy]\ncounts = "counts.csv"\nsizes = 8\nexact = ["level_{exact}"]\n{extra}\n'
        f'[privacy]\nepsilon = 1\nrelation = "{relation}"\n'
    )
    return path


def test_statement_on_bounds_says_which_inputs_are_refused(tmp_path):
    """Under `sizes` neighbours agree on all numbers, so those that are not published are checked too."""
    (tmp_path / "bounds.csv").write_text("region,at_least,at_most\na1,20,\n")
    path = _groups_problem(tmp_path, "sizes", 1, 'bounds = "bounds.csv"')
    with pytest.raises(InfeasibleError, match="got another number of groups"):
        solve("hierarchical-dp", path, tmp_path / "out", Options(method="cumulative-dp"))
    (tmp_path / "bounds.csv").write_text("region,at_least,at_most\na1,5,\n")
    statement = solve("hierarchical-dp", path, tmp_path / "sizes", Options(method="cumulative-dp")).result.guarantee
    assert "inputs that contradict them are refused" in statement.statement
    assert "are moved into them" not in statement.statement
    # Under `groups` those that are not exact are secret.
    (tmp_path / "bounds.csv").write_text("region,at_least,at_most\na1,20,\n")
    path = _groups_problem(tmp_path, "groups", 1, 'bounds = "bounds.csv"')
    statement = solve("hierarchical-dp", path, tmp_path / "groups", Options(method="cumulative-dp")).result.guarantee
    assert "numbers that are not exact are moved into them" in statement.statement


@pytest.mark.parametrize(("exact", "moved"), [(3, 7), (2, 16)])
def test_warning_of_noise_names_its_sensitivity(tmp_path, exact, moved):
    """Groups stay in exact leaf regions, which saves more than half of the noise."""
    path = _groups_problem(tmp_path, "groups", exact)
    release = solve("hierarchical-dp", path, tmp_path / "out", Options(method="cumulative-dp"))
    assert release.result.details.facts["sensitivity"] == moved
    assert any(f"moves up to {moved} of the numbers" in line for line in release.warnings)


def test_promise_with_exact_leaves_contradicts_nothing(tmp_path):
    """One who stays in a region of the last level does not change its leaf region."""
    promise = _design(tmp_path, extra='exact = ["level_3"]').statement
    assert "who stays in its region of level_3" in promise
    assert "also in its leaf region" not in promise


def test_deepest_level_implies_those_above():
    assert count_exact_levels(["level_3", "level_1"]) == 3
    assert count_exact_levels(None) == 0


def test_bounds_from_outside_are_named_if_the_noise_contradicts_them(tmp_path):
    """A bound that is off by 4,000 individuals, beside noise of a few: the release keeps it, and the owner is told."""
    counts = [(3000, 1200), (2500, 900), (1800, 700), (4000, 200)]
    path = _tables_problem(tmp_path, counts, extra='bounds = "bounds.csv"')
    (tmp_path / "bounds.csv").write_text("region,at_least,at_most\na1,,200\nb1,2000,3000\n")
    release = solve("hierarchical-tables", path, tmp_path / "out", Options(seed=1))
    named = [line for line in release.warnings if line.startswith("hierarchy.bounds")]
    assert len(named) == 1
    assert "region 'a1' has a bound of 200" in named[0]
    # Six standard errors, whichever split of the budget is found.
    assert re.search(r"off by (39[89]|40[01])\d,", named[0])
    people = dict(pl.read_csv(tmp_path / "out/tables/people.csv").select("region", "count").iter_rows())
    assert people["a1"] <= 200
