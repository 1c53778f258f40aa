"""``privopt check``: what is run, what is written for a CI, and with what code it ends."""

import json

import pytest
from attrs import evolve
from click.testing import CliRunner

from privopt.command.cli import cli
from privopt.testing import CheckResult
from privopt.testing.command import judge_skips
from privopt.testing.efforts import EFFORTS, Effort


def run(*arguments):
    return CliRunner().invoke(cli, ["check", "exponential", "--method", "exponential", *map(str, arguments)])


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setenv("PRIVOPT_PROFILE", "dev")
    monkeypatch.setitem(EFFORTS, "dev", evolve(EFFORTS["dev"], examples=1, seconds=1.0, draws=500))


def test_only_what_is_named_is_run_and_told_to_a_ci():
    done = run("--only", "rows-sum-to-one", "--only", "epsilon-attack", "--json")
    assert done.exit_code == 0, done.stderr
    results = json.loads(done.stdout)
    assert [(one["check"], one["status"]) for one in results] == [
        ("epsilon-attack", "passed"),
        ("rows-sum-to-one", "passed"),
    ]
    assert results[0]["note"].startswith("would have seen")


def test_a_skip_fails_only_where_the_check_applies():
    elsewhere = run("--only", "sensitivity", "--fail-on-skip")
    assert elsewhere.exit_code == 0
    assert "no draw of noise" in elsewhere.stdout
    missed = run("--only", "oracle", "--fail-on-skip")
    assert missed.exit_code == 1
    assert "skipped: the profile has no `oracle`" in missed.stdout
    assert run("--only", "oracle").exit_code == 0


def test_the_seed_chooses_the_problems():
    from privopt.testing import run_check, subject

    tried = subject("exponential", "exponential")
    drawn, how = [], Effort(name="six", examples=6, seconds=8.0, shrinking=1.0, draws=1)
    for seed in (1, 1, 2):
        run_check("rows-sum-to-one", tried, how=how, seed=seed)
        drawn.append(set(tried._kept))
    tried.close()
    assert len(drawn[1] - drawn[0]) <= 1  # how many there are is a matter of time
    assert len(drawn[2] - drawn[1]) >= 3


@pytest.mark.parametrize("arguments", [["--only", "row-sum"], ["--seed", "-1"], ["--only", ""], ["--seed", "one"]])
def test_bad_usage_is_code_2_and_a_line(arguments):
    done = run(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_skip_that_applies_fails_and_others_stay():
    results = [
        CheckResult(check="one", version=1, status="failed", reason="smallest", method="m"),
        CheckResult(check="two", version=1, status="skipped", reason="no `x`", method="m", missed=True),
        CheckResult(check="three", version=1, status="skipped", reason="no noise", method="n"),
        CheckResult(check="four", version=1, status="passed", note="would have seen 2 epsilon or more", method="n"),
    ]
    assert [one.status for one in judge_skips(results)] == ["failed", "failed", "skipped", "passed"]
