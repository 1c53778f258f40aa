"""What certify says of matrices at the limit: held to exact distances, in 120 digits of another library."""

import random
from fractions import Fraction

import numpy as np
import pytest
from helpers.grids import often
from mpmath import mp, mpf

from privopt.numbers import TOTAL
from privopt_metric_dp.mechanisms.certify_matrix import certify

EPSILONS = ("0.1", "0.3", "0.7", "0.9", "1", "1.7", "2.3")
FAR = "0.00013"
"""Epsilon per km where records lie half a continent apart."""

TEXT = '[records]\n{}\n[distance]\n{}\n[privacy]\nepsilon = {}\n[utility]\nkind = "matrix"\ncost = "c.npy"\n'


def number(text):
    value = Fraction(text)
    return mpf(value.numerator) / value.denominator


def draw_decimal(rng, digits, low, high):
    """Return a decimal of so many digits between two whole numbers."""
    return f"{rng.randint(low, high - 1)}".replace("-0", "0") + "." + "".join(rng.choices("0123456789", k=digits))


def great_circle(lat, lon, other_lat, other_lon):
    """In km, of radians; the haversine formula."""
    square = mp.sin((lat - other_lat) / 2) ** 2 + mp.cos(lat) * mp.cos(other_lat) * mp.sin((lon - other_lon) / 2) ** 2
    return 2 * 6371 * mp.asin(mp.sqrt(square))


def on_a_plane(folder, rng, digits):
    x, y, u, v = (draw_decimal(rng, digits, 0, 2) for _ in range(4))
    (folder / "p.csv").write_text(f"id,x,y\na,{x},{y}\nb,{u}1,{v}\n")
    return 'points = "p.csv"', "euclidean", mp.hypot(number(x) - number(f"{u}1"), number(y) - number(v))


def long_decimals(folder, rng, digits):
    return on_a_plane(folder, rng, 60)


def vectors(folder, rng, digits):
    vectors_drawn = [[rng.gauss(0, 1) for _ in range(3)] for _ in range(2)]
    np.save(folder / "v.npy", vectors_drawn)
    return (
        'vectors = "v.npy"',
        "euclidean",
        mp.sqrt(sum((mpf(a) - mpf(b)) ** 2 for a, b in zip(*vectors_drawn, strict=True))),
    )


def on_the_earth(folder, rng, digits):
    lat, lon = draw_decimal(rng, digits, -80, 80), draw_decimal(rng, digits, -180, 180)
    far_place = draw_decimal(rng, digits, -80, 80), draw_decimal(rng, digits, -180, 180)
    other_lat, other_lon = rng.choice([far_place, (f"{lat}01", f"{lon}02")])
    (folder / "p.csv").write_text(f"id,lat,lon\na,{lat},{lon}\nb,{other_lat}1,{other_lon}\n")
    radians = (number(x) * mp.pi / 180 for x in (lat, lon, f"{other_lat}1", other_lon))
    return 'points = "p.csv"', "haversine", great_circle(*radians)


def cells(folder, rng, digits):
    cell_side = draw_decimal(rng, digits, 1, 3)
    return f"grid = {{ rows = 1, cols = 2, cell_km = {cell_side} }}", "euclidean", number(cell_side)


def cells_on_the_earth(folder, rng, digits):
    cell_side, south, west = (
        draw_decimal(rng, digits, 1, 3),
        draw_decimal(rng, digits, -80, 80),
        draw_decimal(rng, digits, -170, 170),
    )
    grid = f"grid = {{ rows = 1, cols = 2, cell_km = {cell_side}, south_west = [{south}, {west}] }}"
    lat = number(south) * mp.pi / 180
    return grid, "haversine", great_circle(lat, 0, lat, number(cell_side) / 6371 / mp.cos(lat))


def roads(folder, rng, digits):
    steps = [draw_decimal(rng, digits, 0, 2) for _ in range(3)]
    rows = [f"{n},{n + 1},{km}\n" for n, km in enumerate(steps)]
    (folder / "r.csv").write_text("from,to,km\n" + "".join(rows) + "0,3,100\n")
    (folder / "p.csv").write_text("id\n0\n3\n")
    return 'points = "p.csv"', 'graph"\nedges = "r.csv', sum(map(number, steps))


def a_table(folder, rng, digits):
    distance = rng.random() + 0.5
    np.save(folder / "d.npy", [[0.0, distance], [distance, 0.0]])
    return "count = 2", 'matrix"\nmatrix = "d.npy', mpf(distance)


KINDS = (on_a_plane, long_decimals, vectors, on_the_earth, cells, cells_on_the_earth, roads, a_table)


@pytest.mark.parametrize("kind", KINDS)
@often("seed", range(8), range(3))
def test_least_epsilon_is_at_the_limit(tmp_path, kind, seed):
    rng = random.Random(f"{kind.__name__} {seed}")
    np.save(tmp_path / "c.npy", np.eye(2))
    with mp.workdps(120):
        records, distance, length = kind(tmp_path, rng, rng.choice([1, 3, 6, 17]))
        epsilon = rng.choice(EPSILONS) if length < 10 else FAR
        (tmp_path / "p.toml").write_text(TEXT.format(records, f'kind = "{distance}"', epsilon))
        growth = mp.exp(number(epsilon) * length)
        low = rng.randint(1, int(TOTAL / (2 * growth)))
        for excess in (0, 1):  # the greatest that low allows, and one that it does not
            high = int(mp.floor(low * growth)) + excess
            weights = np.array([[low, TOTAL - low], [high, TOTAL - high]], dtype=np.uint64)
            certified, exact_epsilon = certify(weights, tmp_path / "p.toml"), mp.log(mpf(high) / low) / length
            assert certified.holds is bool(exact_epsilon <= number(epsilon)) is (excess == 0)
            assert exact_epsilon <= mpf(certified.epsilon) <= exact_epsilon * (1 + mpf(2) ** -50)
            first, second, third, *_ = certified.sentences()
            kept_text, asked_text = (
                first.removeprefix("satisfies epsilon ").split()[0],
                second.split("requested epsilon ")[1].split()[0],
            )
            assert (float(kept_text) > float(asked_text)) is (excess == 1)
            assert third == f"compared over {certified.over}"
            assert ("enclosed" in certified.over) is ("haversine" in distance)
