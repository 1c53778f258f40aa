"""Every planted fault is caught by the check that is named for it; what is right passes all of them."""

import re
import time

import pytest
from attrs import evolve
from faults import answers, choice, counts, drawn, everywhere, gaussian, hostile, matrix, noise, odd, ranks, traces
from faults.counts import count_problem
from helpers.kits import BRIEF

from privopt.testing import run_check, run_checks, subject
from privopt.testing.checks import checks as all_checks
from privopt.testing.efforts import EFFORTS

FAULTS = [
    ("solves", matrix.Crashes, "metric-dp"),
    ("certificate-holds", matrix.HonestOnePercent, "metric-dp"),
    ("guarantee-stated", matrix.GuaranteeMisstated, "metric-dp"),
    ("evidence", noise.CalledProved, "local-dp"),
    ("vacuous-guarantee", matrix.NothingIsNear, "metric-dp"),
    ("no-mutation", matrix.Mutates, "metric-dp"),
    ("seed-determinism", matrix.SeedIgnored, "metric-dp"),
    ("seed-determinism", noise.SeedNotTold, "local-dp"),
    ("fresh-noise", noise.AlwaysTheSameNoise, "local-dp"),
    ("rows-sum-to-one", matrix.RowSumOff, "metric-dp"),
    ("zeros-on-both-sides", matrix.ZeroOnOneSide, "metric-dp"),
    ("epsilon-achieved", matrix.EpsilonOnePercent, "metric-dp"),
    ("every-point", everywhere.NearestRecord, "metric-dp"),
    ("every-point", everywhere.RecordsAlone, "metric-dp"),
    ("traces", traces.UnchargedWalk, "trace-dp"),
    ("traces", traces.TestForgotten, "trace-dp"),
    ("sampler", drawn.TrueRecordFirst, "metric-dp"),
    ("epsilon-attack", drawn.TruthHalfTheTime, "metric-dp"),
    ("epsilon-attack", noise.HalfTheNoise, "local-dp"),
    ("epsilon-attack", noise.LowBits, "local-dp"),
    ("epsilon-attack", drawn.LowBitsOfShifts, "metric-dp"),
    ("channel-of-weights", drawn.ChannelOfAnother, "metric-dp"),
    ("channel", drawn.ChannelDoubled, "metric-dp"),
    ("channel", drawn.RoundedToHundredths, "metric-dp"),
    ("reach", counts.HalfTheReach, "local-dp"),
    ("input-order", matrix.SortedRecords, "metric-dp"),
    ("drawn-as-stated", choice.AlwaysTheGreatest, "local-dp"),
    ("exact-epsilon", choice.ChoosesTooSharply, "local-dp"),
    ("sensitivity", noise.HalfTheScale, "local-dp"),
    ("own-scale", gaussian.VarianceUnseen, "zcdp"),
    ("objective-reported", ranks.UnitOmitted, "top-k"),
    ("expected-loss", matrix.ObjectiveMisreported, "metric-dp"),
    ("lower-bound", matrix.BoundTooHigh, "metric-dp"),
    ("lower-bound", ranks.BoundOneTooHigh, "top-k"),
    ("loss-monotone", matrix.LossRises, "metric-dp"),
    ("round-trip", matrix.ChangesOnTheWay, "metric-dp"),
    ("oracle", ranks.CountsTheTrueOne, "top-k"),
    ("verify-catches", ranks.AnyNumberDeletes, "top-k"),
    ("verify-catches-rows", matrix.NeverMeasures, "metric-dp"),
    ("use-verifies", noise.NamesUnchecked, "local-dp"),
    ("unread-columns", matrix.PublishesAll, "metric-dp"),
    ("no-secret-leak", noise.SecretInDetails, "local-dp"),
    ("non-interference", noise.SortedByTruth, "local-dp"),
    ("order-leak", noise.FirstAppearance, "local-dp"),
    ("distances", matrix.FartherThanTheyAre, "metric-dp"),
    ("fresh-samples", drawn.SameShifts, "metric-dp"),
    ("bad-input", matrix.InputUnchecked, "metric-dp"),
    ("bad-input", matrix.QuotesTheInterpreter, "metric-dp"),
    ("relabelling", matrix.ById, "metric-dp"),
    ("reordering", matrix.FirstRecord, "metric-dp"),
    ("units", matrix.WrongUnit, "metric-dp"),
    ("backends-agree", matrix.SolversDiffer, "metric-dp"),
    ("epsilon-attack", hostile.TailsCutOff, "local-dp"),
    ("sensitivity", hostile.RedrawNegative, "local-dp"),
    ("sensitivity", hostile.RetryUntilPlausible, "local-dp"),
    ("public-report", hostile.TitleTold, "local-dp"),
    ("fresh-samples", hostile.SameAfterFork, "metric-dp"),
    ("abilities", hostile.DraftsOver, "local-dp"),
    ("solves", hostile.Exits, "local-dp"),
]


