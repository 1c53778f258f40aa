"""The law of reports: frequencies against quadrature, the guarantee in balls, loss and bound against integrals."""

import math
import os
from fractions import Fraction
from itertools import pairwise

import flint
import mpmath
import numpy as np
import pytest
from scipy.special import chdtrc

from privopt_metric_dp.space.places import Space
from privopt_spherical_laplace.kit import great_circle_km
from privopt_spherical_laplace.law import expected_distance, quantiles, rounded_loss
from privopt_spherical_laplace.loss import best_remap, loss_over_points
from privopt_spherical_laplace.nearest import nearest_probabilities
from privopt_spherical_laplace.problem import Outputs, Privacy, SphereInstance, SphereProblem
from privopt_spherical_laplace.sampler.exact import RADIUS_KM, Digits, NearestPoint
from privopt_spherical_laplace.sampler.fast import draw_positions

RADIUS = float(RADIUS_KM)
EPSILON = Fraction(1, 50)  # reports are 100 km away in the mean: about a cell of one degree
PLACES = [(0.0, 0.0), (45.25, 9.2), (89.9, -30.0), (12.5, 180.0), (90.0, 0.0)]
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


def density(latitude, longitude, place, epsilon):
    """Return the density per square radian of latitude and longitude, in doubles, of arrays in radians."""
    rate = float(epsilon) * RADIUS
    phi, turn = np.radians(place)
    height = np.sin((latitude - phi) / 2) ** 2 + np.cos(latitude) * np.cos(phi) * np.sin((longitude - turn) / 2) ** 2
    angle = 2 * np.arcsin(np.sqrt(np.minimum(height, 1.0)))
    total = 2 * math.pi * (1 + math.exp(-math.pi * rate)) / (1 + rate * rate)
    return np.cos(latitude) * np.exp(-rate * angle) / total


def pieces(low, high, cut):
    """Return intervals between two numbers, divided at a third if it lies inside: the density has an edge there."""
    borders = [low, cut, high] if low < cut < high else [low, high]
    return list(pairwise(borders))


def probability(rectangle, place, epsilon=EPSILON):
    """Return the probability of a rectangle (south, north, west, east) in degrees, by Gauss and Legendre."""
    south, north, west, east = rectangle
    total = 0.0
    # The place may lie a turn away from the rectangle's own longitudes.
    longitude = place[1] + 360.0 * round(((west + east) / 2 - place[1]) / 360.0)
    for a, b in pieces(south, north, place[0]):
        for c, d in pieces(west, east, longitude):
            lat = np.radians((a + b) / 2 + (b - a) / 2 * NODES)[:, None]
            lon = np.radians((c + d) / 2 + (d - c) / 2 * NODES)[None, :]
            scale = math.radians((b - a) / 2) * math.radians((d - c) / 2)
            total += scale * float(WEIGHTS @ density(lat, lon, (place[0], longitude), epsilon) @ WEIGHTS)
    return total


def categories(place):
    """Return rectangles of whole degrees around a place: cells, or near a pole bands of 30 degrees of longitude."""
    row, column = round(place[0]), round(place[1])
    if row > 85:
        bands = [(k - 0.5, k + 0.5) for k in range(84, 90)]
        turns = [(c - 0.5, c + 29.5) for c in range(-180, 180, 30)]
        return [(89.5, 90.0, -180.5, 179.5)] + [(*band, *turn) for band in bands for turn in turns]
    window = range(-4, 5)
    return [(row + i - 0.5, row + i + 0.5, column + j - 0.5, column + j + 0.5) for i in window for j in window]


