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
from helpers.mentions import assert_mentions

from privopt.declare import key
from privopt.errors import InfeasibleError, UnknownNameError, UsageError
from privopt.numbers.noise import discrete_laplace
from privopt.registry import registry
from privopt.specs import MechanismSpec, MethodSpec
from privopt.testing import GeneratedProblem, conformance, run_check, run_checks, subject
from privopt.testing.changes import changes
from privopt.testing.checks import checks as all_checks
from privopt.testing.checks import forged
from privopt.testing.checks.inputs import make_faulty_problems
from privopt.testing.efforts import EFFORTS, effort
from privopt.testing.noise import answer_by_size, watch_noise
from privopt_metric_dp.kit.problems import default_profile
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.problem.declared import MetricProblem

test_conformance = conformance(matrix.RightMatrix, guarantee="metric-dp", checks=["rows-sum-to-one", "oracle"])


@pytest.mark.slow
def test_other_process_uses_the_gap_of_the_method():
    method = MethodSpec(name="solve", summary="coarse", gap=0.25)
    spec = MechanismSpec(
        name="minds", target="faults.matrix:MindsTheGap", guarantee="metric-dp", summary="coarse", methods=[method]
    )
    effort = evolve(BRIEF, examples=1)
    assert run_check("seed-determinism", subject(matrix.MindsTheGap, spec=spec), how=effort).status == "passed"


def test_repeated_run_survives_the_next(monkeypatch):
    monkeypatch.setattr("privopt.testing.under_trial.MAX_KEPT_RUNS", 4)
    records = "[records]\ngrid = { rows = 1, cols = 2, cell_km = 1.0 }\n[distance]\nkind = 'euclidean'\n"
    problem = GeneratedProblem(toml=f"{records}[privacy]\nepsilon = 1.0\n[utility]\nkind = 'distance'\n")
    kit_subject = subject(matrix.RightMatrix, guarantee="metric-dp")
    for number in range(4):
        kit_subject.run(problem, fresh=number)
    repeated = kit_subject.run(problem, fresh=0)
    kit_subject.run(problem, fresh=4)  # takes the place of the oldest
    assert repeated.error is None
    assert (repeated.folder / "result.json").is_file()
    kit_subject.close()


@attrs.frozen
class Inner:
    radius: float = key(default=1.0, help="how far")


@attrs.frozen
class Outer:
    shape: str | Inner = key(default="round", help="a name, or a table")


@pytest.mark.parametrize("toml", ['shape = "square"', "[shape]\nradius = 2.0", ""])
def test_key_may_be_text_or_a_table(toml):
    faulty_problems = list(make_faulty_problems(GeneratedProblem(toml=toml, files={}), Outer))
    assert any("shape" in problem.names for problem in faulty_problems)
    assert any("radius" in problem.names for problem in faulty_problems) == ("radius" in toml)


class TestStrictness:
    def call(self, mechanism, check, **options):
        guarantee = options.pop("guarantee", "metric-dp")
        kit_test = conformance(mechanism, guarantee=guarantee, checks=[check], how="quick", **options)
        kit_test("solve", check)

    def test_failure_names_mechanism_method_and_check(self):
        with pytest.raises(pytest.fail.Exception, match=r"row-sum-off .*solve: rows-sum-to-one"):
            self.call(matrix.RowSumOff, "rows-sum-to-one")

    @pytest.mark.parametrize(
        ("expected", "expected_marks"),
        [
            ({"rows-sum-to-one": "rounding is next"}, ["rounding is next"]),
            ({"solve:rows-sum-to-one": "later"}, ["later"]),
            ({"another:rows-sum-to-one": "later"}, []),
            ({"oracle": "later"}, []),
        ],
    )
    def test_expected_failure_is_marked_strictly(self, expected, expected_marks):
        kit_test = conformance(
            matrix.RowSumOff, guarantee="metric-dp", checks=["rows-sum-to-one"], expected_failures=expected
        )
        [row] = kit_test.pytestmark[0].args[1]
        assert [(mark.name, mark.kwargs["reason"], mark.kwargs["strict"]) for mark in row.marks] == [
            ("xfail", reason, True) for reason in expected_marks
        ]

    def test_inapplicable_check_is_skipped_with_reason(self):
        with pytest.raises(pytest.skip.Exception, match="no `oracle`"):
            self.call(matrix.RightMatrix, "oracle")

    def test_unknown_check_is_an_error(self):
        with pytest.raises(UsageError, match="called 'rows'"):
            conformance(matrix.RightMatrix, guarantee="metric-dp", checks=["rows"])
        with pytest.raises(UnknownNameError):
            run_check("rows", subject(matrix.RightMatrix, guarantee="metric-dp"))

    @pytest.mark.parametrize("expected", [{"row-sum": "why"}, {"rows-sum-to-one": " "}])
    def test_expectations_need_a_check_and_a_reason(self, expected):
        with pytest.raises(UsageError, match="a reason in"):
            conformance(matrix.RightMatrix, guarantee="metric-dp", expected_failures=expected)

    def test_class_needs_a_kind(self):
        with pytest.raises(UsageError, match="guarantee="):
            conformance(matrix.RightMatrix)


