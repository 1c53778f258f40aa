"""The checker's part for counts: it accepts what ``solve`` writes, and refuses planted faults, without privopt."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from fractions import Fraction
from hashlib import sha256

import mpmath
import numpy as np
import pytest
from helpers.mended_sums import edit, is_refused, mend, rewrite
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privopt.checker import check
from privopt.checker.exact import RefusedError
from privopt.checker.files import Problem, check_sums
from privopt.command.checker_file import checker_file
from privopt.declare import load_problem
from privopt.numbers.gaussian import delta_of, rho_of
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_hierarchical_dp.checkers.budgets import _log_down, delta_above
from privopt_hierarchical_dp.checkers.counts import Counts
from privopt_hierarchical_dp.tables.design import TablesDesign
from privopt_hierarchical_dp.tables.problem import TablesProblem

REGIONS = "level_1,level_2,level_3\nUS,N,a\nUS,N,b\nUS,Guam,\nUS,S,a\nUS,S,c\n"
COUNTS = "level_1,level_2,level_3,size,groups\n" + "".join(
    f"{path},{size},{10 * size + 3}\n" for path in REGIONS.splitlines()[1:] for size in (1, 2, 3)
)
RECORDS = "level_1,level_2,level_3,sex,age\n" + "".join(
    f"{path},{sex},{age}\n" * 4 for path in REGIONS.splitlines()[1:] for sex in "fm" for age in ("x", "y")
)
SIZES = '[hierarchy]\ncounts = "counts.csv"\nsizes = 3\n'
TABLES = """[hierarchy]
records = "records.csv"
regions = "regions.csv"
persons = true
{}
[hierarchy.attributes]
sex = ["f", "m"]
age = ["x", "y"]
[hierarchy.tables.sex]
by = ["sex"]
[hierarchy.tables.all]
by = []
[hierarchy.tables.both]
by = ["age", "sex"]
"""
PROBLEMS = {
    "smoothed": ("cumulative-smoothed", SIZES + "[privacy]\nepsilon = 0.7\n"),
    "counts": ("hierarchical-dp", SIZES + 'exact = ["level_2"]\n[privacy]\nkind = "zcdp"\nrho = 0.5\n'),
    "bounds": (
        "cumulative-dp",
        SIZES + 'regions = "regions.csv"\nbounds = "bounds.csv"\n[privacy]\nepsilon = 1\nrelation = "individuals"\n',
    ),
    "groups": ("cumulative-smoothed", SIZES + '[privacy]\nepsilon = 2\nrelation = "groups"\n'),
    "replaced": ("cumulative-dp", SIZES + '[privacy]\nepsilon = 2\nrelation = "replaced"\nmax_household = 5\n'),
    "approximate": ("top-down", SIZES + '[privacy]\nkind = "approx-dp"\nepsilon = 1\ndelta = 1e-6\n'),
    "unmeasured": ("hierarchical-dp", SIZES + "[privacy]\nepsilon = 1\n[hierarchical-dp]\nbudget = [1, 0, 3]\n"),
    "tables": ("margins", TABLES.format("") + "[privacy]\nepsilon = 1\n"),
    "exact tables": (
        "margins",
        TABLES.format('exact = ["level_2"]\nbudget = [1, 1, 4]') + '[privacy]\nkind = "zcdp"\nrho = 0.1\n',
    ),
    "shares of tables": ("margins", TABLES.format("") + "share = 0.7\n[privacy]\nepsilon = 0.3\n"),
    "shares of a delta": (
        "margins",
        TABLES.format("budget = [0.1, 0, 0.3]").replace("by = []", "by = []\nshare = 0")
        + '[privacy]\nkind = "approx-dp"\nepsilon = 0.5\ndelta = 1e-7\nrelation = "attributes"\n',
    ),
    "shares of levels": (
        "top-down",
        SIZES + '[privacy]\nkind = "approx-dp"\nepsilon = 1\ndelta = 1e-6\n[hierarchical-dp]\nbudget = [0.2, 1, 0.7]\n',
    ),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return a function that solves a problem of PROBLEMS once, and returns a fresh copy of its folder."""
    root = tmp_path_factory.mktemp("counts")
    (root / "counts.csv").write_text(COUNTS)
    (root / "records.csv").write_text(RECORDS)
    (root / "regions.csv").write_text(REGIONS)
    (root / "bounds.csv").write_text("region,at_least,at_most\nN,10,\nGuam,,500\nS/a,0,900\n")
    copies = iter(range(1000))

    def solved(name):
        method, text = PROBLEMS[name]
        if not (root / name).exists():
            (root / "problem.toml").write_text(text)
            mechanism = "hierarchical-tables" if method == "margins" else "hierarchical-dp"
            solve(mechanism, root / "problem.toml", root / name, Options(method=method))
        return shutil.copytree(root / name, root / f"copy {next(copies)}")

    return solved


