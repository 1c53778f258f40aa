"""Several tables under one budget: least squares over margins, whole numbers that agree, promises, the kit."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product

import numpy as np
import polars as pl
import pytest
from attrs import evolve
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.command.cli import cli
from privopt.run.folder import sums_text
from privopt.run.solve import Options, solve
from privopt.run.verify import verify
from privopt.testing import conformance, run_check, subject
from privopt.testing.efforts import effort
from privopt_hierarchical_dp.laws import GAUSSIAN
from privopt_hierarchical_dp.least_squares import Noise
from privopt_hierarchical_dp.several import privacy
from privopt_hierarchical_dp.several.fit import fit_tables, least_objective, noise_of_margin, squares
from privopt_hierarchical_dp.several.kit import related
from privopt_hierarchical_dp.several.margins import Domain, steps_of
from privopt_hierarchical_dp.several.problem import TablesProblem
from privopt_hierarchical_dp.several.relations import TABLE_RELATIONS
from privopt_hierarchical_dp.tree import Tree, add_up

RING = ((0, 1), (1, 2), (0, 2))
FAMILIES = [((),), ((0,), (0, 1)), ((0, 1), (1, 2)), RING, ((0, 1), (2,)), ((0, 1), (1, 2), (1,), (2, 3))]
SIZES = (2, 3, 2, 4)


def domain_of(tables, weights=None):
    return Domain(sizes=SIZES, tables=tables, weights=tuple(weights or (1.0 / (1 + n) for n in range(len(tables)))))


def joint_sums(domain):
    """For each table a matrix from all cells of all attributes to its own."""
    cells = list(product(*map(range, SIZES)))
    return [
        np.array(
            [
                [all(own[a] == k for a, k in zip(t, at, strict=True)) for own in cells]
                for at in np.ndindex(domain.shape(t))
            ]
        )
        for t in domain.tables
    ]


@pytest.mark.parametrize("tables", FAMILIES)
def test_effects_are_weighted_least_squares_and_their_errors_are_known(tables):
    domain, rng = domain_of(tables), np.random.default_rng(len(tables))
    noisy = [rng.integers(-30, 30, size=(2, *domain.shape(table))) for table in tables]
    sums = joint_sums(domain)
    weights = np.sqrt(np.concatenate([np.full(len(m), w) for m, w in zip(sums, domain.weights, strict=True)]))
    design = np.concatenate(sums).astype(float)
    solve_all = np.linalg.pinv(weights[:, None] * design) * weights
    noise = [Noise(variance=float(2 + n), fourth=float(5 * n)) for n in range(len(tables))]
    flat = np.concatenate([np.full(m.shape[0], n) for n, m in enumerate(sums)])
    effects = domain.effects(noisy)
    for table, matrix in zip(tables, sums, strict=True):
        fitted = matrix @ solve_all
        for region in range(2):
            want = fitted @ np.concatenate([values[region].ravel() for values in noisy])
            assert np.allclose(effects.margin(table)[region].ravel(), want)
        found = noise_of_margin(domain, table, noise)
        assert np.allclose(found.variance, (fitted**2 @ np.array([noise[n].variance for n in flat])))
        assert np.allclose(found.fourth, (fitted**4 @ np.array([noise[n].fourth for n in flat])))


def test_tables_meet_in_what_is_given_and_a_ring_is_one_margin():
    for tables in FAMILIES:
        seen: list[tuple[int, ...]] = [()]
        for step in steps_of(tables):
            assert any(set(step.given) <= set(margin) for margin in seen)
            before = {a for margin in seen for a in margin}
            assert set(step.margin) & before <= set(step.given) or any(
                set(step.margin) & before <= set(m) for m in seen
            )
            seen.append(step.margin)
        assert all(any(set(table) <= set(margin) for margin in seen) for table in tables)
    assert (0, 1, 2) in [step.margin for step in steps_of(RING)]
    assert (0, 1, 2) not in [step.margin for step in steps_of(((0, 1), (1, 2)))]


@settings(max_examples=25, deadline=None)
@given(
    tables=st.sampled_from(FAMILIES),
    exact=st.sampled_from([0, 1, None]),
    chance=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 10**6),
)
def test_any_noise_is_fitted_by_whole_numbers_that_agree(tables, exact, chance, seed, random_tree):
    """Also noise that is no noise of anything: what must hold is checked in every region, by the joint's own sums."""
    rng, domain = np.random.default_rng(seed), domain_of(tables)
    tree = random_tree(rng, int(rng.integers(1, 4)))
    noisy = [[rng.integers(-50, 60, size=(width, *domain.shape(t))) for t in tables] for width in tree.widths]
    leaves = rng.integers(0, 40, size=tree.widths[-1])
    totals = add_up(tree, leaves)[:exact]
    scales = [Fraction(3)] * tree.depth
    zeros = [rng.random(domain.shape(table)) < chance for table in tables]
    allowed = domain.allowed(zeros)
    joint = np.ones(SIZES, dtype=bool)
    for table, zero in zip(tables, zeros, strict=True):
        joint &= ~zero.reshape([SIZES[a] if a in table else 1 for a in range(len(SIZES))])
    for table in tables:  # what is left of a table is what some cell of all attributes gives
        assert (allowed[table] == joint.any(axis=tuple(a for a in range(len(SIZES)) if a not in table))).all()
    if not joint.any():
        return
    fixed = {"totals": totals, "zeros": zeros, "law": GAUSSIAN, "scales": scales}
    counts = fit_tables(tree, domain, noisy, **fixed, gap=1e-2)
    for level, own in enumerate(counts):
        for number, (table, values) in enumerate(zip(tables, own, strict=True)):
            assert values.min() >= 0
            assert not values[:, ~allowed[table]].any()
            if level < len(totals):
                assert (values.reshape(len(values), -1).sum(axis=1) == totals[level]).all()
            if level:
                assert (np.add.reduceat(values, tree.start[level - 1][:-1], axis=0) == counts[level - 1][number]).all()
            for other, beside in zip(tables, own, strict=True):
                shared = [a for a in table if a in other]
                one, two = (
                    v.sum(axis=tuple(1 + k for k, a in enumerate(t) if a not in shared))
                    for t, v in ((table, values), (other, beside))
                )
                assert (one == two).all()
    off = [[a - b for a, b in zip(x, y, strict=True)] for x, y in zip(noisy, counts, strict=True)]
    assert least_objective(tree, domain, off) <= float(squares(domain, off)) * (1 + 1e-9) + 1e-6