def slow(*row):
    """Mark a row of a table for ``make slow``: each check keeps a row of its own in the suite."""
    return pytest.param(*row, marks=pytest.mark.slow)


ODD = [
    (odd.Constant, "local-dp"),
    (odd.OneAnswer, "local-dp"),
    (odd.BeyondWords, "local-dp"),
    (odd.AddedAfter, "local-dp"),
    (odd.OwnSampler, "local-dp"),
    (odd.Stamped, "local-dp"),
    (odd.AnyOrder, "local-dp"),
    (odd.InDecimals, "metric-dp"),
]
"""Right too, though they look odd."""

RIGHT = [
    (matrix.RightMatrix, "metric-dp"),
    (traces.RightWalk, "trace-dp"),
    (counts.RightCounts, "local-dp"),
    (counts.RightRegions, "pure-dp"),
    (gaussian.RightSquares, "zcdp"),
    (gaussian.RightApprox, "approx-dp"),
    (choice.RightChoice, "local-dp"),
    (choice.RightFlips, "local-dp"),
    (answers.RightAnswers, "local-dp"),
    (answers.RightFloors, "metric-dp"),
    (drawn.RightMiles, "metric-dp"),
    (drawn.RightLine, "metric-dp"),
    (drawn.EighthsOfMiles, "metric-dp"),
    (ranks.RightRanks, "top-k"),
]


def profile_of(fault):
    return noise.HALF if fault in (noise.HalfTheNoise, noise.TrueCountsDeclared) else None


CAUGHT = evolve(EFFORTS["ci"], shrinking=0.2, seconds=1000.0)
"""As many problems as at ci, on slow machines too; the smallest example, which nobody reads here, would take seconds of
each fault."""

FIRST = {
    *{check: fault for check, fault, _ in reversed(FAULTS)}.items(),
    ("traces", traces.TestForgotten),
    ("epsilon-attack", noise.LowBits),
    ("epsilon-attack", drawn.LowBitsOfShifts),
}
"""Checks and the faults that the suite plants for them; the others are planted by ``make slow``."""