def _check(folder):
    lines: list[str] = []
    return check(folder, lines.append), lines


@pytest.mark.parametrize("name", PROBLEMS)
def test_accepts_what_solve_writes(folders, name):
    code, lines = _check(folders(name))
    assert code == 0, lines
    claims = [line.split(": ")[1] for line in lines]
    assert claims == [
        "files",
        "regions",
        "sums",
        "exact",
        "bounds",
        "privacy",
        "unmeasured",
        "intervals",
        "objective",
        "words",
    ]
    assert "rests on what no folder shows" in lines[5]


def test_seeded_noise_is_not_private(folders, tmp_path):
    source = folders("smoothed").parent
    (source / "problem.toml").write_text(PROBLEMS["smoothed"][1])
    solve("hierarchical-dp", source / "problem.toml", tmp_path / "seeded", Options(seed=1))
    assert _check(tmp_path / "seeded")[0] == 6


def test_runs_as_one_file_without_privopt(folders, tmp_path):
    contents, parts = checker_file("c.pyz")
    assert {f"{kind}.hierarchical-dp" for kind in ("pure-dp", "zcdp", "approx-dp")} <= parts.keys()
    (tmp_path / "c.pyz").write_bytes(contents)
    command = [sys.executable, "-I", "-S", str(tmp_path / "c.pyz"), str(folders("counts"))]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "holds: privacy: rho 0.5" in ran.stdout


def _replace(folder, name, old, new):
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return mend(folder)


def _add_to_line(folder, start, number, name="release.csv"):
    """Add a number to the last cell of the first line with the given start."""
    path = folder / name
    lines = path.read_text().splitlines(keepends=True)
    place = next(place for place, line in enumerate(lines) if line.startswith(start))
    head, _, count = lines[place].rpartition(",")
    lines[place] = f"{head},{int(count) + number}\n"
    path.write_text("".join(lines))
    return mend(folder)


def _along_path(folder):
    """Give a leaf and all regions above it one group more of the same size, so that all sums still hold."""
    for start in ("N/a,N,2", "N,US,2", "US,,2"):
        _add_to_line(folder, start, 1)
        intervals = (folder / "intervals.csv").read_text().splitlines(keepends=True)
        wider = [f"{start},0,999999\n" if line.startswith(f"{start},") else line for line in intervals]
        (folder / "intervals.csv").write_text("".join(wider))
    return mend(folder)


def _rescale(folder, name, array, factor):
    def change(texts):
        return np.array([str(Fraction(text) * factor) if text else "" for text in texts.tolist()])

    return rewrite(folder, "noisy.npz", **{array: change})


def _reword(folder, **changes):
    """Change the problem file and its checksum in result.json."""
    path = folder / "problem" / "problem.toml"
    text = path.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    digest = sha256(path.read_bytes()).hexdigest()
    return edit(folder, lambda result: result["problem"].update(sha256=digest))


def _append(folder, lines):
    """Append lines to the problem file, and change its checksum in result.json."""
    text = (folder / "problem" / "problem.toml").read_text()
    return _reword(folder, **{text: f"{text}\n{lines}\n"})


