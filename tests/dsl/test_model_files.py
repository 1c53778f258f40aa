"""MPS and LP files of a model: HiGHS, CBC and privopt read the model that was written."""

from __future__ import annotations

import re
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import highspy
import mip
import numpy as np
import pytest
from helpers.data import data_path
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from privopt.backends import read_mps
from privopt.dsl import (
    Eq,
    Ge,
    Index,
    IndexSet,
    Le,
    Model,
    StandardForm,
    between,
    exp,
    solve_form,
    total,
    write_form,
)
from privopt.dsl.form import round_integer_bounds
from privopt.dsl.model_files import _make_distinct
from privopt.errors import InfeasibleError, UnboundedError, UsageError


def random_form(seed: int) -> StandardForm:
    """Return a form with all kinds of rows, bounds and columns, an empty row and an unused column."""
    rng = np.random.default_rng(seed)
    m, n = 5, 6
    A = rng.integers(-3, 4, (m, n)) / 7
    A[0], A[:, 0] = 0, 0
    middle = rng.integers(-4, 5, m) / 3
    width = rng.choice([0.0, 1.0, np.inf], m)
    row_lower = np.where(rng.random(m) < 0.3, -np.inf, middle - width)
    row_upper = np.where(rng.random(m) < 0.3, np.inf, middle + width)
    row_lower[0], row_upper[0] = -1, rng.choice([0, np.inf])
    integrality = rng.integers(0, 2, n) * (rng.random() < 0.5)
    col_lower, col_upper = rng.choice([-np.inf, -3, 0, 1 / 3], n), rng.choice([1 / 3, 4, np.inf], n)
    if rng.integers(2):  # half of the models have integers with fractional bounds
        col_lower, col_upper = round_integer_bounds(col_lower, np.maximum(col_upper, 1), integrality)
    return StandardForm(
        c=rng.integers(-4, 5, n) / 3,
        c0=float(rng.integers(-1, 2)) / 3,
        sense="max" if rng.integers(2) else "min",
        A=sparse.csr_matrix(A),
        row_lower=row_lower,
        row_upper=row_upper,
        col_lower=col_lower,
        col_upper=col_upper,
        integrality=integrality,
    )


def outcome(form: StandardForm) -> str | float:
    try:
        return round(solve_form(form, "highs", gap=0.0).objective, 6) + 0.0
    except InfeasibleError:
        return "infeasible"
    except UnboundedError:
        return "unbounded"


