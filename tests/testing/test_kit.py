"""The kit's own machinery: one call, strict expectations, what it draws, how it tells."""

import copy
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import attrs
import hypothesis
import numpy as np
import pytest
from attrs import evolve
from faults import answers, counts, matrix, ranks
from helpers.kits import BRIEF

from privopt.declare import key
from privopt.errors import InfeasibleError, UnknownNameError, UsageError
from privopt.numbers.noise import discrete_laplace
from privopt.registry import registry
from privopt.specs import MechanismSpec, MethodSpec
from privopt.testing import GeneratedProblem, conformance, run_check, run_checks, subject
from privopt.testing.changes import changes
from privopt.testing.checks import checks as all_checks
from privopt.testing.checks import forged
from privopt.testing.checks.inputs import faulty_inputs
from privopt.testing.efforts import EFFORTS, effort
from privopt.testing.noise import same, watched
from privopt_metric_dp.kit.problems import default_profile
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.problem.declared import MetricProblem

test_conformance = conformance(matrix.RightMatrix, guarantee="metric-dp", checks=["rows-sum-to-one", "oracle"])


@pytest.mark.slow
def test_another_process_is_asked_for_the_methods_own_gap():
    way = MethodSpec(name="solve", summary="coarse", gap=0.25)
    spec = MechanismSpec(
        name="minds", target="faults.matrix:MindsTheGap", guarantee="metric-dp", summary="coarse", methods=[way]
    )
    how = evolve(BRIEF, examples=1)
    assert run_check("seed-determinism", subject(matrix.MindsTheGap, spec=spec), how=how).status == "passed"


def test_a_run_that_is_asked_for_again_outlives_the_next(monkeypatch):
    monkeypatch.setattr("privopt.testing.under_trial.MAX_KEPT_RUNS", 4)
    records = "[records]\ngrid = { rows = 1, cols = 2, cell_km = 1.0 }\n[distance]\nkind = 'euclidean'\n"
    problem = GeneratedProblem(toml=f"{records}[privacy]\nepsilon = 1.0\n[utility]\nkind = 'distance'\n")
    tried = subject(matrix.RightMatrix, guarantee="metric-dp")
    for fresh in range(4):
        tried.run(problem, fresh=fresh)
    again = tried.run(problem, fresh=0)
    tried.run(problem, fresh=4)  # takes the place of the oldest
    assert again.error is None
    assert (again.folder / "result.json").is_file()
    tried.close()


@attrs.frozen
class Inner:
    radius: float = key(default=1.0, help="how far")


@attrs.frozen
class Outer:
    shape: str | Inner = key(default="round", help="a name, or a table")


@pytest.mark.parametrize("toml", ['shape = "square"', "[shape]\nradius = 2.0", ""])
def test_a_key_may_be_text_or_a_table(toml):
    made = list(faulty_inputs(GeneratedProblem(toml=toml, files={}), Outer))
    assert any("shape" in wrong.names for wrong in made)
    assert any("radius" in wrong.names for wrong in made) == ("radius" in toml)


class TestStrictness:
    def call(self, mechanism, check, **options):
        guarantee = options.pop("guarantee", "metric-dp")
        made = conformance(mechanism, guarantee=guarantee, checks=[check], how="dev", **options)
        made("solve", check)

    def test_a_failure_names_mechanism_method_and_check(self):
        with pytest.raises(pytest.fail.Exception, match="row-sum-off --method solve: rows-sum-to-one: row"):
            self.call(matrix.RowSumOff, "rows-sum-to-one")

    @pytest.mark.parametrize(
        ("expected", "marked"),
        [
            ({"rows-sum-to-one": "rounding is next"}, ["rounding is next"]),
            ({"solve:rows-sum-to-one": "later"}, ["later"]),
            ({"another:rows-sum-to-one": "later"}, []),
            ({"oracle": "later"}, []),
        ],
    )
    def test_an_expected_failure_is_marked_strictly(self, expected, marked):
        made = conformance(
            matrix.RowSumOff, guarantee="metric-dp", checks=["rows-sum-to-one"], expected_failures=expected
        )
        [row] = made.pytestmark[0].args[1]
        assert [(mark.name, mark.kwargs["reason"], mark.kwargs["strict"]) for mark in row.marks] == [
            ("xfail", reason, True) for reason in marked
        ]

    def test_what_does_not_apply_is_skipped_with_its_reason(self):
        with pytest.raises(pytest.skip.Exception, match="no `oracle`"):
            self.call(matrix.RightMatrix, "oracle")

    def test_an_unknown_check_is_an_error_at_once(self):
        with pytest.raises(UsageError, match="no check is called 'rows'"):
            conformance(matrix.RightMatrix, guarantee="metric-dp", checks=["rows"])
        with pytest.raises(UnknownNameError):
            run_check("rows", subject(matrix.RightMatrix, guarantee="metric-dp"))

    @pytest.mark.parametrize("expected", [{"row-sum": "why"}, {"rows-sum-to-one": " "}])
    def test_expectations_need_a_check_and_a_reason(self, expected):
        with pytest.raises(UsageError, match="must name a check, and a reason in words"):
            conformance(matrix.RightMatrix, guarantee="metric-dp", expected_failures=expected)

    def test_a_class_needs_a_kind(self):
        with pytest.raises(UsageError, match="guarantee="):
            conformance(matrix.RightMatrix)


