from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from helpers.mentions import assert_mentions
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare, ks_2samp, kstest

from privopt.errors import UsageError
from privopt.interfaces import Guarantee
from privopt.interfaces.additive import AdditiveNoise, NoiseCall, certify_noise
from privopt.numbers import draw_laplace
from privopt.numbers.laplace import draw_in_bulk, draw_wide_laplace
from privopt.numbers.noise import continuous_laplace, discrete_laplace, split_budget
from privopt.numbers.sampling import make_source
from privopt.report.page import _add_decimals

#: One run in 1e9 fails by chance, for each test below: the draws are new each time.
RARE = 1e-9


def probabilities(reciprocal, reach):
    """P(X = v) for v = -reach .. reach and the tail on either side."""
    a = math.exp(-float(reciprocal))
    body = (1 - a) / (1 + a) * a ** np.abs(np.arange(-reach, reach + 1))
    tail = a ** (reach + 1) / (1 + a)
    return np.concatenate([[tail], body, [tail]])


def histogram(draws, reach):
    clipped = np.clip(draws, -reach - 1, reach + 1) + reach + 1
    return np.bincount(clipped, minlength=2 * reach + 3)


@pytest.mark.parametrize("reciprocal", [Fraction(1, 30), Fraction(3, 100), Fraction(1), Fraction(5, 2), Fraction(7, 3)])
def test_bulk_sampler_has_the_closed_form(reciprocal):
    count = 400_000
    reach = max(1, int(6 / float(reciprocal)))
    expected = count * probabilities(reciprocal, reach)
    assert chisquare(histogram(draw_laplace(count, reciprocal), reach), expected).pvalue > RARE


@pytest.mark.parametrize("reciprocal", [Fraction(1, 30), Fraction(7, 3)])
def test_wide_sampler_has_closed_form(reciprocal):
    count = 40_000
    reach = max(1, int(5 / float(reciprocal)))
    expected = count * probabilities(reciprocal, reach)
    assert chisquare(histogram(draw_wide_laplace(count, reciprocal), reach), expected).pvalue > RARE


def test_long_scales_use_the_wide_sampler():
    """The terms of this scale are beyond 2**40, and it is 30 to fifteen digits."""
    reciprocal = Fraction(1, 30) + Fraction(1, 10**18)
    noise, record = discrete_laplace(np.zeros(20_000, dtype=np.int64), reciprocal)
    assert record.spent == reciprocal
    expected = noise.size * probabilities(reciprocal, 150)
    assert chisquare(histogram(noise, 150), expected).pvalue > RARE


