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
from helpers.kits import BRIEF, PLANTED, thinned
from helpers.mended_sums import mend

from privopt.command.cli import cli
from privopt.errors import InputError
from privopt.run.options import Options
from privopt.run.solve import solve
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
    conformance("hierarchical-dp", profile=thinned(profile), methods=[method], checks=tried, how=BRIEF)
    for profile, method, tried in (
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


def _neighbours(counts, relation, most):
    """Of the sizes of one region."""
    n = len(counts)
    for size in range(n):
        if relation == "groups" or (relation == "individuals" and size < most):
            yield size, None
        for other in range(n) if relation != "groups" else ():
            if 0 < abs(other - size) <= most:
                yield size, other


@pytest.mark.parametrize("relation", OF_GROUPS)
@pytest.mark.parametrize("method", ["hierarchical-dp", CUMULATIVE, "cumulative-smoothed"])
def test_sensitivities_by_search(relation, method, random_tree):
    """Over every neighbour: the greatest change and the greatest sum of squares are what is reckoned with."""
    tree = random_tree(np.random.default_rng(3), 3)
    for most, n in product((1, 2, 3), (4, 6)):
        own = Relation(name=relation, classes=n)
        totals = own.exact and METHODS[method].totals == "always"
        leaves = np.ones((tree.widths[-1], n), dtype=np.int64)
        before = compute_query(method, add_up(tree, leaves), totals=totals, relation=own)
        worst = np.zeros((2, 3), dtype=int)
        for region in range(len(leaves)):
            for size, other in _neighbours(leaves[region], relation, most):
                for sign in (1, -1):
                    moved = leaves.copy()
                    moved[region, size] -= sign
                    if other is not None:
                        moved[region, other] += sign
                    after = compute_query(method, add_up(tree, moved), totals=totals, relation=own)
                    off = [np.abs(a - b) for a, b in zip(after, before, strict=True)]
                    worst = np.maximum(worst, [[int(o.sum()) for o in off], [int((o**2).sum()) for o in off]])
        assert (worst == sensitivity(method, most, own)).all()


def test_a_size_or_less_would_not_do_where_groups_appear():
    """Why groups of size s or more are measured: of those of s or less, one who moves in alone changes all."""
    before, after = (np.array([row]) for row in ([0, 4, 2], [1, 4, 2]))
    own = Relation(name="individuals", classes=3)
    down = [compute_query(CUMULATIVE, [counts], totals=False, relation=own)[0] for counts in (before, after)]
    up = [compute_query(CUMULATIVE, [counts], totals=False)[0] for counts in (before, after)]
    assert int(np.abs(down[0] - down[1]).sum()) == 1 == sensitivity(CUMULATIVE, 1, own)
    assert int(np.abs(up[0] - up[1]).sum()) == 3
    assert down[0].tolist() == [[6, 6, 2]]


def _caught(check, relation, method):
    result = run_check(check, subject("hierarchical-dp", method, profile=make_profile(relation)), how=PLANTED)
    assert result.status == "failed", result
    return result.reason


@pytest.mark.parametrize(
    ("relation", "method", "times"),
    [("groups", CUMULATIVE, "times the"), ("individuals", "hierarchical-dp", "2 times")],
)
def test_the_kit_catches_noise_for_another_relation(monkeypatch, relation, method, times):
    """Planted: whole groups with the noise for one individual, and the other way round."""
    monkeypatch.setattr(Relation, "sensitivity", lambda self, query, most: 1)
    assert times in _caught("sensitivity", relation, method)


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["groups", "individuals"])
def test_the_kit_catches_totals_that_are_published_exactly(monkeypatch, relation):
    """Planted: the true number of groups stands beside noise that is right."""
    real, draw = SizesDesign.fit, SizesDesign.draw
    truth = [0]

    def planted(self, noisy, totals, how, *, root=None):
        return real(self, noisy, totals, how, root=truth[0] if root is None else root)

    def watched(self, counts, *, seed):
        truth[0] = int(counts[0][0].sum())
        return draw(self, counts, seed=seed)

    monkeypatch.setattr(SizesDesign, "fit", planted)
    monkeypatch.setattr(SizesDesign, "draw", watched)
    monkeypatch.setattr(SizesDesign, "misestimated", lambda *_: [])
    assert "differs" in _caught("non-interference", relation, "hierarchical-dp")


def _problem(folder, *, relation="individuals", more="", privacy="epsilon = 0.8\n", first=1, groups=30):
    rows = [f"all,{r},{s},{groups + 7 * s}" for r in "abc" for s in range(first, 5)]
    for name in ("counts.csv", "like.csv"):
        (folder / name).write_text("\n".join(["level_1,level_2,size,groups", *rows]), "utf-8")
    text = f'[hierarchy]\ncounts = "counts.csv"\nlike = "like.csv"\nsizes = 4\nfirst_size = {first}\n'
    path = folder / "problem.toml"
    path.write_text(f'{text}[privacy]\nrelation = "{relation}"\n{privacy}[hierarchical-dp]\n{more}', "utf-8")
    return path


