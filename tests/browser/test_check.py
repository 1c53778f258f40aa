"""The button that proves a release in the reader's browser accepts what holds, and no page that was tampered with."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from helpers.forgeries import METRIC, make
from helpers.grids import first_alone, often
from helpers.random_problems import forms
from helpers.tampered_pages import DATA, FALSE, TOWN, UNREAD, UNREADABLE, tamper_page

from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt_metric_dp.report import browser_check, pages

RUN = Path(__file__).with_name("run_check.js")
FORGED = {base for base, _ in (*FALSE, *UNREAD)}
"""Problems whose pages are made for what is changed in them; those of the others are proved in make slow."""


def button_alone(folder):
    """Write the report of a metric release without its other sections: their figures are most of a page's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "metric_sections", lambda *_given: [])
        return write_report(folder)


@pytest.fixture(scope="session")
def page_of_base(tmp_path_factory):
    pages = {}

    def of(base):
        if base not in pages:
            pages[base] = button_alone(make(base, tmp_path_factory.mktemp("check")))
        return pages[base]

    return of


def press_button(watch_page, path):
    """Return the button's result in a browser, and its lines."""
    observer = watch_page()
    page = observer.open(path)
    page.click("#check-run")
    page.wait_for_selector('#check-claims[data-verdict]:not([data-verdict="running"])', timeout=3_000_000)
    assert observer.complaints == []
    assert observer.outside == []
    claims = page.locator("#check-claims")
    return claims.get_attribute("data-verdict"), claims.locator("li").all_inner_texts()


def run(paths):
    """Return the same of several pages by one process of node, without a browser."""
    completed = subprocess.run(["node", RUN, *paths], capture_output=True, text=True, timeout=3000, check=False)
    assert completed.returncode == 0, completed.stderr
    return [(outcome["verdict"], outcome["lines"]) for outcome in map(json.loads, completed.stdout.splitlines())]


@pytest.fixture
def verdicts(request):
    """Return the results of the pages' buttons: by node, which is quicker, or in a browser."""
    if shutil.which("node"):
        return run
    watch_page = request.getfixturevalue("watch_page")
    return lambda paths: [press_button(watch_page, path) for path in paths]


@pytest.fixture
def verdict(verdicts):
    """Return the result of one page's button."""
    return lambda path: verdicts([path])[0]


@often("base", [*METRIC, "guesses"], FORGED)
def test_page_proves_every_claim(base, page_of_base, verdict):
    outcome, lines = verdict(page_of_base(base))
    assert outcome == "holds", lines
    assert [line.split(":")[0] for line in lines] == ["✓ integers", "✓ privacy", "✓ loss", "✓ bound", "✓ statements"]
    result = json.loads((page_of_base(base).parent / "result.json").read_text())
    assert float(lines[2].split()[2]) == result["objective"]["value"] or "value_unit" not in result["details"]
    assert float(lines[3].split("less than ")[1].split()[0]) == result["objective"]["lower_bound"]


@first_alone("name", ["words", "optimal-lp", "bd-mdp"])
def test_examples_hold(name, report, verdict):
    outcome, lines = verdict(report(name))
    assert outcome == "holds", lines


PAGES = (2, 9, 28)
"""Random problems whose pages the fast suite proves, or finds to be of regions."""

EVERY_FORM = [number for number in range(96) if forms(number).mechanism != "photo-censor"]
"""Each kind of places with each loss, twice; the checker is tried on 500, and the campaign asks all three programs."""


@often("number", EVERY_FORM, PAGES)
def test_random_problems_give_the_same_numbers(number, tmp_path, verdict):
    form = forms(number)
    problem = form.write(tmp_path / "problem")
    folder = solve(form.mechanism, problem, tmp_path / "out", Options(**form.options)).folder
    if max(np.load(folder / "mechanism.npz")["weights"].shape) > browser_check.MOST_RECORDS:
        pytest.skip("too many vertices for a page")
    page = button_alone(folder)
    if np.load(folder / "mechanism.npz").keys() & {"simplices", "snap_steps"}:
        assert "check-run" not in page.read_text()
        assert "check.pyz" in page.read_text()
        return
    outcome, lines = verdict(page)
    assert outcome == "holds", lines
    objective = json.loads((folder / "result.json").read_text())["objective"]
    assert float(lines[2].split()[2]) == objective["value"]
    if objective["lower_bound"] is not None:
        assert float(lines[3].split("less than ")[1].split()[0]) == objective["lower_bound"]


def test_accepts_a_loss_that_is_not_rounded(page_of_base, tmp_path, verdict):
    """So are folders of earlier versions."""
    outcome, lines = verdict(
        tamper_page(page_of_base("town"), tmp_path / "report.html", lambda c: c["result"]["details"].pop("value_unit"))
    )
    assert outcome == "holds", lines


FORMS = {
    "columns first": lambda c: np.asfortranarray(c),
    **{kind: lambda c, kind=kind: c.astype(kind) for kind in ("|u1", "|i1", "<i2", ">i4", "<u8", "<f2", "<f4", ">f8")},
}


