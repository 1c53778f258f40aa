"""Every planted fault is caught by the check that is named for it; what is right passes all of them."""

import pytest
from faults import choice, counts, matrix, noise, ranks, traces

from privopt.testing import run_check, run_checks, subject
from privopt.testing.checks import CHECKS
from privopt.testing.efforts import EFFORTS

FAULTS = [
    ("solves", matrix.Crashes, "metric-dp"),
    ("certificate-holds", matrix.HonestOnePercent, "metric-dp"),
    ("guarantee-stated", matrix.GuaranteeMisstated, "metric-dp"),
    ("evidence", noise.CalledProved, "local-dp"),
    ("evidence", noise.TrueCountsCalledProved, "local-dp"),
    ("vacuous-guarantee", matrix.NothingIsNear, "metric-dp"),
    ("no-mutation", matrix.Mutates, "metric-dp"),
    ("seed-determinism", matrix.SeedIgnored, "metric-dp"),
    ("seed-determinism", matrix.WorkerDependent, "metric-dp"),
    ("seed-determinism", noise.SeedNotTold, "local-dp"),
    ("fresh-noise", noise.AlwaysTheSameNoise, "local-dp"),
    ("rows-sum-to-one", matrix.RowSumOff, "metric-dp"),
    ("zeros-on-both-sides", matrix.ZeroOnOneSide, "metric-dp"),
    ("epsilon-achieved", matrix.EpsilonOnePercent, "metric-dp"),
    ("every-point", matrix.NearestRecord, "metric-dp"),
    ("every-point", matrix.RecordsAlone, "metric-dp"),
    ("every-point", matrix.TrianglesOverlap, "metric-dp"),
    ("traces", traces.ThresholdReusedWalk, "trace-dp"),
    ("traces", traces.NoiseSharedWalk, "trace-dp"),
    ("traces", traces.LooksAheadWalk, "trace-dp"),
    ("traces", traces.UnchargedWalk, "trace-dp"),
    ("sampler", matrix.TrueRecordFirst, "metric-dp"),
    ("sampler", matrix.TruthHalfTheTime, "metric-dp"),
    ("epsilon-attack", matrix.TruthHalfTheTime, "metric-dp"),
    ("epsilon-attack", noise.HalfTheNoise, "local-dp"),
    ("epsilon-attack", noise.TrueCountsDeclared, "local-dp"),
    ("input-order", matrix.SortedRecords, "metric-dp"),
    ("epsilon-attack", choice.AlwaysTheGreatest, "local-dp"),
    ("fresh-noise", noise.SameNoiseInText, "local-dp"),
    ("sensitivity", choice.ChoosesTooSharply, "local-dp"),
    ("sensitivity", noise.HalfTheScale, "local-dp"),
    ("sensitivity", noise.ChainAsPublished, "pure-dp"),
    ("objective-reported", matrix.ObjectiveMisreported, "metric-dp"),
    ("lower-bound", matrix.BoundTooHigh, "metric-dp"),
    ("lower-bound", ranks.BoundOneTooHigh, "top-k"),
    ("loss-monotone", matrix.LossRises, "metric-dp"),
    ("round-trip", matrix.ChangesOnTheWay, "metric-dp"),
    ("oracle", ranks.CountsTheTrueOne, "top-k"),
    ("verify-catches", matrix.NeverMeasures, "metric-dp"),
    ("use-verifies", noise.NamesUnchecked, "local-dp"),
    ("use-verifies", noise.NamesUnread, "local-dp"),
    ("no-secret-leak", noise.SecretInDetails, "local-dp"),
    ("no-secret-leak", noise.SecretInArchive, "local-dp"),
    ("no-secret-leak", noise.SecretInPublicFile, "local-dp"),
    ("order-leak", noise.SortedByTruth, "local-dp"),
    ("order-leak", noise.FirstAppearance, "local-dp"),
    ("order-leak", noise.OwnNoiseFirstAppearance, "local-dp"),
    ("order-leak", noise.HowItWasWritten, "local-dp"),
    ("bad-input", matrix.InputUnchecked, "metric-dp"),
    ("relabelling", matrix.ById, "metric-dp"),
    ("reordering", matrix.FirstRecord, "metric-dp"),
    ("units", matrix.WrongUnit, "metric-dp"),
    ("backends-agree", matrix.SolversDiffer, "metric-dp"),
]

RIGHT = [
    (matrix.RightMatrix, "metric-dp"),
    (traces.RightWalk, "trace-dp"),
    (counts.RightCounts, "local-dp"),
    (counts.RightRegions, "pure-dp"),
    (choice.RightChoice, "local-dp"),
    (ranks.RightRanks, "top-k"),
]


def profile_of(fault):
    return noise.HALF if fault in (noise.HalfTheNoise, noise.TrueCountsDeclared) else None


@pytest.mark.parametrize(("check", "fault", "kind"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_caught_by_the_check_that_is_named_for_it(check, fault, kind, quick):
    tried = subject(fault, guarantee=kind, profile=profile_of(fault))
    result = run_check(check, tried, how=quick)
    tried.close()
    print(f"{fault.__name__}: {check} after {result.examples} examples, {result.seconds:.1f} s\n{result.reason}")
    assert result.status == "failed", result
    assert "could not be done" not in result.reason
    assert result.reason.splitlines()[0].strip()


def test_every_check_has_a_planted_fault():
    assert {check for check, _, _ in FAULTS} == set(CHECKS)


@pytest.mark.parametrize(("right", "kind"), RIGHT)
def test_what_is_right_passes_every_check(right, kind):
    tried = subject(right, guarantee=kind)
    results = run_checks(tried, how=EFFORTS["ci"])
    tried.close()
    assert [result for result in results if result.status == "failed"] == []
    assert sum(result.status == "passed" for result in results) >= 12