@by_pairs("method, relation", ANY, ["individuals", "groups"])
def test_every_method_hides_the_total_and_verifies(tmp_path, method, relation):
    out = tmp_path / "out"
    done = solve("hierarchical-dp", _problem(tmp_path, relation=relation), out, Options(method=method))
    assert verify(out).complaints == ()
    facts = done.result.details.facts
    assert facts["relation"] == relation
    assert facts["region_totals_exact"] is False
    wide = 4 if relation == "groups" else 1
    assert facts["sensitivity"] == ({"groups": 1}.get(relation, 2) if METHODS[method].query == "counts" else wide)
    assert done.result.guarantee.unit == relations.Relation(name=relation).unit
    assert done.result.guarantee.scope == RELATIONS[relation]
    assert "No number of groups is published exactly" in done.result.guarantee.statement
    with np.load(out / "noisy.npz") as archive:
        assert sorted(archive.files) == ["level_1", "level_2", "scales"]
    if METHODS[method].valid:
        counts = pl.read_csv(out / "release.csv")["groups"].to_numpy().reshape(4, 4)
        np.testing.assert_array_equal(counts[1], counts[0] + counts[2:].sum(axis=0))
        assert counts.min() >= 0
    both = pl.read_csv(out / "intervals.csv").join(pl.read_csv(out / "release.csv"), on=["region", "size"])
    assert (both["low"] <= both["groups"]).all()
    assert (both["groups"] <= both["high"]).all()


@by_pairs("method, relation", VALID, ["individuals", "groups"])
def test_next_to_no_noise_gives_the_truth_and_its_total(tmp_path, method, relation):
    problem = _problem(tmp_path, relation=relation, privacy="epsilon = 1000\n")
    solve("hierarchical-dp", problem, tmp_path / "out", Options(method=method))
    truth = json.loads((tmp_path / "out/private/truth.json").read_text())
    assert truth["l1_error"] == 0


def test_estimated_totals_are_the_nearest_consistent_ones(random_tree):
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
        found = estimated_totals(tree, noisy, law=GEOMETRIC, scales=scales, order="more")
        assert abs(int(found[0][0]) - max(0.0, dense.sum())) <= 0.5 + 1e-9
        for level, again in zip(found, add_up(tree, found[-1]), strict=True):
            np.testing.assert_array_equal(level, again)
            assert level.min() >= 0


@pytest.mark.parametrize("method", [CUMULATIVE, "hierarchical-dp"])
def test_a_total_that_the_noisy_values_do_not_give_is_found(tmp_path, method):
    out = tmp_path / "out"
    solve("hierarchical-dp", _problem(tmp_path), out, Options(method=method))
    lines = (out / "release.csv").read_text().splitlines()
    for place, line in enumerate(lines):
        region, parent, size, groups = line.split(",")
        if size == "2" and region in ("a", "all"):
            lines[place] = ",".join((region, parent, size, str(int(groups) + 9)))
    (out / "release.csv").write_text("\n".join(lines) + "\n")
    mend(out)
    assert any("the noisy values give" in line for line in verify(out).complaints)


