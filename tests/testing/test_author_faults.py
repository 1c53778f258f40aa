"""Twenty faults that authors of mechanisms made or planted are caught at the default effort, and right ones pass."""

from contextlib import nullcontext

import pytest
from attrs import evolve
from faults import authors, choice, matrix, one_sided
from helpers.kits import PLANTED

from privopt.registry import registry, using
from privopt.testing import run_check, run_checks, subject
from privopt.testing.checks import checks as all_checks
from privopt.testing.efforts import EFFORTS

FAULTS = [
    (authors.OneBitCounted, "local-dp", "channel"),
    (authors.HonestUnaryTwice, "local-dp", "certificate-holds"),
    (authors.OneBitNoChannel, "local-dp", "epsilon-attack"),
    (authors.UnarySeeded, "local-dp", "fresh-samples"),
    (authors.UnaryModuleGenerator, "local-dp", "fresh-samples"),
    (authors.UnaryBlankTells, "local-dp", "channel"),
    (authors.FlipsAtTwice, "local-dp", "drawn-as-stated"),
    (choice.FlipsAtThrice, "local-dp", "drawn-as-stated"),
    (authors.FlipsAndStatesThrice, "local-dp", "exact-epsilon"),
    (authors.FlipsSeeded, "local-dp", "drawn-as-stated"),
    (authors.FlipsSeededByData, "local-dp", "fresh-noise"),
    (authors.FlipsTellFirst, "local-dp", "non-interference"),
    (authors.FlipsTellMost, "local-dp", "non-interference"),
    (authors.FlipsTellParity, "local-dp", "fresh-noise"),
    (authors.ClaimsTwice, "metric-dp", "guarantee-stated"),
    (authors.MatrixSeeded, "metric-dp", "fresh-samples"),
    (authors.MatrixBlankTells, "metric-dp", "sampler"),
    (one_sided.HidesTheOthers, "one-sided", "zeros-on-both-sides"),
    (one_sided.HonestTwice, "one-sided", "certificate-holds"),
    (one_sided.SeedBehindAPointMass, "one-sided", "fresh-samples"),
    (one_sided.BlankTells, "one-sided", "sampler"),
]

RIGHT = [
    (authors.RightUnary, "local-dp"),
    (choice.FarFlips, "local-dp"),
    (matrix.RightMatrix, "metric-dp"),
    (one_sided.RightSuppression, "one-sided"),
]

IN_SUITE = {authors.OneBitCounted, authors.OneBitNoChannel, authors.UnaryModuleGenerator, authors.FlipsAtTwice}
"""Faults that the suite plants; the others are planted by ``make slow``."""

DEFAULT = evolve(EFFORTS["ci"], shrinking=0.2)
"""The default effort. The smallest example, which nobody reads here, would take seconds of each fault."""


def name_of(value):
    return getattr(value, "__name__", value)


def registered(kind):
    return using(registry().replace(one_sided.NOTION)) if kind == "one-sided" else nullcontext()


@pytest.mark.parametrize(
    ("fault", "kind", "check"),
    [pytest.param(*row, marks=[] if row[0] in IN_SUITE else [pytest.mark.slow]) for row in FAULTS],
    ids=name_of,
)
def test_named_check_finds_the_fault(fault, kind, check):
    with registered(kind):
        kit_subject = subject(fault, guarantee=kind)
        result = run_check(check, kit_subject, how=PLANTED)
        if result.status == "passed":  # what is claimed is that the default effort finds it
            result = run_check(check, kit_subject, how=DEFAULT)
        kit_subject.close()
    assert result.status == "failed", result
    assert "could not be done" not in result.reason


def run_all(mechanism, kind, seed):
    # The other process of seed-determinism does not know the notion, which is registered for this test alone.
    names = [name for name in all_checks() if (name, kind) != ("seed-determinism", "one-sided")]
    with registered(kind):
        kit_subject = subject(mechanism, guarantee=kind)
        results = run_checks(kit_subject, names, how=DEFAULT, seed=seed)
        kit_subject.close()
    return [result for result in results if result.status == "failed"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("fault", "kind", "check"), FAULTS, ids=name_of)
def test_default_effort_finds_the_fault(fault, kind, check, seed):
    assert run_all(fault, kind, seed) != []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("right", "kind"), RIGHT, ids=name_of)
def test_default_effort_accuses_nobody_falsely(right, kind, seed):
    assert run_all(right, kind, seed) == []