@pytest.mark.parametrize(
    ("check", "fault", "kind"),
    [fault_row if fault_row[:2] in FIRST else slow(*fault_row) for fault_row in FAULTS],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_named_check_finds_the_fault(check, fault, kind):
    kit_subject = subject(fault, guarantee=kind, profile=profile_of(fault))
    result = run_check(check, kit_subject, how=CAUGHT)
    if result.status == "passed" and result.note:  # draws decide, and a check that states its power may miss once
        result = run_check(check, kit_subject, how=CAUGHT, seed=100)
    kit_subject.close()
    print(f"{fault.__name__}: {check} after {result.examples} examples, {result.seconds:.1f} s\n{result.reason}")
    assert result.status == "failed", result
    assert "could not be done" not in result.reason
    assert result.reason.splitlines()[0].strip()


def test_sees_low_bits_in_draws_of_a_profile():
    kit_subject = subject(noise.LowBits, guarantee="local-dp", profile=noise.LOW_BITS)
    result = run_check("epsilon-attack", kit_subject, how=evolve(EFFORTS["quick"], shrinking=0.2))
    kit_subject.close()
    assert result.status == "failed", result
    assert "last bit" in result.reason


@pytest.mark.parametrize(("right", "kind"), [(noise.RoundedBits, "local-dp"), (drawn.EighthsOfMiles, "metric-dp")])
def test_noise_on_a_grid_has_no_low_bits(right, kind):
    kit_subject = subject(right, guarantee=kind)
    result = run_check("epsilon-attack", kit_subject, how="quick")
    kit_subject.close()
    assert result.status == "passed", result


def test_every_check_has_a_planted_fault():
    # What a distribution registers is planted in test_abilities_called.py.
    assert {check for check, _, _ in FAULTS} | {"hooks"} == set(all_checks())


@pytest.mark.slow  # the suite holds privopt's own mechanisms to every check
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("right", "kind"), RIGHT + ODD, ids=lambda value: getattr(value, "__name__", value))
def test_right_mechanism_passes_every_check(right, kind, seed):
    kit_subject = subject(right, guarantee=kind)
    results = run_checks(kit_subject, how="ci", seed=seed)
    kit_subject.close()
    assert [result for result in results if result.status == "failed"] == []
    assert (right, kind) in ODD or sum(result.status == "passed" for result in results) >= 12


@pytest.mark.parametrize("effort", [BRIEF, slow(CAUGHT)], ids=lambda effort: effort.name)
@pytest.mark.parametrize(
    ("check", "right", "kind"),
    [
        ("channel", drawn.RightLine, "metric-dp"),
        slow("reach", counts.RightReach, "local-dp"),
        ("channel", matrix.RightMatrix, "metric-dp"),
    ],
)
def test_right_channel_passes(check, right, kind, effort):
    kit_subject = subject(right, guarantee=kind)
    result = run_check(check, kit_subject, how=effort)
    kit_subject.close()
    assert result.status == "passed", result.reason


def test_finds_rounded_probabilities_exactly():
    """Draws alone show no excess of a few percent; stated probabilities do."""
    kit_subject = subject(drawn.RoundedToHundredths, guarantee="metric-dp")
    assert run_check("epsilon-attack", kit_subject, how=BRIEF).status == "passed"
    result = run_check("channel", kit_subject, how="quick")
    kit_subject.close()
    assert re.search(r"log ratio is 0\.\d+, 1\.\d+ times", result.reason)


def test_excess_noise_is_not_blamed():
    kit_subject = subject(odd.TwiceTheNoise, guarantee="local-dp")
    result = run_check("own-scale", kit_subject, how="quick")
    kit_subject.close()
    assert result.status == "passed", result


@pytest.mark.slow
def test_paid_second_draw_is_not_blamed():
    kit_subject = subject(hostile.PaidRetry, guarantee="local-dp")
    result = run_check("sensitivity", kit_subject, how="ci")
    kit_subject.close()
    assert result.status == "passed", result


def test_endless_draws_end():
    kit_subject = subject(hostile.RetryUntilPlausible, guarantee="local-dp")
    run = kit_subject.run(count_problem((40,), "5"))
    kit_subject.close()
    assert "again and again" in str(run.error)


def test_permissions_and_dates_are_not_published():
    for fault in (noise.ModeTold, hostile.DateTold):
        kit_subject = subject(fault, guarantee="local-dp")
        even, odd_folder = (kit_subject.run(count_problem((count,), "1")).folder for count in (0, 1))
        modes = [{path.name: path.stat().st_mode for path in folder.rglob("*")} for folder in (even, odd_folder)]
        dates = {path.stat().st_mtime_ns for path in even.rglob("*")}
        kit_subject.close()
        assert "noisy.csv" in modes[0]
        assert modes[0] == modes[1]
        assert len(dates) == 1
        assert time.time_ns() - dates.pop() < 600e9