@pytest.mark.parametrize(
    ("method", "asked", "words"),
    [
        ("cumulative-dp", {"more": "region_totals = true\n"}, "no number of groups is exact"),
        ("cumulative-smoothed", {"first": 0}, '"sizes" with first_size = 0'),
        ("cumulative-dp", {"relation": "persons"}, "one of sizes, individuals, groups"),
        ("cumulative-chain-as-published", {}, "as it was printed"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, method, asked, words):
    problem = _problem(tmp_path, **asked)
    with pytest.raises(InputError, match=words):
        solve("hierarchical-dp", problem, tmp_path / "out", Options(method=method, allow_unsafe=True))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("relation", "method", "most", "warned"),
    [
        ("groups", CUMULATIVE, 4, True),
        ("groups", "hierarchical-dp", 4, False),
        *(("individuals", CUMULATIVE, most, most == 3) for most in (1, 2, 3)),
    ],
)
def test_cumulative_counts_are_warned_of_where_one_change_moves_fewer_counts(tmp_path, relation, method, most, warned):
    more = "" if relation == "groups" else f"max_quantity = {most}\n"
    done = solve(
        "hierarchical-dp", _problem(tmp_path, relation=relation, more=more), tmp_path / "out", Options(method=method)
    )
    said = f"moves up to {most} of the numbers that {method} measures"
    assert any(said in line and "of which it moves" in line for line in done.warnings) is warned


def _declared(path):
    from privopt.declare import load_problem

    return load_problem(HierarchyProblem, path)


def test_a_plan_reckons_with_the_relation(tmp_path):
    from privopt.interfaces import SolveContext

    errors = {}
    for relation in OF_GROUPS:
        declared = _declared(_problem(tmp_path, relation=relation, groups=900))
        made = HierarchicalDP().plan(declared, "problem.toml", SolveContext(method="hierarchical-dp"))
        errors[relation] = sum(made.errors[Fraction("0.8")])
    assert errors["groups"] < errors["sizes"]  # half the noise
    assert errors["individuals"] > 0.8 * errors["sizes"]


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("hierarchical-dp", (8_842, 8_849, 4_594)),
        pytest.param("cumulative-smoothed", (2_344, 2_519, 15_000), marks=pytest.mark.slow),
    ],
)
def test_the_table_of_what_relations_cost(method, told, six_levels):
    """README of the plugin: errors over six levels at epsilon 1, mean of ten seeded runs."""
    tree, leaves = six_levels
    for relation, wanted in zip(OF_GROUPS, told, strict=True):
        problem = HierarchyProblem(
            hierarchy=HierarchyTable(sizes=10), privacy=Privacy(epsilon=Fraction(1), relation=relation)
        )
        found = errors_on([leaves] * 10, SizesDesign.of(problem, method, tree)).sum(axis=1).mean()
        assert found == pytest.approx(wanted, rel=0.02)


@pytest.mark.parametrize("method", ["cumulative-smoothed", "cumulative-dp", "hierarchical-dp"])
def test_vacant_units_are_a_size_and_whoever_lives_alone_may_leave(tmp_path, method):
    """Of three units one is vacant, one has an individual who leaves in the second file."""
    release = {}
    for name, alone in (("before", 1), ("after", 0)):
        rows = ["U,A,x,1", "U,A,x,1", f"U,A,y,{alone}", "U,A,z,0", "U,B,w,1"]
        (tmp_path / "u.csv").write_text("level_1,level_2,unit,quantity\n" + "\n".join(rows) + "\n")
        (tmp_path / "p.toml").write_text(
            '[hierarchy]\nunits = "u.csv"\nsizes = 3\nfirst_size = 0\n[privacy]\nepsilon = 1000\n'
        )
        done = solve("hierarchical-dp", tmp_path / "p.toml", tmp_path / name, Options(method=method))
        assert verify(tmp_path / name).complaints == ()
        table = pl.read_csv(tmp_path / name / "release.csv")
        assert table["size"].to_list() == [0, 1, 2, 3] * 3
        release[name] = table.filter(pl.col("region") == "A")["groups"].to_list()
        statement = done.result.guarantee.statement
        assert "also who lives there alone" in statement
        assert "Not covered: a unit, vacant or not, that appears or vanishes" in statement
        truth = json.loads((tmp_path / name / "private/truth.json").read_text())
        assert truth["groups_of_size_0_left_out"] == 0
    assert release == {"before": [1, 1, 1, 0], "after": [2, 0, 1, 0]}


@pytest.mark.parametrize(
    ("relation", "kind", "words"),
    [
        ("sizes", "zcdp", "costs 4 rho. Not covered: a group that appears"),
        ("individuals", "pure-dp", "who lives alone and leaves is covered"),
        ("individuals", "zcdp", "appears or vanishes k^2 rho"),
        ("groups", "pure-dp", "costs 2 epsilon; a person who moves from one group to another 4 epsilon"),
        ("groups", "approx-dp", "(1 + exp(epsilon) + exp(2 epsilon) + exp(3 epsilon)) delta"),
    ],
)
def test_the_words_say_what_is_covered(relation, kind, words):
    told = Relation(name=relation, classes=4).statement(totals=False, max_quantity=1, kind=kind)
    assert words in told


def test_a_ledger_does_not_add_what_another_relation_promises(tmp_path):
    """Beside exact numbers of groups nothing is promised to who joins or leaves: the sum would be no one's."""
    ledger, charged = tmp_path / "l", []
    for relation, first in (("sizes", 1), ("individuals", 1), ("sizes", 0), ("groups", 1), ("sizes", 1)):
        path, out = _problem(tmp_path, relation=relation, first=first), tmp_path / f"o{len(charged)}"
        arguments = ["solve", "hierarchical-dp", str(path), "--out", str(out), "--ledger", str(ledger), "--quiet"]
        done = CliRunner().invoke(cli, arguments, standalone_mode=False)
        charged.append(done.return_value or done.exit_code)
        assert charged[-1] == 0 or ("unit: expected per" in done.stderr and not out.exists())
    assert charged == [0, 2, 2, 2, 0]
