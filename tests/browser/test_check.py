"""The button that proves a release in the reader's browser accepts what holds, and no page that was tampered with."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from helpers.forgeries import LISTED, METRIC, REGIONS, make
from helpers.random_problems import forms

from privopt.report.write_report import write_report
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt_metric_dp.report import browser_check

pytestmark = pytest.mark.xdist_group("reports")

RUN = Path(__file__).with_name("run_check.js")
DATA = re.compile(r'(<script type="application/json" id="check-data">)(.*?)(</script>)', re.DOTALL)


@pytest.fixture(scope="session")
def checked(tmp_path_factory):
    made = {}

    def of(base):
        if base not in made:
            made[base] = write_report(make(base, tmp_path_factory.mktemp("check")))
        return made[base]

    return of


def pressed(watched, path):
    """Return the button's result in a browser, and its lines."""
    seen = watched()
    page = seen.open(path)
    page.click("#check-run")
    page.wait_for_selector('#check-claims[data-verdict]:not([data-verdict="running"])', timeout=3_000_000)
    assert seen.complaints == []
    assert seen.outside == []
    claims = page.locator("#check-claims")
    return claims.get_attribute("data-verdict"), claims.locator("li").all_inner_texts()


def run(paths):
    """Return the same of several pages by one process of node, without a browser."""
    done = subprocess.run(["node", RUN, *paths], capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr
    return [(found["verdict"], found["lines"]) for found in map(json.loads, done.stdout.splitlines())]


@pytest.fixture
def verdicts(request):
    """Return the results of the pages' buttons: by node, which is quicker, or in a browser."""
    if shutil.which("node"):
        return run
    watched = request.getfixturevalue("watched")
    return lambda paths: [pressed(watched, path) for path in paths]


@pytest.fixture
def verdict(verdicts):
    """Return the result of one page's button."""
    return lambda path: verdicts([path])[0]


def tampered(path, target, change):
    """Return the page with something else in what it carries."""
    text = path.read_text()
    content = json.loads(DATA.search(text)[2])
    change(content)
    made = json.dumps(content).replace("<", "\\u003c")
    target.write_text(DATA.sub(lambda found: found[1] + made + found[3], text))
    return target


def array(content, name, kind, change):
    """One of the arrays that a page carries, changed."""
    values = np.frombuffer(base64.b64decode(content[name]), dtype=kind).copy()
    change(values)
    content[name] = base64.b64encode(values.tobytes()).decode()


def proof(content, name, change):
    """Change an array of proof.npz in the same way."""
    kind, raw = content["proof"][name]
    values = np.frombuffer(base64.b64decode(raw), dtype=kind).copy()
    change(values)
    content["proof"][name] = [kind, base64.b64encode(values.tobytes()).decode()]


@pytest.mark.parametrize("base", [*METRIC, *REGIONS, *LISTED, "guesses"])
def test_the_browser_proves_every_claim(base, checked, watched):
    said, lines = pressed(watched, checked(base))
    assert said == "holds", lines
    assert [line.split(":")[0] for line in lines] == [
        "✓ integers",
        "✓ privacy",
        "✓ loss",
        "✓ bound",
        "✓ statements",
    ]
    result = json.loads((checked(base).parent / "result.json").read_text())
    assert float(lines[2].split()[2]) == result["objective"]["value"] or "value_unit" not in result["details"]
    assert float(lines[3].split("less than ")[1].split()[0]) == result["objective"]["lower_bound"]


@pytest.mark.parametrize("name", ["optimal-lp", "words", "bd-mdp"])
def test_examples_hold(name, example, tmp_path, verdict):
    said, lines = verdict(write_report(shutil.copytree(example(name), tmp_path / "out")))
    assert said == "holds", lines


PAGES = (2, 9, 15, 28, 30)
"""Random problems whose pages the fast suite proves: planes and streets, people listed and not, guesses."""


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=[pytest.mark.slow] * (number not in PAGES)) for number in range(500)]
)
def test_random_problems_hold_and_come_to_the_same_numbers(number, tmp_path, verdict):
    form = forms(number)
    if form.mechanism == "photo-censor":
        pytest.skip("a page proves matrices alone")
    problem = form.write(tmp_path / "problem")
    folder = solve(form.mechanism, problem, tmp_path / "out", Options(**form.options)).folder
    if max(np.load(folder / "mechanism.npz")["weights"].shape) > browser_check.MOST_RECORDS:
        pytest.skip("too many vertices for a page")
    found, lines = verdict(write_report(folder))
    assert found == "holds", lines
    objective = json.loads((folder / "result.json").read_text())["objective"]
    assert float(lines[2].split()[2]) == objective["value"]
    if objective["lower_bound"] is not None:
        assert float(lines[3].split("less than ")[1].split()[0]) == objective["lower_bound"]