def p_value(place, draw, count):
    """Return the p-value of Pearson's test for so many draws around a place."""
    rectangles = categories(place)
    probabilities = np.array([probability(rectangle, place) for rectangle in rectangles])
    outputs = draw(np.full(count, place[0]), np.full(count, place[1]))
    counts = np.zeros(len(rectangles))
    for number, (south, north, west, east) in enumerate(rectangles):
        is_row = (outputs[:, 0] >= south) & (outputs[:, 0] <= north)
        counts[number] = (is_row & ((outputs[:, 1] - west) % 360 < east - west)).sum()
    is_common = probabilities * count >= 8
    observed = np.append(counts[is_common], count - counts[is_common].sum())
    expected = np.append(probabilities[is_common], 1 - probabilities[is_common].sum()) * count
    assert expected.min() > 0
    return float(chdtrc(len(expected) - 1, ((observed - expected) ** 2 / expected).sum()))


def exact_draws(latitudes, longitudes):
    return draw_positions(latitudes, longitudes, EPSILON, Digits(0))


@pytest.mark.parametrize("place", PLACES)
def test_frequencies_of_20000_draws(place):
    assert p_value(place, exact_draws, 20_000) > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_frequencies_of_two_million_draws(place):
    assert 1e-4 < p_value(place, exact_draws, 2_000_000) < 1 - 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES[:3])
def test_probabilities_agree_with_quadrature_in_30_digits(place):
    """Gauss and Legendre in doubles, with 24 nodes, is accurate enough for two million draws."""
    with mpmath.workdps(30):
        rate = mpmath.mpf(float(EPSILON)) * RADIUS
        total = 2 * mpmath.pi * (1 + mpmath.exp(-mpmath.pi * rate)) / (1 + rate**2)
        phi, turn = map(mpmath.radians, place)

        def value(lat, lon):
            height = mpmath.sin((lat - phi) / 2) ** 2
            height += mpmath.cos(lat) * mpmath.cos(phi) * mpmath.sin((lon - turn) / 2) ** 2
            return mpmath.cos(lat) * mpmath.exp(-2 * rate * mpmath.asin(mpmath.sqrt(height))) / total

        for rectangle in sorted(categories(place), key=lambda r: -probability(r, place))[:2]:
            south, north, west, east = rectangle
            exact = mpmath.mpf(0)
            for a, b in pieces(south, north, place[0]):
                for c, d in pieces(west, east, place[1]):
                    exact += mpmath.quad(value, [*map(mpmath.radians, (a, b))], [*map(mpmath.radians, (c, d))])
            assert abs(probability(rectangle, place) - exact) < 1e-6 * exact


# --- wrong samplers ---------------------------------------------------------------------------------------


def in_floats(latitudes, longitudes):
    """Planar Laplace noise as it is often written: in single precision, degrees of longitude not shortened."""
    chance = np.random.default_rng(int.from_bytes(os.urandom(8), "little"))
    distance = chance.gamma(2.0, 1.0 / float(EPSILON), len(latitudes)).astype(np.float32)
    bearing = (2 * np.pi * chance.random(len(latitudes))).astype(np.float32)
    degrees = distance / np.float32(111.2)
    rows = np.rint(np.minimum(latitudes + degrees * np.cos(bearing), 90.0))
    return np.column_stack([rows, np.rint(longitudes + degrees * np.sin(bearing))]).astype(np.int64)


