"""Checks count only problems that could have shown a fault, and say how much they would have seen."""

import math
from itertools import combinations

import pytest
from attrs import evolve
from faults import choice, drawn, matrix
from faults.counts import count_problem
from helpers.kits import PLANTED
from hypothesis import strategies as st

from privopt.declare import files_of
from privopt.testing import examples_near, run_check, subject
from privopt.testing.checks.base import Elsewhere, History


def run(check, mechanism, kind, profile=None, seed=0):
    kit_subject = subject(mechanism, guarantee=kind, profile=profile)
    result = run_check(check, kit_subject, how=PLANTED, seed=seed)
    kit_subject.close()
    return result


@pytest.mark.parametrize("seed", [0, 1])
def test_finds_another_epsilon_although_scores_are_far_apart(seed):
    result = run("drawn-as-stated", choice.FlipsAtThrice, "local-dp", seed=seed)
    assert result.status == "failed", result
    right = run("drawn-as-stated", choice.FarFlips, "local-dp", seed=seed)
    assert (right.status, right.examples) == ("passed", 1), right
    assert right.note.startswith("would have seen draws at ")


def test_every_effort_solves_the_examples(tmp_path, monkeypatch):
    """A mechanism that fails only if one round is not enough would pass on one, two or four records."""

    class FailsInRoundTwo(matrix.RightMatrix):
        def found(self, data):
            if len(data.records) > 5:
                raise TypeError("remaining is None")
            return super().found(data)

    assert "remaining is None" in run("solves", FailsInRoundTwo, "metric-dp").reason
    example = tmp_path / "src" / "acme" / "kit.py"
    example.parent.mkdir(parents=True)
    assert examples_near(str(example)) == ()
    (tmp_path / "pyproject.toml").write_text('packages = ["src/acme"]\n')
    (tmp_path / "example.toml").write_text('people = "people.txt"\n[privacy]\nepsilon = 1\n')
    (tmp_path / "people.txt").write_text("Ada\n")
    (problem,) = examples_near(str(example))
    assert problem.files == {"people.txt": b"Ada\n"}
    assert problem.get("privacy.epsilon") == 1
    monkeypatch.chdir(tmp_path)
    assert [near.identity for near in examples_near("/elsewhere/acme/kit.py")] == [problem.identity]
    assert examples_near("/elsewhere/other/kit.py") == ()


def test_ties_show_no_epsilon():
    ties = evolve(choice.FLIPS, problems=st.builds(lambda n: count_problem((n, n), "1.0"), st.integers(1, 4)))
    result = run("drawn-as-stated", choice.RightFlips, "local-dp", profile=ties)
    assert result.status == "skipped"
    assert result.missed
    assert "ten times epsilon" in result.reason


def test_certain_outputs_show_no_repetition():
    far = evolve(drawn.MILES, problems=st.just(drawn.mile_problem(3, "1.0")))

    class Certain(drawn.RightMiles):
        release_class = type("Certain", (drawn.MileRelease,), {"sample": lambda self, name, count: [name] * count})

    result = run("fresh-samples", Certain, "metric-dp", profile=far)
    assert result.status == "skipped"
    assert result.missed
    right = run("fresh-samples", drawn.RightMiles, "metric-dp")
    assert right.note.startswith("compared samples of")


def test_last_problem_does_not_hide_what_the_profile_lacks():
    """One example cannot be tried because the profile lacks something, and the last one because of the release."""
    history = History(0.0)
    for why in ("the profile has no `best_known`", Elsewhere("its releases state no bound")):
        history.note_reason(why)
    assert history.cannot == "the profile has no `best_known`"
    history = History(0.0)
    for why in (Elsewhere("its releases state no bound"), "", "the profile has no `best_known`"):
        history.note_reason(why)
    assert not isinstance(history.cannot, Elsewhere)


def test_infinite_distance_is_no_fault_and_shows_none():
    for check in ("epsilon-achieved", "zeros-on-both-sides"):
        profile = evolve(subject(matrix.RightMatrix, guarantee="metric-dp").profile, alike=alike_at(math.inf))
        result = run(check, matrix.RightMatrix, "metric-dp", profile=profile)
        assert (result.status, result.missed) == ("skipped", True), result


def alike_at(distance):
    """Return a function for ``Profile.alike`` that puts all records at one distance from each other."""

    def alike(problem):
        return [(a, b, distance) for a, b in combinations(map(str, problem.data.records.ids), 2)]

    return alike


def test_distribution_of_nan_is_refused():
    profile = evolve(choice.FLIPS, probabilities=lambda problem, method: [math.nan, math.nan])
    result = run("exact-epsilon", choice.RightFlips, "local-dp", profile=profile)
    assert result.status == "failed"
    assert "with sum 1" in result.reason


def test_checks_that_had_nothing_to_change_did_not_pass():
    matrices = run("verify-catches", matrix.RightMatrix, "metric-dp")
    assert (matrices.status, matrices.missed) == ("not applicable", False), matrices
    miles = run("unread-columns", drawn.RightMiles, "metric-dp")
    assert (miles.status, miles.missed) == ("not applicable", False), miles


def test_crash_on_a_further_column_is_found():
    class CountsColumns(matrix.RightMatrix):
        def load(self, declared, file):
            for each in files_of(declared):
                if b"telephone" in each.contents:
                    raise ZeroDivisionError("too many columns")
            return super().load(declared, file)

    result = run("unread-columns", CountsColumns, "metric-dp")
    assert result.status == "failed"
    assert "too many columns" in result.reason


def test_outcome_beyond_the_stated_ones_is_found():
    profile = evolve(choice.FLIPS, draws=lambda problem, method, count: [0.5] + [0] * (count - 1))
    result = run("drawn-as-stated", choice.RightFlips, "local-dp", profile=profile)
    assert result.status == "failed"
    assert "outcome 0.5 came" in result.reason