class TestTelling:
    def test_results_as_the_contract_has_them(self):
        tried = subject(matrix.RightMatrix, guarantee="metric-dp")
        result = run_check("rows-sum-to-one", tried, how=EFFORTS["dev"])
        assert list(result.to_json())[:5] == ["check", "version", "status", "reason", "seconds"]
        tried.close()

    def test_every_check_says_what_it_is(self):
        for name, check in all_checks().items():
            assert check.function.__doc__, name
            assert check.version >= 1

    def test_profiles(self, monkeypatch):
        monkeypatch.setenv("PRIVOPT_PROFILE", "nightly")
        assert effort().name == "nightly"
        monkeypatch.delenv("PRIVOPT_PROFILE")
        assert effort().name == "ci"
        with pytest.raises(UnknownNameError, match="nightly"):
            effort("nightli")

    def test_trying_an_uninstalled_mechanism_leaves_the_registry_alone(self):
        tried = subject(matrix.RightMatrix, guarantee="metric-dp")
        with tried.registered():
            assert tried.spec.name in registry().mechanisms
        assert tried.spec.name not in registry().mechanisms
        tried.close()

    def test_installed_mechanisms_are_found(self):
        assert subject("exponential").kind == "metric-dp"
        assert subject("optimal-lp", "star").method.name == "star"

    def test_a_problem_class_with_required_keys_of_its_own_has_no_default(self):
        assert default_profile(counts.CountProblem) is None
        assert default_profile(MetricProblem) is not None

    def test_changes_are_told_by_place(self):
        array = np.array([0.0, np.nan, 2.0])
        before = copy.deepcopy({"a": [1, array], "cached": None})
        assert list(changes(before, {"a": [1, array], "cached": 3}, "problem")) == []
        array[2] = 1.0
        assert list(changes(before, {"a": [1, array]}, "problem")) == [
            "problem['a'][1][2] was np.float64(2.0), now np.float64(1.0)"
        ]

    def test_what_refers_to_itself_and_files_elsewhere_are_compared_too(self):
        here, there = ({"file": Path(folder) / "a.npy"} for folder in ("one", "two"))
        for each in (here, there):
            each["self"] = each
        assert list(changes(here, there, "release", through_files=True)) == []
        there["file"] = Path("b.npy")
        found = changes(here, there, "release", through_files=True)
        assert list(found) == ["release['file'] was 'a.npy', now 'b.npy'"]


def test_an_infeasible_problem_is_passed_over():
    tried = subject(ranks.RightRanks, guarantee="top-k")
    assert run_check("solves", tried, how=EFFORTS["dev"]).status == "passed"
    tried.close()


