"""The sampler against a reference in 400 bits, against stored vectors, and the fast path against the exact one."""

import hashlib
import json
import os
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.errors import UsageError
from privopt_spherical_laplace.sampler import fast, fixed_point
from privopt_spherical_laplace.sampler.exact import RADIUS_KM, Digits, GridCells, NearestPoint, draw_exactly
from privopt_spherical_laplace.sampler.fast import draw_positions

VECTORS = [json.loads(line) for line in (Path(__file__).parent / "sphere_vectors.jsonl").read_text().splitlines()]
LATITUDES = st.sampled_from([0.0, 45.5, 89.9, -33.3, 90.0, -90.0, 89.9999999999]) | st.floats(-90, 90)
LONGITUDES = st.sampled_from([0.0, 180.0, -180.0, 179.9999, -74.006]) | st.floats(-180, 180)
EPSILONS = st.sampled_from(["1e-6", "1e-4", "0.01", "1.4", "300", "1e6"]).map(Fraction)
POINTS = tuple(
    (Fraction(a), Fraction(b)) for a, b in [(0, 0), (45, 9), (45, 10), (-33, 151), (89, 0), (90, 0), (-90, 0)]
)
ROUNDINGS = st.integers(0, 9).map(Digits) | st.sampled_from([GridCells(Fraction(1, 4)), GridCells(Fraction(90))])
BITS = 160


class Entropy:
    """A source of given bytes, followed by others, that counts what was taken."""

    def __init__(self, contents):
        further = b"".join(hashlib.sha256(bytes([number])).digest() for number in range(128))
        self.contents, self.taken = contents + further, 0

    def __call__(self, count):
        self.taken += count
        return self.contents[self.taken - count : self.taken]


def numbers_of(contents):
    """Return U and V as numbers in (0, 1) whose first bits are those of the entropy, read as the sampler reads it."""
    words = [int.from_bytes(contents[start : start + 8], "little") for start in range(0, len(contents), 8)]
    (u, v), held, start = words[:2], 1, 2
    while start + 2 * held <= len(words):
        for word in words[start : start + held]:
            u = u << 64 | word
        for word in words[start + held : start + 2 * held]:
            v = v << 64 | word
        start, held = start + 2 * held, 2 * held
    scale = mpmath.mpf(2) ** (64 * held)
    return (u + mpmath.mpf(0.5)) / scale, (v + mpmath.mpf(0.5)) / scale


def reference_position(latitude, longitude, epsilon, u, v):
    """Return latitude and longitude in degrees by bisection and vectors in space, in the precision in force."""
    rate = mpmath.mpf(epsilon.numerator) / epsilon.denominator * RADIUS_KM.numerator / RADIUS_KM.denominator
    total = 1 + mpmath.exp(-rate * mpmath.pi)
    low, high = mpmath.mpf(0), +mpmath.pi
    for _ in range(250):
        t = (low + high) / 2
        below = (1 - mpmath.exp(-rate * t) * (mpmath.cos(t) + rate * mpmath.sin(t))) / total < u
        low, high = (t, high) if below else (low, t)
    phi, turn = mpmath.radians(mpmath.mpf(latitude)), mpmath.radians(mpmath.mpf(longitude))
    place = [mpmath.cos(phi) * mpmath.cos(turn), mpmath.cos(phi) * mpmath.sin(turn), mpmath.sin(phi)]
    east = [-mpmath.sin(turn), mpmath.cos(turn), 0]
    north = [-mpmath.sin(phi) * mpmath.cos(turn), -mpmath.sin(phi) * mpmath.sin(turn), mpmath.cos(phi)]
    bearing = 2 * mpmath.pi * v
    x, y, z = (
        mpmath.cos(low) * a + mpmath.sin(low) * (mpmath.sin(bearing) * b + mpmath.cos(bearing) * c)
        for a, b, c in zip(place, east, north, strict=True)
    )
    return mpmath.degrees(mpmath.atan2(z, mpmath.hypot(x, y))), mpmath.degrees(mpmath.atan2(y, x))


def rounding_of(vector):
    kind, argument = vector["kind"], vector["argument"]
    if kind == "digits":
        return Digits(argument)
    if kind == "grid":
        return GridCells(Fraction(argument))
    return NearestPoint(tuple((Fraction(a), Fraction(b)) for a, b in argument))