class TestTelling:
    def test_results_follow_the_contract(self):
        kit_subject = subject(matrix.RightMatrix, guarantee="metric-dp")
        result = run_check("rows-sum-to-one", kit_subject, how=EFFORTS["quick"])
        assert list(result.to_json())[:5] == ["check", "version", "status", "reason", "seconds"]
        kit_subject.close()

    def test_every_check_describes_itself(self):
        for name, check in all_checks().items():
            assert check.function.__doc__, name
            assert check.version >= 1

    def test_profiles(self, monkeypatch):
        # Workflow files may have the names that efforts had before.
        for name, current in {"quick": "quick", "full": "full", "dev": "quick", "nightly": "full"}.items():
            monkeypatch.setenv("PRIVOPT_PROFILE", name)
            assert effort().name == effort(name).name == current
        monkeypatch.delenv("PRIVOPT_PROFILE")
        assert effort().name == "ci"
        with pytest.raises(UnknownNameError, match="quick"):
            effort("quik")

    def test_uninstalled_mechanism_stays_unregistered(self):
        kit_subject = subject(matrix.RightMatrix, guarantee="metric-dp")
        with kit_subject.registered():
            assert kit_subject.spec.name in registry().mechanisms
        assert kit_subject.spec.name not in registry().mechanisms
        kit_subject.close()

    def test_finds_installed_mechanisms(self):
        assert subject("exponential").kind == "metric-dp"
        assert subject("optimal-lp", "star").method.name == "star"

    def test_problem_with_own_required_keys_has_no_default(self):
        assert default_profile(counts.CountProblem) is None
        assert default_profile(MetricProblem) is not None

    def test_changes_are_named_by_place(self):
        array = np.array([0.0, np.nan, 2.0])
        original = copy.deepcopy({"a": [1, array], "cached": None})
        assert list(changes(original, {"a": [1, array], "cached": 3}, "problem")) == []
        array[2] = 1.0
        assert_mentions(next(changes(original, {"a": [1, array]}, "problem")), "problem['a'][1][2]", "2.0", "1.0")

    def test_compares_cycles_and_files(self):
        first, second = ({"file": Path(folder) / "a.npy"} for folder in ("one", "two"))
        for value in (first, second):
            value["self"] = value
        assert list(changes(first, second, "release", through_files=True)) == []
        second["file"] = Path("b.npy")
        differences = changes(first, second, "release", through_files=True)
        assert [line.partition(" was")[0] for line in differences] == ["release['file']"]


def test_infeasible_problem_is_skipped():
    kit_subject = subject(ranks.RightRanks, guarantee="top-k")
    assert run_check("solves", kit_subject, how=EFFORTS["quick"]).status == "passed"
    kit_subject.close()


class TestCalling:
    def test_effort_may_be_a_name(self):
        kit_subject = subject(matrix.RightMatrix, guarantee="metric-dp")
        results = run_checks(kit_subject, ["solves"], how="quick")
        assert [result.status for result in results] == ["passed"]
        assert results[0].examples <= EFFORTS["quick"].examples
        with pytest.raises(UnknownNameError, match="quick"):
            run_checks(kit_subject, ["solves"], how="quik")
        kit_subject.close()

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["Mine", "RightCounts"])
    def test_script_runs_once_whatever_it_tries(self, tmp_path, name):
        file = tmp_path / "mine.py"
        file.write_text(
            "from faults.counts import RightCounts\n"
            "from privopt.testing import run_check, subject\n"
            "class Mine(RightCounts):\n    pass\n"
            f"print(run_check('seed-determinism', subject({name}, guarantee='local-dp'), how='dev').status)\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        completed = subprocess.run(
            [sys.executable, str(file)], capture_output=True, text=True, env=environment, check=False
        )
        assert completed.stdout == "passed\n", completed.stderr


