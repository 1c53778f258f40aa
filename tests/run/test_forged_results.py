"""What verify believes: nothing that result.json says unless problem and release come to it too."""

import copy
import importlib
import json
import random
import shutil
from collections.abc import Iterator
from fractions import Fraction

import pytest
from helpers.examples import EXAMPLES
from helpers.forgeries import make
from helpers.forgeries.changes import problem_change
from helpers.grids import by_pairs, first_alone
from helpers.mended_sums import edit, is_refused, mend, rewrite
from helpers.toys import write_toy

from privopt.errors import InputError
from privopt.registry import registry
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify

OF_THE_RUN = {"time", "solver"}
"""Of how it went: nobody can check it, and nothing rests on it."""

ITS_WORD = {
    ("asked", "gap"),
    ("asked", "time_limit"),
    ("asked", "memory"),
    ("asked", "solver"),
    ("seed",),
    ("privopt",),
    ("plugin", "version"),
}
"""Options and versions of the run: tests of their own below."""


def leaves(value: object, path: tuple = ()) -> Iterator[tuple]:
    """Yield the path of every leaf that verify answers for."""
    if (path[:1] and path[0] in OF_THE_RUN) or path in ITS_WORD or path == ("details", "told"):
        return
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, inner in items:
            yield from leaves(inner, (*path, name))
    else:
        yield path


def other_values(value: object) -> list:
    """Values that are not the one stated, of its type and of another."""
    if isinstance(value, bool) or value is None:
        return [value is not True, 1, "x"]
    if isinstance(value, (int, float)):
        increase = 1 if abs(value) < 1e8 else value * 1e-7  # beyond what verify lets pass, 1e-9 of the value
        return [value * 1.0000001 + 1e-12, value * 0.5, value + increase, -value - 1, None, "inf"]
    return [f"{value} ", "", None, 0] if isinstance(value, str) else [None, {"x": 1}, [1]]


@pytest.fixture
def forge(tmp_path):
    """Return a DIR with a change to its result.json, its sum mended."""

    def forge_result(folder, change):
        target = tmp_path / "forged"
        if not target.exists():
            shutil.copytree(folder, target)
        shutil.copy(folder / "result.json", target)
        return edit(target, change)

    return forge_result


def value_at(result, path):
    for name in path:
        result = result[name]
    return result


def changes_of(value: object, path: tuple) -> Iterator[tuple]:
    """Yield what may be done to a leaf, with a word for it: the least change first."""
    for other_value in other_values(value):
        if other_value != value or isinstance(other_value, bool) != isinstance(value, bool):
            yield (
                other_value,
                lambda r, other_value=other_value: value_at(r, path[:-1]).__setitem__(
                    path[-1], copy.deepcopy(other_value)
                ),
            )
    yield "taken away", lambda r: value_at(r, path[:-1]).pop(path[-1])


@pytest.mark.parametrize(
    ("name", "all_changes"),
    [
        *((name, False) for name in EXAMPLES if name not in ("fl-linear", "lr-geo", "bd-mdp")),
        *(pytest.param(name, True, marks=pytest.mark.slow) for name in EXAMPLES),
    ],
)
def test_no_leaf_of_a_result_can_change(example, forge, name, all_changes):
    """In the suite each leaf has its least change and one of the others, in ``make slow`` all of them."""
    folder, chance = example(name), random.Random(name)
    result = json.loads((folder / "result.json").read_text())
    accepted = []
    for path in leaves(result):
        value = value_at(result, path)
        first, *further_changes = changes_of(value, path)
        for other_value, change in (
            first,
            *(further_changes if all_changes else chance.sample(further_changes, min(1, len(further_changes)))),
        ):
            if not is_refused(forge(folder, change)):
                accepted.append((path, value, other_value))
    assert accepted == []


@by_pairs("name, table", EXAMPLES, [(), ("guarantee",), ("certificate",), ("objective",), ("details",)])
def test_nothing_can_be_added_to_claims(example, forge, name, table):
    assert is_refused(forge(example(name), lambda r: value_at(r, table).update(blessed_by="an institute")))


def test_refuses_bound_below_a_maximised_value(tmp_path, forge):
    problem = EXAMPLES["photo-censor"].write(tmp_path / "problem")
    problem.write_text(problem.read_text().replace("top_k = 5", "deletion_budget = 2"))
    folder = solve("photo-censor", problem, tmp_path / "out").folder

    def change(r):
        r["objective"].update(lower_bound=r["objective"]["value"] - 1, gap=0.0)

    assert verify(folder).verdict == "proved"
    assert any("contradicted" in line for line in verify(forge(folder, change)).complaints)