def said(part, key, value):
    """Something else in result.json."""
    return lambda c: c["result"][part].update({key: value})


TOWN = {
    "integers": lambda c: array(c, "weights", "<u8", lambda w: w.__setitem__(0, w[0] + np.uint64(1))),
    "weights": lambda c: array(c, "weights", "<u8", lambda w: w.__setitem__(slice(None), np.roll(w, 1))),
    "distances": lambda c: array(c, "distances", "<f8", lambda d: d.__imul__(1.001)),
    "a distance, above": lambda c: array(c, "distances", "<f8", lambda d: d[:1].__imul__(1 + 2.0**-46)),
    "a distance, below": lambda c: array(c, "distances", "<f8", lambda d: d[:1].__imul__(1 - 1e-8)),
    "pairs": lambda c: c.update(pairs="", distances=""),
    "epsilon": lambda c: c["problem"]["privacy"].update(epsilon="1.4999"),
    "points": lambda c: c["files"].update({"points.csv": base64.b64encode(b"id,x,y\np0,0,0\n").decode()}),
    "loss": lambda c: c["result"]["objective"].update(value=c["result"]["objective"]["value"] * 0.99),
    "bound": lambda c: c["result"]["objective"].update(lower_bound=c["result"]["objective"]["value"]),
    "bound, its last bit": lambda c: c["result"]["objective"].update(
        lower_bound=float(np.nextafter(c["result"]["objective"]["lower_bound"], -np.inf))
    ),
    "unit": lambda c: proof(c, "unit", lambda u: u.__imul__(1.1)),
    "proof": lambda c: c.pop("proof"),
    "prices": lambda c: proof(c, "prices", lambda f: f.__imul__(0.9)),
    "a circle": lambda c: proof(c, "trees", lambda t: t[:2].__setitem__(slice(None), [2, 10])),
    "no trees": lambda c: proof(c, "trees", lambda t: t.fill(0)),
    "value_unit": lambda c: c["result"]["details"].update(value_unit=1.1 * c["result"]["details"]["value_unit"]),
    "value_unit, coarse": lambda c: c["result"]["details"].update(value_unit=1e3),
    "loss, its last bit": lambda c: c["result"]["objective"].update(
        value=float(np.nextafter(c["result"]["objective"]["value"], np.inf))
    ),
    "status": lambda c: c["result"].update(status="perfect"),
    "asked.gap": lambda c: c["result"]["asked"].update(gap=1.5),
    "epsilon_text": lambda c: c["result"]["guarantee"].update(epsilon_text="1.4"),
    **{
        f"{part}.{key} = {value}": said(part, key, value)
        for part, key, value in [
            ("objective", "gap", 1e-9),
            ("objective", "gap", 0.25),
            ("objective", "gap", None),
            ("objective", "unit", "m"),
            ("objective", "value", "1"),
            ("objective", "more", 1),
            ("guarantee", "kind", "geo-ind"),
            ("guarantee", "epsilon", 0.15),
            ("guarantee", "epsilon_text", 1.5),
            ("guarantee", "epsilon", 1.4999999999999998),
            ("guarantee", "unit", "per m"),
            ("guarantee", "scope", "everywhere"),
            ("guarantee", "neighbours_within", 5.0),
            ("guarantee", "statement", 3),
            ("guarantee", "seeded", True),
            ("certificate", "worst", 0.1),
            ("certificate", "allowed", 9.0),
            ("certificate", "checked", 10**6),
            ("certificate", "holds", False),
            ("certificate", "kind", "top-k"),
            ("certificate", "evidence", "declared"),
            ("certificate", "arithmetic", 1),
            ("certificate", "protected_k", 4),
        ]
    },
}


def file(name, old, new):
    """Other text in one of the problem's files."""

    def change(content):
        text = base64.b64decode(content["files"][name]).decode()
        assert old in text
        content["files"][name] = base64.b64encode(text.replace(old, new, 1).encode()).decode()

    return change


def region(name, change):
    """Return the same of an array of the region."""

    def changed(content):
        kind, raw = content["region"][name]
        values = np.frombuffer(base64.b64decode(raw), dtype=kind).copy()
        change(values)
        content["region"][name] = [kind, base64.b64encode(values.tobytes()).decode()]

    return changed


