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
from privopt.estimate.count_reports import Counter
from privopt.estimate.page import interval_figure, map_figure
from privopt.estimate.written_digits import round_frame
from privopt.interfaces import Channel

IDS = [f"p{i}" for i in range(5)]


@pytest.fixture(scope="module")
def released_reports(solved_toy, tmp_path_factory):
    """Return the toy's release, and reports drawn from a known truth, some empty, with who, where and when."""
    folder = tmp_path_factory.mktemp("told")
    release = po.open(solved_toy)
    rng = np.random.default_rng(3)
    truth = rng.choice(IDS, 3_000, p=[0.4, 0.1, 0.3, 0.05, 0.15])
    reports = draw_reports(release, truth.astype(object), 1).tolist()
    reports[7] = reports[8] = None
    frame = pl.DataFrame({"who": [str(i // 2) for i in range(3_000)], "hour": np.arange(3_000) % 2, "report": reports})
    frame.write_csv(folder / "safe.csv")
    frame.write_parquet(folder / "safe.parquet")
    (folder / "groups.csv").write_text(
        "id,group\n" + "".join(f"p{i},{'west' if i < 3 else 'east'}\n" for i in range(5))
    )
    return solved_toy, folder, release, frame


def draw_reports(release, ids, seed):
    """Return reports for an array of ids, the same each time."""
    with pytest.warns(PrivoptWarning, match="seeded"):
        return release.apply(ids, seed=seed)


def rows_of(path):
    with path.open() as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_table_and_json_follow_the_contract(released_reports, tmp_path, ending):
    folder, data, _, _ = released_reports
    done = run("estimate", folder, data / f"safe.{ending}", "--out", tmp_path / "e.csv", "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "e.csv").read_text().startswith("id,share,low,high\n")
    rows = rows_of(tmp_path / "e.csv")
    assert [row["id"] for row in rows] == IDS
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1, abs=1e-12)
    assert all(0 <= float(row["low"]) <= float(row["share"]) <= float(row["high"]) <= 1 for row in rows)
    summary = json.loads(done.stdout)
    assert (summary["n"], summary["skipped"], summary["method"]) == (2_998, 2, "maximum-likelihood")
    assert (summary["confidence"], summary["intervals"]) == (0.95, "finite-sample")
    assert summary["gap"] <= 1e-6
    assert done.stderr == ""
    completed = run("estimate", folder, data / f"safe.{ending}", "--out", tmp_path / "e.csv")
    assert completed.exit_code == 2
    assert "exists already" in completed.stderr


def test_counts_numeric_reports_beside_gaps():
    channel = Channel(inputs=["1", "132"], outputs=["1", "132"], probabilities=np.eye(2))
    counter = Counter(channel, table="t.csv", column="report", subject=None, counted_subjects=set())
    counter.count_rows(pl.DataFrame({"report": ["132.0", "", "1.0", "132"]}))
    assert counter.report_counts.counts.tolist() == [1, 2]
    with pytest.raises(InputError, match="row 6, column report"):
        counter.count_rows(pl.DataFrame({"report": ["132.5"]}))


def test_groups_subjects_and_a_page(released_reports, tmp_path):
    folder, data, _, _ = released_reports
    options = ("--by", data / "groups.csv", "--subject", "who", "--json", "--report", tmp_path / "e.html")
    completed = run("estimate", folder, data / "safe.csv", "--out", tmp_path / "e.csv", *options)
    assert completed.exit_code == 0, completed.stderr
    assert [row["id"] for row in rows_of(tmp_path / "e.csv")] == ["west", "east"]
    assert json.loads(completed.stdout)["n"] == 1_500
    assert "1,498 reports omitted" in completed.stderr
    page = (tmp_path / "e.html").read_text()
    assert "For each group of records, the share of people whose true value is in it" in page
    assert "<svg" in page
    assert "Districts: share" in page
    # Without subjects a person counts once for each report, and rows without a report are named.
    options = ("--by", data / "groups.csv", "--report", tmp_path / "all.html")
    completed = run("estimate", folder, data / "safe.csv", "--out", tmp_path / "all.csv", *options)
    assert completed.exit_code == 0, completed.stderr
    page = (tmp_path / "all.html").read_text()
    assert "For each group of records, the share of reports whose true value is in it" in page
    assert "2 rows without a report are left out" in page


def test_second_release(released_reports, tmp_path):
    folder, data, release, frame = released_reports
    also = ("--also", folder, data / "safe.parquet", "--json")
    completed = run("estimate", folder, data / "safe.csv", "--out", tmp_path / "f.csv", *also)
    assert json.loads(completed.stdout)["n"] == 5_996
    assert "come from different people" in completed.stderr
    with pytest.warns(PrivoptWarning, match="come from different people"):
        joint_estimate = release.estimate(frame, also=[(release, frame)])
    assert pl.read_csv(tmp_path / "f.csv").equals(round_frame(joint_estimate.to_frame()))


def table_of(path, rows):
    path.write_text("who,hour,report\n" + "".join(",".join(row) + "\n" for row in rows))
    return path


def test_reports_of_a_person_to_two_releases_count_once(released_reports, tmp_path):
    """Not as independent: of each subject the first report, wherever it is."""
    folder, _, release, _ = released_reports
    first_table = table_of(tmp_path / "1.csv", [("a", "0", "p1"), ("b", "0", "p2"), ("a", "1", "p1")])
    second_table = table_of(tmp_path / "2.csv", [("b", "0", "p3"), ("c", "0", "p3"), ("b", "1", "p3")])
    arguments = ("estimate", folder, first_table, "--also", folder, second_table, "--subject", "who", "--json", "--out")
    completed = run(*arguments, tmp_path / "e.csv")
    assert json.loads(completed.stdout)["n"] == 3
    assert "3 reports omitted" in completed.stderr
    assert "different people" not in completed.stderr
    with pytest.warns(PrivoptWarning, match="3 reports omitted"):
        joint_estimate = release.estimate(
            pl.read_csv(first_table), also=[(release, pl.read_csv(second_table))], subject="who"
        )
    assert joint_estimate.n == 3


def test_nobody_is_no_subject(released_reports):
    _, _, release, _ = released_reports
    for nobody in (None, "", " "):
        with pytest.raises(InputError, match=r"row 3, column who"):
            release.estimate({"who": ["a", nobody], "report": ["p1", "p2"]}, subject="who")
    assert release.estimate({"who": ["a", None], "report": ["p1", None]}, subject="who").n == 1


def test_does_not_overwrite_its_input(released_reports, tmp_path):
    folder, data, _, _ = released_reports
    reports, groups = (Path(shutil.copy(data / name, tmp_path)) for name in ("safe.csv", "groups.csv"))
    original_bytes = [path.read_bytes() for path in (reports, groups)]
    arguments = ("estimate", folder, reports, "--by", groups, "--force", "--out")
    for targets in ((reports,), (groups,), (tmp_path / "e.csv", "--report", groups)):
        completed = run(*arguments, *targets)
        assert completed.exit_code == 2
        assert "not overwritten" in completed.stderr
    assert [path.read_bytes() for path in (reports, groups)] == original_bytes


def test_refuses_unknown_intervals(released_reports):
    with pytest.raises(UsageError, match=r"finite-sample or asymptotic.*'exact'"):
        released_reports[2].estimate(["p1"], intervals="exact")


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (
            ("p2", "p99"),
            (),
            "column report: expected",
        ),
        ((",report\n", ",other\n"), (), "a column report"),
        (None, ("--confidence", "1.5"), "between 0 and"),
        (None, ("--subject", "nobody"), "a column nobody"),
        (None, ("--gap", "1e-12"), "at least 1e-9"),
        ((",report\n", ",other\n"), (), "got columns who"),
        (
            ("\n1,", "\n ,"),
            ("--subject", "who"),
            "row 4, column who",
        ),
    ],
)
def test_faults_are_one_line_and_write_nothing(released_reports, tmp_path, change, options, words):
    folder, data, _, _ = released_reports
    text = (data / "safe.csv").read_text()
    (tmp_path / "r.csv").write_text(text.replace(*change) if change else text)
    completed = run("estimate", folder, tmp_path / "r.csv", "--out", tmp_path / "e.csv", *options)
    assert completed.exit_code == 2
    assert words in completed.stderr
    assert "Traceback" not in completed.stderr
    assert not (tmp_path / "e.csv").exists()


@pytest.mark.parametrize(("names", "words"), [("report,report", "twice report"), ("report,4.5,4.5", "looks like data")])
def test_names_a_column_that_occurs_twice(released_reports, tmp_path, names, words):
    (tmp_path / "safe.csv").write_text(f"{names}\np1,p2,p2\n")
    done = run(
        "estimate", released_reports[0], tmp_path / "safe.csv", "--out", tmp_path / "e.csv", "--column", "report"
    )
    assert done.exit_code == 2
    assert words in done.stderr


def test_names_table_and_row_of_a_foreign_report(released_reports, tmp_path):
    folder, data, release, _ = released_reports
    (tmp_path / "other.csv").write_text("report\np1\nfar away\n")
    expected_message = (
        "row 3, column report: expected one of the release's 5 outputs, or nothing, "
        "got an output that the release does not have (1 such rows)"
    )
    pl.read_csv(tmp_path / "other.csv").write_parquet(tmp_path / "other.parquet")
    for name in ("other.csv", "other.parquet"):
        single_table = (tmp_path / name,)
        for reports in (single_table, (data / "safe.csv", "--also", folder, *single_table)):
            completed = run("estimate", folder, *reports, "--out", tmp_path / "e.csv")
            assert f"{name}: {expected_message}" in completed.stderr, completed.stderr
    foreign = ["p1", "far away"]
    with pytest.raises(InputError, match=rf"^reports: {re.escape(expected_message)}"):
        release.estimate(foreign)
    with pytest.raises(InputError, match=rf"^also\[0\]: {re.escape(expected_message)}"):
        release.estimate(["p1"], also=[(release, foreign)])


def test_refuses_groups_without_all_records(released_reports, tmp_path):
    folder, data, _, _ = released_reports
    (tmp_path / "g.csv").write_text("id,group\np0,a\n")
    completed = run("estimate", folder, data / "safe.csv", "--out", tmp_path / "e.csv", "--by", tmp_path / "g.csv")
    assert completed.exit_code == 2
    assert "4 records" in completed.stderr


def test_writes_nothing_into_the_release(released_reports):
    completed = run(
        "estimate", released_reports[0], released_reports[1] / "safe.csv", "--out", released_reports[0] / "e.csv"
    )
    assert completed.exit_code == 2
    assert "the release alone" in completed.stderr


def test_refuses_changed_release(released_reports, tmp_path):
    folder, data, _, _ = released_reports
    changed_folder = shutil.copytree(folder, tmp_path / "bad")
    (changed_folder / "result.json").write_text(
        (changed_folder / "result.json").read_text().replace('"loss', '"los', 1) + " "
    )
    assert run("estimate", changed_folder, data / "safe.csv", "--out", tmp_path / "e.csv").exit_code == 1


def test_single_result_has_no_channel(example, released_reports, tmp_path):
    completed = run(
        "estimate", example("hierarchical-dp"), released_reports[1] / "safe.csv", "--out", tmp_path / "e.csv"
    )
    assert completed.exit_code == 2
    assert "no channel" in completed.stderr


def test_reads_noisy_counts_of_fl_linear(example, tmp_path):
    folder = example("fl-linear")
    table = next((folder / "problem").glob("*.csv"))
    completed = run("estimate", folder, table, "--column", "noisy_clients", "--out", tmp_path / "e.csv", "--json")
    assert completed.exit_code == 0, completed.stderr
    assert json.loads(completed.stdout)["method"] == "noisy-counts"
    rows = rows_of(tmp_path / "e.csv")
    counts = {row["id"]: max(0.0, float(row["noisy_clients"])) for row in rows_of(table)}
    total = sum(counts.values())
    # Shares are written with six decimals, and sum to 1.
    shares = {name: count / total for name, count in counts.items()}
    assert {row["id"]: float(row["share"]) for row in rows} == pytest.approx(shares, abs=1e-6)


def test_estimate_in_memory_is_equal(released_reports):
    _, _, release, frame = released_reports
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
    with pytest.raises(UsageError, match=r"reports.*got none"):
        release.estimate([None])
    with pytest.raises(UsageError, match="each record's id"):
        release.estimate(frame, by={"p0": "a"})


@pytest.mark.slow
def test_many_records_have_smooth_shares_by_default(tmp_path):
    places = po.grid(rows=20, cols=20, cell_km=0.2)
    release = po.solve("exponential", po.metric_problem(places, distance="euclidean", epsilon="4/km"))
    rng = np.random.default_rng(0)
    coordinates = np.array([[i // 20, i % 20] for i in range(400)]) * 0.2
    truth = np.exp(-((np.linalg.norm(coordinates - [1.0, 2.0], axis=1) / 0.6) ** 2) / 2)
    truth /= truth.sum()
    ids = np.array([f"r{i // 20}c{i % 20}" for i in range(400)])
    reports = draw_reports(release, rng.choice(ids, 5_000, p=truth).astype(object), 1)
    with pytest.warns(PrivoptWarning, match=r"bumps .* km wide, as fine"):
        smooth = release.estimate(reports)
    assert f"gap_to_all {smooth.whole_gap:.2g}" in smooth.gaps
    with pytest.warns(PrivoptWarning, match=r"bumps 0.5 km wide"):
        release.estimate(reports, resolution=0.5)
    rough = release.estimate(reports, resolution=0)
    assert (smooth.method, rough.method) == ("smooth-maximum-likelihood", "maximum-likelihood")
    errors = [np.abs(estimated.shares - truth).sum() / 2 for estimated in (smooth, rough)]
    assert errors[0] < 0.15 < errors[1]
    assert (smooth.low <= truth).all()
    assert (truth <= smooth.high).all()


def test_shares_of_regions_are_of_vertices(tmp_path):
    from privopt.run.solve import solve

    (tmp_path / "p.toml").write_text(
        '[records]\ngrid = { rows = 3, cols = 3, cell_km = 0.5 }\n[distance]\nkind = "euclidean"\n[privacy]\n'
        'epsilon = 2.0\neverywhere = true\n[utility]\nkind = "distance"\nremap = true\n'
    )
    release = po.open(solve("planar-laplace", tmp_path / "p.toml", tmp_path / "out").folder)
    remap_record = release.result.details.told["remap"]
    assert remap_record["loss_after"] <= remap_record["loss_before"]
    reports = draw_reports(release, np.random.default_rng(0).random((400, 2)), 1)
    ids = [f"r{round(y / 0.5)}c{round(x / 0.5)}" for x, y in reports]
    with pytest.warns(PrivoptWarning, match="of the vertices"):
        estimated = release.estimate(ids)
    assert estimated.shares.sum() == pytest.approx(1)
    assert list(estimated.ids) == release.opened.release.records.tolist()


def test_map_labels_are_inside_and_separate():
    """Coordinates of many digits on a map that is wider than high."""
    coordinates = np.array(
        [(lat, lon) for lat in np.linspace(41.886, 41.902, 4) for lon in np.linspace(12.466, 12.495, 5)]
    )
    figure = map_figure(
        shares_of(np.full(20, 0.05)), SimpleNamespace(coordinates=coordinates, geographic=True, streets=None)
    )
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    picture_box = figure.bbox.padded(1)
    for axes in figure.axes[:2]:
        boxes = [text.get_window_extent(renderer) for text in (axes.xaxis.label, axes.yaxis.label, axes.title)]
        assert all(picture_box.contains(box.x0, box.y0) and picture_box.contains(box.x1, box.y1) for box in boxes)
        ticks = [text.get_window_extent(renderer) for text in axes.get_xticklabels()]
        assert len(ticks) >= 3
        assert all(one.x1 < next_box.x0 for one, next_box in pairwise(ticks))


def test_maps_show_streets_between_records():
    places = po.records(
        {"id": list("abc"), "lat": [45.0, 45.01, 45.01], "lon": [7.0, 7.0, 7.01]}, id="id", lat="lat", lon="lon"
    )
    roads = po.roads({"from": ["a", "b", "x"], "to": ["b", "x", "c"], "km": [1.2, 0.4, 0.5]})
    release = po.solve("exponential", po.metric_problem(places, distance=roads, epsilon="1/km"))
    channel = release.opened.mechanism.channel(release.opened.problem, release.opened.release)
    assert channel.streets.tolist() == [[0, 1]]  # x is no record: no place of it is known
    for axes in map_figure(shares_of(np.full(3, 1 / 3)), channel).axes[:2]:
        [lines] = [collection for collection in axes.collections if isinstance(collection, LineCollection)]
        assert [line.tolist() for line in lines.get_segments()] == [[[7.0, 45.0], [7.0, 45.01]]]


def test_single_share_has_a_full_axis():
    (axes,) = interval_figure(shares_of(np.array([1 - 1e-13]))).axes
    low, high = axes.get_xlim()
    assert low <= 0 < 100 < high <= 110


def shares_of(shares):
    ids = [f"r{g}" for g in range(len(shares))]
    return SimpleNamespace(shares=shares, reported=shares, low=shares - 1e-13, high=shares, ids=ids, group_of=None)


def test_districts_are_on_the_map_with_intervals(released_reports, tmp_path):
    folder, data, _, _ = released_reports
    groups = tmp_path / "groups.csv"
    groups.write_text("id,group\n" + "".join(f"{name},{'near' if n < 2 else 'far'}\n" for n, name in enumerate(IDS)))
    arguments = ("estimate", folder, data / "safe.csv", "--by", groups, "--out", tmp_path / "e.csv", "--quiet")
    completed = run(*arguments, "--geo", tmp_path / "e.geojson")
    assert completed.exit_code == 0, completed.stderr
    table = {row["id"]: row for row in pl.read_csv(tmp_path / "e.csv").to_dicts()}
    features = json.loads((tmp_path / "e.geojson").read_text())["features"]
    assert [feature["properties"]["id"] for feature in features] == IDS
    for number, feature in enumerate(features):
        group_row = table["near" if number < 2 else "far"]
        assert feature["properties"]["group"] == group_row["id"]
        assert [feature["properties"][name] for name in ("share", "low", "high")] == [
            pytest.approx(group_row[name]) for name in ("share", "low", "high")
        ]
    completed = run(*arguments[:3], "--out", tmp_path / "f.csv", "--quiet", "--geo", tmp_path / "f.geojson")
    assert completed.exit_code == 0
    shares = pl.read_csv(tmp_path / "f.csv")["share"].to_list()
    features = json.loads((tmp_path / "f.geojson").read_text())["features"]
    assert [feature["properties"]["share"] for feature in features] == [
        pytest.approx(group_share) for group_share in shares
    ]
