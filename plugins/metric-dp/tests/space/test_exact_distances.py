"""Distances, limits and costs to the last bit: bounds hold of the decimals that are written, both checks agree."""

from __future__ import annotations

import itertools
import json
import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from helpers.command import run
from helpers.forgeries import make
from helpers.forgeries.arrays import exact_distances
from helpers.grids import by_pairs, first_alone, often
from helpers.mended_sums import mend, rewrite

from privopt import checker
from privopt.arrays import no_doubles
from privopt.checker.exact import ONE
from privopt.errors import InputError, UsageError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_metric_dp.checkers.matrix import TOTAL, Matrix
from privopt_metric_dp.space.distance_table import MatrixMetric
from privopt_metric_dp.space.places import Space
from privopt_metric_dp.space.roads import Roads

TEXT = """[records]
{records}
[distance]
{distance}
[privacy]
epsilon = {epsilon}
{within}
[utility]
{utility}
"""
SQUARE = {"points.csv": "id,x,y\na,0,0\nb,0.5,0.1\nc,1.1,0\nd,.1,.7\n"}


def solve_files(
    tmp: Path,
    files: dict,
    *,
    records: str = 'points = "points.csv"',
    distance: str = 'kind = "euclidean"',
    epsilon: float = 1.0,
    limit: str | None = None,
    utility: str = 'kind = "distance"',
    **options,
) -> Path:
    source = tmp / "in"
    source.mkdir(parents=True)
    for name, contents in files.items():
        np.save(source / name, contents) if isinstance(contents, np.ndarray) else (source / name).write_text(contents)
    limit_line = "" if limit is None else f"neighbours_within = {limit}"
    text = TEXT.format(records=records, distance=distance, epsilon=repr(epsilon), within=limit_line, utility=utility)
    (source / "problem.toml").write_text(text)
    solve_options = Options(**{"method": "full", "solver": "highs", **options})
    return solve("optimal-lp", source / "problem.toml", tmp / "out", solve_options).folder


def hold(folder: Path) -> dict:
    """Both programs say that a folder holds; what it says of its objective."""
    lines: list[str] = []
    assert verify(folder).complaints == ()
    assert checker.check(folder, lines.append) == 0, lines
    return json.loads((folder / "result.json").read_text())["objective"]


@pytest.mark.parametrize("base", ["town", "twins", "roads", "table", "grid"])
def test_stored_distances_may_reach_the_exact_ones(tmp_path, base):
    """And no bit beyond: the corpus of forgeries has that of each pair."""
    folder = make(base, tmp_path)
    exact = np.array(exact_distances(folder))
    hold(rewrite(folder, distances=lambda d: exact))


def test_exact_distances_imply_like_rounded_ones(tmp_path):
    """Two steps at their exact lengths are longer than the way over both, rounded down."""
    files = {"points.csv": "id\na\nb\nc\n", "roads.csv": "from,to,km\na,b,0.31\nb,c,0.42\n"}
    folder = solve_files(tmp_path, files, distance=ROADS)
    exact = np.array(exact_distances(folder))
    assert (np.load(folder / "mechanism.npz")["distances"] < exact).all()
    hold(rewrite(folder, distances=lambda d: exact))


def test_whole_numbers_that_are_no_doubles():
    numbers = np.array([[2**53 + 1, 2**60 + 2**8, 2**64 - 1], [0, 1, 2**53]], dtype=np.uint64)
    assert no_doubles(numbers).tolist() == [[True, False, True], [False] * 3]
    assert no_doubles(np.array([-(2**53) - 1, -(2**63), 2**63 - 1])).tolist() == [True, False, True]
    assert not no_doubles(np.array([np.inf, np.nan, 1e300])).any()


WHOLE = {
    "distances": ("d.npy", "count = 3", 'kind = "matrix"\nmatrix = "d.npy"', 'kind = "distance"'),
    "costs": ("c.npy", "count = 3", 'kind = "matrix"\nmatrix = "d.npy"', 'kind = "matrix"\ncost = "c.npy"'),
    "vectors": ("v.npy", 'vectors = "v.npy"', 'kind = "euclidean"', 'kind = "distance"'),
}


@by_pairs("name_of_table, number", WHOLE, [2**53 + 1, 2**60 + 2**8 - 1, 2**62 - 1])
def test_both_programs_refuse_inexact_numbers(tmp_path, name_of_table, number):
    name, records, distance, utility = WHOLE[name_of_table]
    unit_table = np.ones((3, 3), dtype=np.uint64) - np.eye(3, dtype=np.uint64)
    files = dict.fromkeys(("d.npy", name), unit_table)
    settings = {"records": records, "distance": distance, "utility": utility}
    folder = solve_files(tmp_path / "small", files, **settings)
    with pytest.raises(InputError, match=rf"row 0, column 1 \(from 0\): .*2\^53.*{number}"):
        solve_files(tmp_path / "large", {**files, name: unit_table * np.uint64(number)}, epsilon=1e-16, **settings)
    np.save(folder / "problem" / name, unit_table * np.uint64(number))
    mend(folder)
    with pytest.raises(InputError, match=r"2\^53"):
        verify(folder)
    lines: list[str] = []
    assert (checker.check(folder, lines.append), lines[-1][:17]) == (2, "cannot be checked")