@pytest.mark.parametrize("seed", [1, 2])
def test_both_samplers_match_opendp(seed):
    """OpenDP's measurement is the independent implementation."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    vetted = dp.m.make_laplace(*space, scale=5.0)([0] * 20_000)
    for own_draws in (draw_laplace(20_000, Fraction(1, 5)), draw_wide_laplace(20_000, Fraction(1, 5))):
        histograms = np.stack([histogram(vetted, 20), histogram(own_draws, 20)])
        histograms = histograms[:, histograms.sum(axis=0) > 0]
        assert chi2_contingency(histograms).pvalue > RARE


@given(st.floats(allow_nan=False, allow_infinity=False), st.fractions(Fraction(1, 10**9), 10**9), st.integers(0, 99))
def test_real_noise_is_rounded_once(value, reciprocal, seed):
    """The draws of two values differ by the exact difference of the values, so no rounding comes before the sum."""
    steps = draw_wide_laplace(1, reciprocal / 2**1074, source=make_source(seed))[0]
    exact = Fraction(value) + Fraction(steps, 2**1074)
    noisy, record = continuous_laplace(np.array([value]), reciprocal, seed=seed)
    assert noisy[0] == float(exact)
    assert record.scale == 1 / reciprocal


def test_real_noise_stays_finite_at_largest_doubles():
    largest = np.finfo(float).max
    noisy, _ = continuous_laplace(np.full(50, largest), Fraction(1, 2**1020))
    assert np.isfinite(noisy).all()
    assert (noisy == largest).any()


@pytest.mark.slow
def test_moments_at_ten_million_draws():
    reciprocal, count = Fraction(1, 30), 10_000_000
    a = math.exp(-float(reciprocal))
    variance = 2 * a / (1 - a) ** 2
    fourth = 2 * a * (1 + 10 * a + a * a) / (1 - a) ** 4  # E X^4 of the double geometric
    draws = draw_laplace(count, reciprocal).astype(float)
    assert abs(draws.mean()) < 5.5 * math.sqrt(variance / count)
    assert abs((draws**2).mean() - variance) < 5.5 * math.sqrt((fourth - variance**2) / count)
    assert abs((draws == 0).mean() - (1 - a) / (1 + a)) < 5.5 * math.sqrt((1 - a) / (1 + a) / count)


@pytest.mark.slow
def test_census_of_draws():
    draw_laplace(10, Fraction(1, 30))
    noisy, record = discrete_laplace(np.zeros(3_200_000, dtype=np.int64), Fraction(1, 30))
    assert record.engine == "exact-integer"
    assert noisy.shape == (3_200_000,)


def test_short_words_do_not_bias():
    """The stream cut into single words gives the same draws as in one piece."""
    rng = np.random.default_rng(4)
    stream = rng.bytes(8 * 60_000)
    position = [0, 0]

    def read_stream(size):
        offset = position[0]
        position[0] += size
        return stream[offset : offset + size]

    def read_word(size):
        offset = position[1]
        position[1] += 8
        return stream[offset : offset + 8]

    full_draws = draw_laplace(1000, Fraction(2, 7), source=read_stream)
    assert (draw_laplace(1000, Fraction(2, 7), source=read_word) == full_draws).all()


def test_words_are_used_once_and_in_order():
    """The source gives three words, a draw takes two: what is left comes again, before new ones."""
    stream = np.arange(1_000, dtype="<u8").tobytes()
    position, words_used = 0, []

    def source(size):
        nonlocal position
        position += 24
        return stream[position - 24 : position]

    def fill(words, buffer, index):
        words_used.extend(words[:2].tolist())
        buffer[index] = words[0]
        return 2, index + 1

    assert draw_in_bulk(40, fill, source=source).tolist() == words_used[::2] == list(range(0, 80, 2))
    assert words_used == list(range(80))


def pure(epsilon, **extra):
    return Guarantee(kind="pure-dp", epsilon=epsilon, **extra)


def test_engines_records_and_seeds():
    counts = np.arange(6).reshape(2, 3)
    noisy, record = discrete_laplace(counts, Fraction(1, 30))
    assert noisy.shape == (2, 3)
    assert noisy.dtype == np.int64
    assert record.engine == "exact-integer"
    assert not record.seeded
    assert record.spent == Fraction(1, 30)
    assert certify_noise(pure(Fraction(1, 10)), [NoiseCall(scale=record.scale)] * 3).holds
    zeros = np.zeros(1000, dtype=np.int64)
    seeded, record = discrete_laplace(counts, Fraction(1, 30), seed=7)
    repeated, _ = discrete_laplace(counts, Fraction(1, 30), seed=7)
    other_seed, _ = discrete_laplace(counts, Fraction(1, 30), seed=8)
    assert record.seeded
    assert record.engine == "seeded"
    assert (seeded == repeated).all()
    assert (seeded != other_seed).any()
    first_unseeded, _ = discrete_laplace(zeros, Fraction(1, 30))
    second_unseeded, _ = discrete_laplace(zeros, Fraction(1, 30))
    assert (first_unseeded != second_unseeded).any()
    assert discrete_laplace(np.empty(0, dtype=np.int64), Fraction(1))[0].shape == (0,)


def test_continuous_noise():
    zeros = np.zeros(20_000)
    noisy, record = continuous_laplace(zeros, Fraction(1, 3))
    assert record.engine == "exact-integer"
    assert record.spent == Fraction(1, 3)
    assert kstest(noisy, "laplace", args=(0, 3)).pvalue > RARE
    seeded, record = continuous_laplace(zeros, Fraction(1, 3), seed=1)
    assert record.seeded
    assert kstest(seeded, "laplace", args=(0, 3)).pvalue > RARE
    assert ks_2samp(noisy, seeded).pvalue > RARE


def test_refusals():
    for counts in (np.array([0.5]), np.array([2**62])):
        with pytest.raises(UsageError):
            discrete_laplace(counts, Fraction(1))
    with pytest.raises(UsageError):
        discrete_laplace(np.array([1]), Fraction(0))
    with pytest.raises(UsageError):
        continuous_laplace(np.array([np.nan]), Fraction(1))
    with pytest.raises(UsageError):
        draw_laplace(1, Fraction(1, 2**57))
    with pytest.raises(UsageError):
        draw_wide_laplace(1, Fraction(0))


@pytest.mark.parametrize("levels", [3, 7])
def test_tenth_over_levels_is_exact(levels):
    parts = split_budget(Fraction("0.1"), [1] * levels)
    assert parts == (Fraction(1, 10 * levels),) * levels
    assert certify_noise(pure(Fraction("0.1")), [NoiseCall(scale=1 / part) for part in parts]).holds
    # a double eps / L passes eps on some L, which is why shares are rationals
    assert sum(Fraction(0.1 / 3) for _ in range(3)) != Fraction("0.1")


@given(
    st.fractions(min_value=Fraction(1, 100), max_value=20, max_denominator=10**9),
    st.lists(st.integers(1, 1000), min_size=1, max_size=9),
    st.integers(10**5, 2**40),
)
@settings(max_examples=200)
def test_shares_never_exceed_the_budget(epsilon, shares, denominator):
    parts = split_budget(epsilon, shares, denominator=denominator)
    assert sum(parts) <= epsilon
    for part, weight in zip(parts, shares, strict=True):
        exact_part = epsilon * weight / sum(shares)
        assert 0 < part <= exact_part < part + Fraction(1, denominator)
        assert part.denominator <= denominator or part.numerator == 1


def test_decimal_and_invalid_shares():
    assert split_budget(Fraction(1, 10), [0.2, 0.3, 0.5]) == (Fraction(1, 50), Fraction(3, 100), Fraction(1, 20))
    for shares in ([], [0.0], [-1], [math.inf], [math.nan, 1]):
        with pytest.raises(UsageError):
            split_budget(Fraction(1), shares)
    assert split_budget(Fraction(1, 10), [1, 10**9], denominator=1000)[0] == Fraction(1, 10**10 + 10)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 200))
@settings(max_examples=100)
def test_best_fraction_below(numerator, other, denominator):
    value = Fraction(numerator, other)
    best = max(Fraction(int(value * q), q) for q in range(1, denominator + 1))
    if best > 0:
        assert split_budget(value, [1], denominator=denominator) == (best,)


@pytest.mark.parametrize("scale", [Fraction(-2), Fraction(0)])
def test_zero_noise_does_not_hold(scale):
    class Made:
        scales = (Fraction(2), scale)

    claim = AdditiveNoise(epsilon=Fraction(1), unit="per person", scope="one", statement="", sensitivities=(1, 1))
    certificate = claim.measure(Made())
    assert certificate.holds is False
    noise = f"laplace noise of scale {scale} at sensitivity 1"
    assert [failure.partition(", which")[0] for failure in certificate.failures] == [f"a call has {noise}"]


def test_certificate_shows_decimals_of_rationals():
    assert _add_decimals(["1/3", "5629499534213121/562949953421312", "-7/2", "1/0", "a/b", 3]) == [
        *("1/3 (0.333333)", "5,629,499,534,213,121/562,949,953,421,312 (10)", "-7/2 (-3.5)", "1/0", "a/b", 3)
    ]


@given(st.lists(st.tuples(st.integers(0, 5), st.fractions(Fraction(1, 50), 1000, max_denominator=1000)), max_size=6))
def test_additive_noise_is_summed_exactly(parts):
    total = sum((Fraction(change) / scale for change, scale in parts), Fraction(0))
    calls = [NoiseCall(scale=scale, sensitivity=change) for change, scale in parts]
    assert certify_noise(pure(total), calls).holds
    if total:
        assert not certify_noise(pure(total - Fraction(1, 10**30)), calls).holds


def test_names_share_law_and_other_failures():
    third = Fraction(1, 3)
    calls = [
        NoiseCall(scale=Fraction(2), budget_share=third, name="level 1"),
        NoiseCall(scale=Fraction(3), budget_share=third),
    ]
    certificate = certify_noise(pure(Fraction(1)), calls, failures=["a row too many"])
    assert certificate.failures[0] == "a row too many"
    assert_mentions(certificate.failures[1], "level 1", "1/2", "1/3")
    gaussian = [NoiseCall(scale=Fraction(2), law="gaussian", name="the mean")]
    assert "satisfy pure-dp" in certify_noise(pure(Fraction(1)), gaussian).failures[0]
    rho = Guarantee(kind="zcdp", extra={"rho_text": "0.25"})
    assert certify_noise(rho, gaussian).holds
    assert not certify_noise(rho, gaussian * 2).holds


def test_certificates_call_scales_and_variances_what_they_are():
    rho = Guarantee(kind="zcdp", extra={"rho_text": "5"})
    laplace, gaussian = NoiseCall(scale=Fraction(3)), NoiseCall(scale=Fraction(2), law="gaussian")
    for calls, name, words in (
        ([laplace], "scales", "scales"),
        ([gaussian] * 2, "variances", "variances"),
        ([gaussian, laplace], "scales_or_variances", "scales or variances"),
        ([], "scales", "scales"),
    ):
        certificate = certify_noise(rho, calls)
        assert [key for key in certificate.notes if key != "sensitivities"] == [name]
        assert certificate.notes[name] == [str(call.scale) for call in calls]
        assert certificate.rests_on == f"that the noise was drawn, freshly and at those {words}"
    failed = certify_noise(rho, [NoiseCall(scale=Fraction(0), law="gaussian")])
    assert "gaussian noise of variance 0 at sensitivity 1" in failed.failures[0]
    assert certify_noise(rho, [laplace], rests_on="my word").rests_on == "my word"


def test_rho_with_too_large_delta_does_not_hold():
    calls = [NoiseCall(scale=Fraction(2), law="gaussian")]
    approx = {"kind": "approx-dp", "epsilon": Fraction(1)}
    certificate = certify_noise(Guarantee(**approx, extra={"delta_text": "0.1"}), calls)
    assert certificate.holds
    assert 0 < certificate.worst <= certificate.allowed == 0.1
    assert not certify_noise(Guarantee(**approx, extra={"delta_text": "0.001"}), calls).holds
