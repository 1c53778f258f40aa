"""What verify believes: nothing that result.json says unless problem and release come to it too."""

import copy
import importlib
import json
import random
import shutil
from collections.abc import Iterator

import pytest
from helpers.examples import EXAMPLES
from helpers.forgeries import make
from helpers.forgeries.changes import edited
from helpers.grids import by_pairs, first_alone
from helpers.mended_sums import edit, mend, refused, rewrite
from helpers.toys import write_toy

from privopt.errors import InputError
from privopt.registry import registry
from privopt.run.options import Options
from privopt.run.solve import solve
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


def others(value: object) -> list:
    """Values that are not the one stated, of its type and of another."""
    if isinstance(value, bool) or value is None:
        return [value is not True, 1, "x"]
    if isinstance(value, (int, float)):
        more = 1 if abs(value) < 1e8 else value * 1e-7  # beyond what verify lets pass, 1e-9 of the value
        return [value * 1.0000001 + 1e-12, value * 0.5, value + more, -value - 1, None, "inf"]
    return [f"{value} ", "", None, 0] if isinstance(value, str) else [None, {"x": 1}, [1]]


@pytest.fixture
def forge(tmp_path):
    """Return a DIR with a change to its result.json, its sum mended."""

    def forged(folder, change):
        target = tmp_path / "forged"
        if not target.exists():
            shutil.copytree(folder, target)
        shutil.copy(folder / "result.json", target)
        return edit(target, change)

    return forged


def at(result, path):
    for name in path:
        result = result[name]
    return result


def changes_of(whole: object, path: tuple) -> Iterator[tuple]:
    """Yield what may be done to a leaf, with a word for it: the least change first."""
    for other in others(whole):
        if other != whole or isinstance(other, bool) != isinstance(whole, bool):
            yield other, lambda r, other=other: at(r, path[:-1]).__setitem__(path[-1], copy.deepcopy(other))
    yield "taken away", lambda r: at(r, path[:-1]).pop(path[-1])


@pytest.mark.parametrize(
    ("name", "every"),
    [
        *((name, False) for name in EXAMPLES if name not in ("fl-linear", "lr-geo", "bd-mdp")),
        *(pytest.param(name, True, marks=pytest.mark.slow) for name in EXAMPLES),
    ],
)
def test_no_leaf_of_a_result_can_be_changed_or_taken_away(example, forge, name, every):
    """In the suite each leaf has its least change and one of the others, in ``make slow`` all of them."""
    folder, chance = example(name), random.Random(name)
    result = json.loads((folder / "result.json").read_text())
    accepted = []
    for path in leaves(result):
        whole = at(result, path)
        first, *more = changes_of(whole, path)
        for other, change in (first, *(more if every else chance.sample(more, min(1, len(more))))):
            if not refused(forge(folder, change)):
                accepted.append((path, whole, other))
    assert accepted == []


@by_pairs("name, table", EXAMPLES, [(), ("guarantee",), ("certificate",), ("objective",), ("details",)])
def test_nothing_can_be_added_to_what_is_claimed(example, forge, name, table):
    assert refused(forge(example(name), lambda r: at(r, table).update(blessed_by="an institute")))


def test_a_bound_below_the_value_is_refused_where_more_is_better(tmp_path, forge):
    problem = EXAMPLES["photo-censor"].write(tmp_path / "problem")
    problem.write_text(problem.read_text().replace("top_k = 5", "deletion_budget = 2"))
    folder = solve("photo-censor", problem, tmp_path / "out").folder

    def change(r):
        r["objective"].update(lower_bound=r["objective"]["value"] - 1, gap=0.0)

    assert verify(folder).verdict == "proved"
    assert any("contradicted" in line for line in verify(forge(folder, change)).complaints)


def test_a_bound_or_a_program_that_the_mechanism_cannot_have_is_refused(tmp_path, forge):
    folder = solve("exponential", write_toy(tmp_path / "toy"), tmp_path / "out").folder
    value = json.loads((folder / "result.json").read_text())["objective"]["value"]

    def proved(r, bound=value):
        r["objective"].update(lower_bound=bound, gap=0.0 if bound == value else None)
        r["status"] = "optimal" if bound == value else "feasible"

    def program(r):
        r["details"]["lp"] = {"value": 1.0, "lower_bound": 1.0, "gap": 0.0}
        r["status"] = "optimal"

    for change, words in (
        (proved, "lower_bound: "),
        (lambda r: proved(r, "-inf"), "lower_bound: -inf, which is not a number"),
        (program, "details.lp: claims a program"),
    ):
        assert any(words in line for line in verify(forge(folder, change)).complaints)


def test_optimal_at_a_gap_that_is_not_met_is_refused(example, forge):
    def change(r):
        r["objective"].update(lower_bound=0.0, gap=1.0)

    lines = verify(forge(example("optimal-lp"), change)).complaints
    assert any("status" in line for line in lines)


def test_another_solution_relabelled_as_the_exponential_mechanism_is_refused(example, forge):
    def change(r):
        name = registry().get("exponential").spec.default.name
        r.update(mechanism="exponential", method=name, status="feasible")
        r["asked"]["method"] = name
        r["objective"].update(lower_bound=None, gap=None)

    assert any("other weights" in line for line in verify(forge(example("optimal-lp"), change)).complaints)


def test_an_exponential_matrix_relabelled_optimal_has_no_bound_to_show(tmp_path, forge):
    folder = solve("exponential", write_toy(tmp_path / "toy"), tmp_path / "out").folder

    def change(r):
        r.update(mechanism="optimal-lp", method="full", status="optimal")
        r["asked"]["method"] = "full"

    assert any("status" in line for line in verify(forge(folder, change)).complaints)