def outcome_of_file(path: Path) -> str | float:
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    assert solver.readModel(str(path)) != highspy.HighsStatus.kError
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kOptimal:
        return round(solver.getInfo().objective_function_value, 6) + 0.0
    return "infeasible" if status == highspy.HighsModelStatus.kInfeasible else "unbounded"


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_files_have_the_same_optimum(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    form, folder = random_form(seed), tmp_path_factory.mktemp("files")
    expected = outcome(form)
    write_form(form, folder / "model.mps")
    write_form(form, folder / "model.lp")
    read = read_mps(folder / "model.mps")
    assert outcome(read) == pytest.approx(expected, abs=2e-6)
    for name in ("model.mps", "model.lp"):
        told = outcome_of_file(folder / name)
        if isinstance(expected, float) or isinstance(told, float):  # HiGHS alone may not tell unbounded from infeasible
            assert told == pytest.approx(expected, abs=2e-6)
    # Columns and numbers are the same ones, not only the optimum; rows without sides are dropped.
    has_side = np.isfinite(form.row_lower) | np.isfinite(form.row_upper)
    assert abs(read.A - form.A[has_side]).max() == 0
    for side in ("row_lower", "row_upper"):
        assert np.allclose(getattr(read, side), getattr(form, side)[has_side], rtol=1e-15, atol=1e-15)
    assert np.array_equal(read.c, form.c)
    assert np.array_equal(read.integrality, form.integrality)
    lower, upper = round_integer_bounds(form.col_lower, form.col_upper, form.integrality)
    assert np.array_equal(read.col_lower, lower)
    assert np.array_equal(read.col_upper, upper)
    assert (read.c0, read.sense) == (form.c0, form.sense)


@settings(max_examples=6)
@given(st.integers(0, 2**32 - 1))
def test_cbc_reads_the_files(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    form, folder = random_form(seed), tmp_path_factory.mktemp("files")
    expected = outcome(form)
    if isinstance(expected, str):
        return
    for name in ("model.mps", "model.lp"):
        write_form(form, folder / name)
        model = mip.Model(solver_name=mip.CBC)
        model.verbose = 0
        model.read(str(folder / name))
        model.max_mip_gap = 0.0
        model.optimize()
        assert model.objective_value == pytest.approx(expected, abs=1e-5)


def named_model() -> Model:
    m = Model("two words")
    X = IndexSet("X", ["a b", "a_b", "ä", 3])
    i = Index("i", X)
    z, free, e1 = m.variable("z", X, upper=4), m.variable("free", lower=None), m.variable("e1", kind="integer")
    m.maximize(total(z[i], over=i) - free + e1)
    m.require("geo-ind", Ge(free, z[i]), forall=i)
    m.require("st", Le(e1 + free, 7.5))
    m.require("x" * 300, Eq(free, 2))
    return m


@pytest.mark.parametrize(
    ("ending", "columns", "rows"),
    [
        ("mps", ["z(a_b)", "z(a_b)_2", "z(_)", "z(3)", "free", "e1"], ["geo-ind(3)", "st", "x" * 100]),
        (
            "lp",
            ["z(a_b)", "z(a_b)_2", "z(_)", "z(3)", "column_free", "column_e1"],
            ["geo_ind(3)", "row_st", "x" * 100],
        ),
    ],
)
def test_names_are_kept(tmp_path: Path, ending: str, columns: list[str], rows: list[str]) -> None:
    path = tmp_path / f"model.{ending}"
    named_model().write(path)
    solver: Any = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.readModel(str(path))
    lp = solver.getLp()
    assert sorted(lp.col_names_) == sorted(columns)
    assert set(rows) <= set(lp.row_names_)
    assert outcome_of_file(path) == named_model().solve("highs").objective


def test_file_that_was_read_is_solved_by_name(tmp_path: Path) -> None:
    named_model().write(tmp_path / "model.mps")
    form = read_mps(tmp_path / "model.mps")
    solution = solve_form(form, "cbc")
    assert solution.value("column", "z(a_b)_2") == pytest.approx(2)
    assert solution.slack("row", ("st",)) == pytest.approx(0.5)
    assert form.row_name(0) == "row[row='geo-ind(a_b)']"


def test_refuses_other_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ends in \.mps or \.lp, got"):
        named_model().write(tmp_path / "model.json")
    with pytest.raises(UsageError, match="no such file"):
        read_mps(tmp_path / "model.mps")
    (tmp_path / "model.mps").write_text("no model")
    with pytest.raises(UsageError, match="cannot read it"):
        read_mps(tmp_path / "model.mps")


@pytest.mark.parametrize(
    "name",
    [
        "binary",
        "Integers",
        "generals",
        "semis",
        "sos1",
        "bound",
        "minimize",
        "maximum",
        "inflow",
        "Nanny",
        "nan",
        "INF",
    ],
)
def test_keywords_and_numbers_of_lp_files_are_no_names(tmp_path: Path, name: str) -> None:
    m = Model("keywords")
    word = m.variable(name, lower=0, upper=3, kind="integer")
    m.minimize(word)
    m.require("least", Ge(word, 1.5))
    m.write(tmp_path / "model.lp")
    assert outcome_of_file(tmp_path / "model.lp") == 2


@pytest.mark.parametrize(
    "name", ["RHS", "NAME", "objsense", "QSECTION", "CSECTION", "Bounds", "ENDATA", "'MARKER'", "+", "q", "sales"]
)
def test_sections_of_mps_files_are_no_names(tmp_path: Path, name: str) -> None:
    for variable_name, row_name in ((name, "least"), ("x", name)):
        m = Model("sections")
        word = m.variable(variable_name, lower=0)
        m.minimize(word)
        m.require(row_name, between(1.5, word, 4))
        m.write(tmp_path / "model.mps")
        assert outcome_of_file(tmp_path / "model.mps") == 1.5
        is_prefixed = f"_{name}" in (tmp_path / "model.mps").read_text()
        assert is_prefixed is (name not in ("q", "sales"))


@pytest.mark.parametrize(("column", "row"), [("BOUND", "r"), ("x", "BOUND"), ("x", "RANGE"), ("x", "cost")])
def test_names_of_sets_are_those_of_no_row_or_column(tmp_path: Path, column: str, row: str) -> None:
    m = Model("sets")
    first, second = m.variable(column, upper=5), m.variable("y", upper=7.5)
    m.maximize(first + 2 * second)
    m.require(row, between(1, first + second, 8.25))
    m.require("least", Ge(first, 1.5))
    m.write(tmp_path / "model.mps")
    assert outcome_of_file(tmp_path / "model.mps") == m.solve("highs").objective


def test_many_equal_names_are_made_distinct_in_linear_time() -> None:
    names = _make_distinct(["z(__)"] * 20_000, re.compile(r"[^!-~]"))
    assert names[:3] == ["z(__)", "z(__)_2", "z(__)_3"]
    assert len(set(names)) == len(names)


finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e19, max_value=1e19)


@given(finite, finite)
def test_rows_of_mps_files_are_not_looser_than_those_of_the_model(
    tmp_path_factory: pytest.TempPathFactory, first: float, second: float
) -> None:
    lower, upper = sorted((first, second))
    m = Model("range")
    m.require("r", between(lower, m.variable("x", lower=None), upper))
    path = tmp_path_factory.mktemp("files") / "model.mps"
    m.write(path)
    read = read_mps(path)
    assert lower <= read.row_lower[0] <= read.row_upper[0] <= upper
    # A reader may also compute with the doubles exactly.
    text = path.read_text()
    side, width = (
        Fraction(float(match[1])) if (match := re.search(rf" {section} r (\S+)", text)) else Fraction(0)
        for section in ("RHS", "RANGE")
    )
    exact = (side, side + width) if " G r\n" in text else (side - width, side)
    assert Fraction(lower) <= exact[0] <= exact[1] <= Fraction(upper)
    # The bound that is not written as it is differs by little.
    assert exact[1] - exact[0] >= Fraction(upper) - Fraction(lower) - 2 * Fraction(float(np.spacing(upper - lower)))


@pytest.mark.parametrize("ending", ["mps", "lp"])
def test_rows_with_crossed_bounds_have_no_point_in_a_file(tmp_path: Path, ending: str) -> None:
    m = Model("crossed")
    x = m.variable("x", lower=None)
    m.minimize(x)
    m.add_block("b", np.array([[1.0], [1.0]]), columns=x, lower=[3, 0], upper=[1, 9])
    m.write(tmp_path / f"model.{ending}")
    assert outcome_of_file(tmp_path / f"model.{ending}") == "infeasible"
    with pytest.raises(InfeasibleError):
        m.solve("highs")


def test_both_rows_of_a_range_have_names_of_their_own(tmp_path: Path) -> None:
    m = Model("ranges")
    x = m.variable("x", lower=0)
    m.minimize(x)
    m.require("r", between(1, x, 2))
    m.require("r.lower", Ge(x, 1.25))
    m.write(tmp_path / "model.lp")
    assert outcome_of_file(tmp_path / "model.lp") == 1.25


def test_lp_files_need_a_variable(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="variable"):
        Model("empty").write(tmp_path / "model.lp")


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_factors_of_privacy_rows_are_rounded_down(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = np.random.default_rng(seed)
    exponents = rng.uniform(-740, 700, 6) * rng.choice([1e-3, 1e-2, 1.0], 6)
    m, X, R = Model("privacy"), IndexSet("X", 2), IndexSet("R", 6)
    r = Index("r", R)
    z, eps = m.variable("z", X, upper=1), m.param("eps", exponents, R)
    m.require("dp", Le(z[0], exp(eps[r]) * z[1]), forall=r)
    path = tmp_path_factory.mktemp("files") / "model.mps"
    m.write(path)
    written = dict(re.findall(r"z\(1\) dp\((\d)\) -(\S+)", path.read_text()))
    log_ratio = m.compile().family("dp").log_ratio
    assert log_ratio is not None
    with localcontext() as context:
        context.prec = 60
        for number, exponent in enumerate(log_ratio.tolist()):
            exact, factor = Decimal(exponent).exp(), Decimal(float(written.get(str(number), 0.0)))
            assert factor < exact
            assert factor > exact * (1 - Decimal("1e-12") - Decimal("1e-14") * int(abs(exponent))) - Decimal(2) ** -1070


@pytest.fixture(scope="module")
def instances() -> Path:
    return data_path("netlib_miplib")


@pytest.mark.parametrize(
    "name", ["afiro", "adlittle", "egout", "flugpl", "lseu", "gt2", "small_mip", "infeasible-mip0"]
)
def test_published_files_are_written_again(tmp_path: Path, instances: Path, name: str) -> None:
    check_written_again(instances / f"{name}.mps", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("25fv47", "avgas", "bell5", "bgetam", "box1", "ex72a", "forest6", "galenet", "gas11", "infeasible-mip1"),
        *("israel", "klein1", "qap04", "rgn", "sctest", "sp150x300d", "woodinfe"),
    ],
)
def test_other_published_files_are_written_again(tmp_path: Path, instances: Path, name: str) -> None:
    check_written_again(instances / f"{name}.mps", tmp_path)


def check_written_again(path: Path, folder: Path) -> None:
    """Check that a file has the same outcome as the files that are written of it, and HiGHS's own outcome."""
    form = read_mps(path)
    expected = outcome_of_file(path)
    if isinstance(expected, float):
        assert solve_form(form, "highs").objective == pytest.approx(expected, rel=1e-6, abs=1e-6)
    else:
        with pytest.raises((InfeasibleError, UnboundedError)):
            solve_form(form, "highs")
    for name in ("model.mps", "model.lp"):
        write_form(form, folder / name)
        answer = outcome_of_file(folder / name)
        if isinstance(expected, float):
            assert answer == pytest.approx(expected, rel=1e-6, abs=1e-6)
        else:
            assert isinstance(answer, str)
    again = read_mps(folder / "model.mps")
    assert abs(again.A - form.A).max() == 0
    assert np.array_equal(again.c, form.c)
    assert np.array_equal(again.integrality, form.integrality)