def test_large_numbers_that_are_doubles_hold(tmp_path):
    table = (1 - np.eye(3)).astype(np.int64) * 2**60
    matrix = 'kind = "matrix"\nmatrix = "d.npy"'
    hold(solve_files(tmp_path, {"d.npy": table}, records="count = 3", distance=matrix, epsilon=1e-18))


def test_refuses_inexact_numbers_in_memory():
    large = np.array([[0, 2**53 + 1], [2**53 + 1, 0]])
    with pytest.raises(UsageError, match=r"2\^53"):
        Space(ids=("a", "b"), coordinates=large, kind="planar")
    with pytest.raises(InputError, match=r"2\^53"):
        MatrixMetric(large)
    with pytest.raises(InputError, match="double"):
        Roads(["a"], ["b"], [2**53 + 1])


TWINS = {
    "points": ({"points.csv": SQUARE["points.csv"] + "e,0.5,0.1\n"}, {}),
    "vectors": ({"v.npy": np.array([[0.1, 0.2], [0.1, 0.2], [1, 1]])}, {"records": 'vectors = "v.npy"'}),
    "underflowing squares": ({"v.npy": np.array([[0], [1e-200], [1]])}, {"records": 'vectors = "v.npy"'}),
    "less than the checker's numbers": ({"v.npy": np.array([[0], [1e-120], [1]])}, {"records": 'vectors = "v.npy"'}),
    "hardly more than its numbers": (
        {"v.npy": np.array([[0, 0], [1e-75, 3e-75], [1, 1]])},
        {"records": 'vectors = "v.npy"'},
    ),
    "roads": (
        {"roads.csv": "from,to,km\na,b,0\nb,c,0.4\n", "points.csv": "id\na\nb\nc\n"},
        {"distance": 'kind = "graph"\nedges = "roads.csv"'},
    ),
    "a table": (
        {"d.npy": np.array([[0.0, 0, 1], [0, 0, 1], [1, 1, 0]])},
        {"records": "count = 3", "distance": 'kind = "matrix"\nmatrix = "d.npy"'},
    ),
    "the sphere": ({"points.csv": "id,lat,lon\na,45,7\nb,45,7\nc,45.01,7\n"}, {"distance": 'kind = "haversine"'}),
}


@by_pairs("kind, limit", TWINS, [None, 1.5])
def test_records_at_distance_0_hold(tmp_path, kind, limit):
    files, settings = TWINS[kind]
    hold(solve_files(tmp_path, files, limit=limit, **settings))


def test_refuses_tables_of_longer_floats(tmp_path):
    table = (1 - np.eye(3)).astype(np.longdouble)
    if table.dtype.itemsize == 8:
        pytest.skip("no longer floats here")
    with pytest.raises(InputError, match="type"):
        solve_files(tmp_path, {"d.npy": table}, records="count = 3", distance='kind = "matrix"\nmatrix = "d.npy"')


@pytest.mark.parametrize("gap", ["1", "1.5", "1e9", "inf", "nan", "0"])
def test_refuses_gap_that_accepts_anything(tmp_path, gap):
    completed = run("solve", "optimal-lp", "none.toml", "--out", str(tmp_path / "out"), "--gap", gap)
    assert completed.exit_code == 2
    assert "below 1" in completed.output
    with pytest.raises(UsageError, match="gap"):
        solve_files(tmp_path, SQUARE, gap=float(gap))


def exact_loss(folder: Path) -> Fraction:
    """Return the exact loss of this very release, rounded up, by the checker's arithmetic."""
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    result = json.loads((folder / "result.json").read_text())
    matrix = Matrix(folder, checker.Problem(folder, result["problem"], names), result)
    matrix.integers()
    losses, total = matrix.losses, 0
    for k in range(matrix.width):
        columns = zip(losses.column(k), losses.prior, (row[k] for row in matrix.rows), strict=True)
        total += sum(cost * weight_part * weight for cost, weight_part, weight in columns)
    return Fraction(total, losses.whole * TOTAL * ONE) + Fraction(1, 2**70)


def far_target(seed: int, far_km: str, side_km: float, digits: int) -> dict:
    rng, names = random.Random(seed), "abcdefgh"
    rows = [f"{a},{b},{rng.random() * side_km:.{digits}f}" for a, b in itertools.pairwise(names)]
    return {
        "points.csv": "id\n" + "\n".join(names) + "\n",
        "roads.csv": "\n".join(["from,to,km", *rows, f"h,z,{far_km}", ""]),
        "t.csv": "id,weight\nz,1\n",
    }


ROADS = 'kind = "graph"\nedges = "roads.csv"'
TARGET = 'kind = "travel-cost"\ntargets = "t.csv"'


FAR = [("100.7", 1e-2, 6), ("12000.3", 1e-3, 6), ("12000.3", 1e-4, 8), ("1000000.3", 1e-4, 9), ("40000.7", 1e-5, 9)]


