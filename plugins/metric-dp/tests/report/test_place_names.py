"""What stands beside an id: the place's name where the problem names a column of them, or else its position."""

import json
import re

import numpy as np
import pytest

from privopt import checker
from privopt.numbers.distances import position_text
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_metric_dp.space.places import Space

NAMES = ["Piazza Navona", "</script><b>Pantheon", "", "Trevi"]
ROWS = [
    ("246150584", 41.8992, 12.4731),
    ("246150585", 41.8986, 12.4769),
    ("7", 41.9009, 12.4833),
    ("8", 41.9029, 12.48),
]
TEXT = (
    '[records]\npoints = "{file}"\n{columns}[distance]\nkind = "haversine"\n[privacy]\nepsilon = 2\n'
    '[utility]\nkind = "distance"\n'
)


@pytest.fixture(params=["csv", "geojson"])
def streets(request, tmp_path):
    """Write four places with a column of names, and solve, with the column named or not."""
    if request.param == "csv":
        lines = ["id,lat,lon,street", *(f"{i},{a},{o},{n}" for (i, a, o), n in zip(ROWS, NAMES, strict=True))]
        (tmp_path / "points.csv").write_text("\n".join(lines) + "\n")
    else:
        features = [
            {
                "type": "Feature",
                "properties": {"id": i, "street": n},
                "geometry": {"type": "Point", "coordinates": [o, a]},
            }
            for (i, a, o), n in zip(ROWS, NAMES, strict=True)
        ]
        (tmp_path / "points.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))

    def solve_with_columns(columns):
        (tmp_path / "p.toml").write_text(TEXT.format(file=f"points.{request.param}", columns=columns))
        return solve("exponential", tmp_path / "p.toml", tmp_path / f"out{len(columns)}").folder

    return solve_with_columns


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page)[1])


@pytest.mark.usefixtures("undrawn")
def test_publishes_names_if_the_problem_asks(streets):
    folder = streets('columns = { name = "street" }\n')
    page = write_report(folder).read_text("utf-8")
    assert data_of(page)["descriptions"] == [*NAMES[:2], "41.9009\u00b0 N, 12.4833\u00b0 E", "Trevi"]
    assert ">246150584 (Piazza Navona)</td>" in page
    assert "246150585 (&lt;/script&gt;&lt;b&gt;Pantheon)" in page
    assert "<b>Pantheon" not in page
    assert verify(folder).verdict == "proved"
    assert checker.check(folder, str) == 0
    published_bytes = b"".join(path.read_bytes() for path in (folder / "problem").iterdir())
    assert b"Navona" in published_bytes


@pytest.mark.usefixtures("undrawn")
def test_unnamed_column_is_neither_shown_nor_published(streets):
    folder = streets("")
    page = write_report(folder).read_text("utf-8")
    assert "Navona" not in page
    assert data_of(page)["descriptions"][0] == "41.8992\u00b0 N, 12.4731\u00b0 E"
    assert ">246150584 (41.8992\u00b0\u00a0N, 12.4731\u00b0\u00a0E)</td>" in page
    assert b"Navona" not in b"".join(path.read_bytes() for path in (folder / "problem").iterdir())


def test_positions_match_a_map():
    assert position_text(-0.00004, -33.85, "geographic") == "33.8500\u00b0 S, 0.0000\u00b0 W"
    assert position_text(350.5, 0.0, "geographic") == "0.0000\u00b0 N, 9.5000\u00b0 W"
    assert position_text(-0.00004, 123456.78901, "planar") == "x 0 km, y 123456.789 km"


def test_selected_places_keep_their_names():
    space = Space(ids="abc", coordinates=np.eye(3)[:, :2], kind="planar", names=("one", "", "three"))
    selected = space.select(np.array([2, 1]))
    assert [selected.label(number) for number in (0, 1)] == ["c (three)", "b (x 0 km, y 1 km)"]
    assert Space(ids="ab", coordinates=np.eye(2), kind="vector").label(1) == "b"
