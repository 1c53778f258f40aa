"""A report of 1600 records: small enough to send, quick enough to look at."""

import pytest
from helpers.toys import grid_text

from privopt.report.write_report import write_report
from privopt.run.options import Options
from privopt.run.solve import solve

pytestmark = pytest.mark.slow

TEXT = grid_text(40, 40, 0.25, 5.0, within=0.36)


@pytest.fixture(scope="module", params=["exponential", "optimal-lp"])
def large(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    (folder / "problem.toml").write_text(TEXT)
    return write_report(solve(request.param, folder / "problem.toml", folder / "out", Options(gap=1e-2)).folder)


def test_1600_records_stay_under_one_and_a_half_megabytes(large):
    assert large.stat().st_size < 1.5e6


def test_1600_records_open_in_a_second(large, watched):
    """Of a processor: what else the machine does is not counted."""
    shown = watched()
    asked = shown.page.context.new_cdp_session(shown.page)
    asked.send("Performance.enable")
    assert shown.open(large).locator("#record option").count() == 1600
    taken = {each["name"]: each["value"] for each in asked.send("Performance.getMetrics")["metrics"]}
    assert 0.0 < taken["ProcessTime"] < 1.0