@pytest.mark.parametrize("vector", VECTORS)
def test_vectors_that_other_languages_share(vector):
    place = Fraction(vector["latitude"]), Fraction(vector["longitude"])
    source = Entropy(bytes.fromhex(vector["entropy"]))
    output = draw_exactly(*place, Fraction(vector["epsilon_per_km"]), rounding_of(vector), source=source)
    assert (list(output), source.taken) == (vector["output"], vector["bytes"])


@settings(max_examples=25)
@given(LATITUDES, LONGITUDES, EPSILONS, st.integers(0, 9), st.binary(min_size=16, max_size=16))
def test_rounds_the_real_valued_position(latitude, longitude, epsilon, digits, start):
    source = Entropy(start + bytes(range(256)) * 4)
    output = draw_exactly(Fraction(latitude), Fraction(longitude), epsilon, Digits(digits), source=source)
    with mpmath.workprec(300):
        u, v = numbers_of(source.contents[: max(source.taken, 1024)])
        lat, lon = reference_position(latitude, longitude, epsilon, u, v)
        scale = 10**digits
        row, column = (int(mpmath.floor(x * scale + 0.5)) for x in (lat, lon))
    column = 0 if abs(row) == 90 * scale else (column + 180 * scale) % (360 * scale) - 180 * scale
    assert output == (row, column)


@settings(max_examples=25)
@given(LATITUDES, LONGITUDES, EPSILONS, ROUNDINGS | st.just(NearestPoint(POINTS)), st.binary(min_size=64, max_size=64))
def test_bulk_draws_are_the_exact_ones(latitude, longitude, epsilon, rounding, start):
    contents = start + bytes(255 - byte for byte in range(256)) * 8
    in_bulk, one_by_one = Entropy(contents), Entropy(contents)
    outputs = draw_positions(np.full(4, latitude), np.full(4, longitude), epsilon, rounding, source=in_bulk)
    first_words = [int(word) for word in np.frombuffer(one_by_one(64), "<u8")]
    expected = [
        draw_exactly(
            Fraction(latitude),
            Fraction(longitude),
            epsilon,
            rounding,
            source=one_by_one,
            words=first_words[row : row + 2],
        )
        for row in range(0, 8, 2)
    ]
    assert [tuple(row) for row in outputs.tolist()] == expected
    assert in_bulk.taken == one_by_one.taken


@settings(max_examples=25)
@given(LATITUDES, st.integers(-180, 135), EPSILONS, st.integers(0, 9), st.binary(min_size=48, max_size=48))
def test_turning_the_place_turns_the_report(latitude, longitude, epsilon, digits, contents):
    rounding, scale = Digits(digits), 10**digits
    first, second = (
        draw_exactly(Fraction(latitude), Fraction(x), epsilon, rounding, source=Entropy(contents))
        for x in (longitude, longitude + 45)
    )
    assert first[0] == second[0]
    if abs(first[0]) != 90 * scale:
        assert (second[1] - first[1] - 45 * scale) % (360 * scale) == 0


@settings(max_examples=25)
@given(LATITUDES, LONGITUDES, EPSILONS, st.integers(0, 9), st.binary(min_size=48, max_size=48))
def test_outputs_are_in_range(latitude, longitude, epsilon, digits, contents):
    place, scale = (Fraction(latitude), Fraction(longitude)), 10**digits
    row, column = draw_exactly(*place, epsilon, Digits(digits), source=Entropy(contents))
    assert -90 * scale <= row <= 90 * scale
    assert -180 * scale <= column < 180 * scale
    row, column = draw_exactly(*place, epsilon, GridCells(Fraction(5, 2)), source=Entropy(contents))
    assert 0 <= row < 72
    assert 0 <= column < 144


