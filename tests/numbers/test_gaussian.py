"""Discrete Gaussian noise: its exact distribution, its agreement with OpenDP's, and what its rho is worth."""

from fractions import Fraction

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare, norm

from privopt.errors import UsageError
from privopt.interfaces import Guarantee, Shift
from privopt.interfaces.gaussian import ZCDP, ApproxDP
from privopt.numbers.gaussian import LARGEST_VARIANCE, delta_of, draw_gaussian, rho_of, variance_above
from privopt.numbers.noise import discrete_gaussian
from privopt.registry import registry

RARE = 1e-9
COUNT = 200_000


def law(variance, reach):
    """Exact probabilities of -reach to reach by ball arithmetic, the ends with their tails."""
    far_range = range(-reach - 200, reach + 201)
    weights = {v: (-flint.arb(v) ** 2 / (2 * flint.arb(flint.fmpq(variance.numerator, variance.denominator)))).exp()
               for v in far_range}  # fmt: skip
    total = sum(weights.values(), flint.arb(0))
    inside_weights = [weights[v] for v in range(-reach, reach + 1)]
    tail = (total - sum(inside_weights, flint.arb(0))) / 2
    inside_weights[0], inside_weights[-1] = inside_weights[0] + tail, inside_weights[-1] + tail
    return np.array([float((weight / total).mid()) for weight in inside_weights])


def histogram(draws, reach):
    return np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1)


@pytest.mark.parametrize("variance", [Fraction(1, 3), Fraction(1), Fraction(5, 2), Fraction(37, 7), Fraction(400, 3)])
def test_draws_have_the_exact_distribution(variance):
    used_variance = variance_above(variance)
    reach = max(1, int(2.5 * float(used_variance) ** 0.5))
    expected = COUNT * law(used_variance, reach)
    assert chisquare(histogram(draw_gaussian(COUNT, variance), reach), expected).pvalue > RARE


@pytest.mark.parametrize("deviation", [1.0, 7.0])
def test_draws_agree_with_opendp(deviation):
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    vetted = np.array(dp.m.make_gaussian(*space, scale=deviation)([0] * 30_000))
    noisy, record = discrete_gaussian(np.zeros(30_000, dtype=np.int64), Fraction(deviation) ** 2)
    assert record.scale == deviation**2
    reach = int(2.5 * deviation)
    assert chi2_contingency([histogram(vetted, reach), histogram(noisy, reach)]).pvalue > RARE
    assert record.distribution == "discrete-gaussian"
    assert not record.seeded


@pytest.mark.parametrize("variance", [10**4, 10**8, LARGEST_VARIANCE])
def test_draws_large_variances_within_64_bits(variance):
    draws = draw_gaussian(COUNT, Fraction(variance)).astype(float)
    scaled = draws / variance**0.5
    assert abs(scaled.mean()) < 6 / COUNT**0.5
    assert abs(scaled.var() - 1) < 6 * (2 / COUNT) ** 0.5
    cuts = np.linspace(-3, 3, 25)
    counts = np.histogram(scaled, [-np.inf, *cuts, np.inf])[0]
    assert chisquare(counts, COUNT * np.diff(norm.cdf([-np.inf, *cuts, np.inf]))).pvalue > RARE


@given(st.fractions(min_value=Fraction(1, 10**9), max_value=LARGEST_VARIANCE))
def test_variances_are_rounded_up_slightly(variance):
    used_variance = variance_above(variance)
    assert used_variance >= variance
    if variance >= 1:
        assert used_variance <= variance * Fraction(1001, 1000)
    t, n = used_variance.numerator, used_variance.denominator
    assert max(t, n) < 1 << 60


def test_short_words_end_no_draw_early():
    stream = np.random.default_rng(4).bytes(8 << 20)

    def source(limit):
        offset = 0

        def give(size):
            nonlocal offset
            part = stream[offset : offset + min(size, limit)]
            offset += len(part)
            return part

        return give

    full_draws = draw_gaussian(1000, Fraction(50), source=source(1 << 30))
    assert (draw_gaussian(1000, Fraction(50), source=source(64)) == full_draws).all()


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction(LARGEST_VARIANCE + 1)])
def test_refuses_variances_out_of_range(variance):
    with pytest.raises(UsageError, match="variance"):
        discrete_gaussian(np.zeros(1, dtype=np.int64), variance)


