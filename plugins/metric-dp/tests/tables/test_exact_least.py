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


def drawn(rng, digits, low, high):
    """Return a decimal of so many digits between two whole numbers."""
    return f"{rng.randint(low, high - 1)}".replace("-0", "0") + "." + "".join(rng.choices("0123456789", k=digits))


def great_circle(lat, lon, other_lat, other_lon):
    """In km, of radians; the haversine formula."""
    square = mp.sin((lat - other_lat) / 2) ** 2 + mp.cos(lat) * mp.cos(other_lat) * mp.sin((lon - other_lon) / 2) ** 2
    return 2 * 6371 * mp.asin(mp.sqrt(square))


def on_a_plane(folder, rng, digits):
    x, y, u, v = (drawn(rng, digits, 0, 2) for _ in range(4))
    (folder / "p.csv").write_text(f"id,x,y\na,{x},{y}\nb,{u}1,{v}\n")
    return 'points = "p.csv"', "euclidean", mp.hypot(number(x) - number(f"{u}1"), number(y) - number(v))


def long_decimals(folder, rng, digits):
    return on_a_plane(folder, rng, 60)


def vectors(folder, rng, digits):
    ends = [[rng.gauss(0, 1) for _ in range(3)] for _ in range(2)]
    np.save(folder / "v.npy", ends)
    return 'vectors = "v.npy"', "euclidean", mp.sqrt(sum((mpf(a) - mpf(b)) ** 2 for a, b in zip(*ends, strict=True)))


def on_the_earth(folder, rng, digits):
    lat, lon = drawn(rng, digits, -80, 80), drawn(rng, digits, -180, 180)
    far = drawn(rng, digits, -80, 80), drawn(rng, digits, -180, 180)
    other_lat, other_lon = rng.choice([far, (f"{lat}01", f"{lon}02")])
    (folder / "p.csv").write_text(f"id,lat,lon\na,{lat},{lon}\nb,{other_lat}1,{other_lon}\n")
    ends = (number(x) * mp.pi / 180 for x in (lat, lon, f"{other_lat}1", other_lon))
    return 'points = "p.csv"', "haversine", great_circle(*ends)


def cells(folder, rng, digits):
    side = drawn(rng, digits, 1, 3)
    return f"grid = {{ rows = 1, cols = 2, cell_km = {side} }}", "euclidean", number(side)


def cells_on_the_earth(folder, rng, digits):
    side, south, west = drawn(rng, digits, 1, 3), drawn(rng, digits, -80, 80), drawn(rng, digits, -170, 170)
    grid = f"grid = {{ rows = 1, cols = 2, cell_km = {side}, south_west = [{south}, {west}] }}"
    lat = number(south) * mp.pi / 180
    return grid, "haversine", great_circle(lat, 0, lat, number(side) / 6371 / mp.cos(lat))


def roads(folder, rng, digits):
    steps = [drawn(rng, digits, 0, 2) for _ in range(3)]
    rows = [f"{n},{n + 1},{km}\n" for n, km in enumerate(steps)]
    (folder / "r.csv").write_text("from,to,km\n" + "".join(rows) + "0,3,100\n")
    (folder / "p.csv").write_text("id\n0\n3\n")
    return 'points = "p.csv"', 'graph"\nedges = "r.csv', sum(map(number, steps))


def a_table(folder, rng, digits):
    apart = rng.random() + 0.5
    np.save(folder / "d.npy", [[0.0, apart], [apart, 0.0]])
    return "count = 2", 'matrix"\nmatrix = "d.npy', mpf(apart)


KINDS = (on_a_plane, long_decimals, vectors, on_the_earth, cells, cells_on_the_earth, roads, a_table)


@pytest.mark.parametrize("kind", KINDS)
@often("seed", range(8), range(3))
def test_weights_at_the_limit_hold_and_the_least_epsilon_is_no_less(tmp_path, kind, seed):
    rng = random.Random(f"{kind.__name__} {seed}")
    np.save(tmp_path / "c.npy", np.eye(2))
    with mp.workdps(120):
        records, distance, apart = kind(tmp_path, rng, rng.choice([1, 3, 6, 17]))
        epsilon = rng.choice(EPSILONS) if apart < 10 else FAR
        (tmp_path / "p.toml").write_text(TEXT.format(records, f'kind = "{distance}"', epsilon))
        growth = mp.exp(number(epsilon) * apart)
        low = rng.randint(1, int(TOTAL / (2 * growth)))
        for more in (0, 1):  # the greatest that low allows, and one that it does not
            high = int(mp.floor(low * growth)) + more
            weights = np.array([[low, TOTAL - low], [high, TOTAL - high]], dtype=np.uint64)
            found, least = certify(weights, tmp_path / "p.toml"), mp.log(mpf(high) / low) / apart
            assert found.holds is bool(least <= number(epsilon)) is (more == 0)
            assert least <= mpf(found.epsilon) <= least * (1 + mpf(2) ** -50)
            first, second, third, *_ = found.sentences()
            kept, asked = first.removeprefix("keeps epsilon ").split()[0], second.split("asked for ")[1].split()[0]
            assert (float(kept) > float(asked)) is (more == 1)
            assert third == f"compared over {found.over}"
            assert ("enclosed" in found.over) is ("haversine" in distance)