@pytest.mark.parametrize("name", ["sine", "cosine", "exp", "arctangent"])
def test_functions_in_fixed_point_keep_their_bounds(name):
    chance = np.random.default_rng(5)
    one, worst = 1 << BITS, 0.0
    with mpmath.workprec(300):
        for fraction in chance.random(300).tolist():
            angle = int(fraction * fixed_point.pi(BITS))
            x = mpmath.mpf(angle) / one
            y = int(one * (0.3 + fraction))
            actual, expected = {
                "sine": lambda angle=angle, x=x: (fixed_point.sine_cosine(angle, BITS)[0], mpmath.sin(x)),
                "cosine": lambda angle=angle, x=x: (fixed_point.sine_cosine(angle, BITS)[1], mpmath.cos(x)),
                "exp": lambda angle=angle, x=x: (fixed_point.exp_minus(40 * angle, BITS), mpmath.exp(-40 * x)),
                "arctangent": lambda angle=angle, x=x, y=y: (
                    fixed_point.arctangent(-y, angle - one, BITS),
                    mpmath.atan2(-mpmath.mpf(y), mpmath.mpf(angle - one)),
                ),
            }[name]()
            worst = max(worst, float(abs(actual - expected * one)))
    assert worst <= (16 if name in ("sine", "cosine") else 4) * BITS


def test_constants_in_fixed_point():
    with mpmath.workprec(600):
        for bits in (160, 224, 416):
            assert abs(fixed_point.pi(bits) - mpmath.pi * mpmath.mpf(2) ** bits) <= 1
            assert abs(fixed_point.log_two(bits) - mpmath.log(2) * mpmath.mpf(2) ** bits) <= 1


def test_functions_in_doubles_keep_their_bounds():
    x = np.random.default_rng(6).uniform(-16.0, 16.0, 2000)
    sine, cosine = fast._sine_cosine(x)
    decay = fast._exp_minus(np.abs(4 * x))
    with mpmath.workprec(120):
        for value, s, c, e in zip(x.tolist(), sine.tolist(), cosine.tolist(), decay.tolist(), strict=True):
            exact = mpmath.mpf(value)
            assert abs(mpmath.sin(exact) - s) < 2.0**-50
            assert abs(mpmath.cos(exact) - c) < 2.0**-50
            assert abs(mpmath.exp(-4 * abs(exact)) / e - 1) < 2.0**-50


@pytest.mark.parametrize("epsilon", ["0.000001", "0.001", "1.4", "1000000"])
def test_distribution_function_in_doubles_keeps_its_bound(epsilon):
    with mpmath.workprec(150):
        exact_rate = mpmath.mpf(epsilon) * RADIUS_KM.numerator / RADIUS_KM.denominator
    rate = float(Fraction(epsilon) * RADIUS_KM)
    scaled = np.random.default_rng(7).uniform(0, min(48.0, np.pi * rate), 200)
    sine, cosine = fast._sine_cosine(scaled / rate)
    values = 1.0 - fast._exp_minus(scaled) * (cosine + rate * sine)
    with mpmath.workprec(150):
        for s, value in zip(scaled.tolist(), values.tolist(), strict=True):
            angle = mpmath.mpf(s) / rate
            decay = mpmath.exp(-exact_rate * angle)
            exact = 1 - decay * (mpmath.cos(angle) + exact_rate * mpmath.sin(angle))
            assert abs(exact - value) < 2.0**-48


def test_takes_under_200_bits_in_the_mean():
    for epsilon, digits in (("1e-6", 9), ("1.4", 3), ("1e6", 9)):
        taken = 0

        def source(count):
            nonlocal taken
            taken += count
            return os.urandom(count)

        draw_positions(np.full(2000, 89.9), np.full(2000, 180.0), Fraction(epsilon), Digits(digits), source=source)
        assert 8 * taken / 2000 < 200


def test_a_source_that_ends_is_refused():
    with pytest.raises(UsageError, match="random bytes"):
        draw_exactly(Fraction(0), Fraction(0), Fraction(1), GridCells(Fraction(1)), source=lambda count: b"")


def test_first_bits_that_round_two_ways_are_refined():
    """With U near 1 the distance is unbounded, and with V = 0 the longitude may be either side of the place's."""
    source = Entropy(bytes([255] * 8) + bytes(8) + bytes(range(1, 250)))
    draw_exactly(Fraction(0), Fraction(1, 2), Fraction(3), Digits(0), source=source)
    assert source.taken > 16


@pytest.mark.slow
def test_draws_5000_a_second():
    import time

    start = time.process_time()
    draw_positions(np.full(100_000, 45.5), np.full(100_000, 9.2), Fraction("1.4"), Digits(3))
    assert 100_000 / (time.process_time() - start) > 5_000