def test_the_bound_is_the_least_over_all_consistent_reals():
    tree = Tree.from_paths([("r", "a"), ("r", "b"), ("r", "c")])
    domain, rng = domain_of(RING), np.random.default_rng(3)
    noisy = [[rng.integers(-9, 20, size=(width, *domain.shape(t))) for t in RING] for width in tree.widths]
    sums = joint_sums(domain)
    blocks, aims, weights = [], [], []
    for level, width in enumerate(tree.widths):
        for region in range(width):
            for matrix, values, weight in zip(sums, noisy[level], domain.weights, strict=True):
                row = np.zeros((len(matrix), 3, matrix.shape[1]))
                row[:, slice(None) if level == 0 else region] = matrix[:, None] if level == 0 else matrix
                blocks.append(row.reshape(len(matrix), -1))
                aims.append(values[region].ravel())
                weights.append(np.full(len(matrix), np.sqrt(weight)))
    design, aim, weight = np.concatenate(blocks), np.concatenate(aims), np.concatenate(weights)
    best = np.linalg.lstsq(weight[:, None] * design, weight * aim, rcond=None)[0]
    assert least_objective(tree, domain, noisy) == pytest.approx(float(np.sum((weight * (design @ best - aim)) ** 2)))


# --- promises ----------------------------------------------------------------------------------------------

test_individuals = conformance("hierarchical-tables", how="dev")
OF_NOISE = [
    "solves",
    "certificate-holds",
    "fresh-noise",
    "sensitivity",
    "own-scale",
    "epsilon-attack",
    "round-trip",
    "verify-catches",
]
test_moves_zcdp = conformance("hierarchical-tables", profile=related("moves", kind="zcdp"), checks=OF_NOISE, how="dev")
test_attributes_approx_dp = conformance(
    "hierarchical-tables", profile=related("attributes", kind="approx-dp"), checks=OF_NOISE, how="dev"
)


