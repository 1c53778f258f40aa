"""The judge: what it says holds, with the confidence that it states; what it would have seen, it sees."""

import math
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from privopt.errors import UsageError
from privopt.numbers.binomial import clopper_pearson
from privopt.testing import judge
from privopt.testing.judging import outputs
from privopt.testing.judging.bounds import log_odds_lower


def answers(truth, count, rng, epsilon=1.0):
    """Randomised response."""
    return np.where(rng.random(count) < 1 / (1 + math.exp(-epsilon)), truth, 1 - truth)


def laplace(x, count, rng, scale=1.0):
    return x + rng.laplace(0, scale, count)


def lattice_laplace(x, count, rng, scale=1.0):
    """Laplace noise on multiples of 2**-10, which doubles add exactly."""
    p = 1 - math.exp(-(2.0**-10) / scale)
    return x + 2.0**-10 * (rng.geometric(p, count) - rng.geometric(p, count))


def rounded_laplace(x, count, rng, scale=1.0):
    return np.round(laplace(x, count, rng, scale), 3)


def snapped_laplace(x, count, rng, scale=1.0):
    """Snapping (Mironov, CCS 2012), to multiples of 1, within 50."""
    noise = np.where(rng.random(count) < 0.5, -1, 1) * scale * np.log(rng.random(count))
    return np.clip(np.round(np.clip(x, -50, 50) + noise), -50, 50)


def geometric(x, count, rng, epsilon=1.0):
    p = 1 - math.exp(-epsilon)
    return x + rng.geometric(p, count) - rng.geometric(p, count)


def constant(x, count, rng):
    return [3] * count


def no_scores(x, count, rng):
    """Return the exponential mechanism where all scores are 0: an output of eight, whatever the input."""
    return rng.integers(0, 8, count)


def normals(x, count, rng):
    return rng.normal(size=(count, 4))


CONFIDENCE = 0.9