def swapped(content):
    """Exchange outputs 0 and 1: as private as before, and no longer the best guesses."""
    array(
        content,
        "weights",
        "<u8",
        lambda w: w.reshape(6, 6).__setitem__(slice(None), w.reshape(6, 6)[:, [0, 2, 1, 3, 4, 5]]),
    )
    content["result"]["objective"].update(value=0.61, lower_bound=None, gap=None)


ANYWHERE = {
    ("people", "a millimetre"): file("people.csv", "0.5,0.1,2", "0.500001,0.1,2"),
    ("people", "places changed over"): file("people.csv", "x,y", "y,x"),
    ("people", "one less"): file("people.csv", "3,-1,0.5\n", ""),
    ("people", "one twice"): file("people.csv", "3,-1,0.5\n", "3,-1,0.5\n3,-1,0.5\n"),
    ("people", "weights"): file("people.csv", "0.5,0.1,2", "0.5,0.1,1.9999999"),
    ("people", "evenly"): lambda c: c["problem"]["utility"].pop("positions"),
    ("people", "a vertex"): region("vertices", lambda v: v.__setitem__(0, v[0] + 1)),
    ("people", "triangles"): region("simplices", lambda s: s.__setitem__(slice(3), s[[0, 2, 1]])),
    ("people", "no region"): lambda c: c["problem"]["privacy"].pop("everywhere"),
    ("people", "epsilon"): lambda c: c["problem"]["privacy"].update(epsilon="1.999"),
    ("people", "the bound"): lambda c: c["result"]["objective"].update(lower_bound=c["result"]["objective"]["value"]),
    ("riders", "a row moved"): file("people.csv", "41.904,", "41.9041,"),
    ("riders", "a node moved"): file("points.csv", "b,41.9,12.41", "b,41.9,12.411"),
    ("riders", "a street longer"): file("roads.csv", "a,b,0.9", "a,b,0.91"),
    ("riders", "a street first"): file("roads.csv", "a,b,0.9\nb,c,1.2\n", "b,c,1.2\na,b,0.9\n"),
    ("riders", "lengths"): region("lengths", lambda x: x.__imul__(1 + 2.0**-52)),
    ("riders", "steps"): region("snap_steps", lambda s: s.fill(4)),
    ("riders", "weights"): lambda c: array(c, "weights", "<u8", lambda w: w.__setitem__(slice(None), np.roll(w, 4))),
    ("triangles", "weights"): lambda c: array(c, "weights", "<u8", lambda w: w.__setitem__(slice(None), np.roll(w, 6))),
    ("squares", "cut finer"): lambda c: c["problem"]["privacy"].update(split_km="0.1"),
    ("streets", "pieces"): lambda c: c["problem"]["privacy"].update(split_km="0.3"),
    ("guesses", "others"): swapped,
}
NOWHERE = {
    ("people", bad): file("people.csv", "0.5,0.1,2", f"{bad},0.1,2") for bad in ("nan", "inf", "1e200", "", "0x1")
} | {
    ("people", "weight below 0"): file("people.csv", "0.5,0.1,2", "0.5,0.1,-2"),
    ("people", "another system"): file("people.csv", "x,y", "lat,lon"),
    ("people", "a prior beside them"): lambda c: c["problem"]["utility"].update(prior="people.csv"),
    ("riders", "x and y"): file("people.csv", "lat,lon", "x,y"),
    ("riders", "beyond a pole"): file("people.csv", "42.3,", "92.3,"),
    **{
        ("town", f"epsilon_text = {text!r}"): said("guarantee", "epsilon_text", text)
        for text in (["1.5"], "1.5 ", "\ufeff1.5", "\n1.5")
    },
    ("guesses", "remap"): lambda c: c["problem"]["utility"].update(remap="true"),
}


ROWS = {
    "multipliers": lambda c: proof(c, "values", lambda f: f.__imul__(0.9)),
    "a multiplier below 0": lambda c: proof(c, "values", lambda f: f.__setitem__(0, -f[0])),
    "starts": lambda c: proof(c, "starts", lambda s: s.__setitem__(-1, s[-1] - 1)),
    "a row of one record": lambda c: proof(c, "pairs", lambda p: p.__setitem__(1, p[0])),
    "a row that is none": lambda c: proof(c, "pairs", lambda p: p.__setitem__(0, 99)),
}


