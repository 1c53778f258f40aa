"""Reports come out for every kind of problem and method, say what they promise, and never more."""

import re
import shutil
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.examples import EXAMPLES
from helpers.grids import first_alone, often
from helpers.mended_sums import edit
from helpers.mentions import assert_mentions

from privopt.interfaces import Guarantee
from privopt.report import svg, theme
from privopt.report.charts import draw_maps
from privopt.report.promise_text import claim
from privopt.report.theme import INK, NAMES
from privopt.report.write_report import write_figures, write_report
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import load_release
from privopt_metric_dp.report import figures

METRIC = '[privacy]\nepsilon = 0.8\n[utility]\nkind = "distance"\n'
PLACES = "id,x,y\na,0,0\nb,1,0\nc,0,2\nd,3,1\n"
COUNTS = "id,x,y,facility_cost,clients\na,0,0,1,5\nb,1,0,2,6\nc,9,9,1,7\nd,9,8,1,4\n"
GEOGRAPHIC = "id,lat,lon,facility_cost,noisy_clients\na,41.9,12.4,1,5\nb,41.8,12.5,2,6.5\nc,41.7,12.1,1,7\n"
LOCATED = '[locations]\npoints = "p.csv"\n[privacy]\nepsilon = 0.5\n'
LOCAL = '[lr-geo]\nusers = "all"\nradius = 2.5\nobfuscation_radius = 3.0\nexponential_beyond = 1.0\n'
GROUPS = "level_1,level_2,size,groups\nLand,A,1,40\nLand,A,2,7\nLand,B,1,30\nLand,B,3,2\n"
SQUARE = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]])

CASES = {
    "matrix of distances": (
        "optimal-lp",
        '[records]\ncount = 3\n[distance]\nkind = "matrix"\nmatrix = "d.npy"\n' + METRIC,
        {"d.npy": SQUARE},
        {},
    ),
    "other outputs": (
        "optimal-lp",
        '[records]\npoints = "p.csv"\n[outputs]\ngrid = { rows = 2, cols = 3, cell_km = 1.0 }\n'
        '[distance]\nkind = "euclidean"\n' + METRIC,
        {"p.csv": PLACES},
        {},
    ),
    "one record": (
        "exponential",
        '[records]\ngrid = { rows = 1, cols = 1, cell_km = 1.0 }\n[distance]\nkind = "euclidean"\n' + METRIC,
        {},
        {},
    ),
    "vectors on a line": (
        "planar-laplace",
        '[records]\ngrid = { rows = 2, cols = 2, cell_km = 1.0 }\n[distance]\nkind = "euclidean"\n' + METRIC,
        {},
        {},
    ),
    "lr-geo exact": (
        "lr-geo",
        '[records]\ngrid = { rows = 3, cols = 3, cell_km = 1.0 }\n[distance]\nkind = "euclidean"\n' + METRIC + LOCAL,
        {},
        {"method": "exact"},
    ),
    "facilities without privacy": ("fl-linear", LOCATED, {"p.csv": COUNTS}, {"method": "optimal"}),
    "facilities without reconnection": ("fl-linear", LOCATED, {"p.csv": COUNTS}, {"method": "laplace"}),
    "facilities on the globe": ("fl-linear", LOCATED, {"p.csv": GEOGRAPHIC}, {}),
    "facilities that cost to open": (
        "fl-linear",
        LOCATED,
        {
            "p.csv": COUNTS.replace("clients", "clients,opening_cost")
            .replace("\n", ",2\n")[:-1]
            .replace("cost,2", "cost")
        },
        {},
    ),
    "facilities of bounded capacity": (
        "fl-linear",
        LOCATED + "[fl-linear]\ndelta = 5\n",
        {"p.csv": "id,x,y,facility_cost,capacity,clients\na,0,0,1,60,50\nb,1,0,2,900,60\nc,3,0,1,,70\nd,6,0,1,9,4\n"},
        {},
    ),
    "facilities of a matrix": (
        "fl-linear",
        LOCATED.replace('"p.csv"', '"p.csv"\nmatrix = "d.npy"'),
        {"p.csv": "id,facility_cost,clients\na,1,5\nb,2,6\nc,1,7\n", "d.npy": SQUARE},
        {},
    ),
}
CASES |= {
    f"hierarchy, {method}": (
        "hierarchical-dp",
        '[hierarchy]\ncounts = "c.csv"\nsizes = 4\n[privacy]\nepsilon = 0.2\n',
        {"c.csv": GROUPS},
        {"method": method},
    )
    for method in ("hierarchical", "hierarchical-relaxed", "cumulative-chain-as-published", "top-down")
}
SCORES = np.log(np.array([[0.7, 0.2, 0.1], [0.6, 0.1, 0.3], [0.2, 0.4, 0.4]]))
CASES |= {
    f"album, {name}": ("photo-censor", f'[photos]\nscores = "s.npy"\ntrue_location = 0\n{text}', {"s.npy": SCORES}, {})
    for name, text in {
        "budget": "[privacy]\ndeletion_budget = 1\n",
        "margin": "[privacy]\ntop_k = 1\nmargin = 0.1\n",
        "nothing kept": "keep_at_least = 0\n[privacy]\ntop_k = 2\nmargin = 9.0\n",
        "greedy": "[privacy]\ntop_k = 1\n",
    }.items()
}


