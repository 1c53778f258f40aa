"""People at listed positions: the checker that shares no code comes to the same loss and bound, wherever they are."""

import json

import numpy as np
import pytest
from helpers.regions import KINDS, write

from privopt import checker
from privopt.errors import InputError
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_metric_dp.checkers.positions import nearest
from privopt_metric_dp.region.locate import Sides

XY = """x,y,weight
0.5,0,1
0,0,2.5
1,0,.1
0.33,0.41,1
0.330000001,0.41,1
-3,-2,1
0.5,2000,1e-3
1e140,-1e149,1e-300
0.33,0.41,1e0
0.5,0.5,0
"""
"""On sides, at corners, in a millimetre twice, outside, beyond all millimetres."""
DEGREES = (
    "lat,lon\n41.80,12.40\n41.805,12.405\n41.80512345,12.4079\n0,359.9\n41.9,12.5\n-41.8,-170\n89.9,12\n-90,0\n0,0\n"
)
STREETS = "from,to,km\na,b,1.0\nb,c,1.1\nc,a,1.2\nb,a,1.0\nc,d,0.9\nd,far,0.2\nb,b,0.9\na,b,1.5\n"
PLACES = {
    "streets": ('points = "nodes-xy.csv"', 'kind = "graph"\nedges = "streets.csv"', ""),
    "streets-earth": ('points = "earth.csv"', 'kind = "graph"\nedges = "streets.csv"', "split_km = 0.4"),
    **{name: KINDS[name] for name in ("points", "grid-finer", "globe", "mesh", "mesh-earth")},
}


def listed(folder, name, people=None, loss="distance"):
    """Return a problem over a region with people listed."""
    problem = write(folder, *PLACES[name], utility=f'kind = "{loss}"\npositions = "people.csv"')
    degrees = "earth" in name or name == "globe"
    (folder / "people.csv").write_text(people or (DEGREES if degrees else XY))
    (folder / "streets.csv").write_text(STREETS)
    (folder / "nodes-xy.csv").write_text("id,x,y\na,0,0\nb,1,0\nc,0.4,0.9\nd,1.0,0\n")  # two nodes in one place
    return problem


@pytest.mark.parametrize("name", PLACES)
def test_the_checker_comes_to_the_same_loss_and_bound(tmp_path, name):
    loss = "travel-cost" if name in ("streets", "mesh") else "distance"
    problem = listed(tmp_path, name, loss=loss)
    folder = solve("optimal-lp", problem, tmp_path / "out", Options()).folder
    assert verify(folder).verdict == "proved"
    lines: list[str] = []
    assert checker.check(folder, lines.append) == 0, lines
    words, objective = lines[3].split(), json.loads((folder / "result.json").read_text())["objective"]
    assert [float(words[2]), float(words[-1])] == [objective["value"], objective["lower_bound"]]


@pytest.mark.parametrize(
    ("name", "people", "match"),
    [
        ("streets-earth", "x,y\n0,0\n", "wanted lat and lon in degrees"),
        ("streets", "lat,lon\n0,0\n", "wanted x and y in km"),
        ("points", "x,y,weight\n0,0,1e-250\n", "wanted a finite sum above 1e-200"),
        ("points", "x,y,lat\nnan,0,1\n", "row 2, column x"),
        ("globe", "lat,lon\n90.001,0\n", "row 2"),
        ("mesh-earth", "lat,lon\n0,-181\n", "row 2"),
    ],
)
def test_people_that_will_not_do_are_refused(tmp_path, name, people, match):
    with pytest.raises(InputError, match=match):
        solve("optimal-lp", listed(tmp_path, name, people), tmp_path / "out", Options())


def test_a_coordinate_of_another_system_alone_is_not_read(tmp_path):
    folder = solve("optimal-lp", listed(tmp_path, "points", "x,y,lat\n0.2,0.3,9\n"), tmp_path / "out", Options()).folder
    assert (verify(folder).verdict, checker.check(folder, str)) == ("proved", 0)


def test_of_streets_in_one_place_the_first_is_taken():
    """However many share an end, and wherever they lie in the grid of cells."""
    rng = np.random.default_rng(1)
    for _ in range(60):
        nodes = rng.integers(-1000, 1000, (int(rng.integers(3, 12)), 2)) * int(rng.choice([1, 1000, 10**9]))
        ends = nodes[rng.integers(0, len(nodes), (int(rng.integers(2, 40)), 2))].reshape(-1, 4)
        asked = np.concatenate([nodes, nodes + rng.integers(-3, 3, nodes.shape), 3 * nodes])
        chosen = Sides(tails=ends[:, :2], heads=ends[:, 2:]).nearest(asked)[0]
        lines = [((a, b), (c, d)) for a, b, c, d in ends.tolist()]
        assert chosen.tolist() == [nearest(tuple(p), lines)[0] for p in asked.tolist()]