def test_a_loss_that_is_not_rounded_is_taken_as_before(checked, tmp_path, verdict):
    """So are folders of earlier versions."""
    found, lines = verdict(
        tampered(checked("town"), tmp_path / "report.html", lambda c: c["result"]["details"].pop("value_unit"))
    )
    assert found == "holds", lines


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


def plane(folder, points, epsilon="1.5", more=""):
    """Return a problem of points in the plane, of the text of their file."""
    folder.mkdir()
    (folder / "points.csv").write_text(points, "utf-8", newline="")
    (folder / "problem.toml").write_text(
        f'[records]\npoints = "points.csv"\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = {epsilon}\n{more}'
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
        folder, "id,x,y\na,0,0\nb,1,1\n", more="neighbours_within = 1.414213562373095\n"
    ),
    "columns that stand twice unread": lambda folder: plane(folder, "id,x,y,z,z\na,0,0,1,2\nb,1,1,3,4\n"),
    "neighbours": lambda folder: plane(folder, POINTS, more="neighbours_within = 0.6_5\n"),
}


def test_every_form_of_a_file_that_solve_reads_is_read(tmp_path, verdicts):
    options, pages = Options(method="full", solver="highs"), []
    for number, problem in enumerate(READ.values()):
        made = solve("optimal-lp", problem(tmp_path / f"problem-{number}"), tmp_path / f"out-{number}", options)
        pages.append(write_report(made.folder))
    found = dict(zip(READ, verdicts(pages), strict=True))
    assert {name: lines for name, (said, lines) in found.items() if said != "holds"} == {}


UNREADABLE = {
    "epsilon": lambda c: c["problem"]["privacy"].update(epsilon="1.5 or so"),
    "privacy": lambda c: c["problem"]["privacy"].update(everywhere=True),
    "distance": lambda c: c["problem"]["distance"].update(kind="taxicab"),
    "utility": lambda c: c["problem"]["utility"].update(kind="regret"),
    "points": lambda c: c["files"].update({"points.csv": base64.b64encode(b"id,x,y\np0,0\n").decode()}),
    "bytes": lambda c: c["files"].update({"points.csv": base64.b64encode(b"id,x,y\n\xff,0,0\n").decode()}),
    "problem": lambda c: c.pop("problem"),
    "prior": lambda c: c["files"].update({"prior.csv": base64.b64encode(b"id,p\np0,0.5\n").decode()}),
    "little": lambda c: c["result"]["objective"].update(value=1e-99),
    "certificate": lambda c: c["result"].pop("certificate"),
    "gap": lambda c: c["result"]["asked"].update(gap="1"),
}


FALSE = {("town", name): change for name, change in TOWN.items()} | ANYWHERE
FALSE |= {("soft", name): change for name, change in ROWS.items()}
UNREAD = {("town", name): change for name, change in UNREADABLE.items()} | NOWHERE


@pytest.mark.parametrize(
    ("changes", "wanted", "mark"), [(FALSE, "does not hold", "✗"), (UNREAD, "cannot be read here", "?")]
)
def test_pages_that_were_tampered_with_fail_or_are_neither_true_nor_false(
    changes, wanted, mark, checked, tmp_path, verdicts
):
    pages = [
        tampered(checked(base), tmp_path / f"{number}.html", change)
        for number, ((base, _), change) in enumerate(changes.items())
    ]
    found = dict(zip(changes, verdicts(pages), strict=True))
    assert {which: lines for which, (said, lines) in found.items() if said != wanted or lines[-1][0] != mark} == {}


def test_a_browser_shows_the_three_verdicts(checked, tmp_path, watched):
    for changes, mark, wanted in ((TOWN, "✗", "does not hold"), (UNREADABLE, "?", "cannot be read here")):
        found, lines = pressed(watched, tampered(checked("town"), tmp_path / "report.html", changes["epsilon"]))
        assert found == wanted, lines
        assert lines[-1].startswith(mark)


def test_what_is_no_json_leaves_a_button_that_says_so(checked, tmp_path, verdict):
    target = tmp_path / "report.html"
    target.write_text(DATA.sub(lambda found: found[1] + "{" + found[3], checked("town").read_text()))
    assert verdict(target)[0] == "cannot be read here"


def test_a_release_of_more_records_has_no_button(tmp_path, monkeypatch):
    monkeypatch.setattr(browser_check, "MOST_RECORDS", 2)
    problem = plane(tmp_path / "problem", POINTS)
    page = write_report(solve("exponential", problem, tmp_path / "out", Options()).folder).read_text()
    assert "check-run" not in page
    assert "Check it here" not in page
    assert "in this browser" not in page
