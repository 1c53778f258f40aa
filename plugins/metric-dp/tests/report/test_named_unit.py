"""Planes that are no maps: [records] unit names what a distance counts, in every sentence, axis and claim."""

import subprocess
import sys

import pytest
from helpers.command import run

from privopt.errors import InputError
from privopt.numbers.distances import plural_unit
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.verify import load_release, verify
from privopt_metric_dp.report.figures import loss_map
from privopt_metric_dp.report.pages import metric_figures

BANDS = """
[records]
grid = {{ rows = 1, cols = 7, cell_km = 1.0{corner} }}
{unit}
[distance]
kind = "{distance}"
[privacy]
epsilon = 0.7
[utility]
kind = "distance"
"""


def write_bands(folder, *, unit='unit = "band"', distance="euclidean", corner=""):
    path = folder / "salary.toml"
    path.write_text(BANDS.format(unit=unit, distance=distance, corner=corner))
    return path


@pytest.fixture(scope="module")
def bands(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bands")
    return solve("optimal-lp", write_bands(folder), folder / "out").folder


def test_claims_have_the_unit(bands, result_of):
    result = result_of(bands)
    assert (result["guarantee"]["unit"], result["objective"]["unit"]) == ("per band", "bands")
    assert verify(bands).certificate.holds


def test_stand_alone_checker_reads_the_unit(bands, tmp_path):
    assert run("checker", "--out", str(tmp_path / "check.pyz")).exit_code == 0
    command = [sys.executable, "-I", str(tmp_path / "check.pyz"), str(bands)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout
    assert "bands" in completed.stdout


def test_no_kilometre_is_left_in_report_or_figures(bands):
    text = write_report(bands).read_text("utf-8")
    for prose in ("at 0.99 bands a", "x 1 band,", "x 2 bands, y 0 bands", "per band", '"scale":"band"'):
        assert prose in text
    # The problem's key cell_km is in the page's data, and JavaScript of the check speaks of km.
    assert " km<" not in text.split("<script")[0]
    opened = load_release(bands)
    utility = opened.mechanism.utility(opened.problem, opened.result.method)
    figures = metric_figures(opened.release, opened.problem.data, opened.result, utility)
    texts = [
        label for figure in figures.values() for axes in figure.axes for label in (axes.get_xlabel(), axes.get_ylabel())
    ]
    assert not [label for label in texts if "km" in label.split()]
    assert {"x (band)", "average loss (bands)"} <= {*texts}
    assert loss_map(opened.release, opened.problem.data).axes[0].get_xlabel() == "x (band)"


def test_estimate_has_the_unit(bands, tmp_path):
    (tmp_path / "r.csv").write_text("report\n" + "r0c2\nr0c3\n" * 50)
    paths = (
        str(bands),
        str(tmp_path / "r.csv"),
        "--out",
        str(tmp_path / "e.csv"),
        "--report",
        str(tmp_path / "e.html"),
    )
    assert run("estimate", *paths).exit_code == 0
    text = (tmp_path / "e.html").read_text("utf-8")
    assert "Estimated from 100 reports; a person who sent several counts once for each. All" in text
    assert "without a report" not in text  # each row has one
    assert "x (band)" in text
    assert "r0c2 (x 2 bands, y 0 bands)" in text
    assert "km" not in text.split("</style>")[1]


def test_many_reports_are_of_values(bands):
    text = write_report(bands).read_text("utf-8")
    assert "for half of the values" in text
    assert "reports of one value" in text
    assert "of the places" not in text


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"corner": ", south_west = [45.0, 7.0]", "distance": "haversine"}, "south_west"),
        ({"unit": 'unit = "per band"'}, "letters"),
        ({"unit": 'unit = "band"\n[outputs]\nunit = "band"\ngrid = { rows = 1, cols = 7, cell_km = 1.0 }'}, "only in"),
    ],
)
def test_unit_that_means_nothing_is_refused(settings, fault, tmp_path):
    with pytest.raises(InputError, match=fault):
        solve("optimal-lp", write_bands(tmp_path, **settings), tmp_path / "out")


@pytest.mark.parametrize("grid", ["rows = 1, cols = 1", "rows = 1, cols = 2"])
def test_no_table_of_pairs_without_pairs(grid, tmp_path):
    """Of one record there is no pair to tell apart; of two there is one."""
    path = write_bands(tmp_path)
    path.write_text(path.read_text().replace("rows = 1, cols = 7", grid))
    text = write_report(solve("optimal-lp", path, tmp_path / "out").folder).read_text("utf-8")
    assert ("Worst pairs" in text) == ("cols = 2" in grid)


def test_plural_of_units():
    assert [plural_unit(name) for name in ("km", "band", "inch", "year", "unit of distance")] == [
        "km",
        "bands",
        "inch",
        "years",
        "units of distance",
    ]