def with_biased_bearing(latitudes, longitudes):
    """Draw a bearing by one byte modulo 200: its first 56 values come twice as often."""

    def source(count):
        words = np.frombuffer(os.urandom(count), "<u8").copy().reshape(-1, 2)
        biased = (words[:, 1] % np.uint64(256)) % np.uint64(200)
        words[:, 1] = biased * np.uint64(2**64 // 200) + np.uint64(2**62 // 200)
        return words.tobytes()

    return draw_positions(latitudes, longitudes, EPSILON, Digits(0), source=source)


def with_half_the_rate(latitudes, longitudes):
    return draw_positions(latitudes, longitudes, EPSILON * Fraction(11, 10), Digits(0))


@pytest.mark.parametrize("draw", [in_floats, with_biased_bearing, with_half_the_rate])
def test_frequencies_of_wrong_samplers_show(draw):
    assert p_value(PLACES[1], draw, 20_000) < 1e-9


# --- the guarantee ----------------------------------------------------------------------------------------


def ball_density(south, north, west, east, place, rate):
    """Return a ball of exp(-rate d) over a rectangle in degrees, unnormalised: Z is the same around every place."""
    degree = flint.arb.pi() / 180
    lat = flint.arb((south + north) / 2, (north - south) / 2 * (1 + 1e-12)) * degree
    lon = flint.arb((west + east) / 2, (east - west) / 2 * (1 + 1e-12)) * degree
    phi, turn = flint.arb(place[0]) * degree, flint.arb(place[1]) * degree
    height = ((lat - phi) / 2).sin() ** 2 + lat.cos() * phi.cos() * ((lon - turn) / 2).sin() ** 2
    root = height.union(flint.arb(0)).upper().sqrt() if height.contains(0) else height.sqrt()
    root = flint.arb(0).union(root) if height.contains(0) else root
    return (-rate * 2 * root.asin()).exp() * lat.cos()


def ball_probability(rectangle, place, rate, parts):
    """Return a ball of the integral over a rectangle, by balls over so many parts each way; exact bounds."""
    south, north, west, east = rectangle
    total, step_lat, step_lon = flint.arb(0), (north - south) / parts, (east - west) / parts
    for i in range(parts):
        for j in range(parts):
            a, c = south + i * step_lat, west + j * step_lon
            total += ball_density(a, a + step_lat, c, c + step_lon, place, rate)
    return total


def ratios(count, seed):
    """Count random pairs of places and cells whose ratio is proved within epsilon, or proved beyond it."""
    chance = np.random.default_rng(seed)
    proved = refuted = 0
    for _ in range(count):
        epsilon = 10.0 ** chance.uniform(-3, 1)
        rate, scale = epsilon * RADIUS, math.degrees(1.0 / (epsilon * RADIUS))
        first = (float(chance.uniform(-80, 80)), float(chance.uniform(-180, 180)))
        shift = chance.uniform(-1.0, 1.0, 4) * scale
        second = (first[0] + float(shift[0]) / 2, first[1] + float(shift[1]))
        south, west, side = first[0] + float(shift[2]), first[1] + float(shift[3]), scale / 10
        rectangle = (south, south + side, west, west + side)
        with flint.ctx.workprec(80):
            one, two = (ball_probability(rectangle, place, flint.arb(rate), 3) for place in (first, second))
            allowed = flint.arb(epsilon * great_circle_km(first, second)).exp()
            proved += bool(one / two < allowed) and bool(two / one < allowed)
            refuted += bool(one / two > allowed) or bool(two / one > allowed)
    return proved, refuted


def test_probabilities_of_cells_keep_epsilon():
    proved, refuted = ratios(150, 1)
    assert refuted == 0
    # Where place, other place and cell nearly lie on a line, three parts each way do not decide.
    assert proved > 90


@pytest.mark.slow
def test_probabilities_of_10000_pairs_and_cells_keep_epsilon():
    proved, refuted = ratios(10_000, 2)
    assert refuted == 0
    assert proved > 6_000


# --- loss and bound ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", ["0.000001", "0.0001", "0.05", "1.4", "1000000"])
def test_expected_distance_agrees_with_quadrature(epsilon):
    with mpmath.workdps(40):
        rate = mpmath.mpf(epsilon) * mpmath.mpf("6371.0088")
        borders = [0, *(min(k / rate, mpmath.pi) for k in (1, 4, 16, 64, 256)), mpmath.pi]
        law = [lambda t, k=k: t**k * mpmath.sin(t) * mpmath.exp(-rate * t) for k in (0, 1)]
        total, first = (mpmath.quad(f, sorted({*borders})) for f in law)
        lower, upper = expected_distance(Fraction(epsilon))
        exact = first / total * mpmath.mpf("6371.0088")
        assert abs(lower / exact - 1) < 1e-15
        assert abs(upper / exact - 1) < 1e-15


@pytest.mark.parametrize(("epsilon", "digits"), [("1.4", 3), ("0.02", 0), ("1.4", 2)])
def test_loss_bounds_the_mean_of_draws(epsilon, digits):
    count, chance = 20_000, np.random.default_rng(7)
    places = np.column_stack([np.degrees(np.arcsin(chance.uniform(-1, 1, count))), chance.uniform(-180, 180, count)])
    reports = draw_positions(*places.T, Fraction(epsilon), Digits(digits)) / 10.0**digits
    losses = [great_circle_km(a, b) for a, b in zip(places.tolist(), reports.tolist(), strict=True)]
    mean, error = float(np.mean(losses)), float(np.std(losses)) / math.sqrt(count)
    bound = rounded_loss(Fraction(epsilon), Fraction(1, 10**digits))
    assert expected_distance(Fraction(epsilon))[0] <= bound
    assert mean < bound + 5 * error
    assert mean > expected_distance(Fraction(epsilon))[0] - 5 * error


def test_quantiles_are_those_of_draws():
    count, place = 20_000, (45.25, 9.2)
    reports = draw_positions(np.full(count, place[0]), np.full(count, place[1]), EPSILON, Digits(5)) / 1e5
    distances = [great_circle_km(place, report) for report in reports.tolist()]
    for level, distance in zip((0.5, 0.95), quantiles(EPSILON, np.array([0.5, 0.95])).tolist(), strict=True):
        assert abs(np.mean(np.array(distances) <= distance) - level) < 5 * math.sqrt(level * (1 - level) / count)


def points_instance(points, epsilon, prior=None):
    declared = SphereProblem(privacy=Privacy(epsilon=epsilon), outputs=Outputs())
    exact = tuple((Fraction(a), Fraction(b)) for a, b in points)
    space = Space(ids=[f"p{k}" for k in range(len(points))], coordinates=np.array(points), kind="geographic")
    return SphereInstance(declared=declared, rounding=NearestPoint(exact), points=space, prior=prior)


def test_a_remap_loses_less_and_its_loss_bounds_the_mean_of_draws():
    chance = np.random.default_rng(8)
    points = (np.array([41.9, 12.5]) + chance.uniform(-0.5, 0.5, (12, 2))).tolist()
    prior = chance.dirichlet(np.full(12, 0.3))
    problem = points_instance(points, Fraction(1, 20), prior)
    remap, probabilities = best_remap(problem)
    assert np.allclose(probabilities.sum(axis=1), 1.0)
    rows = chance.choice(12, 20_000, p=prior)
    nearest = draw_positions(*np.array(points)[rows].T, problem.epsilon, problem.rounding)[:, 0]
    distances = np.array([[great_circle_km(a, b) for b in points] for a in points])
    plain, mapped = distances[rows, nearest].mean(), distances[rows, remap[nearest]].mean()
    assert mapped < plain
    assert plain <= loss_over_points(problem, None) + 0.5
    assert mapped <= loss_over_points(problem, remap) + 0.5


def test_probabilities_of_nearest_points_are_those_of_draws():
    chance, count = np.random.default_rng(9), 40_000
    points = (np.array([89.7, 12.5]) + chance.uniform(-1, 1, (9, 2)) * [0.3, 90]).tolist()
    problem = points_instance(points, Fraction(1, 20))
    probabilities = nearest_probabilities(problem)
    for row in (0, 4):
        place = points[row]
        outputs = draw_positions(np.full(count, place[0]), np.full(count, place[1]), problem.epsilon, problem.rounding)
        expected = probabilities[row] * count
        observed = np.bincount(outputs[:, 0], minlength=9)
        common = expected >= 5
        statistic = ((observed - expected)[common] ** 2 / expected[common]).sum()
        assert chdtrc(max(1, int(common.sum()) - 1), statistic) > 1e-6