DAILY = (
    "matrix of distances",
    "one record",
    "lr-geo exact",
    "facilities without privacy",
    "facilities of a matrix",
    "album, nothing kept",
)
"""The oddest of them; the others are asked for by name (make slow)."""


@often("case", CASES, DAILY)
def test_report_of_every_kind(case, tmp_path):
    mechanism, text, files, options = CASES[case]
    (tmp_path / "p.toml").write_text(text)
    for name, content in files.items():
        if isinstance(content, str):
            (tmp_path / name).write_text(content)
        else:
            np.save(tmp_path / name, content)
    if case == "album, greedy":
        options = {"method": "greedy"}
    solve_options = Options(allow_unsafe=True, solver="highs", **options)
    release = solve(mechanism, tmp_path / "p.toml", tmp_path / "out", solve_options)
    page = write_report(release.folder).read_text("utf-8")
    assert page.count("<section") == page.count("</section>") >= 4
    assert "mathdefault" not in page
    assert "nan" not in re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL).lower().split()
    if (release.folder / "private" / "truth.json").exists():
        assert "in private/" in write_report(release.folder, truth=True).read_text("utf-8")
    unsafe = release.result.guarantee.kind == "none"
    assert unsafe == ("no privacy guarantee" in page) == ("promises no privacy" in page)


def result(epsilon=1.0, scope="all-pairs", **stated_claims):
    exact = None if epsilon is None else Fraction(float(epsilon))
    return SimpleNamespace(guarantee=Guarantee(epsilon=exact, unit="per km", scope=scope, **stated_claims))


def test_claim_never_exceeds_the_guarantee():
    for epsilon in (0.01, 0.3, 1.0, np.log(2), 2.0, 17.0):
        words = claim(result(kind="metric-dp", epsilon=epsilon))
        distance = float(re.search(r"at ([\d.e-]+) km", words).group(1))
        assert np.exp(epsilon * distance) <= 2
        assert np.exp(epsilon * distance * 1.2) > 2  # nor much less
        for kind in ("local-dp", "pure-dp"):
            words = claim(result(kind=kind, epsilon=epsilon, scope="one thing"))
            stated_factor = float(re.search(r"([\d.]+) times", words).group(1))
            assert np.exp(epsilon) <= stated_factor <= np.exp(epsilon) + 0.1 * np.expm1(epsilon)
            assert "one thing" in words
    near_claim = claim(result(kind="metric-dp", epsilon=0.1, extra={"neighbours_within": 2.0}))
    assert_mentions(near_claim, "at 2 km", "at most 1.23 times")
    assert "up to 2 km" in claim(result(kind="metric-dp", epsilon=1.0, extra={"neighbours_within": 2.0}))


@pytest.mark.parametrize(
    ("kind", "little", "much"),
    [("pure-dp", "makes little difference", "may show"), ("local-dp", "No one, not even", "may tell much")],
)
def test_claim_says_when_guesses_are_mostly_right(kind, little, much):
    small, large = (claim(result(kind=kind, epsilon=epsilon, scope="one thing")) for epsilon in (1.0, 2.0))
    assert little in small
    assert little not in large
    assert much in large
    assert much not in small


def test_claim_names_what_is_not_private():
    assert "promises no privacy" in claim(result(kind="none", epsilon=None))
    assert "not private" in claim(result(kind="local-dp", seeded=True))
    own_claim = claim(result(kind="metric-dp", scope="own-matrix"))
    assert_mentions(own_claim, "different users", "the server")


