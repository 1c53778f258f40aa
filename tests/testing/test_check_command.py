"""``privopt check``: what is run, what is written for a CI, and with what code it ends."""

import json

import pytest
from attrs import evolve
from click.testing import CliRunner
from helpers.mentions import assert_mentions

from privopt.command.cli import cli
from privopt.errors import UsageError
from privopt.registry import registry, using
from privopt.testing import CheckResult
from privopt.testing.command import check, judge_skips
from privopt.testing.efforts import EFFORTS, Effort


def run(*arguments):
    return CliRunner().invoke(cli, ["check", "exponential", "--method", "exponential", *map(str, arguments)])


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setenv("PRIVOPT_PROFILE", "quick")
    monkeypatch.setitem(EFFORTS, "quick", evolve(EFFORTS["quick"], examples=1, seconds=1.0, draws=500))


def test_runs_only_named_checks_and_reports_to_ci():
    completed = run("--only", "rows-sum-to-one", "--only", "epsilon-attack", "--json")
    assert completed.exit_code == 0, completed.stderr
    results = json.loads(completed.stdout)
    assert [(result["check"], result["status"]) for result in results] == [
        ("epsilon-attack", "passed"),
        ("rows-sum-to-one", "passed"),
    ]
    assert results[0]["note"].startswith("would have seen")


def test_skip_fails_only_if_the_check_applies():
    elsewhere = run("--only", "sensitivity", "--fail-on-skip")
    assert elsewhere.exit_code == 0
    assert_mentions(elsewhere.stdout, "not applicable", "draw of noise")
    missed = run("--only", "oracle", "--fail-on-skip")
    assert missed.exit_code == 1
    assert_mentions(missed.stdout, "skipped:", "`oracle`")
    assert run("--only", "oracle").exit_code == 0


def test_seed_chooses_the_problems():
    from privopt.testing import run_check, subject

    kit_subject = subject("exponential", "exponential")
    problem_sets, effort = [], Effort(name="six", examples=6, seconds=8.0, shrinking=1.0, draws=1)
    for seed in (1, 1, 2):
        run_check("rows-sum-to-one", kit_subject, how=effort, seed=seed)
        problem_sets.append(set(kit_subject._runs))
    kit_subject.close()
    assert len(problem_sets[1] - problem_sets[0]) <= 1  # how many there are is a matter of time
    assert len(problem_sets[2] - problem_sets[1]) >= 3


@pytest.mark.parametrize("arguments", [["--only", "row-sum"], ["--seed", "-1"], ["--only", ""], ["--seed", "one"]])
def test_bad_usage_is_code_2_and_one_line(arguments):
    completed = run(*arguments)
    assert completed.exit_code == 2
    assert completed.stdout == ""
    assert "Traceback" not in completed.stderr


def test_applicable_skip_fails_and_others_stay():
    results = [
        CheckResult(check="one", version=1, status="failed", reason="smallest", method="m"),
        CheckResult(check="two", version=1, status="skipped", reason="no `x`", method="m", missed=True),
        CheckResult(check="three", version=1, status="not applicable", reason="no noise", method="n"),
        CheckResult(check="five", version=1, status="skipped", reason="left out by the profile", method="n"),
        CheckResult(check="four", version=1, status="passed", note="would have seen 2 epsilon or more", method="n"),
    ]
    assert [result.status for result in judge_skips(results)] == [
        "failed",
        "failed",
        "not applicable",
        "skipped",
        "passed",
    ]


def test_mechanism_that_claims_nothing_has_no_check_to_pass():
    entry = registry().get("exponential")
    methods = [evolve(method, guarantee="none") for method in entry.spec.methods]
    nothing_claimed = evolve(entry, spec=evolve(entry.spec, methods=methods))
    with using(registry().replace(nothing_claimed)), pytest.raises(UsageError, match="no method of exponential has"):
        check("exponential")


def test_effort_is_an_option(monkeypatch):
    monkeypatch.setenv("PRIVOPT_PROFILE", "ci")
    monkeypatch.setitem(EFFORTS, "quick", evolve(EFFORTS["quick"], examples=7, seconds=60.0))
    completed = run("--only", "rows-sum-to-one", "--effort", "quick", "--json")
    # At the effort ci it would be up to 25.
    assert json.loads(completed.stdout)[0]["examples"] <= 7
    assert run("--effort", "slow").exit_code == 2