@by_pairs("seed, roads", [1, 0], FAR)
def test_travel_to_a_far_target_is_bounded(tmp_path, seed, roads):
    far_km, side_km, digits = roads
    folder = solve_files(
        tmp_path,
        far_target(seed, far_km, side_km, digits),
        distance=ROADS,
        epsilon=2 / side_km,
        utility=TARGET,
        gap=1e-12,
    )
    objective = hold(folder)
    assert objective["gap"] < 1e-6
    assert Fraction(objective["lower_bound"]) <= exact_loss(folder)


@first_alone("seed", [0, 1])
def test_travel_without_a_unit_is_bounded(tmp_path, seed):
    files = far_target(seed, "1000000000", 1e-4, 9)  # 10^18 units of 10^-9 km: no doubles
    folder = solve_files(tmp_path, files, distance=ROADS, epsilon=1e4, utility=TARGET)
    objective = json.loads((folder / "result.json").read_text())["objective"]
    assert verify(folder).complaints == ()
    assert Fraction(objective["lower_bound"]) <= exact_loss(folder)


LIMITS = [  # the last double below the root of 13, the root itself as a double, decimals that are reached exactly
    ("id,x,y\na,0,0\nb,2,3\nc,2,4\nd,100,0\n", "3.605551275463989"),
    ("id,x,y\na,0,0\nb,2,3\nc,2,4\nd,100,0\n", "3.6055512754639896"),
    ("id,x,y\na,0,0\nb,0.1,0\nc,0.2,0\nd,0.3,0\n", "0.1"),
    ("id,x,y\na,0,0\nb,0.1,0\nc,0.3,0\nd,0.6,0\n", "0.3"),
    ("id,x,y\na,0,0\nb,0.5,0.1\nc,1.1,0\nd,.1,.7\n", "0.509901951359278483002822410902278"),
    ("id,x,y\na,0,0\nb,0.5,0.1\nc,1.1,0\nd,.1,.7\n", "0.6082762530298219"),
]


@pytest.mark.parametrize(("points", "limit"), LIMITS)
def test_limit_equal_to_distances_is_read_equally(tmp_path, points, limit):
    assert hold(solve_files(tmp_path, {"points.csv": points}, limit=limit))["gap"] < 1e-6


@often("seed", range(6), range(2, 5))
def test_limits_at_distances_of_whole_points(tmp_path, seed):
    rng = random.Random(seed)
    points = list(dict.fromkeys((rng.randint(0, 9), rng.randint(0, 9)) for _ in range(5)))
    ways = sorted({float(np.hypot(a[0] - b[0], a[1] - b[1])) for a in points for b in points if a != b})
    text = "id,x,y\n" + "".join(f"p{i},{x},{y}\n" for i, (x, y) in enumerate(points))
    assert (
        hold(solve_files(tmp_path, {"points.csv": text}, epsilon=0.3, limit=repr(ways[len(ways) // 2])))["gap"] < 1e-6
    )


def test_limits_along_roads_are_decimals(tmp_path):
    files = {"points.csv": "id\na\nb\nc\nd\n", "roads.csv": "from,to,km\na,b,0.1\nb,c,0.2\nc,d,0.3\n"}
    assert hold(solve_files(tmp_path, files, distance=ROADS, limit="0.3"))["gap"] < 1e-6


def scatter_files(seed: int, corner: tuple[float, float], side_length: float, digits: int, names: str) -> dict:
    rng = random.Random(seed)
    rows = [f"p{i}," + ",".join(f"{base + rng.random() * side_length:.{digits}f}" for base in corner) for i in range(6)]
    return {"points.csv": "\n".join([f"id,{names}", *rows, ""])}


SMALL = [
    ("euclidean", (500.0, 4600.0), 3e-3, 1.0),
    ("euclidean", (500.0, 4600.0), 3e-4, 1.0),
    ("haversine", (41.86, 12.44), 3e-5, 111.0),
    ("haversine", (41.86, 12.44), 3e-7, 111.0),
    ("haversine", (-79.0, 179.99), 3e-5, 111.0),
]


@by_pairs("seed, places", [0, 1], SMALL)
def test_distant_small_places_keep_their_distances(tmp_path, seed, places):
    kind, corner, side_length, per_km = places
    names = "x,y" if kind == "euclidean" else "lat,lon"
    files = scatter_files(seed, corner, side_length, 10, names)
    folder = solve_files(tmp_path, files, distance=f'kind = "{kind}"', epsilon=3 / (side_length * per_km), gap=1e-12)
    objective = hold(folder)
    assert objective["gap"] < 1e-6
    assert Fraction(objective["lower_bound"]) <= exact_loss(folder)


def test_millimetre_steps_at_huge_distances(tmp_path):
    text = "id,x,y\na,1000000000,0\nb,1000000000.000001,0\nc,1000000000,0.000001\n"
    hold(solve_files(tmp_path, {"points.csv": text}, epsilon=1e6))
