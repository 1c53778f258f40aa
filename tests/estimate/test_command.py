"""privopt estimate as the contract has it: files, options, faults; and the same from tables in memory."""

import csv
import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from helpers.command import run
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection

import privopt as po
from privopt.api.released import PrivoptWarning
from privopt.errors import InputError, UsageError
from privopt.estimate.page import interval_figure, map_figure

IDS = [f"p{i}" for i in range(5)]


@pytest.fixture(scope="module")
def told(solved_toy, tmp_path_factory):
    """Return the toy's release, and reports drawn from a known truth, some empty, with who, where and when."""
    folder = tmp_path_factory.mktemp("told")
    release = po.open(solved_toy)
    rng = np.random.default_rng(3)
    truth = rng.choice(IDS, 3_000, p=[0.4, 0.1, 0.3, 0.05, 0.15])
    reports = drawn(release, truth.astype(object), 1).tolist()
    reports[7] = reports[8] = None
    frame = pl.DataFrame({"who": [str(i // 2) for i in range(3_000)], "hour": np.arange(3_000) % 2, "report": reports})
    frame.write_csv(folder / "safe.csv")
    frame.write_parquet(folder / "safe.parquet")
    (folder / "groups.csv").write_text(
        "id,group\n" + "".join(f"p{i},{'west' if i < 3 else 'east'}\n" for i in range(5))
    )
    return solved_toy, folder, release, frame


def drawn(release, ids, seed):
    """Return reports for an array of ids, the same each time."""
    with pytest.warns(PrivoptWarning, match="seeded"):
        return release.apply(ids, seed=seed)


def rows_of(path):
    with path.open() as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_table_and_the_json_are_the_contracts(told, tmp_path, ending):
    folder, data, _, _ = told
    done = run("estimate", folder, data / f"safe.{ending}", "--out", tmp_path / "e.csv", "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "e.csv").read_text().startswith("id,share,low,high\n")
    rows = rows_of(tmp_path / "e.csv")
    assert [row["id"] for row in rows] == IDS
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1, abs=1e-12)
    assert all(0 <= float(row["low"]) <= float(row["share"]) <= float(row["high"]) <= 1 for row in rows)
    said = json.loads(done.stdout)
    assert (said["n"], said["skipped"], said["method"]) == (2_998, 2, "maximum-likelihood")
    assert (said["confidence"], said["intervals"]) == (0.95, "finite-sample")
    assert said["gap"] <= 1e-6
    assert "2 rows without a report" in done.stderr
    again = run("estimate", folder, data / f"safe.{ending}", "--out", tmp_path / "e.csv")
    assert again.exit_code == 2
    assert "exists already" in again.stderr


def test_groups_subjects_and_a_page(told, tmp_path):
    folder, data, _, _ = told
    options = ("--by", data / "groups.csv", "--subject", "who", "--json", "--report", tmp_path / "e.html")
    done = run("estimate", folder, data / "safe.csv", "--out", tmp_path / "e.csv", *options)
    assert done.exit_code == 0, done.stderr
    assert [row["id"] for row in rows_of(tmp_path / "e.csv")] == ["west", "east"]
    assert json.loads(done.stdout)["n"] == 1_500
    assert "1,498 reports omitted" in done.stderr
    page = (tmp_path / "e.html").read_text()
    assert "<svg" in page
    assert "Districts: share, and the ends of its interval" in page


def test_a_second_release(told, tmp_path):
    folder, data, release, frame = told
    also = ("--also", folder, data / "safe.parquet", "--json")
    done = run("estimate", folder, data / "safe.csv", "--out", tmp_path / "f.csv", *also)
    assert json.loads(done.stdout)["n"] == 5_996
    assert "taken for different people's" in done.stderr
    with pytest.warns(PrivoptWarning, match="taken for different"):
        twice = release.estimate(frame, also=[(release, frame)])
    assert [float(row["share"]) for row in rows_of(tmp_path / "f.csv")] == pytest.approx(twice.shares, abs=1e-9)


def table_of(path, rows):
    path.write_text("who,hour,report\n" + "".join(",".join(row) + "\n" for row in rows))
    return path


def test_a_persons_reports_to_two_releases_count_once(told, tmp_path):
    """Not as independent: of each subject the first report, wherever it is."""
    folder, _, release, _ = told
    one = table_of(tmp_path / "1.csv", [("a", "0", "p1"), ("b", "0", "p2"), ("a", "1", "p1")])
    two = table_of(tmp_path / "2.csv", [("b", "0", "p3"), ("c", "0", "p3"), ("b", "1", "p3")])
    asked = ("estimate", folder, one, "--also", folder, two, "--subject", "who", "--json", "--out")
    done = run(*asked, tmp_path / "e.csv")
    assert json.loads(done.stdout)["n"] == 3
    assert "3 reports omitted" in done.stderr
    assert "different people" not in done.stderr
    with pytest.warns(PrivoptWarning, match="3 reports omitted"):
        found = release.estimate(pl.read_csv(one), also=[(release, pl.read_csv(two))], subject="who")
    assert found.n == 3


def test_nobody_is_no_subject(told):
    _, _, release, _ = told
    for nobody in (None, "", " "):
        with pytest.raises(InputError, match=r"row 3, column who: expected .*, got no subject with a report"):
            release.estimate({"who": ["a", nobody], "report": ["p1", "p2"]}, subject="who")
    assert release.estimate({"who": ["a", None], "report": ["p1", None]}, subject="who").n == 1


def test_what_is_read_is_not_written_over(told, tmp_path):
    folder, data, _, _ = told
    reports, groups = (Path(shutil.copy(data / name, tmp_path)) for name in ("safe.csv", "groups.csv"))
    before = [path.read_bytes() for path in (reports, groups)]
    asked = ("estimate", folder, reports, "--by", groups, "--force", "--out")
    for more in ((reports,), (groups,), (tmp_path / "e.csv", "--report", groups)):
        done = run(*asked, *more)
        assert done.exit_code == 2
        assert "is read, so nothing is written over it" in done.stderr
    assert [path.read_bytes() for path in (reports, groups)] == before


def test_unknown_intervals_are_refused(told):
    with pytest.raises(UsageError, match="intervals must be finite-sample or asymptotic, got 'exact'"):
        told[2].estimate(["p1"], intervals="exact")


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (
            ("p2", "p99"),
            (),
            "column report: expected one of the release's 5 outputs, or nothing, "
            "got 'p99', an output that the release does not have",
        ),
        ((",report\n", ",other\n"), (), "a column report"),
        (None, ("--confidence", "1.5"), "a number between 0 and 1"),
        (None, ("--subject", "nobody"), "a column nobody"),
        (None, ("--gap", "1e-12"), "at least 1e-9"),
        ((",report\n", ",other\n"), (), "expected a column report, got columns who"),
        (
            ("\n1,", "\n ,"),
            ("--subject", "who"),
            "row 4, column who: expected the subject of each report, got no subject with a report (2 such rows)",
        ),
    ],
)
def test_faults_are_one_line_each_and_nothing_is_written(told, tmp_path, change, options, words):
    folder, data, _, _ = told
    text = (data / "safe.csv").read_text()
    (tmp_path / "r.csv").write_text(text.replace(*change) if change else text)
    done = run("estimate", folder, tmp_path / "r.csv", "--out", tmp_path / "e.csv", *options)
    assert done.exit_code == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "e.csv").exists()


def test_a_report_of_another_release_is_named_with_its_table_and_row(told, tmp_path):
    folder, data, released, _ = told
    (tmp_path / "other.csv").write_text("report\np1\nfar away\n")
    wanted = (
        "row 3, column report: expected one of the release's 5 outputs, or nothing, "
        "got 'far away', an output that the release does not have (1 such rows)"
    )
    pl.read_csv(tmp_path / "other.csv").write_parquet(tmp_path / "other.parquet")
    for name in ("other.csv", "other.parquet"):
        alone = (tmp_path / name,)
        for reports in (alone, (data / "safe.csv", "--also", folder, *alone)):
            done = run("estimate", folder, *reports, "--out", tmp_path / "e.csv")
            assert f"{name}: {wanted}" in done.stderr, done.stderr
    foreign = ["p1", "far away"]
    with pytest.raises(InputError, match=rf"^reports: {re.escape(wanted)}"):
        released.estimate(foreign)
    with pytest.raises(InputError, match=rf"^also\[0\]: {re.escape(wanted)}"):
        released.estimate(["p1"], also=[(released, foreign)])


def test_groups_that_leave_records_out_are_refused(told, tmp_path):
    folder, data, _, _ = told
    (tmp_path / "g.csv").write_text("id,group\np0,a\n")
    done = run("estimate", folder, data / "safe.csv", "--out", tmp_path / "e.csv", "--by", tmp_path / "g.csv")
    assert done.exit_code == 2
    assert "no row for 4 records" in done.stderr


def test_nothing_is_written_into_the_release(told):
    done = run("estimate", told[0], told[1] / "safe.csv", "--out", told[0] / "e.csv")
    assert done.exit_code == 2
    assert "holds the release alone" in done.stderr


def test_what_does_not_hold_is_refused(told, tmp_path):
    folder, data, _, _ = told
    bad = shutil.copytree(folder, tmp_path / "bad")
    (bad / "result.json").write_text((bad / "result.json").read_text().replace('"loss', '"los', 1) + " ")
    assert run("estimate", bad, data / "safe.csv", "--out", tmp_path / "e.csv").exit_code == 1


def test_a_release_that_is_one_result_has_no_channel(example, told, tmp_path):
    done = run("estimate", example("hierarchical-dp"), told[1] / "safe.csv", "--out", tmp_path / "e.csv")
    assert done.exit_code == 2
    assert "no channel" in done.stderr


def test_fl_linears_noisy_counts_are_read_from_its_own_folder(example, tmp_path):
    folder = example("fl-linear")
    table = next((folder / "problem").glob("*.csv"))
    done = run("estimate", folder, table, "--column", "noisy_clients", "--out", tmp_path / "e.csv", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["method"] == "noisy-counts"
    rows = rows_of(tmp_path / "e.csv")
    counts = {row["id"]: max(0.0, float(row["noisy_clients"])) for row in rows_of(table)}
    total = sum(counts.values())
    assert {row["id"]: float(row["share"]) for row in rows} == pytest.approx({k: v / total for k, v in counts.items()})


def test_in_memory_it_is_the_same(told):
    _, _, release, frame = told
    table = release.estimate(frame)
    array = release.estimate(np.array(frame["report"].to_list(), dtype=object))
    assert table.shares == pytest.approx(array.shares)
    assert table.skipped == array.skipped == 2
    grouped = release.estimate(frame, by=dict.fromkeys(IDS, "all"))
    assert grouped.shares == pytest.approx([1.0])
    with pytest.warns(PrivoptWarning, match="omitted"):
        release.estimate(frame, subject="who")
    with pytest.raises(InputError, match="row 2"):
        release.estimate(["p99"])
    with pytest.raises(UsageError, match="reports must be at least one, got none"):
        release.estimate([None])
    with pytest.raises(UsageError, match="a text for each record's id"):
        release.estimate(frame, by={"p0": "a"})


@pytest.mark.slow
def test_over_many_records_shares_are_smooth_unless_told_otherwise(tmp_path):
    places = po.grid(rows=20, cols=20, cell_km=0.2)
    release = po.solve("exponential", po.metric_problem(places, distance="euclidean", epsilon="4/km"))
    rng = np.random.default_rng(0)
    at = np.array([[i // 20, i % 20] for i in range(400)]) * 0.2
    truth = np.exp(-((np.linalg.norm(at - [1.0, 2.0], axis=1) / 0.6) ** 2) / 2)
    truth /= truth.sum()
    ids = np.array([f"r{i // 20}c{i % 20}" for i in range(400)])
    reports = drawn(release, rng.choice(ids, 5_000, p=truth).astype(object), 1)
    with pytest.warns(
        PrivoptWarning, match="smooth at a resolution of .* km, as fine as the reports support: gap is to"
    ):
        smooth = release.estimate(reports)
    assert f"gap_to_all {smooth.whole_gap:.2g}" in smooth.gaps
    with pytest.warns(PrivoptWarning, match="smooth at a resolution of 0.5 km: gap is to"):
        release.estimate(reports, resolution=0.5)
    rough = release.estimate(reports, resolution=0)
    assert (smooth.method, rough.method) == ("smooth-maximum-likelihood", "maximum-likelihood")
    off = [np.abs(found.shares - truth).sum() / 2 for found in (smooth, rough)]
    assert off[0] < 0.15 < off[1]
    assert (smooth.low <= truth).all()
    assert (truth <= smooth.high).all()


def test_of_every_point_the_shares_are_of_the_vertices(tmp_path):
    from privopt.run.solve import solve

    (tmp_path / "p.toml").write_text(
        '[records]\ngrid = { rows = 3, cols = 3, cell_km = 0.5 }\n[distance]\nkind = "euclidean"\n[privacy]\n'
        'epsilon = 2.0\neverywhere = true\n[utility]\nkind = "distance"\nremap = true\n'
    )
    release = po.open(solve("planar-laplace", tmp_path / "p.toml", tmp_path / "out").folder)
    told = release.result.details.told["remap"]
    assert told["loss_after"] <= told["loss_before"]
    reports = drawn(release, np.random.default_rng(0).random((400, 2)), 1)
    ids = [f"r{round(y / 0.5)}c{round(x / 0.5)}" for x, y in reports]
    with pytest.warns(PrivoptWarning, match="of the vertices"):
        found = release.estimate(ids)
    assert found.shares.sum() == pytest.approx(1)
    assert list(found.ids) == release.opened.release.records.tolist()


def test_labels_of_maps_lie_in_the_picture_and_apart():
    """Coordinates of many digits on a map that is wider than high."""
    at = np.array([(lat, lon) for lat in np.linspace(41.886, 41.902, 4) for lon in np.linspace(12.466, 12.495, 5)])
    figure = map_figure(shares_of(np.full(20, 0.05)), SimpleNamespace(coordinates=at, geographic=True, streets=None))
    drawn = FigureCanvasAgg(figure).get_renderer()
    figure.draw(drawn)
    whole = figure.bbox.padded(1)
    for axes in figure.axes[:2]:
        boxes = [text.get_window_extent(drawn) for text in (axes.xaxis.label, axes.yaxis.label, axes.title)]
        assert all(whole.contains(box.x0, box.y0) and whole.contains(box.x1, box.y1) for box in boxes)
        ticks = [text.get_window_extent(drawn) for text in axes.get_xticklabels()]
        assert len(ticks) >= 3
        assert all(one.x1 < other.x0 for one, other in pairwise(ticks))


def test_maps_show_the_streets_between_records():
    places = po.records(
        {"id": list("abc"), "lat": [45.0, 45.01, 45.01], "lon": [7.0, 7.0, 7.01]}, id="id", lat="lat", lon="lon"
    )
    roads = po.roads({"from": ["a", "b", "x"], "to": ["b", "x", "c"], "km": [1.2, 0.4, 0.5]})
    release = po.solve("exponential", po.metric_problem(places, distance=roads, epsilon="1/km"))
    channel = release.opened.mechanism.channel(release.opened.problem, release.opened.release)
    assert channel.streets.tolist() == [[0, 1]]  # x is no record: no place of it is known
    for axes in map_figure(shares_of(np.full(3, 1 / 3)), channel).axes[:2]:
        [lines] = [each for each in axes.collections if isinstance(each, LineCollection)]
        assert [line.tolist() for line in lines.get_segments()] == [[[7.0, 45.0], [7.0, 45.01]]]


def test_one_share_stands_on_an_axis_from_nothing_to_all():
    (axes,) = interval_figure(shares_of(np.array([1 - 1e-13]))).axes
    low, high = axes.get_xlim()
    assert low <= 0 < 1 < high <= 1.1


def shares_of(shares):
    ids = [f"r{g}" for g in range(len(shares))]
    return SimpleNamespace(shares=shares, reported=shares, low=shares - 1e-13, high=shares, ids=ids)


def test_districts_lie_on_the_map_with_their_intervals(told, tmp_path):
    folder, data, _, _ = told
    groups = tmp_path / "groups.csv"
    groups.write_text("id,group\n" + "".join(f"{name},{'near' if n < 2 else 'far'}\n" for n, name in enumerate(IDS)))
    given = ("estimate", folder, data / "safe.csv", "--by", groups, "--out", tmp_path / "e.csv", "--quiet")
    done = run(*given, "--geo", tmp_path / "e.geojson")
    assert done.exit_code == 0, done.stderr
    table = {row["id"]: row for row in pl.read_csv(tmp_path / "e.csv").to_dicts()}
    features = json.loads((tmp_path / "e.geojson").read_text())["features"]
    assert [each["properties"]["id"] for each in features] == IDS
    for number, each in enumerate(features):
        known = table["near" if number < 2 else "far"]
        assert each["properties"]["group"] == known["id"]
        assert [each["properties"][name] for name in ("share", "low", "high")] == [
            pytest.approx(known[name]) for name in ("share", "low", "high")
        ]
    done = run(*given[:3], "--out", tmp_path / "f.csv", "--quiet", "--geo", tmp_path / "f.geojson")
    assert done.exit_code == 0
    shares = pl.read_csv(tmp_path / "f.csv")["share"].to_list()
    features = json.loads((tmp_path / "f.geojson").read_text())["features"]
    assert [each["properties"]["share"] for each in features] == [pytest.approx(share) for share in shares]
