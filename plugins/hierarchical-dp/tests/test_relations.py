"""What neighbours are: sensitivities by search, the kit and planted faults, totals that nobody knows, vacant units."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from helpers.grids import by_pairs
from helpers.kits import BRIEF, PLANTED, thin_neighbours
from helpers.mended_sums import mend

from privopt.command.cli import cli
from privopt.errors import InputError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt.testing import conformance, run_check, subject
from privopt_hierarchical_dp import relations
from privopt_hierarchical_dp.kit import make_profile
from privopt_hierarchical_dp.mechanism import HierarchicalDP
from privopt_hierarchical_dp.methods import METHODS, sensitivity
from privopt_hierarchical_dp.noise_distributions import noise_of
from privopt_hierarchical_dp.plan import errors_on
from privopt_hierarchical_dp.problem import HierarchyProblem, HierarchyTable, Privacy
from privopt_hierarchical_dp.relations import RELATIONS, Relation
from privopt_hierarchical_dp.sizes import SizesDesign, compute_query
from privopt_hierarchical_dp.totals import estimated_totals
from privopt_hierarchical_dp.tree import add_up

OF_NOISE = [
    "solves", "certificate-holds", "guarantee-stated", "sensitivity", "own-scale", "non-interference",
    "oracle", "round-trip", "verify-catches", "no-secret-leak", "lower-bound", "epsilon-attack",
]  # fmt: skip
test_individuals, test_groups, test_vacant_units = (
    conformance("hierarchical-dp", profile=thin_neighbours(profile), methods=[method], checks=kit_tests, how=BRIEF)
    for profile, method, kit_tests in (
        (make_profile("individuals"), "cumulative-smoothed", OF_NOISE[:-1]),
        (make_profile("groups"), "hierarchical-dp", OF_NOISE[:5]),
        (make_profile("sizes", first=0), "cumulative-smoothed", OF_NOISE[:5]),
    )
)
test_all_of_groups = pytest.mark.slow(
    conformance(
        "hierarchical-dp", profile=make_profile("groups"), methods=["hierarchical-dp"], checks=OF_NOISE, how="dev"
    )
)
ZCDP = make_profile("groups", kind="zcdp")
test_groups_under_zcdp = pytest.mark.slow(
    conformance(
        "hierarchical-dp", profile=ZCDP, methods=["hierarchical-dp"], checks=[*OF_NOISE[:5], OF_NOISE[-1]], how="dev"
    )
)
ATTACKED = (
    make_profile("individuals"),
    make_profile("sizes", first=0),
    make_profile("replaced"),
    make_profile("groups", listed=True),
)
test_all_of_individuals, test_on_vacant_units, test_on_households, test_on_listed_regions = (
    pytest.mark.slow(
        conformance("hierarchical-dp", profile=profile, methods=["cumulative-smoothed"], checks=OF_NOISE, how="dev")
    )
    for profile in ATTACKED
)
VALID = [name for name in METHODS if METHODS[name].valid]
ANY = [name for name in METHODS if METHODS[name].query != "chain"]
CUMULATIVE = "cumulative-dp"
OF_GROUPS = ("sizes", "individuals", "groups")
"""Relations without a largest household (test_households.py has that one)."""


def _neighbours(counts, relation, max_quantity):
    """Of the sizes of one region."""
    n = len(counts)
    for size in range(n):
        if relation == "groups" or (relation == "individuals" and size < max_quantity):
            yield size, None
        for new_size in range(n) if relation != "groups" else ():
            if 0 < abs(new_size - size) <= max_quantity:
                yield size, new_size


@pytest.mark.parametrize("relation", OF_GROUPS)
@pytest.mark.parametrize("method", ["hierarchical-dp", CUMULATIVE, "cumulative-smoothed"])
def test_sensitivities_match_search(relation, method, random_tree):
    """Over every neighbour: the greatest change and the greatest sum of squares are what is reckoned with."""
    tree = random_tree(np.random.default_rng(3), 3)
    for max_quantity, n in product((1, 2, 3), (4, 6)):
        size_relation = Relation(name=relation, classes=n)
        totals = size_relation.exact and METHODS[method].totals == "always"
        leaves = np.ones((tree.widths[-1], n), dtype=np.int64)
        old_query = compute_query(method, add_up(tree, leaves), totals=totals, relation=size_relation)
        worst = np.zeros((2, 3), dtype=int)
        for region in range(len(leaves)):
            for size, new_size in _neighbours(leaves[region], relation, max_quantity):
                for sign in (1, -1):
                    neighbour = leaves.copy()
                    neighbour[region, size] -= sign
                    if new_size is not None:
                        neighbour[region, new_size] += sign
                    new_query = compute_query(method, add_up(tree, neighbour), totals=totals, relation=size_relation)
                    changes = [np.abs(a - b) for a, b in zip(new_query, old_query, strict=True)]
                    worst = np.maximum(worst, [[int(o.sum()) for o in changes], [int((o**2).sum()) for o in changes]])
        assert (worst == sensitivity(method, max_quantity, size_relation)).all()


def test_counts_from_below_would_change_more():
    """Why groups of size s or more are measured: of those of s or less, one who moves in alone changes all."""
    old_counts, new_counts = (np.array([row]) for row in ([0, 4, 2], [1, 4, 2]))
    size_relation = Relation(name="individuals", classes=3)
    down = [
        compute_query(CUMULATIVE, [counts], totals=False, relation=size_relation)[0]
        for counts in (old_counts, new_counts)
    ]
    query_changes = [compute_query(CUMULATIVE, [counts], totals=False)[0] for counts in (old_counts, new_counts)]
    assert int(np.abs(down[0] - down[1]).sum()) == 1 == sensitivity(CUMULATIVE, 1, size_relation)
    assert int(np.abs(query_changes[0] - query_changes[1]).sum()) == 3
    assert down[0].tolist() == [[6, 6, 2]]


def _failure_reason(check, relation, method):
    result = run_check(check, subject("hierarchical-dp", method, profile=make_profile(relation)), how=PLANTED)
    assert result.status == "failed", result
    return result.reason


@pytest.mark.parametrize(
    ("relation", "method", "times"),
    [("groups", CUMULATIVE, "times the"), ("individuals", "hierarchical-dp", "2 times")],
)
def test_kit_finds_noise_for_another_relation(monkeypatch, relation, method, times):
    """Planted: whole groups with the noise for one individual, and the other way round."""
    monkeypatch.setattr(Relation, "sensitivity", lambda self, query, max_quantity, **_: 1)
    assert times in _failure_reason("sensitivity", relation, method)


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["groups", "individuals"])
def test_kit_finds_exactly_published_totals(monkeypatch, relation):
    """Planted: the true number of groups stands beside noise that is right."""
    original_fit, draw = SizesDesign.fit, SizesDesign.draw
    truth = [0]

    def fit_exact_totals(self, noisy, totals, context, *, root=None):
        return original_fit(self, noisy, totals, context, root=truth[0] if root is None else root)

    def draw_and_record(self, counts, *, seed):
        truth[0] = int(counts[0][0].sum())
        return draw(self, counts, seed=seed)

    monkeypatch.setattr(SizesDesign, "fit", fit_exact_totals)
    monkeypatch.setattr(SizesDesign, "draw", draw_and_record)
    monkeypatch.setattr(SizesDesign, "find_misestimates", lambda *_: [])
    assert "differs" in _failure_reason("non-interference", relation, "hierarchical-dp")


def _problem(folder, *, relation="individuals", extra_settings="", privacy="epsilon = 0.8\n", first=1, groups=30):
    rows = [f"all,{r},{s},{groups + 7 * s}" for r in "abc" for s in range(first, 5)]
    for name in ("counts.csv", "like.csv"):
        (folder / name).write_text("\n".join(["level_1,level_2,size,groups", *rows]), "utf-8")
    text = f'[hierarchy]\ncounts = "counts.csv"\nlike = "like.csv"\nsizes = 4\nfirst_size = {first}\n'
    path = folder / "problem.toml"
    path.write_text(f'{text}[privacy]\nrelation = "{relation}"\n{privacy}[hierarchical-dp]\n{extra_settings}', "utf-8")
    return path


@by_pairs("method, relation", ANY, ["individuals", "groups"])
def test_every_method_hides_the_total(tmp_path, method, relation):
    output_folder = tmp_path / "out"
    release = solve("hierarchical-dp", _problem(tmp_path, relation=relation), output_folder, Options(method=method))
    assert verify(output_folder).complaints == ()
    facts = release.result.details.facts
    assert facts["relation"] == relation
    assert facts["region_totals_exact"] is False
    max_change = 4 if relation == "groups" else 1
    assert facts["sensitivity"] == ({"groups": 1}.get(relation, 2) if METHODS[method].query == "counts" else max_change)
    assert release.result.guarantee.unit == relations.Relation(name=relation).unit
    assert release.result.guarantee.scope == RELATIONS[relation]
    assert "No number of groups" in release.result.guarantee.statement
    with np.load(output_folder / "noisy.npz") as archive:
        assert sorted(archive.files) == ["level_1", "level_2", "scales"]
    if METHODS[method].valid:
        counts = pl.read_csv(output_folder / "release.csv")["groups"].to_numpy().reshape(4, 4)
        np.testing.assert_array_equal(counts[1], counts[0] + counts[2:].sum(axis=0))
        assert counts.min() >= 0
    joined = pl.read_csv(output_folder / "intervals.csv").join(
        pl.read_csv(output_folder / "release.csv"), on=["region", "size"]
    )
    assert (joined["low"] <= joined["groups"]).all()
    assert (joined["groups"] <= joined["high"]).all()


@by_pairs("method, relation", VALID, ["individuals", "groups"])
def test_tiny_noise_gives_the_true_total(tmp_path, method, relation):
    problem = _problem(tmp_path, relation=relation, privacy="epsilon = 1000\n")
    solve("hierarchical-dp", problem, tmp_path / "out", Options(method=method))
    truth = json.loads((tmp_path / "out/private/truth.json").read_text())
    assert truth["l1_error"] == 0


def test_estimated_totals_are_the_nearest(random_tree):
    """Unbiased at the root, by dense least squares; consistent and non-negative below it."""
    rng = np.random.default_rng(4)
    scales = (Fraction(2), Fraction(3), Fraction(5))
    from privopt_hierarchical_dp.noise_distributions import GEOMETRIC

    for _ in range(20):
        tree = random_tree(rng, 3)
        noisy = [rng.integers(0, 200, (width, 3)) for width in tree.widths]
        rows = np.concatenate(add_up(tree, np.eye(tree.widths[-1], dtype=np.int64))).astype(float)
        weight = np.concatenate(
            [np.full(w, 1 / noise_of(s).variance) for w, s in zip(tree.widths, scales, strict=True)]
        )
        target = np.concatenate([level[:, 0] for level in noisy])
        dense = np.linalg.solve((rows.T * weight) @ rows, (rows.T * weight) @ target)
        estimated = estimated_totals(tree, noisy, law=GEOMETRIC, scales=scales, order="more")
        assert abs(int(estimated[0][0]) - max(0.0, dense.sum())) <= 0.5 + 1e-9
        for level, sums in zip(estimated, add_up(tree, estimated[-1]), strict=True):
            np.testing.assert_array_equal(level, sums)
            assert level.min() >= 0


@pytest.mark.parametrize("method", [CUMULATIVE, "hierarchical-dp"])
def test_verify_finds_a_wrong_total(tmp_path, method):
    output_folder = tmp_path / "out"
    solve("hierarchical-dp", _problem(tmp_path), output_folder, Options(method=method))
    lines = (output_folder / "release.csv").read_text().splitlines()
    for index, line in enumerate(lines):
        region, parent, size, groups = line.split(",")
        if size == "2" and region in ("a", "all"):
            lines[index] = ",".join((region, parent, size, str(int(groups) + 9)))
    (output_folder / "release.csv").write_text("\n".join(lines) + "\n")
    mend(output_folder)
    assert any("noisy values give" in line for line in verify(output_folder).complaints)


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        ("cumulative-dp", {"extra_settings": "region_totals = true\n"}, "number of groups"),
        ("cumulative-smoothed", {"first": 0}, '"sizes" with first_size = 0'),
        ("cumulative-dp", {"relation": "persons"}, "sizes, individuals, groups"),
        ("cumulative-chain-as-published", {}, "was printed"),
    ],
)
def test_refuses_contradictory_settings(tmp_path, method, settings, words):
    problem = _problem(tmp_path, **settings)
    with pytest.raises(InputError, match=words):
        solve("hierarchical-dp", problem, tmp_path / "out", Options(method=method, allow_unsafe=True))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("relation", "method", "max_quantity", "is_warned"),
    [
        ("groups", CUMULATIVE, 4, True),
        ("groups", "hierarchical-dp", 4, False),
        *(("individuals", CUMULATIVE, max_quantity, max_quantity == 3) for max_quantity in (1, 2, 3)),
    ],
)
def test_warns_if_cumulative_counts_waste_noise(tmp_path, relation, method, max_quantity, is_warned):
    extra_settings = "" if relation == "groups" else f"max_quantity = {max_quantity}\n"
    release = solve(
        "hierarchical-dp",
        _problem(tmp_path, relation=relation, extra_settings=extra_settings),
        tmp_path / "out",
        Options(method=method),
    )
    keywords = f"moves up to {max_quantity} of the numbers that {method} measures"
    assert any(keywords in line and "it moves" in line for line in release.warnings) is is_warned


def _load(path):
    from privopt.declare import load_problem

    return load_problem(HierarchyProblem, path)


def test_plan_respects_the_relation(tmp_path):
    from privopt.interfaces import SolveContext

    errors = {}
    for relation in OF_GROUPS:
        problem = _load(_problem(tmp_path, relation=relation, groups=900))
        plan = HierarchicalDP().plan(problem, "problem.toml", SolveContext(method="hierarchical-dp"))
        errors[relation] = sum(plan.errors[Fraction("0.8")])
    assert errors["groups"] < errors["sizes"]  # half the noise
    assert errors["individuals"] > 0.8 * errors["sizes"]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("hierarchical-dp", (8_842, 8_849, 4_594)),
        pytest.param("cumulative-smoothed", (2_344, 2_519, 15_000), marks=pytest.mark.slow),
    ],
)
def test_table_of_relation_costs(method, expected, six_levels):
    """README of the plugin: errors over six levels at epsilon 1, mean of ten seeded runs."""
    tree, leaves = six_levels
    for relation, expected_error in zip(OF_GROUPS, expected, strict=True):
        problem = HierarchyProblem(
            hierarchy=HierarchyTable(sizes=10), privacy=Privacy(epsilon=Fraction(1), relation=relation)
        )
        error = errors_on([leaves] * 10, SizesDesign.of(problem, method, tree)).sum(axis=1).mean()
        assert error == pytest.approx(expected_error, rel=0.02)


@pytest.mark.parametrize("method", ["cumulative-smoothed", "cumulative-dp", "hierarchical-dp"])
def test_lone_occupant_of_a_unit_may_leave(tmp_path, method):
    """Of three units one is vacant, one has an individual who leaves in the second file."""
    release = {}
    for name, occupants in (("before", 1), ("after", 0)):
        rows = ["U,A,x,1", "U,A,x,1", f"U,A,y,{occupants}", "U,A,z,0", "U,B,w,1"]
        (tmp_path / "u.csv").write_text("level_1,level_2,unit,quantity\n" + "\n".join(rows) + "\n")
        (tmp_path / "p.toml").write_text(
            '[hierarchy]\nunits = "u.csv"\nsizes = 3\nfirst_size = 0\n[privacy]\nepsilon = 1000\n'
        )
        finished = solve("hierarchical-dp", tmp_path / "p.toml", tmp_path / name, Options(method=method))
        assert verify(tmp_path / name).complaints == ()
        table = pl.read_csv(tmp_path / name / "release.csv")
        assert table["size"].to_list() == [0, 1, 2, 3] * 3
        release[name] = table.filter(pl.col("region") == "A")["groups"].to_list()
        statement = finished.result.guarantee.statement
        assert "lives there alone" in statement
        assert "Not covered: a unit" in statement
        truth = json.loads((tmp_path / name / "private/truth.json").read_text())
        assert truth["groups_of_size_0_left_out"] == 0
    assert release == {"before": [1, 1, 1, 0], "after": [2, 0, 1, 0]}


@pytest.mark.parametrize(
    ("relation", "kind", "words"),
    [
        ("sizes", "zcdp", "costs 4 rho"),
        ("individuals", "pure-dp", "who lives alone"),
        ("individuals", "zcdp", "k^2 rho"),
        ("groups", "pure-dp", "another 4 epsilon"),
        ("groups", "approx-dp", "exp(3 epsilon)) delta"),
    ],
)
def test_statement_says_what_is_covered(relation, kind, words):
    statement = Relation(name=relation, classes=4).statement(totals=False, max_quantity=1, kind=kind)
    assert words in statement


def test_ledger_refuses_to_mix_relations(tmp_path):
    """Beside exact numbers of groups nothing is promised to who joins or leaves: the sum would be no one's."""
    ledger, exit_codes = tmp_path / "l", []
    for relation, first in (("sizes", 1), ("individuals", 1), ("sizes", 0), ("groups", 1), ("sizes", 1)):
        path, output_folder = _problem(tmp_path, relation=relation, first=first), tmp_path / f"o{len(exit_codes)}"
        arguments = [
            "solve",
            "hierarchical-dp",
            str(path),
            "--out",
            str(output_folder),
            "--ledger",
            str(ledger),
            "--quiet",
        ]
        completed = CliRunner().invoke(cli, arguments, standalone_mode=False)
        exit_codes.append(completed.return_value or completed.exit_code)
        assert exit_codes[-1] == 0 or ("unit: expected per" in completed.stderr and not output_folder.exists())
    assert exit_codes == [0, 2, 2, 2, 0]