FAULTS = {
    "a leaf that its parent does not know of": ("smoothed", lambda f: _add_to_line(f, "N/a,N,2", 1), "sums"),
    "a negative count": ("smoothed", lambda f: _replace(f, "release.csv", "US,,1,", "US,,1,-"), "files"),
    "another number than the exact one": ("smoothed", _along_path, "exact"),
    "other counts than the loss says": ("groups", _along_path, "objective"),
    "a tree with another parent": ("groups", lambda f: _replace(f, "release.csv", "b,N,1", "b,S,1"), "files"),
    "a region that is not listed": (
        "bounds",
        lambda f: _replace(f, "problem/regions.csv", "US,S,c", "US,S,d"),
        "regions",
    ),
    "a bound that is not kept": ("bounds", lambda f: _replace(f, "problem/bounds.csv", "N,10,", "N,999,"), "bounds"),
    "noise for a larger budget": ("smoothed", lambda f: _rescale(f, "noisy", "scales", Fraction(1, 2)), "privacy"),
    "a variance for a larger budget": (
        "counts",
        lambda f: _rescale(f, "noisy", "variances", Fraction(9, 10)),
        "privacy",
    ),
    "a variance for a larger delta": (
        "approximate",
        lambda f: _rescale(f, "noisy", "variances", Fraction(9, 10)),
        "privacy",
    ),
    "more noise than stated": ("smoothed", lambda f: _rescale(f, "noisy", "scales", 2), "words"),
    "a smaller epsilon in the problem": ("groups", lambda f: _reword(f, **{"epsilon = 2": "epsilon = 1"}), "privacy"),
    "a larger epsilon in the problem": ("groups", lambda f: _reword(f, **{"epsilon = 2": "epsilon = 3"}), "words"),
    "a household of nobody": (
        "replaced",
        lambda f: _reword(f, **{"max_household = 5": "max_household = 0"}),
        "files",
    ),
    "more sizes than anything lists": (
        "groups",
        lambda f: _reword(f, **{"sizes = 3": "sizes = 999999999999"}),
        "files",
    ),
    "a weaker relation": ("groups", lambda f: _reword(f, **{'"groups"': '"sizes"'}), "files"),
    "a level that is called exact": (
        "groups",
        lambda f: edit(f, lambda r: r["details"].update(exact=["level_1"])),
        "exact",
    ),
    "exact numbers that are not those of the release": (
        "counts",
        lambda f: rewrite(f, "noisy.npz", totals_2=lambda numbers: numbers + np.array([1, -1, 0])),
        "exact",
    ),
    "a level without noise that is no sum": (
        "unmeasured",
        lambda f: rewrite(f, "noisy.npz", level_2=lambda values: values + 1),
        "unmeasured",
    ),
    "an interval beside its count": (
        "groups",
        lambda f: _replace(f, "intervals.csv", "US,,1,", "US,,1,99999"),
        "intervals",
    ),
    "another unit": ("groups", lambda f: edit(f, lambda r: r["guarantee"].update(unit="per individual")), "words"),
    "a truth value for epsilon": ("tables", lambda f: edit(f, lambda r: r["guarantee"].update(epsilon=True)), "words"),
    "a truth value for the budget": (
        "tables",
        lambda f: edit(f, lambda r: r["certificate"].update(allowed=True)),
        "words",
    ),
    "a truth value for a gap of 1": (
        "counts",
        lambda f: edit(f, lambda r: r["objective"].update(lower_bound=0.0, gap=True) or r.update(status="feasible")),
        "objective",
    ),
    "a smaller delta than the noise implies": (
        "approximate",
        lambda f: edit(f, lambda r: r["certificate"].update(worst=r["certificate"]["worst"] / 1.001)),
        "words",
    ),
    "another certificate": ("groups", lambda f: edit(f, lambda r: r["certificate"].update(worst=1.0)), "words"),
    "a sensitivity of another method": (
        "groups",
        lambda f: edit(f, lambda r: r.update(method="hierarchical-dp")),
        "objective",
    ),
    "an unknown key of the hierarchy": ("groups", lambda f: _reword(f, **{"sizes = 3": "sizes = 3\nfoo = 5"}), "files"),
    "an unknown key of the privacy": (
        "groups",
        lambda f: _reword(f, **{"epsilon = 2": "epsilon = 2\nfoo = 5"}),
        "files",
    ),
    "an unknown key of the method": ("groups", lambda f: _append(f, "[hierarchical-dp]\nfoo = 5"), "files"),
    "an unknown key of the plan": ("tables", lambda f: _append(f, "[plan]\nfoo = 5"), "files"),
    "an unknown key of the publication": ("tables", lambda f: _append(f, "[publish]\nfoo = 5"), "files"),
    "an unknown key of a table": ("tables", lambda f: _reword(f, **{"by = []": "by = []\nfoo = 5"}), "files"),
    "a household under another relation": ("smoothed", lambda f: _append(f, "max_household = 5"), "files"),
    "an amount of another notion": ("smoothed", lambda f: _append(f, "rho = 0.5"), "files"),
    "an unknown attribute": ("tables", lambda f: _reword(f, **{'by = ["sex"]': 'by = ["sex", "zzz"]'}), "files"),
    "an attribute twice": ("tables", lambda f: _reword(f, **{'by = ["sex"]': 'by = ["sex", "sex"]'}), "files"),
    "a quantity that is no whole number": (
        "bounds",
        lambda f: _append(f, "[hierarchical-dp]\nmax_quantity = 1.0"),
        "files",
    ),
    "shares without any for the leaves": (
        "smoothed",
        lambda f: _append(f, "[hierarchical-dp]\nbudget = [1, 0, 0]"),
        "privacy",
    ),
    "noise on a level without a share": (
        "smoothed",
        lambda f: _append(f, "[hierarchical-dp]\nbudget = [1, 0, 3]"),
        "privacy",
    ),
    "less noise than the level's share": (
        "unmeasured",
        lambda f: _reword(f, **{"[1, 0, 3]": "[1, 0, 4]"}),
        "privacy",
    ),
    "less noise than the level's share of rho and delta": (
        "approximate",
        lambda f: _append(f, "[hierarchical-dp]\nbudget = [1, 1, 2]"),
        "privacy",
    ),
    "less noise than the table's share": (
        "exact tables",
        lambda f: _reword(f, **{'by = ["sex"]': 'by = ["sex"]\nshare = 0.5'}),
        "privacy",
    ),
    "another relation in words": (
        "smoothed",
        lambda f: edit(f, lambda r: r["guarantee"].update(relation="groups")),
        "words",
    ),
    "a household in words": (
        "smoothed",
        lambda f: edit(f, lambda r: r["guarantee"].update(max_household=9)),
        "words",
    ),
    "a delta in words": ("smoothed", lambda f: edit(f, lambda r: r["guarantee"].update(delta_claim="0")), "words"),
    "a rho in words": (
        "smoothed",
        lambda f: edit(f, lambda r: r["guarantee"].update(rho=0.5, rho_text="0.5")),
        "words",
    ),
    "exact totals in words": (
        "groups",
        lambda f: edit(f, lambda r: r["guarantee"].update(region_totals_exact=True)),
        "words",
    ),
    "exact totals as a number": (
        "groups",
        lambda f: edit(f, lambda r: r["guarantee"].update(region_totals_exact=0)),
        "words",
    ),
    "fewer tables in words": (
        "tables",
        lambda f: edit(f, lambda r: r["guarantee"].update(tables=["sex", "all"])),
        "words",
    ),
    "a guarantee without a statement": (
        "tables",
        lambda f: edit(f, lambda r: r["guarantee"].pop("statement")),
        "words",
    ),
    "a warning without a seed": (
        "tables",
        lambda f: edit(f, lambda r: r["guarantee"].update(warning="none")),
        "words",
    ),
    "tables that disagree": ("tables", lambda f: _replace(f, "tables/all.csv", "US,,", "US,,9"), "sums"),
    "a loss without a unit": ("tables", lambda f: edit(f, lambda r: r["objective"].update(unit="")), "objective"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_refuses_planted_faults(folders, fault):
    name, plant, claim = FAULTS[fault]
    code, lines = _check(plant(folders(name)))
    assert code in (1, 2), lines
    assert lines[-1].split(": ")[1] == claim, lines[-1]


@settings(deadline=None, max_examples=40)
@given(st.fractions("1/100", 20), st.integers(2, 12))
@example(Fraction(1, 10**9), 300)
@example(Fraction(10**6), 1)
def test_delta_is_bounded_as_the_library_bounds_it(epsilon, digits):
    delta = Fraction(1, 10**digits)
    rho = rho_of(epsilon, delta)
    assert delta_above(rho, epsilon) <= delta
    # Both bounds are minima of one function, whose value at its least point both find.
    assert abs(delta_above(rho, epsilon) / delta_of(rho, epsilon) - 1) < Fraction(1, 10**6)


@given(st.integers(1, 10**40), st.integers(1, 10**40), st.integers(-140, 20), st.booleans())
@example(6, 1, -120, False)  # the nearest decimal of 120 digits is 1 + 1e-119, whose logarithm is too large
@example(6, 1, -120, True)
@example(5, 1, -120, True)
def test_bounds_logarithms_from_below_even_near_1(numerator, denominator, exponent, below):
    x = 1 + Fraction(numerator, denominator) * Fraction(10) ** exponent
    x = 1 / x if below else x
    with mpmath.workdps(400):
        exact, bound = mpmath.log(mpmath.mpf(x.numerator) / x.denominator), _log_down(x)
        error = exact - mpmath.mpf(bound.numerator) / bound.denominator
        assert 0 <= error <= abs(exact) * mpmath.mpf("1e-109") + mpmath.mpf("1e-118")


@given(st.integers(1, 60), st.fractions("1/100", 20))
def test_delta_is_bounded_for_any_budget(digits, epsilon):
    """With a tiny budget the best order is huge, and a / (a - 1) next to 1."""
    rho = Fraction(1, 10**digits)
    bound = delta_above(rho, epsilon)
    with mpmath.workdps(300):
        exact_rho, exact_epsilon = mpmath.mpf(1) / 10**digits, mpmath.mpf(epsilon.numerator) / epsilon.denominator
        # No order gives less than the best one, near (epsilon + rho) / (2 rho), by much.
        orders = [(exact_epsilon + exact_rho) / (2 * exact_rho) * mpmath.mpf(2) ** step + 1 for step in range(-8, 9)]
        least = min(
            (a - 1) * (a * exact_rho - exact_epsilon) - a * mpmath.log(a / (a - 1)) - mpmath.log(a - 1) for a in orders
        )
    log_bound = mpmath.log(mpmath.mpf(bound.numerator) / bound.denominator)
    assert log_bound <= max(least, -100_000) + abs(least) * mpmath.mpf("1e-6")


def test_problem_of_a_method_that_need_not_add_up_is_unknown(folders):
    folder = edit(folders("groups"), lambda result: result.update(method="hierarchical-relaxed"))
    code, lines = _check(folder)
    assert (code, "unknown here" in lines[-1]) == (2, True)
    assert json.loads((folder / "result.json").read_text())["method"] == "hierarchical-relaxed"


SECRET = {
    "all": [[20 * 4], [16, 32, 32], [16] * 5],
    "sex": [[[40, 40]], [[8, 8], [16, 16], [16, 16]], [[8, 8]] * 5],
}
"""The true counts of RECORDS by table and level, regions sorted by name."""


@pytest.mark.parametrize("table", SECRET)
@pytest.mark.parametrize("level", [1, 2, 3])
def test_both_programs_refuse_secret_counts_in_a_table_without_noise(folders, table, level):
    folder = folders("tables")
    with np.load(folder / "noisy.npz") as archive:
        assert set(archive[f"{table}.scales"]) == {""}
        assert set(archive["both.scales"]) != {""}
        shape = archive[f"{table}.level_{level}"].shape
    secret = np.array(SECRET[table][level - 1]).reshape(shape)
    rewrite(folder, "noisy.npz", **{f"{table}.level_{level}": secret})
    code, lines = _check(folder)
    assert (code, lines[-1].split(": ")[1]) == (1, "unmeasured"), lines
    complaints = verify(folder).complaints
    assert any(f"{table} on level {level} has no noise" in line for line in complaints), complaints


def test_both_programs_refuse_leaves_without_noise(folders):
    folder = folders("smoothed")
    rewrite(folder, "noisy.npz", scales=lambda texts: np.array([*texts[:-1], ""]))
    assert _check(folder)[0] == 1
    assert is_refused(folder)


@settings(deadline=None, max_examples=60)
@given(st.data())
@pytest.mark.parametrize("name", ["tables", "exact tables"])
def test_both_programs_derive_every_value_without_noise(name, opened, data):
    design, counts = opened(name)
    widths, depth = design.tree.widths, design.tree.depth
    is_measured = data.draw(st.lists(st.lists(st.booleans(), min_size=depth, max_size=depth), min_size=3, max_size=3))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    totals = [random.integers(0, 99, width) for width in widths[: design.exact]]
    noisy = [[random.integers(-99, 99, (width, *form.shape)) for width in widths] for form in design.layout.forms]
    filled = design.fill_unmeasured(noisy, is_measured, totals)
    places = [(table, level) for table in range(3) for level in range(depth)]
    for table, level in places:
        if is_measured[table][level] and not design.shows_exact_numbers(design.layout.forms[table], level):
            assert (filled[table][level] == noisy[table][level]).all()
    # What has no noise does not depend on what was in its place.
    other = [
        [values if has_noise else values + 1 for values, has_noise in zip(*pair, strict=True)]
        for pair in zip(noisy, is_measured, strict=True)
    ]
    again = design.fill_unmeasured(other, is_measured, totals)
    assert all((again[table][level] == filled[table][level]).all() for table, level in places)

    # The checker has regions in the order of their published names.
    names = [[design.tree.name_of(level, region) for region in range(width)] for level, width in enumerate(widths)]
    orders = [sorted(range(len(level)), key=level.__getitem__) for level in names]
    counts.exact_numbers = [numbers[order].tolist() for numbers, order in zip(totals, orders, strict=False)]
    for table, levels, parts in zip(counts.tables, filled, is_measured, strict=True):
        ordered = zip(levels, orders, strict=True)
        table.noisy = [values[order].reshape(len(order), -1).tolist() for values, order in ordered]
        table.scales = [Fraction(part) for part in parts]
    if not any(levels[-1] for levels in is_measured):
        assert all((levels[-1] == 0).all() for levels in filled)
        with pytest.raises(RefusedError, match="the leaves are not measured"):
            counts.unmeasured()
        return
    counts.unmeasured()
    table, level = data.draw(st.sampled_from(places))
    region = data.draw(st.integers(0, widths[level] - 1))
    counts.tables[table].noisy[level][region][0] += 1
    is_exact = design.shows_exact_numbers(design.layout.forms[table], level)
    if not is_measured[table][level] or is_exact:
        with pytest.raises(RefusedError):
            counts.unmeasured()


@pytest.fixture(scope="module")
def opened(folders):
    """Return a function that opens a solved problem of several tables: its design, and the checker's part."""
    cache = {}

    def opened_once(name):
        if name not in cache:
            folder = folders(name)
            result = json.loads((folder / "result.json").read_text())
            problem = Problem(folder, result["problem"], check_sums(folder))
            file = folder / "problem" / result["problem"]["file"]
            declared = load_problem(TablesProblem, file, public=True)
            cache[name] = TablesDesign.of(declared, file.name), Counts(folder, problem, result)
        return cache[name]

    return opened_once


@pytest.mark.parametrize("name", ["Gu\x1cam\x1f", "\x1dGuam", "Gue\u0301", "Gu\u00e9"])
def test_accepts_names_of_regions_that_solve_keeps(tmp_path, name):
    # `str.strip` takes the characters 0x1C to 0x1F for blanks; `solve` does not.
    (tmp_path / "counts.csv").write_text(COUNTS.replace("Guam", name))
    (tmp_path / "regions.csv").write_text(REGIONS.replace("Guam", f" {name}\u00a0"))
    (tmp_path / "bounds.csv").write_text(f"region, at_most\n{name} , 500\n")
    method, text = PROBLEMS["bounds"]
    (tmp_path / "problem.toml").write_text(text)
    folder = solve("hierarchical-dp", tmp_path / "problem.toml", tmp_path / "out", Options(method=method)).folder
    code, lines = _check(folder)
    assert code == 0, lines
    assert verify(folder).complaints == ()
