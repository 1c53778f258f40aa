"""Whole jobs, from README and docs to what their owner gets: scripts of docs/used-for, small, and whole in make slow.

The seventh job, flows, is in tests/estimate/test_flow_job.py.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import pytest
from helpers.data import data_path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "used-for"

SIZES = [pytest.param(True, id="small"), pytest.param(False, id="whole", marks=pytest.mark.slow)]


@pytest.fixture
def run_job(monkeypatch, tmp_path):
    """Return a function that runs the script of a job, and gives its figures."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def run(name, *, small, needs=()):
        if not small:
            for part in needs:
                data_path(part)  # skips the test if the public data are missing
        # Scripts have short names, which must not stay for other tests.
        for module in (name, "job", "trips"):
            monkeypatch.delitem(sys.modules, module, raising=False)
        figures = importlib.import_module(name).run_job(tmp_path, small=small)
        for module in (name, "job", "trips"):
            sys.modules.pop(module, None)
        return figures

    return run


@pytest.mark.parametrize("small", SIZES)
def test_trips_are_charged_exactly_and_mapped(run_job, small):
    figures = run_job("trips", small=small, needs=["lrgeo_rome"])
    assert figures["wrong_rows"] == 0
    # Riders have budgets for six trips a month, and at the full size some ten trips each.
    assert figures["reported_rows"] > (200 if small else 400_000)
    # Of four districts at the small size, from 355 reports: by chance several can be missed, and one interval can be
    # all of [0, 1].
    assert figures["districts_held"] >= (0.25 if small else 0.5)
    assert figures["error"] < (0.3 if small else 0.05)
    assert small or figures["width"] < 0.1


@pytest.mark.parametrize("small", SIZES)
def test_census_tables_agree_and_their_intervals_hold(run_job, small):
    figures = run_job("census", small=small, needs=["us_counties"])
    assert figures["sums_that_differ"] == 0
    assert figures["exact_numbers_that_differ"] == 0
    assert figures["intervals_held"] > 0.9
    # A few people of thousands.
    assert figures["state_error"] < 40
    assert figures["county_error"] < 20


@pytest.mark.parametrize("small", SIZES)
def test_shelters_have_places_for_everybody(run_job, small):
    figures = run_job("shelters", small=small, needs=["flldp_chiang_mai"])
    # Each of many runs may fail with probability .05.
    assert figures["overflowing_shelters"] <= 1
    assert figures["shelters"] == (4 if small else 12)
    assert figures["overflow_rate"] <= 0.05
    assert 1.0 <= figures["cost_over_same_shelters_of_true_counts"] < 1.2


@pytest.mark.parametrize("small", SIZES)
def test_copies_of_an_album_hide_the_town(run_job, small):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    figures = run_job("photos", small=small, needs=["exif_gps"])
    assert figures["best_guess_before"] == 0
    assert figures["best_guess_of_copies"] != 0
    assert figures["left_out"] == figures["least"]
    assert figures["proved_optimal"] == 1
    assert figures["copies_with_metadata"] == 0


@pytest.mark.parametrize("small", SIZES)
def test_a_browser_draws_what_the_release_promises(run_job, small):
    if shutil.which("node") is None:
        pytest.skip("no node")
    figures = run_job("browser", small=small)
    assert figures["wrong_vectors"] == 0
    assert figures["vectors"] > 10
    assert (figures["refused"], figures["covers_elsewhere"]) == (1, 0)
    # Less than planar Laplace loses at the same epsilon, by a margin that no draw of so many reports misses.
    assert figures["mean_km"] < 0.95 * figures["planar_laplace_mean_km"]


@pytest.mark.parametrize("small", SIZES)
def test_papers_are_checked_and_forgeries_are_found(run_job, small):
    figures = run_job("papers", small=small, needs=["lrgeo_rome"])
    assert figures["checker"] == 0
    assert figures["checker_of_changed_claim"] == figures["checker_of_changed_claim_and_sums"] == 1
    assert figures["papers_that_name_the_limit"] == 2
    assert figures["papers_with_proved_sentences"] == 2
    assert figures["papers_that_count_reports"] == 2
    assert figures["papers_that_say_by_road"] == (0 if small else 2)
    assert figures["open_questions"] == 0
