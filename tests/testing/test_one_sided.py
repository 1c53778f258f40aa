"""Notions that bound odds in one direction: the wrong side is caught, and a right mechanism is not accused."""

import numpy as np
import pytest
from attrs import evolve
from faults import one_sided
from helpers.kits import BRIEF, PLANTED

from privopt.errors import UsageError
from privopt.registry import registry, using
from privopt.testing import judge, run_checks, subject
from privopt.testing.checks import checks as all_checks
from privopt.testing.checks.neighbours import excess


@pytest.fixture(autouse=True)
def notion():
    with using(registry().replace(one_sided.NOTION)):
        yield


def run(mechanism, *checks, profile=None, how=PLANTED):
    kit_subject = subject(mechanism, guarantee="one-sided", profile=profile)
    results = run_checks(kit_subject, checks, how=how)
    kit_subject.close()
    return results


def test_right_mechanism_is_not_accused():
    # The other process of seed-determinism does not know the notion, which is registered for this test alone.
    checks = [name for name in all_checks() if name != "seed-determinism"]
    results = run(one_sided.RightSuppression, *checks, how=BRIEF)
    assert [result for result in results if result.status == "failed"] == []
    passed = {result.check for result in results if result.status == "passed"}
    assert {"epsilon-attack", "channel", "zeros-on-both-sides", "epsilon-achieved", "fresh-samples"} <= passed


@pytest.mark.parametrize(
    ("check", "fault"),
    [
        ("zeros-on-both-sides", one_sided.HidesTheOthers),
        ("epsilon-attack", one_sided.HidesTheOthers),
        ("channel", one_sided.HidesTheOthers),
        ("epsilon-achieved", one_sided.SuppressesTooSeldom),
        ("certificate-holds", one_sided.HonestTwice),
        ("fresh-samples", one_sided.SeedBehindAPointMass),
        ("sampler", one_sided.BlankTells),
    ],
)
def test_named_check_finds_the_fault(check, fault):
    (result,) = run(fault, check)
    assert result.status == "failed", result


def test_report_and_abilities_are_tried():
    """A release without secrets has a report too, in which the notion's own words are asked for."""

    class BadPromise(one_sided.OneSided):
        @classmethod
        def promise(cls, result):
            return result["guarantee"]["statement"]

    class Promises(one_sided.RightSuppression):
        def privacy(self, problem, method):
            return BadPromise(epsilon=problem.privacy.epsilon, sensitive=problem.sensitive)

    class Audits(one_sided.RightSuppression):
        def audit(self, problem, release, result):
            return {"rows": release.rows}

    for mechanism, words in ((Promises, "promise raised TypeError"), (Audits, "audit raised AttributeError")):
        (result,) = run(mechanism, "abilities")
        assert result.status == "failed", result
        assert words in result.reason
    assert [result.status for result in run(one_sided.RightSuppression, "abilities")] == ["passed"]


def test_direction_must_be_stated():
    """Without it the kit would have to guess which of two secrets is protected."""
    profile = evolve(one_sided.SENSITIVE, alike=None)
    for result in run(one_sided.RightSuppression, "epsilon-attack", "epsilon-achieved", profile=profile):
        assert result.status == "skipped"
        assert result.missed
        assert "`alike`" in result.reason


def test_excess_counts_only_the_stated_direction():
    likely, unlikely = np.array([0.9, 0.1]), np.array([0.5, 0.5])
    assert excess(likely, unlikely, 0.7, symmetric=False) is None  # log(0.5 / 0.1) is for the other direction
    assert excess(unlikely, likely, 0.7, symmetric=False) == (
        1,
        "their log ratio is 1.60944, 2.299 times what is allowed",
    )
    assert excess(likely, unlikely, 0.7) is not None
    assert excess(likely, unlikely, 0.1, 0.35, symmetric=False) is None
    assert excess(unlikely, likely, 0.1, 0.35, symmetric=False) is not None


def test_judge_looks_only_at_protected_inputs():
    def suppress(answer, rng):
        return "suppressed" if answer == "sensitive" or rng.random() < 0.4 else answer

    answers, others = ["sensitive", "other"], {"sensitive": ["other"], "other": []}
    assert not judge(suppress, answers, others.__getitem__, "one-sided", epsilon=1.0, draws=20_000).violated
    reverse = {"sensitive": [], "other": ["sensitive"]}
    assert judge(suppress, answers, reverse.__getitem__, "one-sided", epsilon=1.0, draws=20_000).violated
    with pytest.raises(UsageError, match="neighbours must be a function"):
        judge(suppress, answers, notion="one-sided", epsilon=1.0)