@pytest.mark.parametrize("runs", [12, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("draw_many", "epsilon"),
    [
        pytest.param(answers, 1.0, marks=pytest.mark.slow),
        (lattice_laplace, 1.0),
        pytest.param(rounded_laplace, 1.0, marks=pytest.mark.slow),
        pytest.param(snapped_laplace, 1.0, marks=pytest.mark.slow),
        pytest.param(geometric, 1.0, marks=pytest.mark.slow),
        (constant, 1e-6),
        pytest.param(no_scores, 1e-6, marks=pytest.mark.slow),
        pytest.param(normals, 1e-6, marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_right_mechanisms_are_rarely_refuted(draw_many, epsilon, runs):
    refuted_count = 0
    for seed in range(runs):
        verdict = judge(None, [0, 1], many=draw_many, epsilon=epsilon, draws=4000, confidence=CONFIDENCE, seed=seed)
        refuted_count += verdict.violated
        assert verdict.violated is (verdict.epsilon_lower > epsilon)
    assert refuted_count <= binom.ppf(0.999, runs, 1 - CONFIDENCE)


@pytest.mark.slow
@pytest.mark.parametrize("draw_many", [lattice_laplace, answers, geometric], ids=lambda mechanism: mechanism.__name__)
def test_finds_breaches_within_its_power(draw_many):
    """A breach as large as the power that it states, and a little more for what the search misses."""
    right = judge(None, [0, 1], many=draw_many, epsilon=1.0, draws=40_000)
    assert not right.violated
    assert 1 < right.power < 2
    factor = right.power * 1.1
    claims = [judge(None, [0, 1], many=draw_many, epsilon=1.0 / factor, draws=40_000, seed=seed) for seed in range(10)]
    assert sum(verdict.violated for verdict in claims) >= binom.ppf(0.001, 10, 0.9)


def test_bounds_match_the_binomial():
    low, high = clopper_pearson([0, 3, 50], 50, 0.01)
    assert low[0] == 0
    assert high[2] == 1
    assert binom.sf(2, 50, low[1]) == pytest.approx(0.01)
    assert binom.cdf(3, 50, high[1]) == pytest.approx(0.01)
    assert log_odds_lower(0, 0, 50, 0.01) == -math.inf


def test_same_seed_gives_the_same_verdict():
    options = {"epsilon": 0.8, "draws": 8_000, "seed": 5}
    first, second = (
        judge(lambda x, rng: x + rng.laplace(), st.integers(0, 9), lambda x: [x + 1], **options) for _ in "ab"
    )
    assert {**first.to_json(), "seconds": 0} == {**second.to_json(), "seconds": 0}
    assert str(first).splitlines()[0] == str(second).splitlines()[0]


def test_searches_inputs():
    """Only one input in eight gives itself away."""

    def leaks(x, rng):
        return x if x == 5 else rng.integers(0, 8)

    verdict = judge(leaks, st.integers(0, 7), epsilon=1.0, notion="local-dp")
    assert verdict.violated
    assert "5" in verdict.pair
    assert verdict.event.startswith("the ")


def test_neighbours_may_be_a_strategy():
    verdict = judge(lambda x, rng: x + rng.laplace(0, 0.3), [3], lambda x: st.just(x + 1), epsilon=1.0)
    assert verdict.violated
    assert set(verdict.pair) == {"3", "4"}


def test_metric_notion_uses_distances():
    def report(x, count, rng):
        return np.round(x + rng.laplace(0, 1.0, count), 3)

    options = {"notion": "metric-dp", "distance": lambda a, b: abs(a - b), "many": report, "draws": 50_000}
    assert not judge(None, [0.0, 0.5, 3.0], epsilon=1.0, **options).violated
    verdict = judge(None, [0.0, 0.5, 3.0], epsilon=0.8, **options)
    assert verdict.violated
    assert 0.8 < verdict.epsilon_lower < 1.0


PLACES = [(0.0, 0.0), (0.0, 11.0), (160.0, 110.0), (800.0, 1100.0)]
"""Metres."""


def planar_laplace(position, count, rng):
    """Epsilon 0.01 per metre, to whole metres (Andres et al., CCS 2013)."""
    angle = rng.random(count) * 2 * math.pi
    return np.round(position + rng.gamma(2, 100.0, count)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_chooses_no_indistinguishable_pairs(seed):
    options = {"notion": "metric-dp", "distance": math.dist, "many": planar_laplace, "draws": 120_000, "seed": seed}
    right = judge(None, PLACES, epsilon=0.01, confidence=0.9999, **options)
    assert not right.violated
    assert right.epsilon_lower > 0.006
    assert judge(None, PLACES, epsilon=0.005, confidence=0.9999, **options).violated


def inverse_laplace(x, count, rng, scale=1.0):
    u = rng.random(count) - 0.5
    return x - scale * np.sign(u) * np.log(1 - 2 * np.abs(u))


def exponential_difference(x, count, rng, scale=1.0):
    return x + rng.exponential(scale, count) - rng.exponential(scale, count)


@pytest.mark.parametrize(
    "noise", [laplace, inverse_laplace, exponential_difference], ids=lambda mechanism: mechanism.__name__
)
@pytest.mark.parametrize(
    "inputs", [(0.0, 1.0), (0.0, 0.5), (0.0, 1e6), (0.1, 1.1), (0.0, 1e-9), (1.0, 2.0), (-1.0, 1.0)]
)
def test_finds_laplace_noise_in_doubles(inputs, noise):
    """Noise that a double adds to a double gives its inputs away by the place of the last bit (Mironov, CCS 2012)."""
    scale = inputs[1] - inputs[0]
    verdict = judge(None, inputs, many=partial(noise, scale=scale), epsilon=1.0, draws=60_000, seed=1)
    assert verdict.violated
    assert "last bit" in verdict.event


@pytest.mark.parametrize("scale", [0.3, 5.0, 20.0])
def test_finds_laplace_noise_in_doubles_at_other_scales(scale):
    verdict = judge(None, [0.0, 1.0], many=partial(laplace, scale=scale), epsilon=1 / scale, draws=60_000, seed=1)
    assert verdict.violated
    assert "last bit" in verdict.event


@given(st.integers(-(2**53), 2**53).filter(bool), st.integers(-1000, 900))
def test_last_bit_is_the_finest_power_of_two(number, exponent):
    value = math.ldexp(float(number), exponent)
    zeros = (number & -number).bit_length() - 1
    assert outputs.CHANGES["place of the last bit of "](np.array([value])).tolist() == [exponent + zeros]


@given(
    st.lists(st.integers(-(2**40) + 1, 2**40 - 1), min_size=1, max_size=20),
    st.integers(-900, 900),
    st.sampled_from([[], [0.0], [math.nan, math.inf]]),
)
def test_numbers_on_a_grid_have_no_fine_bits(steps, exponent, odd):
    values = np.array([*(math.ldexp(float(step), exponent) for step in steps), *odd])
    assert not outputs.has_fine_bits(values)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e3), st.integers(0, 2**32 - 1))
def test_sums_of_doubles_have_fine_bits(value, scale, seed):
    assert outputs.has_fine_bits(value + np.random.default_rng(seed).laplace(0, scale, 100))


def test_allows_delta():
    def gauss(x, count, rng):
        return np.round(
            rng.normal(x, 3.7, count), 2
        )  # (1, 1e-5)-DP by the analytic formula needs 3.73; at (1, .01) 2 would do

    assert not judge(None, [0, 1], many=gauss, epsilon=1.0, delta=0.01, draws=20_000).violated

    def leaky(x, count, rng):
        return np.where(rng.random(count) < 0.02, x, 9)

    assert judge(None, [0, 1], many=leaky, epsilon=1.0, draws=10_000).violated
    assert not judge(None, [0, 1], many=leaky, epsilon=1.0, delta=0.02, draws=10_000).violated
    assert judge(None, [0, 1], many=leaky, epsilon=1.0, delta=0.005, draws=20_000).violated


@pytest.mark.parametrize(
    "output",
    [
        lambda x, rng: {"total": x},
        lambda x, rng: [rng.normal()] * (x + 1),
        lambda x, rng: math.nan if x and rng.random() < 0.5 else rng.normal(),
        lambda x, rng: math.inf if x else 1.0,
        lambda x, rng: rng.normal(size=(3, 2)) + 3 * x,
        lambda x, rng: f"report {x}",
        lambda x, rng: None if x else 0.0,
        lambda x, rng: 1 // x,
        lambda x, rng: round(rng.normal(), 2) if x else rng.normal(),
        lambda x, rng: (rng.normal(), "a" if x else "b"),
        lambda x, rng: int("no") if x else int("not"),
        lambda x, rng: sys.exit(x),
        lambda x, rng: [2**60 + x, int(rng.integers(10**9)) + 2**55],
        lambda x, rng: np.complex128(complex(rng.normal(), x)),
        lambda x, rng: rng.bytes(8) + bytes([x]),
        lambda x, rng: str(float(3 * x + rng.laplace())),
        lambda x, rng: -0.0 if x else 0.0,
    ],
)
def test_compares_outputs_of_any_kind(output):
    assert judge(output, [0, 1], epsilon=1.0, draws=10_000).violated


def test_compares_orders_and_sums():
    def shuffle_secretly(x, rng):  # each number alone tells nothing
        values = rng.permutation(8).astype(float)
        return np.sort(values) if x and rng.random() < 0.5 else values

    assert judge(shuffle_secretly, [0, 1], epsilon=1.0, draws=40_000).violated


@pytest.fixture
def clock(monkeypatch):
    """Return the judge's clock, in a list: calls take what they add to it, and nothing else takes any time."""
    current = [0.0]
    fake_module = SimpleNamespace(monotonic=lambda: current[0])
    monkeypatch.setattr(sys.modules["privopt.testing.judging.judge"], "time", fake_module)
    return current


def test_time_limit_gives_what_is_known(clock):
    def slow(x, rng):
        clock[0] += 0.001
        return round(x + rng.laplace(), 3)

    verdict = judge(slow, [0, 1], epsilon=1.0, time_limit=3.0, draws=10**6)
    assert clock[0] < 3.1
    assert verdict.stopped
    assert 0 < verdict.draws < 10_000
    assert "the time limit" in str(verdict)


def test_slow_mechanisms_respect_the_limit(clock):
    def slow(x):
        clock[0] += 0.1

    verdict = judge(slow, [0, 1], notion="local-dp", epsilon=1.0, time_limit=0.5)
    assert clock[0] < 0.7
    assert verdict.draws <= 6
    assert "would have seen" not in str(verdict)


def test_never_repeated_outputs_are_uncompared():
    verdict = judge(lambda x, rng: f"a{rng.integers(10**15)}:{x}", [0, 1], notion="local-dp", epsilon=1.0, draws=4000)
    assert verdict.uncompared == 1
    assert "nearly all different" in str(verdict)
    assert "would have seen" not in str(verdict)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 0}, "epsilon .*got 0"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta .*got 1.0"),
        ({"epsilon": 1.0, "confidence": 1.0}, "confidence .*got 1.0"),
        ({"epsilon": 1.0, "draws": 10}, "draws .*got 10"),
        ({"epsilon": 1.0, "notion": "pure-pd"}, "mean pure-dp"),
        ({"epsilon": 1.0, "notion": "none"}, "bounds no odds"),
        ({"epsilon": 1.0, "inputs": [1]}, "pair of neighbours"),
        ({"epsilon": 1.0, "inputs": 3}, "be a list"),
        ({"epsilon": "1/2"}, "epsilon .*'1/2'"),
        ({"epsilon": 1.0, "draws": 4000.5}, "4,000, got 4000.5"),
        ({"epsilon": 1.0, "notion": "metric-dp"}, "distance .*got None"),
        ({"epsilon": 1.0, "distance": lambda a, b: math.inf, "notion": "metric-dp"}, "finite, got inf"),
    ],
)
def test_refuses_invalid_options(options, words):
    with pytest.raises(UsageError, match=words):
        judge(lambda x: x, **{"inputs": [0, 1], **options})


def test_error_of_many_is_named():
    def many(value, count):
        raise ValueError("no such thing")

    with pytest.raises(UsageError, match=r"many .*ValueError: no such"):
        judge(lambda value: value, [0, 1], notion="local-dp", epsilon=1.0, many=many, draws=4000)


@given(
    rows=st.lists(st.lists(st.floats(-100, 100), min_size=7, max_size=7), min_size=1, max_size=12),
    data=st.data(),
)
def test_equal_outputs_have_equal_sums_at_any_position(rows, data):
    numbers = np.array(rows)
    weights = np.array(data.draw(st.lists(st.floats(-3, 3), min_size=7, max_size=7)))
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=40))
    assert np.array_equal(
        outputs.weighted_sums(numbers[chosen], weights), outputs.weighted_sums(numbers, weights)[chosen]
    )