def _twice(budgets):
    return lambda problem, depth: [tuple(2 * part for part in level) for level in budgets(problem, depth)]


@pytest.mark.parametrize("kind", ["pure-dp", "zcdp", "approx-dp"])
def test_shares_above_the_whole_and_a_forgotten_sensitivity_are_caught(monkeypatch, kind):
    planted = subject("hierarchical-tables", "margins", profile=related("moves", kind=kind))
    with monkeypatch.context() as patch:
        patch.setattr(TablesProblem, "budgets", _twice(TablesProblem.budgets))
        assert run_check("sensitivity", planted, how=effort("dev")).status == "failed"
        assert run_check("certificate-holds", planted, how=effort("dev")).status == "failed"
    with monkeypatch.context() as patch:  # two cells change
        patch.setitem(TABLE_RELATIONS, "moves", evolve(TABLE_RELATIONS["moves"], sensitivity=1))
        assert run_check("sensitivity", planted, how=effort("dev")).status == "failed"


def test_a_table_that_the_budget_forgets_is_caught(monkeypatch):
    """The first table is measured as if the whole level were its own."""
    draw = privacy.draw_tables

    def forgetful(problem, counts, *, seed, zeros):
        noisy, records = draw(problem, counts, seed=seed, zeros=zeros)
        budgets = problem.budgets(len(counts))
        for level, (tables, parts) in enumerate(zip(counts, budgets, strict=True)):
            drawn = privacy.law_of(problem.privacy).draw(tables[0], sum(parts), problem.relation.sensitivity, seed=None)
            noisy[level][0], records[level][0] = drawn
        return noisy, records

    from privopt_hierarchical_dp.several import kit, mechanism

    for module in (kit, mechanism):
        monkeypatch.setattr(module, "draw_tables", forgetful)
    found = run_check("certificate-holds", subject("hierarchical-tables", "margins"), how=effort("dev"))
    assert found.status == "failed"


# --- problem files and releases ----------------------------------------------------------------------------

PROBLEM = """[hierarchy]
regions = "regions.csv"
{source}
[hierarchy.attributes]
age = ["child", "adult", "old"]
tenure = ["owned", "rented"]
home = ["house", "flat"]
[hierarchy.tables.age]
by = ["age"]
{age}
[hierarchy.tables.age_tenure]
by = ["tenure", "age"]
share = 2
{age_tenure}
[hierarchy.tables.tenure_home]
by = ["tenure", "home"]
{tenure_home}
[hierarchy.tables.people]
by = []
{people}
[privacy]
{privacy}
"""
TABLES = {"age": ["age"], "age_tenure": ["age", "tenure"], "tenure_home": ["tenure", "home"], "people": []}
LEVELS = ["level_1", "level_2"]


@pytest.fixture
def town(tmp_path):
    rng = np.random.default_rng(5)
    cells = list(product(["a", "b", "c"], ["child", "adult", "old"], ["owned", "rented"], ["house", "flat"]))
    frame = pl.DataFrame([("Town", *cell, int(rng.integers(0, 90))) for cell in cells], orient="row",
                         schema=[*LEVELS, "age", "tenure", "home", "count"])  # fmt: skip
    frame.write_csv(tmp_path / "records.csv")
    frame.select(LEVELS).unique().write_csv(tmp_path / "regions.csv")
    for name, by in TABLES.items():
        frame.group_by(*LEVELS, *by).agg(pl.col("count").sum()).write_csv(tmp_path / f"{name}.csv")
    return tmp_path


def privopt(*words):
    return CliRunner().invoke(cli, [str(word) for word in words])


def write(folder, *, source='records = "records.csv"', privacy="epsilon = 1.0", **counts):
    text = PROBLEM.format(source=source, privacy=privacy, **{name: counts.get(name, "") for name in TABLES})
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