@first_alone("name", ["hierarchical-dp", "fl-linear"])
@pytest.mark.usefixtures("undrawn")
def test_slow_start_omits_no_figure(name, example, tmp_path):
    """The first release on a new machine may take seconds to load what it needs."""
    pages = []
    for seconds in (1e-3, 60.0):
        folder = shutil.copytree(example(name), tmp_path / f"after {seconds} s")
        edit(folder, lambda r, seconds=seconds: r["time"].update(solve=seconds))
        pages.append(write_report(folder).read_text("utf-8"))
    assert pages[0].count("<figure") == pages[1].count("<figure") > 0


@pytest.mark.parametrize("name", ["words", "fl-linear"])
def test_every_report_has_common_parts(name, report):
    page = report(name).read_text("utf-8")
    for part in ('class="claim"', "In full.", ">Certificate<", ">Checked<", "not covered<", ">Provenance<", "SHA-256"):
        assert part in page
    for part in ("privopt verify .", f"privopt solve {EXAMPLES[name].mechanism}", "seconds"):
        assert part in page


def test_maps_of_words_speak_of_no_places(report):
    page = report("words").read_text("utf-8")
    assert "Average loss of each word." in page
    assert "of each place" not in page


def test_figures_are_functions_of_a_release(example):
    from matplotlib.figure import Figure

    release_folder = load_release(example("optimal-lp"))
    problem, release = release_folder.problem, release_folder.release
    drawn_figures = [
        figures.loss_map(release, problem.data),
        figures.privacy_map(release, problem.data),
        figures.spent_by_distance(release, problem.data),
        figures.spread_from(release, problem.data, "r3c3"),
    ]
    assert all(isinstance(figure, Figure) for figure in drawn_figures)
    with pytest.raises(ValueError, match="nowhere"):
        figures.spread_from(release, problem.data, "nowhere")


def test_figures_show_no_excess_epsilon(example):
    release_folder = load_release(example("optimal-lp"))
    problem, release = release_folder.problem, release_folder.release
    spent_epsilon = figures.spent_of_records(release, float(problem.data.epsilon))
    assert spent_epsilon.max() <= 1 + 1e-9
    assert spent_epsilon.max() > 0.999  # the optimum spends all of it somewhere
    pairs_chosen = figures.nearest_pairs(release)
    assert len(pairs_chosen) == len(release.pairs)


def test_nearest_pairs_represent_many(example, monkeypatch):
    release_folder = load_release(example("words"))
    problem, release = release_folder.problem, release_folder.release
    all_spent = figures.spent_of_records(release, float(problem.data.epsilon))
    monkeypatch.setattr(figures, "MOST_RATIOS", 36 * 36 * 4)
    nearest_pairs = figures.nearest_pairs(release)
    assert len(nearest_pairs) < len(release.pairs) / 2
    pair_ends = np.concatenate([release.pairs[nearest_pairs, 0], release.pairs[nearest_pairs, 1]])
    assert (np.bincount(pair_ends, minlength=36) > 0).all()
    assert (figures.spent_of_records(release, float(problem.data.epsilon)) <= all_spent).all()


@pytest.mark.slow
def test_pictures_use_page_or_own_colours(example, tmp_path):
    release_folder = load_release(example("optimal-lp"))
    problem, release = release_folder.problem, release_folder.release
    inline = svg(figures.spent_by_distance(release, problem.data), "A title & more")
    assert f"var(--ink,{INK})" in inline
    assert 'aria-label="A title &amp;' in inline
    rules = Path(theme.__file__).with_name("report.css").read_text("utf-8")
    for colour, name in NAMES.items():
        assert f"--{name}:{colour}" in rules.replace("#fff;", "#ffffff;")
    write_figures(example("photo-censor"), tmp_path)
    text = (tmp_path / "before.svg").read_text()
    assert "var(" not in text
    assert INK in text


@pytest.mark.parametrize("count", [500, 5_000])
def test_map_of_many_places_stays_small(count):
    chance = np.random.default_rng(1)
    places, losses = chance.random((count, 2)), chance.random(count)
    picture = svg(draw_maps({"": losses}, places, ("x (km)", "y (km)"), "loss"), "loss")
    assert len(picture) < 1_000_000
    assert (picture.count("<use") < 100) == (count > 4_000)  # ticks alone, the places are a picture