def test_a_seed_and_the_word_for_it_go_together(tmp_path, forge):
    problem = EXAMPLES["hierarchical-dp"].write(tmp_path / "problem")
    folder = solve("hierarchical-dp", problem, tmp_path / "out", Options(seed=3)).folder
    found = verify(folder)
    assert (found.verdict, found.complaints) == ("none", ())
    assert found.words().startswith("seeded, not private")

    def unseeded(r):
        del r["guarantee"]["seeded"], r["guarantee"]["warning"]

    assert any("seeded: missing" in line for line in verify(forge(folder, unseeded)).complaints)
    assert any("no seed" in line for line in verify(forge(folder, lambda r: r.update(seed=None))).complaints)


def test_versions_that_differ_are_said_and_do_not_matter(example, forge):
    found = verify(forge(example("words"), lambda r: r.update(privopt="9.9") or r["plugin"].update(version="0")))
    assert found.verdict == "proved"
    assert [line.partition(",")[0].split()[-1] for line in found.notes] == ["9.9", "0"]


def test_scales_too_small_for_epsilon_are_found(example, tmp_path):
    def halved(scales):
        return [str(float(text) / 2) if "/" not in text else "1" for text in scales.tolist()]

    folder = shutil.copytree(example("hierarchical-dp"), tmp_path / "forged")
    rewrite(folder, "noisy.npz", scales=halved)
    assert any("its share of the budget" in line for line in verify(folder).complaints)


def test_epsilon_is_kept_as_the_exact_text_of_the_problem_file(tmp_path, result_of):
    from fractions import Fraction

    problem = write_toy(tmp_path / "toy")
    for text in ("0.30", "1", "1.00000000000000000001", "2e-1"):
        problem.write_text(problem.read_text().replace("epsilon = 0.9", f"epsilon = {text}"))
        guarantee = result_of(solve("exponential", problem, tmp_path / text).folder)["guarantee"]
        assert Fraction(guarantee["epsilon_text"]) == Fraction(text)
        assert guarantee["epsilon_text"] == (text if "e" not in text else "0.2")
        assert verify(tmp_path / text).verdict == "proved"
        problem.write_text(problem.read_text().replace(f"epsilon = {text}", "epsilon = 0.9"))


@pytest.mark.parametrize("name", ["fl-linear", "hierarchical-dp"])
def test_times_of_work_on_secrets_are_whole_seconds(example, result_of, name):
    assert all(isinstance(seconds, int) for seconds in result_of(example(name))["time"].values())


def test_a_bound_is_below_the_optimum_at_exact_weights(tmp_path, result_of):
    """One output is the cheapest for every record, so that the optimum is known exactly: all release it."""
    from fractions import Fraction

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
def test_an_array_that_nothing_reads_is_refused(example, tmp_path, example_name, name):
    folder = shutil.copytree(example(example_name), tmp_path / "forged")
    rewrite(folder, name, truth=[1, 2, 3])
    with pytest.raises(InputError, match=r"truth: expected .*, got an array that nothing reads"):
        verify(folder)


@pytest.mark.parametrize("name", ["connections.csv", "capacities.csv", "problem/locations.csv"])
def test_rows_published_in_another_order_are_refused(example, tmp_path, name):
    folder = shutil.copytree(example("fl-linear"), tmp_path / "forged")
    head, *rows = (folder / name).read_text().splitlines()
    (folder / name).write_text("\n".join([head, *rows[::-1]]) + "\n")
    mend(folder)
    assert refused(folder)


def test_a_complaint_about_a_long_claim_is_cut(example, forge):
    lines = verify(forge(example("words"), lambda r: r["guarantee"].update(statement="x" * 5000))).complaints
    assert lines
    assert max(map(len, lines)) < 1000


@first_alone("told", [{"trajectory": [1, "x", [2], [1, {}, []]]}, {"trajectory": 3}, {"trajectory": {}}])
def test_what_nobody_checks_may_be_of_any_form(example, forge, told):
    from privopt.report.write_report import write_report

    folder = forge(example("optimal-lp"), lambda r: r["details"].update(told=told))
    assert verify(folder).verdict == "proved"
    assert write_report(folder).is_file()


def test_details_told_is_an_object(example, forge):
    assert refused(forge(example("words"), lambda r: r["details"].update(told=True)))
    assert refused(forge(example("words"), lambda r: r["details"].pop("told")))


@pytest.mark.parametrize(
    ("base", "made", "old", "new", "file"),
    [
        ("streets", "region.streets._divide_streets", "a,b,0.31", "a,b,100000", "roads.csv"),
        ("streets", "region.streets._divide_streets", "split_km = 0.35", "split_km = 0.0001", "problem.toml"),
        ("squares", "region.mesh._halve_sides", "split_km = 0.4", "split_km = 0.01", "problem.toml"),
        ("grid", "space.places._split_squares", "rows = 2", "rows = 2000000", "problem.toml"),
    ],
)
def test_what_a_forged_problem_asks_for_is_counted_before_it_is_made(tmp_path, monkeypatch, base, made, old, new, file):
    folder, before = make(base, tmp_path), []
    name, part = made.rsplit(".", 1)
    module = importlib.import_module(f"privopt_metric_dp.{name}")
    whole = getattr(module, part)

    def counted(*given, **named):
        before.append(whole(*given, **named))
        assert len(before) < 3  # two halvings are this problem's own
        return before[-1]

    monkeypatch.setattr(module, part, counted)
    assert verify(folder).verdict == "proved"
    before.clear()
    edited(old, new, file)(folder)
    mend(folder)
    (line,) = verify(folder).complaints
    assert "must have at most" in line
    assert len(before) == (base == "squares")
