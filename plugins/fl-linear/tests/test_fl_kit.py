"""The conformance kit on FL-Linear, and a location side with half the noise, which it must catch."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve
from helpers.kits import BRIEF, OF_SOLVING, PLANTED, thin_neighbours

from privopt.numbers.binomial import epsilon_lower
from privopt.testing import conformance, run_check, subject
from privopt.testing.checks import checks
from privopt_fl_linear import mechanism
from privopt_fl_linear.kit import PROFILE
from privopt_fl_linear.location import noisy_counts
from privopt_fl_linear.mechanism import FLLinear

LONG = ("epsilon-attack", "order-leak", "reach", "seed-determinism", "use-verifies")
"""The location's side is attacked below; what verify finds is in test_fl_mechanism.py."""
test_reconnection = conformance(
    "fl-linear",
    profile=thin_neighbours(PROFILE),
    methods=["reconnection"],
    checks=[name for name in checks() if name not in LONG],
    how=BRIEF,
)
test_laplace = conformance("fl-linear", methods=["laplace"], checks=OF_SOLVING, how=BRIEF)
test_every_check = pytest.mark.slow(conformance("fl-linear", methods=["reconnection"], how="dev"))


class HalfTheNoise(FLLinear):
    """Claims epsilon and draws for twice as much."""

    def solve(self, problem, context):
        def louder(counts, epsilon, **options):
            return noisy_counts(counts, 2 * epsilon, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mechanism, "noisy_counts", louder)
            return super().solve(problem, context)


@pytest.mark.parametrize("check", ["sensitivity", "epsilon-attack"])
def test_finds_half_the_noise(check):
    from privopt.registry import registry

    spec = registry().get("fl-linear").spec

    def draws(problem, method, count):
        clients = np.tile(problem.data.clients, (count, 1))
        return noisy_counts(clients, 2 * problem.declared.privacy.epsilon, noise=problem.noise)[0]

    profile = PROFILE if check == "sensitivity" else evolve(PROFILE, draws=draws)
    tried = subject(HalfTheNoise, "laplace", spec=evolve(spec, name="half-the-noise"), profile=profile)
    outcome = run_check(check, tried, how=PLANTED, seed=1)
    assert outcome.status == "failed", outcome


def test_location_side_at_adjacent_counts():
    """Samples of the location's side at b and b + 1: at most epsilon, and not much less."""
    for noise in ("discrete", "continuous"):
        three, four = (np.floor(noisy_counts(np.full(20_000, b), Fraction(1), noise=noise)[0]) for b in (3, 4))
        lower_bound = epsilon_lower(three, four, 0.999)
        assert 0.3 < lower_bound <= 1.0