def test_records_and_tables_of_their_own_are_the_same_and_verify_recomputes(town):
    own = {name: f'counts = "{name}.csv"' for name in TABLES}
    one = solve("hierarchical-tables", write(town), town / "one", Options(seed=1))
    two = solve("hierarchical-tables", write(town, source="", **own), town / "two", Options(seed=1))
    for name in TABLES:
        texts = {(done.folder / "tables" / f"{name}.csv").read_bytes() for done in (one, two)}
        assert len(texts) == 1
    frame = pl.read_csv(one.folder / "tables" / "age_tenure.csv")
    assert frame.columns == ["region", "parent", "age", "tenure", "count", "low", "high"]
    assert frame["age"].unique(maintain_order=True).to_list() == ["child", "adult", "old"]
    shared = frame.group_by("region", "age").agg(pl.col("count").sum()).sort("region", "age")
    alone = pl.read_csv(one.folder / "tables" / "age.csv").select("region", "age", "count").sort("region", "age")
    assert shared.equals(alone)
    assert (one.folder / "private" / "tables" / "age.csv").is_file()
    assert not any(path.name == "records.csv" for path in (one.folder / "problem").iterdir())


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("tables/age.csv", lambda f: f.with_columns(count=pl.col("count") + 1), "not the sums of its children"),
        ("tables/tenure_home.csv", lambda f: f.with_columns(high=pl.col("high") - 1), "high is not what"),
        ("tables/age.csv", lambda f: f.reverse(), "other rows"),
        ("tables/age.csv", lambda f: f.drop("low"), "region,parent,age,count,high"),
    ],
)
def test_verify_says_what_was_changed(town, name, change, words):
    folder = solve(
        "hierarchical-tables", write(town, privacy='rho = 0.5\nkind = "zcdp"'), town / "out", Options()
    ).folder
    assert verify(folder).holds
    change(pl.read_csv(folder / name)).write_csv(folder / name)
    (folder / "SHA256SUMS").write_text(sums_text(folder))
    done = privopt("verify", folder)
    assert done.exit_code in (1, 2)
    assert words in done.output


def test_nobody_is_a_table_too_and_the_owner_is_told_the_truth(town):
    """One individual and none are alike: no refusal may tell them apart."""
    for name in ("records", *TABLES):
        pl.read_csv(town / f"{name}.csv").clear().write_csv(town / f"{name}.csv")
    own = {name: f'counts = "{name}.csv"' for name in TABLES}
    for source, counts in (('records = "records.csv"', {}), ("", own)):
        done = solve("hierarchical-tables", write(town, source=source, **counts), town / "out", Options(force=True))
        assert verify(done.folder).holds
    epsilon = json.loads(privopt("audit", town / "out", "--json").stdout)["epsilon"]
    assert 1.0 - 1e-12 <= epsilon["achieved"] <= epsilon["claimed"] == 1.0
    told = privopt("report", town / "out", "--truth")
    assert told.exit_code == 0, told.output
    page = (town / "out" / "private" / "report.html").read_text()
    assert "share of intervals that hold" in page
    assert "there are 0 in the input" in page
    (town / "regions.csv").write_text("level_1,level_2\n")
    done = privopt("solve", "hierarchical-tables", town / "problem.toml", "--out", town / "none")
    assert (done.exit_code, "a header alone" in done.output) == (2, True)


def test_tables_of_their_own_are_charged_to_whom_their_owner_names(town):
    own = {name: f'counts = "{name}.csv"' for name in TABLES}
    problem, ledger = write(town, source="", **own), town / "all.ledger"
    words = ("solve", "hierarchical-tables", problem, "--out", town / "out", "--ledger", ledger)
    assert privopt("budget", ledger, "--set", "3").exit_code == 0
    done = privopt(*words)
    assert (done.exit_code, "wanted --subject ID" in " ".join(done.output.split())) == (2, True)
    assert not (town / "out").exists()
    assert privopt(*words, "--subject", "census").exit_code == 0
    assert "census" in privopt("budget", ledger, "--json").stdout
    write(town)  # one file of records has one name
    assert privopt(*words, "--force").exit_code == 0


