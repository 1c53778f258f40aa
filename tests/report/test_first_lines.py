"""The first lines of reports: what was published, how far off, what an attacker gains, and who has to be trusted."""

import re
import shutil

import numpy as np
import pytest
from attrs import evolve
from helpers.examples import EXAMPLES

from privopt.errors import UsageError
from privopt.report.page import _add_decimals, _describe_origin, _solver_figures
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.verify import load_release

pytestmark = pytest.mark.usefixtures("undrawn")

WORDS = {
    "optimal-lp": ("one of 56 is reported", "km off on average", "names the right place"),
    "words": ("true word", "units of distance off on average", "names the right word"),
    "lr-geo": ("3 users report one of 56 places each", "the right place of a user"),
    "fl-linear": (
        "facilities with room for about",
        "every facility is large enough",
        "at most 52.5 times in 100; by chance, 50.",
    ),
    "hierarchical-dp": (
        "groups are counted in Land and in the 8 regions within it, on 3 levels",
        "of the truth (95",
        "at most 50.1 times in 100",
    ),
    "photo-censor": ("best guesses (it was guess 1, now it is guess",),
}


@pytest.fixture
def example(example, tmp_path):
    """Return a copy of an example's release, because other tests share it and expect no report in it."""

    def copy_release(name):
        if not (tmp_path / name).exists():
            shutil.copytree(example(name), tmp_path / name)
        return tmp_path / name

    return copy_release


def header_of(name, example):
    page = write_report(example(name)).read_text("utf-8")
    return re.search("<header>(.*?)</header>", page, re.DOTALL)[1], page


def header_in(folder):
    return re.search("<header>(.*?)</header>", write_report(folder).read_text("utf-8"), re.DOTALL)[1]


@pytest.mark.parametrize("name", WORDS)
def test_first_sentences_are_in_the_readers_words(name, example):
    header, page = header_of(name, example)
    for words in WORDS[name]:
        assert words in header
    for solver_word in ("gap", "conditions", "squared differences", "certificate"):
        assert solver_word not in header
    readers_part, experts_part = page.split('<h2 id="experts">')
    assert "squared differences" not in readers_part
    assert "conditions checked" in experts_part
    numbers = re.findall(r"\d[\d,.]*\d|\d", re.search('<p class="claim">(.*?)</p>', header)[1])
    digits = [re.sub(r"^0+|\D", "", re.sub(r"^0\.0*", "", number)).rstrip("0") for number in numbers]
    assert max(map(len, digits)) <= 3, numbers


def test_attackers_rate_is_that_of_the_matrix(example):
    opened = load_release(example("optimal-lp"))
    joint = opened.problem.data.prior[:, None] * opened.release.probabilities
    rate = 100 * joint.max(axis=0).sum()
    header, _ = header_of("optimal-lp", example)
    assert float(re.search(r"right place ([\d.]+) times", header)[1]) == pytest.approx(rate, abs=0.1)
    assert float(re.search(r"without a report, ([\d.]+) times\.<", header)[1]) == pytest.approx(
        100 * opened.problem.data.prior.max(), rel=1e-2
    )


@pytest.mark.parametrize(
    ("name", "badge", "trust"),
    [
        ("optimal-lp", "good", "Whoever draws the reports"),
        ("lr-geo", "warm", "The server must be trusted"),
        ("fl-linear", "", "No server has to be trusted"),
        ("hierarchical-dp", "", "must be trusted with it"),
        ("photo-censor", "good", "against this classifier alone"),
    ],
)
def test_verdict_names_who_has_to_be_trusted(name, badge, trust, example):
    header, _ = header_of(name, example)
    assert re.search(r'<span class="badge ?(\w*)">', header)[1] == badge
    assert trust in header


def test_local_guarantee_is_not_proved_against_everyone(example):
    """No green badge above words that promise nothing towards the server."""
    header, page = header_of("lr-geo", example)
    assert "towards the server, nothing of the kind is promised" in page
    assert "proved, but not against the server" in header
    assert "proved on the release" not in page


