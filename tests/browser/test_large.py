"""A report of 1600 records: small enough to send, quick enough to look at."""

import pytest
from helpers.toys import grid_text

from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.task import Options

pytestmark = pytest.mark.slow

TEXT = grid_text(40, 40, 0.25, 5.0, within=0.36)


@pytest.fixture(scope="module", params=["exponential", "optimal-lp"])
def large(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    (folder / "problem.toml").write_text(TEXT)
    return write_report(solve(request.param, folder / "problem.toml", folder / "out", Options(gap=1e-2)).folder)


def test_1600_records_stay_small(large):
    assert large.stat().st_size < 1.5e6


def test_1600_records_open_within_a_second(large, watch_page):
    """Of a processor: what else the machine does is not counted."""
    observer = watch_page()
    session = observer.page.context.new_cdp_session(observer.page)
    session.send("Performance.enable")
    assert observer.open(large).locator("#record option").count() == 1600
    seconds_by_metric = {
        metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]
    }
    assert 0.0 < seconds_by_metric["ProcessTime"] < 1.0
