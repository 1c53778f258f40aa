"""Figures and figures in words: nothing rounded away, whole numbers on axes that count, maps for dense releases too."""

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from helpers.mentions import assert_mentions

from privopt.report.theme import axes_of, svg, use_theme, use_whole_ticks
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt_metric_dp.attacks.many_reports import describe_attack
from privopt_metric_dp.attacks.meaning import _format_percent
from privopt_metric_dp.report import explorer
from privopt_metric_dp.report.figures import over_time

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.0, "0.0 %"), (0.0005, "0.05 %"), (0.0099, "0.99 %"), (0.01, "1.0 %"), (0.9999, "99.99 %"), (1.0, "100.0 %")],
)
def test_small_share_is_not_shown_as_zero(fraction, text):
    assert _format_percent(fraction) == text


def test_counting_axis_has_whole_numbers():
    figure, axes = axes_of(5.6, 3.8)
    axes.plot([1, 2], [3, 5])
    use_whole_ticks(axes.xaxis)
    figure.draw_without_rendering()
    assert [tick for tick in axes.get_xticks() if 1 <= tick <= 2] == [1, 2]


@use_theme
def narrow_map():
    figure, axes = axes_of(2.2, 3.0)
    axes.plot([98.9001, 98.9007], [0, 1])
    return figure


def test_removes_overlapping_labels():
    figure = narrow_map()
    svg(figure, "t")
    figure.draw_without_rendering()
    axes = figure.axes[0]
    low, high = axes.get_xlim()
    visible_labels = [tick.label1 for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    assert all(label.get_text().startswith("98.90") for label in visible_labels)
    boxes = [label.get_window_extent() for label in visible_labels]
    assert len(boxes) >= 1
    assert all(box.x1 < next_box.x0 for box, next_box in pairwise(boxes))


def dense(count):
    places = np.random.default_rng(0).random((count, 2)) * 4
    z = np.exp(-np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)))
    return places, z / z.sum(axis=1, keepdims=True)


def test_dense_release_has_a_coarser_map(monkeypatch):
    """Rows of the exponential mechanism compress badly: 2,032 records of them had no map to explore."""
    places, z = dense(300)
    ids = [str(n) for n in range(300)]
    explorer_page = explorer.ExplorerData(
        rows=ids, outputs=ids, probabilities=z, places=places, output_places=places, axes=("x", "y"), facts={}, unit={}
    )
    for byte_limit, steps in ((1_000_000, {255}), (30_000, {63, 31})):
        monkeypatch.setattr(explorer, "WANTED_BYTES", byte_limit)
        data = json.loads(re.search(r'id="data">(.*?)</script>', explorer.explorer_section(explorer_page).html)[1])
        assert data["steps"] in steps
    monkeypatch.setattr(explorer, "WANTED_BYTES", 1_000)
    assert (
        json.loads(re.search(r'id="data">(.*?)</script>', explorer.explorer_section(explorer_page).html)[1])["steps"]
        == 15
    )
    monkeypatch.setattr(explorer, "MOST_BYTES", 3_000)
    assert explorer.explorer_section(explorer_page) is None


@pytest.mark.slow
def test_map_along_streets_shows_the_streets(tmp_path):
    release = solve("exponential", ROOT / "docs" / "examples" / "city" / "problem.toml", tmp_path / "city")
    page = write_report(release.folder).read_text("utf-8")
    streets = np.reshape(json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["streets"], (-1, 2))
    roads = len((release.folder / "problem" / "roads.csv").read_text("utf-8").splitlines()) - 1
    assert len(streets) == roads
    assert np.unique(streets).tolist() == list(range(48))


def test_attack_summary_states_median_and_p95():
    fresh_errors, sticky = {"median": [0.6, 0.0], "p95": [2.0, 0.25]}, {"median": [0.5, 0.5], "p95": [1, 1]}
    findings = {"unit": "km", "reports": [1, 10], "likelihood": {"fresh": fresh_errors, "sticky": sticky}}
    text = describe_attack(findings)
    assert_mentions(text, "at most 0.6 km off for half", "at most 2 km off for 95\u00a0%")
    assert text.endswith("after 10 reports it is exactly right and at most 0.25 km off.")
    ((first, second), _) = (axes.lines for axes in over_time(findings).axes)
    assert [list(line.get_ydata()) for line in (first, second)] == [[0.6, 0.0], [0.5, 0.5]]
    fresh_errors["median"][1] = 0.6
    # half of the places are as near as before, the others nearer
    assert describe_attack(findings).endswith("it is at most 0.6 km off and at most 0.25 km off.")
    fresh_errors["p95"][1] = 2.0
    assert "no nearer" in describe_attack(findings)