def test_refuses_impossible_bounds_and_programs(tmp_path, forge):
    folder = solve("exponential", write_toy(tmp_path / "toy"), tmp_path / "out").folder
    value = json.loads((folder / "result.json").read_text())["objective"]["value"]

    def state_bound(r, bound=value):
        r["objective"].update(lower_bound=bound, gap=0.0 if bound == value else None)
        r["status"] = "optimal" if bound == value else "feasible"

    def program(r):
        r["details"]["lp"] = {"value": 1.0, "lower_bound": 1.0, "gap": 0.0}
        r["status"] = "optimal"

    for change, words in (
        (state_bound, "lower_bound: "),
        (lambda r: state_bound(r, "-inf"), "lower_bound: -inf, which is not a number"),
        (program, "details.lp: claims a program"),
    ):
        assert any(words in line for line in verify(forge(folder, change)).complaints)


def test_refuses_optimal_with_a_gap(example, forge):
    def change(r):
        r["objective"].update(lower_bound=0.0, gap=1.0)

    lines = verify(forge(example("optimal-lp"), change)).complaints
    assert any("status" in line for line in lines)


def test_refuses_solution_relabelled_exponential(example, forge):
    def change(r):
        name = registry().get("exponential").spec.default.name
        r.update(mechanism="exponential", method=name, status="feasible")
        r["asked"]["method"] = name
        r["objective"].update(lower_bound=None, gap=None)

    assert any("weights are not those of" in line for line in verify(forge(example("optimal-lp"), change)).complaints)


def test_exponential_relabelled_optimal_has_no_bound(tmp_path, forge):
    folder = solve("exponential", write_toy(tmp_path / "toy"), tmp_path / "out").folder

    def change(r):
        r.update(mechanism="optimal-lp", method="full", status="optimal")
        r["asked"]["method"] = "full"

    assert any("status" in line for line in verify(forge(folder, change)).complaints)


def test_seed_and_its_mark_go_together(tmp_path, forge):
    problem = EXAMPLES["hierarchical-dp"].write(tmp_path / "problem")
    folder = solve("hierarchical-dp", problem, tmp_path / "out", Options(seed=3)).folder
    verification = verify(folder)
    assert (verification.verdict, verification.complaints) == ("none", ())
    assert verification.words().startswith("seeded, not private")

    def remove_marks(r):
        del r["guarantee"]["seeded"], r["guarantee"]["warning"]

    assert any("seeded: missing" in line for line in verify(forge(folder, remove_marks)).complaints)
    assert any("no seed" in line for line in verify(forge(folder, lambda r: r.update(seed=None))).complaints)


def test_other_versions_are_noted_and_harmless(example, forge):
    verification = verify(forge(example("words"), lambda r: r.update(privopt="9.9") or r["plugin"].update(version="0")))
    assert verification.verdict == "proved"
    assert [line.partition(",")[0].split()[-1] for line in verification.notes] == ["9.9", "0"]


def test_finds_scales_too_small_for_epsilon(example, tmp_path):
    def halve_scales(scales):
        return [str(Fraction(text) / 2) for text in scales.tolist()]

    folder = shutil.copytree(example("hierarchical-dp"), tmp_path / "forged")
    rewrite(folder, "noisy.npz", scales=halve_scales)
    assert any("share of the" in line for line in verify(folder).complaints)


def test_epsilon_keeps_its_exact_text(tmp_path, result_of):
    problem = write_toy(tmp_path / "toy")
    for text in ("0.30", "1", "1.00000000000000000001", "2e-1"):
        problem.write_text(problem.read_text().replace("epsilon = 0.9", f"epsilon = {text}"))
        guarantee = result_of(solve("exponential", problem, tmp_path / text).folder)["guarantee"]
        assert Fraction(guarantee["epsilon_text"]) == Fraction(text)
        assert guarantee["epsilon_text"] == (text if "e" not in text else "0.2")
        assert verify(tmp_path / text).verdict == "proved"
        problem.write_text(problem.read_text().replace(f"epsilon = {text}", "epsilon = 0.9"))