def test_seed_determines_and_marks_the_noise():
    counts = np.arange(10)
    seeded, record = discrete_gaussian(counts, Fraction(9), seed=7)
    repeated, _ = discrete_gaussian(counts, Fraction(9), seed=7)
    assert (seeded == repeated).all()
    assert record.seeded
    assert record.spent == 1 / (2 * record.scale) <= Fraction(1, 18)


# --- what rho is worth -------------------------------------------------------------------------------


def gaussian_delta(rho, epsilon):
    """Return the least delta of continuous Gaussian noise of that rho (Balle and Wang 2018); any bound is above it."""
    mu = (2 * rho) ** 0.5
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize("epsilon", ["0.01", "0.5", "1", "8"])
@pytest.mark.parametrize("delta", ["0.1", "1e-6", "1e-12"])
def test_rho_is_the_largest_valid(epsilon, delta):
    e, d = Fraction(epsilon), Fraction(delta)
    rho = rho_of(e, d)
    assert delta_of(rho, e) <= d < delta_of(rho * Fraction(100_001, 100_000), e)
    assert gaussian_delta(float(rho), float(e)) <= float(d)  # a proved bound is no smaller than the truth
    classic = float(e) - 2 * (float(rho) * -np.log(float(d))) ** 0.5 - float(rho)
    assert classic < 0  # Bun and Steinke's conversion would allow less


@pytest.mark.parametrize(("epsilon", "delta"), [(0, "0.1"), (-1, "0.1"), (1, "0"), (1, "1")])
def test_refuses_impossible_epsilon_and_delta(epsilon, delta):
    with pytest.raises(UsageError, match=r"epsilon .*delta"):
        rho_of(Fraction(epsilon), Fraction(delta))


@settings(max_examples=30)
@given(
    st.fractions(min_value=Fraction(1, 10**6), max_value=20), st.fractions(min_value=Fraction(1, 10**4), max_value=20)
)
def test_delta_falls_with_epsilon_and_rises_with_rho(rho, epsilon):
    assert delta_of(rho, 2 * epsilon) <= delta_of(rho, epsilon) <= delta_of(2 * rho, epsilon) <= 1


def test_notions_sum_the_spent_noise():
    gaussian = Shift(law="gaussian", scale=Fraction(8), change=Fraction(4), square=Fraction(8))
    laplace = Shift(law="laplace", scale=Fraction(8), change=Fraction(4), square=Fraction(8))
    assert ZCDP.cost_of_call(gaussian) == ApproxDP.cost_of_call(gaussian) == Fraction(1, 2)
    assert ZCDP.cost_of_call(laplace) == Fraction(1, 8)
    pure = registry().kind("notion", "pure-dp").load()
    assert pure.cost_of_call(laplace) == Fraction(1, 2)
    assert pure.cost_of_call(gaussian) is None  # no epsilon bounds the odds of Gaussian noise


def test_rho_curve_is_above_the_gaussian():
    guarantee = Guarantee(kind="zcdp", extra={"rho": 0.5, "rho_text": "0.5"})
    for epsilon, delta in ZCDP.curve(guarantee):
        assert gaussian_delta(0.5, epsilon) < delta < 1


@given(
    variance=st.fractions(min_value=Fraction(1, 20), max_value=400, max_denominator=50),
    change=st.integers(1, 12),
)
def test_guess_bounds_the_attack_on_gaussian_noise(variance, change):
    rho = Fraction(change**2) / (2 * variance)
    reach = change + int(12 * float(variance) ** 0.5) + 2
    probabilities = law(variance, reach)
    differences = np.abs(
        np.diff(np.vstack([np.pad(probabilities, (0, change)), np.pad(probabilities, (change, 0))]), axis=0)
    )
    guess = ZCDP.guess(Guarantee(kind="zcdp", statement="", extra={"rho_text": str(rho)}))
    assert (1 + differences.sum() / 2) / 2 <= guess + 1e-12
    # Both of the known bounds on the total variation hold, so the guess is at most as large as each of them.
    assert guess <= (1 + float(rho / 2) ** 0.5) / 2 + 1e-12
    assert guess <= 1.0