def table(folder, costs):
    """Return a problem of a table of losses, in whole numbers."""
    folder.mkdir()
    np.save(folder / "d.npy", abs(np.subtract.outer(np.arange(4), np.arange(4))))
    np.save(folder / "c.npy", costs(np.array([[0, 1, 2, 5], [1, 0, 1, 3], [7, 1, 0, 1], [9, 4, 1, 0]], dtype=float)))
    text = '[records]\ncount = 4\n[distance]\nkind = "matrix"\nmatrix = "d.npy"\n[privacy]\nepsilon = 1\n'
    (folder / "problem.toml").write_text(text + '[utility]\nkind = "matrix"\ncost = "c.npy"\n')
    return folder / "problem.toml"


def plane(folder, points, epsilon="1.5", settings=""):
    """Return a problem of points in the plane, of the text of their file."""
    folder.mkdir()
    (folder / "points.csv").write_text(points, "utf-8", newline="")
    (folder / "problem.toml").write_text(
        f'[records]\npoints = "points.csv"\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = {epsilon}\n{settings}'
        '[utility]\nkind = "distance"\n'
    )
    return folder / "problem.toml"


POINTS = "id,x,y\na,0,0\nb,0.5,0.1\nc,1.1,0\n"
READ = {
    **{name: lambda folder, form=form: table(folder, form) for name, form in FORMS.items()},
    "odd spaces": lambda folder: plane(folder, "id,x,y\n\u00a0a,0,0\n\ufeffb,0.5,0.1\n\x85c\u2028, 1.1 ,0\n"),
    "byte order mark, CRLF": lambda folder: plane(folder, "\ufeff" + POINTS.replace("\n", "\r\n")),
    "quoted": lambda folder: plane(folder, 'id,x,y\n"a\nb",0,0\n"c\rd, ""e""",1,1\n__proto__,2,0\n'),
    "underscores": lambda folder: plane(folder, POINTS, "1_0.5"),
    "a whole epsilon that no double holds": lambda folder: plane(folder, POINTS, "9_007_199_254_740_993"),
    "a limit that is the distance's double": lambda folder: plane(
        folder, "id,x,y\na,0,0\nb,1,1\n", settings="neighbours_within = 1.414213562373095\n"
    ),
    "columns that stand twice unread": lambda folder: plane(folder, "id,x,y,z,z\na,0,0,1,2\nb,1,1,3,4\n"),
    "neighbours": lambda folder: plane(folder, POINTS, settings="neighbours_within = 0.6_5\n"),
}
OFTEN = ("columns first", ">i4", "<f2", "odd spaces", "quoted", "a whole epsilon that no double holds", "neighbours")


@pytest.mark.parametrize("names", [OFTEN, pytest.param(tuple(READ), marks=pytest.mark.slow)], ids=["some", "all"])
def test_reads_every_file_form_of_solve(tmp_path, verdicts, names):
    options, pages = Options(method="full", solver="highs"), []
    for number, name in enumerate(names):
        release = solve("optimal-lp", READ[name](tmp_path / f"problem-{number}"), tmp_path / f"out-{number}", options)
        pages.append(button_alone(release.folder))
    outcomes = dict(zip(names, verdicts(pages), strict=True))
    assert {name: lines for name, (outcome, lines) in outcomes.items() if outcome != "holds"} == {}


@pytest.mark.parametrize(
    ("changes", "expected", "mark"), [(FALSE, "does not hold", "✗"), (UNREAD, "cannot be read here", "?")]
)
def test_tampered_pages_do_not_hold(changes, expected, mark, page_of_base, tmp_path, verdicts):
    tampered_pages = [
        tamper_page(page_of_base(base), tmp_path / f"{number}.html", change)
        for number, ((base, _), change) in enumerate(changes.items())
    ]
    outcomes = dict(zip(changes, verdicts(tampered_pages), strict=True))
    assert {
        change_name: lines
        for change_name, (outcome, lines) in outcomes.items()
        if outcome != expected or lines[-1][0] != mark
    } == {}


def test_browser_shows_three_verdicts(page_of_base, tmp_path, watch_page):
    unchanged = {"epsilon": lambda content: None}
    for changes, mark, expected in (
        (unchanged, "✓", "holds"),
        (TOWN, "✗", "does not hold"),
        (UNREADABLE, "?", "cannot be read here"),
    ):
        outcome, lines = press_button(
            watch_page, tamper_page(page_of_base("town"), tmp_path / "report.html", changes["epsilon"])
        )
        assert outcome == expected, lines
        assert lines[-1].startswith(mark)


def test_page_without_json_says_so(page_of_base, tmp_path, verdict):
    target = tmp_path / "report.html"
    target.write_text(DATA.sub(lambda match: match[1] + "{" + match[3], page_of_base("town").read_text()))
    assert verdict(target)[0] == "cannot be read here"


def test_large_release_has_no_button(tmp_path, monkeypatch):
    monkeypatch.setattr(browser_check, "MOST_RECORDS", 2)
    problem = plane(tmp_path / "problem", POINTS)
    page = button_alone(solve("exponential", problem, tmp_path / "out", Options()).folder).read_text()
    assert "check-run" not in page
    assert "Check it here" not in page
    assert "in this browser" not in page