@pytest.mark.parametrize("name", ["fl-linear", "hierarchical-dp"])
def test_times_on_secrets_are_whole_seconds(example, result_of, name):
    assert all(isinstance(seconds, int) for seconds in result_of(example(name))["time"].values())


def test_bound_is_below_the_exact_optimum(tmp_path, result_of):
    """One output is the cheapest for every record, so that the optimum is known exactly: all release it."""
    problem = write_toy(tmp_path / "toy", n=4)
    (tmp_path / "toy" / "prior.csv").write_text("id,p\np0,0.1\np1,0.2\np2,0.3\np3,0.4\n")
    import numpy as np

    cost = np.full((4, 4), 0.7) + np.arange(16).reshape(4, 4) / 10
    np.save(tmp_path / "toy" / "c.npy", cost)
    text = problem.read_text().replace('kind = "distance"', 'kind = "matrix"\ncost = "c.npy"')
    problem.write_text(text.replace("epsilon = 0.9", "epsilon = 1e-9"))
    result = result_of(solve("optimal-lp", problem, tmp_path / "out", Options(method="star")).folder)
    cheapest = sum(
        Fraction(p) * Fraction(float(c)) for p, c in zip((0.1, 0.2, 0.3, 0.4), cost.min(axis=1), strict=True)
    )
    bound = result["objective"]["lower_bound"]
    assert bound is not None
    assert Fraction(bound) <= cheapest


@pytest.mark.parametrize(("example_name", "name"), [("words", "mechanism.npz"), ("hierarchical-dp", "noisy.npz")])
def test_refuses_unused_arrays(example, tmp_path, example_name, name):
    folder = shutil.copytree(example(example_name), tmp_path / "forged")
    rewrite(folder, name, truth=[1, 2, 3])
    with pytest.raises(InputError, match=r"truth: .*unknown array"):
        verify(folder)


@pytest.mark.parametrize("name", ["connections.csv", "capacities.csv", "problem/locations.csv"])
def test_refuses_rows_in_another_order(example, tmp_path, name):
    folder = shutil.copytree(example("fl-linear"), tmp_path / "forged")
    head, *rows = (folder / name).read_text().splitlines()
    (folder / name).write_text("\n".join([head, *rows[::-1]]) + "\n")
    mend(folder)
    assert is_refused(folder)


def test_shortens_complaints_about_long_claims(example, forge):
    lines = verify(forge(example("words"), lambda r: r["guarantee"].update(statement="x" * 5000))).complaints
    assert lines
    assert max(map(len, lines)) < 1000


@first_alone("value", [{"trajectory": [1, "x", [2], [1, {}, []]]}, {"trajectory": 3}, {"trajectory": {}}])
def test_unchecked_claims_may_have_any_form(example, forge, value):
    from privopt.report.write_report import write_report

    folder = forge(example("optimal-lp"), lambda r: r["details"].update(told=value))
    assert verify(folder).verdict == "proved"
    assert write_report(folder).is_file()


def test_details_told_is_an_object(example, forge):
    assert is_refused(forge(example("words"), lambda r: r["details"].update(told=True)))
    assert is_refused(forge(example("words"), lambda r: r["details"].pop("told")))


@pytest.mark.parametrize(
    ("base", "function_path", "old", "new", "file"),
    [
        ("streets", "region.streets._divide_streets", "a,b,0.31", "a,b,100000", "roads.csv"),
        ("streets", "region.streets._divide_streets", "split_km = 0.35", "split_km = 0.0001", "problem.toml"),
        ("squares", "region.mesh._halve_sides", "split_km = 0.4", "split_km = 0.01", "problem.toml"),
        ("grid", "space.places._split_squares", "rows = 2", "rows = 2000000", "problem.toml"),
    ],
)
def test_forged_problem_is_measured_before_it_is_built(tmp_path, monkeypatch, base, function_path, old, new, file):
    folder, results = make(base, tmp_path), []
    name, part = function_path.rsplit(".", 1)
    module = importlib.import_module(f"privopt_metric_dp.{name}")
    original = getattr(module, part)

    def count_calls(*arguments, **options):
        results.append(original(*arguments, **options))
        assert len(results) < 3  # two halvings are this problem's own
        return results[-1]

    monkeypatch.setattr(module, part, count_calls)
    assert verify(folder).verdict == "proved"
    results.clear()
    problem_change(old, new, file)(folder)
    mend(folder)
    (line,) = verify(folder).complaints
    assert "at most" in line
    assert len(results) == (base == "squares")