class TestCalling:
    def test_how_hard_may_be_said_by_name(self):
        tried = subject(matrix.RightMatrix, guarantee="metric-dp")
        results = run_checks(tried, ["solves"], how="dev")
        assert [result.status for result in results] == ["passed"]
        assert results[0].examples <= EFFORTS["dev"].examples
        with pytest.raises(UnknownNameError, match="nightly"):
            run_checks(tried, ["solves"], how="nightli")
        tried.close()

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["Mine", "RightCounts"])
    def test_a_script_runs_once_whatever_it_tries(self, tmp_path, name):
        file = tmp_path / "mine.py"
        file.write_text(
            "from faults.counts import RightCounts\n"
            "from privopt.testing import run_check, subject\n"
            "class Mine(RightCounts):\n    pass\n"
            f"print(run_check('seed-determinism', subject({name}, guarantee='local-dp'), how='dev').status)\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, env=environment, check=False)
        assert done.stdout == "passed\n", done.stderr


def test_noise_answered_alike_does_not_depend_on_the_input():
    def drawn(values):
        with watched(same):
            return [discrete_laplace(np.array(values), Fraction(1, 2))[0].tolist() for _ in range(2)]

    assert drawn([1, 2, 3]) == drawn([7, 0, 9])
    assert drawn([1, 2, 3])[0] != drawn([1, 2, 3])[1]


def test_a_use_that_does_not_verify_first_is_found(monkeypatch):
    monkeypatch.setattr(forged, "audit", lambda folder: {})
    tried = subject(matrix.RightMatrix, guarantee="metric-dp")
    result = run_check("use-verifies", tried, how="dev")
    tried.close()
    assert result.status == "failed"
    assert "takes the folder all the same" in result.reason


def test_what_the_kit_finds_to_hold_is_remembered_for_nobody_else(monkeypatch, tmp_path):
    monkeypatch.setenv("PRIVOPT_CACHE", str(tmp_path / "mine"))
    tried = subject(matrix.RightMatrix, guarantee="metric-dp")
    assert run_check("round-trip", tried, how="dev").status == "passed"
    tried.close()
    assert not (tmp_path / "mine").exists()


def test_problems_that_nobody_can_solve_are_no_skip():
    """Were nothing solved, everything would be skipped and nothing fail."""

    class Refuses(matrix.RightMatrix):
        def solve(self, problem, context):
            raise InfeasibleError("there is none")

    tried = subject(Refuses, guarantee="metric-dp")
    solves, other = run_checks(tried, ["solves", "sampler"], how="dev")
    tried.close()
    assert (solves.status, solves.reason) == ("failed", "no generated problem was solved")
    assert (other.status, other.reason) == ("skipped", "no generated problem was solved: see the check solves")


def test_a_check_that_finds_nothing_to_look_at_does_not_say_that_nothing_was_solved(monkeypatch):
    tried = subject(matrix.RightMatrix, guarantee="metric-dp")

    def nowhere(trial):
        trial.run(trial.problem())
        hypothesis.reject()

    monkeypatch.setitem(all_checks(), "input-order", attrs.evolve(all_checks()["input-order"], function=nowhere))
    found = run_check("input-order", tried, how="dev")
    tried.close()
    assert found.status == "skipped"
    assert re.fullmatch("nothing to check was found in the [0-9]+ generated problems that were solved", found.reason)


def test_every_point_says_that_the_mechanism_promises_it_nowhere():
    tried = subject(answers.RightAnswers, guarantee="local-dp")
    found = run_check("every-point", tried, how="dev")
    tried.close()
    assert found.status == "skipped"
    assert found.reason == "its problems have no `privacy.everywhere`"
    assert not found.missed


def test_distances_that_nobody_compares_are_not_called_right():
    profile = evolve(answers.ANSWERS, alike=lambda problem: [("0", "1", 1.0)])
    tried = subject(answers.RightAnswers, guarantee="local-dp", profile=profile)
    found = run_check("distances", tried, how="dev")
    tried.close()
    assert (found.status, found.missed) == ("skipped", False), found
    assert found.reason.startswith("its data are not those of a metric problem")


def test_a_loss_of_ones_own_in_a_unit_of_its_own_passes():
    class Minutes(matrix.RightMatrix):
        def utility(self, problem, method):
            data = problem.data
            return ExpectedLoss(weighted=3.0 * data.weighted, unit="minutes")

    tried = subject(Minutes, guarantee="metric-dp")
    results = run_checks(tried, ["objective-reported", "lower-bound", "expected-loss"], how=evolve(BRIEF, examples=1))
    tried.close()
    assert [result.status for result in results] == ["passed", "passed", "skipped"], results


def test_what_a_solve_changed_and_what_files_lost_are_told_apart():
    class Name(str):
        """Has a ``__dict__`` of its own."""

    def found(one, two, **options):
        return list(changes(one, two, "x", **options))

    loop = {"a": [1]}
    loop["itself"] = loop
    assert found(loop, {"a": [1], "itself": loop}) == []
    assert found([Name("a")], [Name("b")]) == ["x[0] was 'a', now 'b'"]
    assert found({"a": 1}, {"a": None}) == ["x['a'] was 1, now None"]
    assert found({"a": None}, {"a": 1}) == []
    assert found({"a": 1, "b": 2}, {"a": 1}) == []  # as a value that was cached
    assert found((1, 2), [1, 2]) == []
    assert found(Path("one/a.csv"), Path("two/a.csv"))
    for one, two in ((1, None), (None, 1), (Path("one/a.csv"), Path("two/a.csv"))):
        assert found({"a": one}, {"a": two}, through_files=True) == []