@pytest.mark.parametrize("forged", [2**62, "1e30000000", "0", "1" + "0" * 400])
def test_sums_that_wrap_and_scales_without_end_are_refused(town, forged):
    """Four children of 2^62 each, one more by what the parent has: in 64 bits they add up, or so it seems."""
    (town / "regions.csv").write_text("level_1,level_2\n" + "".join(f"Town,{name}\n" for name in "abcd"))
    out = solve("hierarchical-tables", write(town), town / "out", Options()).folder
    if isinstance(forged, int):
        for path in sorted((out / "tables").iterdir()):
            frame = pl.read_csv(path)
            top, counts = frame.filter(pl.col("region") == "Town")["count"], frame["count"].to_numpy().copy()
            for name in "abcd":
                counts[frame["region"].to_numpy() == name] = forged
            counts[frame["region"].to_numpy() == "d"] += top.to_numpy()
            frame.with_columns(count=pl.Series(counts)).write_csv(path)
        words = "add up to 2^61 or more"
    else:
        with np.load(out / "noisy.npz") as archive:
            arrays = dict(archive)
        arrays["scales.1"] = np.array([forged, *arrays["scales.1"][1:]])
        np.savez_compressed(out / "noisy.npz", **arrays)
        words = "4 rationals above 0"
    (out / "SHA256SUMS").write_text(sums_text(out))
    done = privopt("verify", out)
    assert done.exit_code == (1 if isinstance(forged, int) else 2), done.output
    assert words in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source": ""}, "no counts, and no records"),
        ({"age": 'counts = "age.csv"'}, "both records and counts"),
        ({"age": "share = 0"}, "hierarchy.tables.age.share"),
        ({"age": "shares = 1"}, "hierarchy.tables.age.shares"),
        ({"privacy": 'epsilon = 1.0\nrelation = "sizes"'}, "individuals, moves, attributes"),
        ({"privacy": "rho = 1.0"}, "privacy.rho"),
        ({"source": 'records = "records.csv"\nbudget = [1]'}, "2, one for each level"),
        ({"source": 'records = "records.csv"\nbudget = [1e-9, 1]'}, "hierarchy.budget, level 1"),
        ({"age": "share = 1e-160"}, "hierarchy.tables.age.share"),
    ],
)
def test_faults_name_the_key(town, changes, words):
    done = privopt("solve", "hierarchical-tables", write(town, **changes), "--out", town / "out")
    assert done.exit_code == 2
    assert words in done.output
    assert not (town / "out").exists()


@pytest.mark.parametrize("name", ['ho\\"me', "ho\\nme"])
def test_names_that_cannot_head_a_column_are_refused(town, name):
    problem = write(town)
    problem.write_text(problem.read_text().replace("home = [", f'"{name}" = ['))
    done = privopt("solve", "hierarchical-tables", problem, "--out", town / "out")
    assert (done.exit_code, "names without quotes" in done.output) == (2, True)


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("age.csv", lambda f: f.with_columns(count=pl.col("count") + (pl.col("level_2") == "b")), "region 'b'"),
        ("age.csv", lambda f: f.with_columns(age=pl.lit("ancient")), "a value of hierarchy.attributes.age"),
        ("age.csv", lambda f: f.with_columns(level_2=pl.lit("nowhere")), "a leaf region of hierarchy.regions"),
        ("age.csv", lambda f: f.with_columns(count=pl.lit("-1")), "a whole number of individuals"),
        ("age.csv", lambda f: f.drop("count"), "no column 'count'"),
        ("regions.csv", lambda f: pl.concat([f, f]), "one row a leaf region"),
    ],
)  # fmt: skip
def test_faults_name_file_and_row_and_no_secret(town, file, change, words):
    change(pl.read_csv(town / file)).write_csv(town / file)
    own = {name: f'counts = "{name}.csv"' for name in TABLES}
    done = privopt("solve", "hierarchical-tables", write(town, source="", **own), "--out", town / "out")
    assert done.exit_code == 2
    assert words in done.output
    assert "ancient" not in done.output