def test_warnings_are_sentences(example):
    header, _ = header_of("hierarchical-dp", example)
    warnings = re.findall(r'<p class="bad">Warning: (.*?)</p>', header)
    assert warnings
    assert all(re.search(r"[^.]\.$", warning) for warning in warnings)


def test_numbers_for_experts_have_separated_thousands(example):
    _, page = header_of("fl-linear", example)
    experts_part = page.split('<h2 id="experts">')[1]
    assert re.search(r"<dt>cost</dt><dd>[1-9]\d{0,2},\d{3}", experts_part)
    assert "None" not in experts_part
    assert "version: none" not in experts_part
    assert _add_decimals(["6528 inequalities, 0 by 2^63", "12500/3", "0.12345 of r1000"]) == [
        "6,528 inequalities, 0 by 2^63",
        "12,500/3 (4,166.67)",
        "0.12345 of r1000",
    ]


@pytest.mark.parametrize(
    ("solver", "expected"),
    [
        ({"name": "own", "version": "", "iterations": 0}, {"solver": "name: own, iterations: 0", "made with": None}),
        ({"name": "own", "version": " ", "versions": {"numpy": "2.1", "scipy": ""}}, {"made with": "numpy 2.1"}),
        ({"name": "", "version": None, "path": [], "versions": {}}, {"solver": None, "made with": None}),
        ({}, {"solver": None, "made with": None}),
    ],
)
def test_empty_facts_about_the_solver_are_left_out(example, solver, expected):
    result = evolve(load_release(example("words")).result, solver=solver)
    facts = _describe_origin(result)
    assert {name: facts[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("bound", "status", "tile"),
    [
        (None, "feasible (no lower bound to compare with)", ("proved bound", "none", "")),
        (0.0, "feasible by the solver's bound, which is not proved", ("bound by the solver", "0")),
        ("value", "optimal by the solver's bound, which is not proved", ("bound by the solver",)),
        *((odd, "feasible (no lower bound to compare with)", ("proved bound", "none", "")) for odd in (True, "x", [1])),
        (10**400, "feasible (no lower bound to compare with)", ("proved bound", "none", "")),
    ],
)
def test_bound_of_the_solver_is_shown_though_no_file_proves_it(example, bound, status, tile):
    result = load_release(example("fl-linear")).result
    told = {"lower_bound": result.objective.value if bound == "value" else bound}
    result = evolve(result, details=evolve(result.details, told=told))
    assert result.status_in_words == status
    assert _solver_figures(result)[1][: len(tile)] == tile
    proved = evolve(result, objective=evolve(result.objective, lower_bound=0.5))
    assert proved.told_bound is None
    assert _solver_figures(proved)[1][0] == "proved bound"


def test_page_has_no_empty_facts_about_the_solver(example):
    _, page = header_of("photo-censor", example)
    provenance = page.split('<h3 id="provenance">')[1]
    assert not re.search(r"<td>\s*</td>|\w: ?(,|</td>)", provenance)


def test_text_beside_costs_agrees_with_the_bars(example):
    from privopt_fl_linear.report import _compare_costs, _list_baselines

    opened = load_release(example("fl-linear"))
    rows = _list_baselines(opened.problem, opened.release, opened.result)
    text = _compare_costs(rows)
    cheaper = [cost for _, cost in rows[1:-1] if cost < rows[0][1]]
    assert ("This release costs" in text) == bool(cheaper)
    text = _compare_costs([("this release", 103.0), ("without reconnection", 100.0), ("without margins", 90.0)])
    assert "This release costs 3\u00a0% more than the plan without reconnection" in text
    assert "This release costs" not in _compare_costs([("this release", 99.0), ("other", 100.0), ("bare", 90.0)])
    assert "shorter is better" not in write_report(example("fl-linear")).read_text("utf-8")


def test_nearest_lawn_of_the_gallery_is_not_always_the_likeliest(tmp_path):
    """The gallery says of its first problem that the mechanism may prefer a neighbour to the true lawn."""
    grid = "[records]\ngrid = { rows = 3, cols = 4, cell_km = 0.5 }\n[distance]\nkind = 'euclidean'\n"
    (tmp_path / "park.toml").write_text(f"{grid}[privacy]\nepsilon = 2.0\n[utility]\nkind = 'distance'\n")
    z = load_release(solve("optimal-lp", tmp_path / "park.toml", tmp_path / "out").folder).release.probabilities
    assert 0 < (z.argmax(axis=1) != np.arange(len(z))).sum() < len(z)


def solve_points(folder, rows, unit="year"):
    """Return the release folder of the exponential mechanism over points in a plane."""
    folder.mkdir()
    (folder / "points.csv").write_text("id,x,y\n" + "".join(f"{row}\n" for row in rows))
    records = f"[records]\npoints = 'points.csv'\nunit = '{unit}'\n[distance]\nkind = 'euclidean'\n"
    (folder / "p.toml").write_text(f"{records}[privacy]\nepsilon = 2.0\n[utility]\nkind = 'distance'\n")
    return solve("exponential", folder / "p.toml", folder / "out").folder


def test_report_of_equal_records_claims_no_gain_for_an_attacker(tmp_path):
    page = write_report(solve_points(tmp_path / "equal", ["a,1,2", "b,1,2", "c,1,2"])).read_text("utf-8")
    assert "names the right value 33.3 times in 100; without a report, 33.3 times." in page
    assert "3 of 3 values coincide with another" in page
    assert "guess is exactly right for half" in page


def test_report_of_one_record_says_that_its_output_is_always_the_same(tmp_path):
    page = write_report(solve_points(tmp_path / "one", ["a,1,2"])).read_text("utf-8")
    assert "Whatever the true value, the same one is always reported." in page


def test_error_in_a_headline_does_not_lose_the_report(tmp_path, monkeypatch):
    from privopt_metric_dp.report.reporting import MetricReporting

    def headline(self, problem, release, result):
        raise KeyError("text of the error")

    monkeypatch.setattr(MetricReporting, "headline", headline)
    page = write_report(solve_points(tmp_path / "two", ["a,1,2", "b,1,3"])).read_text("utf-8")
    assert '<p class="claim">Whoever sees a report' in page
    assert "Warning: the first sentences of this page could not be made (KeyError in MetricReporting.headline)" in page
    assert "text of the error" not in page


def test_loss_of_a_mechanism_is_not_called_the_distance_of_the_problem(tmp_path, monkeypatch):

    from privopt_metric_dp.mechanisms.baselines import Exponential

    folder = solve_points(tmp_path / "two", ["a,1,2", "b,1,3"])
    assert "A report is" in header_in(folder)
    utility = Exponential.utility
    monkeypatch.setattr(
        Exponential, "utility", lambda *args: evolve(utility(*args), weighted=utility(*args).weighted * 1.0)
    )
    header = header_in(folder)
    assert "A report is" not in header
    assert "An error costs" in header


def test_tiny_loss_is_written_with_an_exponent(tmp_path):
    folder = solve_points(tmp_path / "far", ["a,0,0", "b,400,0"])
    opened = load_release(folder)
    assert 0 < opened.result.objective.value < 1e-15
    assert re.search(r"A report is \d\.\d+e-1\d years off", header_in(folder))
    without_unit = evolve(opened.result, guarantee=evolve(opened.result.guarantee, unit=""))
    assert "metric-dp epsilon 2.0, proved>" in repr(without_unit)


def test_map_of_a_release_with_rows_for_some_records_asks_for_one(example):
    from privopt.api.released import open_release

    release = open_release(example("lr-geo"))
    with pytest.raises(UsageError, match="one of the 3 records"):
        release.map()
    assert release.map(str(release.opened.release.records[0])).axes


def test_existing_page_is_refused_before_the_release_is_verified(tmp_path, monkeypatch):
    from privopt.api.released import open_release

    release = open_release(solve_points(tmp_path / "two", ["a,1,2", "b,1,3"]))
    (tmp_path / "page.html").write_text("mine")
    monkeypatch.setattr("privopt.report.write_report.write_report", lambda folder: pytest.fail("verified first"))
    with pytest.raises(UsageError, match="exists already; force=True replaces it"):
        release.report(tmp_path / "page.html")


def test_all_examples_are_covered():
    assert {*WORDS, "bd-mdp"} == {*EXAMPLES}
