"""Figures and figures in words: nothing rounded away, whole numbers on axes that count, maps for dense releases too."""

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from privopt.report.theme import axes_of, svg, themed, whole
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt_metric_dp.attacks.many_reports import describe_attack
from privopt_metric_dp.attacks.meaning import _format_percent
from privopt_metric_dp.report import explorer
from privopt_metric_dp.report.figures import over_time

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0.0 %"), (0.0005, "0.05 %"), (0.0099, "0.99 %"), (0.01, "1.0 %"), (0.9999, "99.99 %"), (1.0, "100.0 %")],
)
def test_a_small_share_is_not_shown_as_nothing(share, text):
    assert _format_percent(share) == text


def test_an_axis_that_counts_has_whole_numbers():
    figure, axes = axes_of(5.6, 3.8)
    axes.plot([1, 2], [3, 5])
    whole(axes.xaxis)
    figure.draw_without_rendering()
    assert [tick for tick in axes.get_xticks() if 1 <= tick <= 2] == [1, 2]


@themed
def narrow_map():
    figure, axes = axes_of(2.2, 3.0)
    axes.plot([98.9001, 98.9007], [0, 1])
    return figure


def test_labels_that_would_overlap_are_taken_out():
    figure = narrow_map()
    svg(figure, "t")
    figure.draw_without_rendering()
    axes = figure.axes[0]
    low, high = axes.get_xlim()
    shown = [tick.label1 for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    assert all(label.get_text().startswith("98.90") for label in shown)
    boxes = [label.get_window_extent() for label in shown]
    assert len(boxes) >= 1
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))


def dense(count):
    places = np.random.default_rng(0).random((count, 2)) * 4
    z = np.exp(-np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)))
    return places, z / z.sum(axis=1, keepdims=True)


def test_a_dense_release_has_its_map_in_fewer_steps(monkeypatch):
    """Rows of the exponential mechanism compress badly: 2,032 records of them had no map to explore."""
    places, z = dense(300)
    ids = [str(n) for n in range(300)]
    shown = explorer.ExplorerData(
        rows=ids, outputs=ids, probabilities=z, places=places, output_places=places, axes=("x", "y"), facts={}, unit={}
    )
    for wanted, steps in ((1_000_000, {255}), (30_000, {63, 31})):
        monkeypatch.setattr(explorer, "WANTED_BYTES", wanted)
        data = json.loads(re.search(r'id="data">(.*?)</script>', explorer.explorer_section(shown).html)[1])
        assert data["steps"] in steps
    monkeypatch.setattr(explorer, "WANTED_BYTES", 1_000)
    assert json.loads(re.search(r'id="data">(.*?)</script>', explorer.explorer_section(shown).html)[1])["steps"] == 15
    monkeypatch.setattr(explorer, "MOST_BYTES", 3_000)
    assert explorer.explorer_section(shown) is None


@pytest.mark.slow
def test_the_map_of_places_along_streets_has_the_streets(tmp_path):
    done = solve("exponential", ROOT / "docs" / "examples" / "city" / "problem.toml", tmp_path / "city")
    page = write_report(done.folder).read_text("utf-8")
    streets = np.reshape(json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["streets"], (-1, 2))
    roads = len((done.folder / "problem" / "roads.csv").read_text("utf-8").splitlines()) - 1
    assert len(streets) == roads
    assert np.unique(streets).tolist() == list(range(48))


def test_what_many_reports_tell_is_said_with_the_error_of_95_percent():
    fresh, sticky = {"median": [0.6, 0.0], "p95": [2.0, 0.25]}, {"median": [0.5, 0.5], "p95": [1, 1]}
    found = {"unit": "km", "reports": [1, 10], "likelihood": {"fresh": fresh, "sticky": sticky}}
    assert describe_attack(found) == (
        "Likeliest record: off by at most 0.6 km in half of the places after 1 report, 0 after 10; "
        "in 95 % of them 2 and 0.25."
    )
    ((first, second), _) = (axes.lines for axes in over_time(found).axes)
    assert [list(line.get_ydata()) for line in (first, second)] == [[0.6, 0.0], [0.5, 0.5]]
    fresh["median"][1] = 0.6
    assert describe_attack(found).endswith("2 and 0.25.")  # half of the places are as near as before, the others nearer
    fresh["p95"][1] = 2.0
    assert describe_attack(found).endswith("It comes no nearer.")