def test_impossible_cells_are_not_measured_and_stay_empty_in_every_table(town):
    """Children own nothing and live in no flat; some in the input do, of whom nothing tells."""
    (town / "owners.csv").write_text("age,tenure\nchild,owned\n")
    (town / "homes.csv").write_text("home,tenure\nflat,\n")
    problem = write(town, age_tenure='impossible = "owners.csv"', tenure_home='impossible = "homes.csv"')
    folder = solve("hierarchical-tables", problem, town / "out", Options()).folder
    assert verify(folder).holds
    frame = pl.read_csv(folder / "tables" / "age_tenure.csv")
    children = frame.filter((pl.col("age") == "child") & (pl.col("tenure") == "owned"))
    assert children.height == 4
    assert children.select("count", "low", "high").sum().row(0) == (0, 0, 0)
    flats = pl.read_csv(folder / "tables" / "tenure_home.csv").filter(pl.col("home") == "flat")
    assert flats["count"].sum() == 0
    result = json.loads((folder / "result.json").read_text())
    assert "impossible" in result["guarantee"]["statement"]
    assert result["certificate"]["checked"] == 4 * (3 + 5 + 2 + 1)
    (town / "homes.csv").write_text("home,tenure\n,\n")
    done = privopt("solve", "hierarchical-tables", problem, "--out", town / "none")
    assert done.exit_code == 2, done.output
    assert "impossible cells that leave none" in done.output


def test_a_relation_that_hides_nothing_is_refused_and_exact_numbers_are_warned_of(town):
    """Regions' numbers are exact, and tables of one cell have nothing else to show."""
    text = write(town, privacy='epsilon = 1.0\nrelation = "attributes"').read_text()
    one = text[: text.index("[hierarchy.tables.age]")] + text[text.index("[hierarchy.tables.people]") :]
    (town / "problem.toml").write_text(one)
    for command in (["solve", "--out", town / "out"], ["plan"]):
        done = privopt(command[0], "hierarchical-tables", town / "problem.toml", *command[1:])
        assert done.exit_code == 2
        assert 'problem.toml: privacy.relation: found "attributes" where no table has two cells' in done.stderr
    (town / "problem.toml").write_text(one.replace('"attributes"', '"moves"'))
    assert not solve("hierarchical-tables", town / "problem.toml", town / "moves", Options()).warnings
    (town / "problem.toml").write_text(text)
    done = solve("hierarchical-tables", town / "problem.toml", town / "out", Options())
    assert "published exactly" in done.warnings[0]


def test_a_plan_needs_no_secret_and_tells_each_table_and_level(town):
    problem = write(town)
    for name in ("records", *TABLES):
        (town / f"{name}.csv").unlink()
    done = privopt("plan", "hierarchical-tables", problem, "--json")
    told = json.loads(done.stdout)
    assert told["parts"][3:5] == ["people, level 1", "age, level 2"]
    assert sum(map(Fraction, told["shares"])) == 1
    by = {row["epsilon"]: row["by_part"] for row in told["errors"]}
    assert all(a > b for a, b in zip(by["0.5"], by["1.0"] if "1.0" in by else by["1"], strict=True))


@pytest.mark.parametrize(
    ("relation", "kind", "budget"), [("individuals", "pure-dp", "epsilon = 0.5"), ("attributes", "zcdp", "rho = 0.05")]
)
def test_intervals_hold_as_often_as_they_say_and_the_plan_is_the_error_of_least_squares(town, relation, kind, budget):
    """40 seeded releases of 4 regions and 13 cells; by chance the share lies within .02 of what is expected."""
    problem = write(town, privacy=f'kind = "{kind}"\n{budget}\nrelation = "{relation}"')
    shares = []
    for seed in range(40):
        done = solve("hierarchical-tables", problem, town / "out", Options(seed=seed, force=True))
        told = json.loads((done.folder / "private" / "truth.json").read_text())
        own = told["share_of_intervals_that_hold_by_table_and_level"]
        shares.append(np.mean([np.mean(own[name]) for name in TABLES]))
    assert 0.93 <= np.mean(shares) <= 0.99