def test_constant_noise_is_independent_of_the_input():
    def draw_noise(values):
        with watch_noise(answer_by_size):
            return [discrete_laplace(np.array(values), Fraction(1, 2))[0].tolist() for _ in range(2)]

    assert draw_noise([1, 2, 3]) == draw_noise([7, 0, 9])
    assert draw_noise([1, 2, 3])[0] != draw_noise([1, 2, 3])[1]


def test_finds_use_without_verification(monkeypatch):
    monkeypatch.setattr(forged, "audit", lambda folder: {})
    kit_subject = subject(matrix.RightMatrix, guarantee="metric-dp")
    result = run_check("use-verifies", kit_subject, how="quick")
    kit_subject.close()
    assert result.status == "failed"
    assert "takes the folder" in result.reason


def test_kit_results_are_remembered_for_nobody(monkeypatch, tmp_path):
    monkeypatch.setenv("PRIVOPT_CACHE", str(tmp_path / "mine"))
    kit_subject = subject(matrix.RightMatrix, guarantee="metric-dp")
    assert run_check("round-trip", kit_subject, how="quick").status == "passed"
    kit_subject.close()
    assert not (tmp_path / "mine").exists()


def test_unsolved_problems_are_no_skip():
    """Were nothing solved, everything would be skipped and nothing fail."""

    class Refuses(matrix.RightMatrix):
        def solve(self, problem, context):
            raise InfeasibleError("there is none")

    kit_subject = subject(Refuses, guarantee="metric-dp")
    solves, sampler_result = run_checks(kit_subject, ["solves", "sampler"], how="quick")
    kit_subject.close()
    assert (solves.status, "no generated problem" in solves.reason) == ("failed", True)
    assert (sampler_result.status, "check solves" in sampler_result.reason) == ("skipped", True)


def test_check_without_object_is_no_unsolved_problem(monkeypatch):
    kit_subject = subject(matrix.RightMatrix, guarantee="metric-dp")

    def nowhere(trial):
        trial.run(trial.problem())
        hypothesis.reject()

    monkeypatch.setitem(all_checks(), "input-order", attrs.evolve(all_checks()["input-order"], function=nowhere))
    result = run_check("input-order", kit_subject, how="quick")
    kit_subject.close()
    assert result.status == "skipped"
    assert re.fullmatch(r"nothing to check .*[0-9]+ generated problems.*", result.reason)


def test_every_point_check_needs_everywhere():
    kit_subject = subject(answers.RightAnswers, guarantee="local-dp")
    result = run_check("every-point", kit_subject, how="quick")
    kit_subject.close()
    assert result.status == "not applicable"
    assert "`privacy.everywhere`" in result.reason
    assert not result.missed


def test_uncompared_distances_are_not_right():
    profile = evolve(answers.ANSWERS, alike=lambda problem: [("0", "1", 1.0)])
    kit_subject = subject(answers.RightAnswers, guarantee="local-dp", profile=profile)
    result = run_check("distances", kit_subject, how="quick")
    kit_subject.close()
    assert (result.status, result.missed) == ("not applicable", False), result
    assert "a metric problem" in result.reason


def test_own_loss_in_an_own_unit_passes():
    class Minutes(matrix.RightMatrix):
        def utility(self, problem, method):
            data = problem.data
            return ExpectedLoss(weighted=3.0 * data.weighted, unit="minutes")

    kit_subject = subject(Minutes, guarantee="metric-dp")
    results = run_checks(
        kit_subject, ["objective-reported", "lower-bound", "expected-loss"], how=evolve(BRIEF, examples=1)
    )
    kit_subject.close()
    assert [result.status for result in results] == ["passed", "not applicable", "not applicable"], results


def test_distinguishes_changes_of_solve_and_files():
    class Name(str):
        """Has a ``__dict__`` of its own."""

    def find_changes(before, after, **options):
        return list(changes(before, after, "x", **options))

    loop = {"a": [1]}
    loop["itself"] = loop
    assert find_changes(loop, {"a": [1], "itself": loop}) == []
    assert find_changes([Name("a")], [Name("b")]) == ["x[0] was 'a', now 'b'"]
    assert find_changes({"a": 1}, {"a": None}) == ["x['a'] was 1, now None"]
    assert find_changes({"a": None}, {"a": 1}) == []
    assert find_changes({"a": 1, "b": 2}, {"a": 1}) == []  # as a value that was cached
    assert find_changes((1, 2), [1, 2]) == []
    assert find_changes(Path("one/a.csv"), Path("two/a.csv"))
    for before, after in ((1, None), (None, 1), (Path("one/a.csv"), Path("two/a.csv"))):
        assert find_changes({"a": before}, {"a": after}, through_files=True) == []
