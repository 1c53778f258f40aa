"""Write a compiled model as an MPS or LP file, with the names from the model's formulas."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from attrs import evolve, frozen
from scipy import sparse

from privopt.dsl.condition import EXPONENT_ROUNDING
from privopt.dsl.duality import MAX_LOG_RATIO
from privopt.dsl.form import StandardForm, round_integer_bounds
from privopt.dsl.semicontinuous import expand_semicontinuous
from privopt.errors import UsageError

MAX_NAME = 100
"""The maximum number of characters in a name. Longer names are shortened, because readers of LP files reject them."""
_NOT_IN_MPS = re.compile(r"[^!-~]")
_NOT_IN_LP = re.compile(r"[^A-Za-z0-9_.(),]")
"""Patterns for the characters that must not occur in names in MPS and LP files."""
_LP_WORD = re.compile(
    "st|s[.]t[.]|subject|such|min|minimi[sz]e|minimum|max|maximi[sz]e|maximum|free|inf|infinity|bounds?|bin|binary|binaries"
    "|gen|generals?|integers?|int|semis?|semi-continuous|sos[12]?|end|obj",
    re.IGNORECASE,
)
_MPS_WORD = re.compile(
    "name|objsense|objname|rows|usercuts|lazycons|columns|rhs|bounds|ranges|qsection|qmatrix|quadobj|qcmatrix|csection"
    "|delayedrows|modelcuts|indicators|sets|sos[12]?|gencons|pwlobj|pwlnam|pwlcon|endata|'marker'|[+-]",
    re.IGNORECASE,
)
"""Patterns for the words that readers of LP and MPS files treat as keywords, or as numbers without digits."""
TERMS_IN_LINE = 6
"""The maximum number of terms on a line of an LP file."""


@frozen
class FileNames:
    """The names of a model's rows and columns in a file. They are distinct and valid in the file's format."""

    rows: list[str]
    columns: list[str]


def write_form(form: StandardForm, path: str | os.PathLike[str], name: str = "model") -> None:
    """Write a compiled model to an MPS or LP file, which other solvers can read.

    Rows and columns keep their names, such as ``geo-ind(a,b,a)`` and ``z(a,b)``. Characters that the format forbids
    become ``_``. If this makes several names equal, a number is appended to all but the first. Names that readers would
    mistake for a keyword or a number get the prefix ``row_`` or ``column_``.

    The factors in privacy rows are rounded down, so that no privacy row is looser in the file than in the model, and
    bounds of integer columns are rounded inwards to integers. The resulting numbers are written at full precision. If a
    row has two different bounds, an MPS file contains the bound nearer to 0 and the difference between them, rounded
    down to a double, so that the row is not looser in the file than in the model. Semicontinuous columns are written as
    continuous ones with binaries, because solvers disagree on how to represent them in files.

    Args:
        form: The compiled model.
        path: The path of the file to write, which must end in ``.mps`` or ``.lp``.
        name: The model's name in the file.

    Raises:
        UsageError: The path has a different extension, or it ends in ``.lp`` and the model has no variables.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".mps", ".lp"):
        raise UsageError(f"a model is written as a file that ends in .mps or .lp, got {os.fspath(path)!r}")
    if suffix == ".lp" and not form.shape[1]:
        raise UsageError("a model in an .lp file must have a variable, got none: write it as .mps")
    # Readers do not agree on semicontinuous columns: CBC takes their lower bounds for bounds of the column.
    form = expand_semicontinuous(form)
    # Readers accept fractional bounds of integer columns, but some of them then return wrong answers.
    lower, upper = round_integer_bounds(form.col_lower, form.col_upper, form.integrality)
    form = evolve(form, A=_stricter_matrix(form), col_lower=lower, col_upper=upper)
    lines = _mps_lines(_split_crossed_rows(form), name) if suffix == ".mps" else _lp_lines(form, name)
    with Path(path).open("w", encoding="ascii", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def _stricter_matrix(form: StandardForm) -> sparse.csr_matrix:
    """Return a form's matrix with the factors in privacy rows ``z_i <= exp(L) z_j`` rounded down.

    As a result, no privacy row is looser in the written file than in the model. The double nearest to a factor
    ``exp(L)`` may be larger than the factor itself. Therefore L is lowered by more than the combined rounding errors of
    ``exp`` and of the product from which L was computed. Rows passed to solvers are rounded in the same way.
    """
    matrix = form.A
    data = matrix.data.copy()
    for block in form.families:
        # Only families of privacy rows store exponents and the columns of z_j.
        if block.log_ratio is None or block.right is None:
            continue
        entries = slice(matrix.indptr[block.start], matrix.indptr[block.stop])
        rows = np.repeat(np.arange(len(block)), np.diff(matrix.indptr[block.start : block.stop + 1]))
        exponents = np.minimum(block.log_ratio, MAX_LOG_RATIO)
        lowered = np.exp(exponents - EXPONENT_ROUNDING * (4.0 + np.abs(exponents)))
        # Use the next smaller double too, because the margin does not cover the smallest doubles, which have fewer
        # digits.
        factors = np.nextafter(lowered, 0.0)
        # The entry of z_j, which carries the factor. A row with the same column on both sides has no such entry.
        is_factor = (matrix.indices[entries] == block.right[rows]) & (data[entries] < 0)
        data[entries] = np.where(is_factor, -factors[rows], data[entries])
    return sparse.csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _split_crossed_rows(form: StandardForm) -> StandardForm:
    """Return a form in which each row with a lower bound above its upper bound is split into two rows.

    Such a row makes the model infeasible, but an MPS file cannot contain it: readers ignore the sign of a range, so the
    row would have points between two other bounds. The rows with the upper bounds are appended to the form.
    """
    is_crossed = form.row_lower > form.row_upper
    if not is_crossed.any():
        return form
    count = int(is_crossed.sum())
    return evolve(
        form,
        A=sparse.vstack([form.A, form.A[is_crossed]], format="csr"),
        row_lower=np.concatenate([form.row_lower, np.full(count, -np.inf)]),
        row_upper=np.concatenate([np.where(is_crossed, np.inf, form.row_upper), form.row_upper[is_crossed]]),
    )


def _file_names(form: StandardForm, *, is_lp: bool) -> FileNames:
    """Return valid names for a form's rows and columns in an LP file (if ``is_lp`` is True) or an MPS file."""
    forbidden = _NOT_IN_LP if is_lp else _NOT_IN_MPS
    columns, rows = [f"column{n}" for n in range(form.shape[1])], [f"row{n}" for n in range(form.shape[0])]
    for variable in form.variables:
        places = [part.ravel() for part in np.indices(variable.shape)]
        labels = zip(*([s.labels[p] for p in part] for s, part in zip(variable.sets, places, strict=True)), strict=True)
        names = [_bracket_name(variable.name, label) for label in labels] if variable.sets else [variable.name]
        columns[variable.start : variable.stop] = names
    for family in form.families:
        names = [_bracket_name(family.name, family.label(number)) for number in range(len(family))]
        rows[family.start : family.stop] = names
    rows, columns = _avoid_words(rows, "row", is_lp=is_lp), _avoid_words(columns, "column", is_lp=is_lp)
    return FileNames(_make_distinct(rows, forbidden), _make_distinct(columns, forbidden))


def _bracket_name(name: str, labels: Iterable[object]) -> str:
    """Return a name with its labels in parentheses, such as ``z(a,b)``, or the name alone if there are no labels."""
    text = ",".join(str(label) for label in labels)
    return f"{name}({text})" if text else name


def _avoid_words(names: list[str], kind: str, *, is_lp: bool) -> list[str]:
    """Add the prefix ``row_`` or ``column_`` to names that readers would mistake for a keyword or a number.

    Readers of LP files that parse numbers with C's ``strtod`` read the beginning of names such as "inflow" or "nanny"
    as a number. Some readers of MPS files ignore indentation, and treat any line that begins with "RHS" as a section
    header.
    """
    if not is_lp:
        return [f"{kind}_{name}" if _MPS_WORD.fullmatch(name) else name for name in names]
    # Readers may interpret a name such as "e1" as the exponent of the number before it.
    start = re.compile(r"(?!inf|nan)([a-df-z_]|e[a-z_(])", re.IGNORECASE | re.ASCII)
    return [name if start.match(name) and not _LP_WORD.fullmatch(name) else f"{kind}_{name}" for name in names]


def _make_distinct(names: list[str], forbidden: re.Pattern[str]) -> list[str]:
    """Replace forbidden characters, shorten names to MAX_NAME characters, and append numbers to make names distinct."""
    taken: set[str] = set()
    # The last number that each cleaned name got, so that counting does not begin again at 2 for every equal name.
    last_numbers: dict[str, int] = {}
    distinct: list[str] = []
    for name in names:
        cleaned = forbidden.sub("_", name)[:MAX_NAME]
        candidate, number = cleaned, last_numbers.get(cleaned, 1)
        while candidate in taken:
            number += 1
            # Eight characters are enough for the underscore and a seven-digit number.
            candidate = f"{cleaned[: MAX_NAME - 8]}_{number}"
        last_numbers[cleaned] = number
        taken.add(candidate)
        distinct.append(candidate)
    return distinct


def _number(value: float) -> str:
    """Format a number with enough digits to reproduce the double exactly."""
    return repr(float(value))


def _mps_lines(form: StandardForm, name: str) -> Iterator[str]:
    """Yield the lines of a form's MPS file, in free format."""
    names = _file_names(form, is_lp=False)
    yield f"NAME {_NOT_IN_MPS.sub('_', name)}"
    yield from ("OBJSENSE", "    MAX") if form.sense == "max" else ()
    lower, upper = form.row_lower, form.row_upper
    has_lower, has_upper = np.isfinite(lower), np.isfinite(upper)
    # A row with two different bounds is written with the bound nearer to 0, followed by an entry in RANGES, from which
    # readers compute the other bound. Rounding then moves the other bound by at most a few units in its last place.
    is_at_lower = has_lower & ~(has_upper & (np.abs(upper) < np.abs(lower)))
    kinds = np.where(lower == upper, "E", np.where(is_at_lower, "G", np.where(has_upper, "L", "N")))
    # The objective is a row of the file too, so its name must differ from those of the rows.
    objective = _make_distinct([*names.rows, "cost"], _NOT_IN_MPS)[-1]
    # Readers accept lines without the name of the set of ranges or bounds, and mistake it for a row or column of the
    # same name.
    range_set = _make_distinct([*names.rows, "RANGE"], _NOT_IN_MPS)[-1]
    bound_set = _make_distinct([*names.columns, "BOUND"], _NOT_IN_MPS)[-1]
    yield from ("ROWS", f" N {objective}")
    for kind, row in zip(kinds.tolist(), names.rows, strict=True):
        yield f" {kind} {row}"
    yield "COLUMNS"
    columns = form.A.tocsc()
    is_integer = False
    for number, column in enumerate(names.columns):
        if bool(form.integrality[number]) != is_integer:
            is_integer = not is_integer
            yield f" MARKER 'MARKER' '{'INTORG' if is_integer else 'INTEND'}'"
        # Every column gets a line, even with a cost of 0: a column without entries must be declared here too.
        yield f" {column} {objective} {_number(form.c[number])}"
        entries = slice(columns.indptr[number], columns.indptr[number + 1])
        for row, value in zip(columns.indices[entries].tolist(), columns.data[entries].tolist(), strict=True):
            yield f" {column} {names.rows[row]} {_number(value)}"
    yield from (" MARKER 'MARKER' 'INTEND'",) if is_integer else ()
    yield "RHS"
    if form.c0:
        yield f" RHS {objective} {_number(-form.c0)}"
    sides = np.where(is_at_lower, lower, upper)
    for row_number in np.flatnonzero((has_lower | has_upper) & (sides != 0)).tolist():
        yield f" RHS {names.rows[row_number]} {_number(sides[row_number])}"
    ranged = np.flatnonzero(has_lower & has_upper & (lower != upper)).tolist()
    yield from ("RANGES",) if ranged else ()
    for row_number in ranged:
        width = _range_width(float(lower[row_number]), float(upper[row_number]))
        yield f" {range_set} {names.rows[row_number]} {_number(width)}"
    yield "BOUNDS"
    for number, column in enumerate(names.columns):
        lowest, highest, is_integer = form.col_lower[number], form.col_upper[number], form.integrality[number] == 1
        for kind, value in _mps_bounds(float(lowest), float(highest), is_integer=bool(is_integer)):
            yield f" {kind} {bound_set} {column}{'' if value is None else f' {_number(value)}'}"
    if form.Q is not None:
        yield "QUADOBJ"
        # The format expects the lower triangle of the symmetric matrix Q in x' Q x / 2.
        lower_half = sparse.tril(form.Q).tocoo()
        for row, column, value in zip(lower_half.row, lower_half.col, lower_half.data.tolist(), strict=True):
            yield f" {names.columns[column]} {names.columns[row]} {_number(value)}"
    yield "ENDATA"


def _range_width(lower: float, upper: float) -> float:
    """Return the difference between two bounds, rounded down to a finite double.

    Because of this, neither ``lower`` plus the result nor ``upper`` minus the result lies outside the bounds, whether a
    reader computes it exactly or rounds it to a double.
    """
    width = min(upper - lower, sys.float_info.max)
    # fsum adds without error and rounds only the sum, which keeps its sign.
    return math.nextafter(width, 0.0) if math.fsum([lower, width, -upper]) > 0 else width


def _mps_bounds(lower: float, upper: float, *, is_integer: bool) -> list[tuple[str, float | None]]:
    """Return the entries of an MPS file's BOUNDS section for one column, as (kind, number) pairs such as ("UP", 2.0).

    The number is None for kinds of bound that take no number, such as "FR" for a free column.
    """
    if lower == upper:
        return [("FX", lower)]
    if np.isinf(lower) and np.isinf(upper):
        return [("FR", None)]
    bounds: list[tuple[str, float | None]] = []
    if np.isinf(lower):
        bounds.append(("MI", None))
    # A lower bound of 0 is the default, but some readers drop it if the upper bound is negative.
    elif lower != 0 or upper < 0:
        bounds.append(("LO", lower))
    if np.isfinite(upper):
        bounds.append(("UP", upper))
    elif is_integer:
        bounds.append(("PL", None))  # some readers give an integer column without bounds the upper bound 1
    return bounds


def _lp_lines(form: StandardForm, name: str) -> Iterator[str]:
    """Yield the lines of a form's LP file. A row with two different finite bounds becomes two rows."""
    names = _file_names(form, is_lp=True)
    yield f"\\ {_NOT_IN_MPS.sub('_', name)}"
    yield "maximize" if form.sense == "max" else "minimize"
    used = np.zeros(form.shape[1], dtype=bool)
    used[form.A.indices] = True
    # Columns that occur in no row are declared in the objective, with a cost of 0.
    objective = np.flatnonzero((form.c != 0) | ~used)
    yield from _lp_terms("obj", objective.tolist(), form.c[objective].tolist(), names)
    if form.c0:
        yield f" {'+' if form.c0 > 0 else '-'} {_number(abs(form.c0))}"
    yield from () if form.Q is None else _lp_quadratic(form.Q, names)
    yield "subject to"
    # A row with two different sides needs two names, which no other row may have.
    is_ranged = np.isfinite(form.row_lower) & np.isfinite(form.row_upper) & (form.row_lower != form.row_upper)
    has_side = np.isfinite(form.row_lower) | np.isfinite(form.row_upper)
    endings = [
        (".lower", ".upper") if ranged else ("",) if sided else ()
        for ranged, sided in zip(is_ranged.tolist(), has_side.tolist(), strict=True)
    ]
    row_names = [name + ending for name, ends in zip(names.rows, endings, strict=True) for ending in ends]
    distinct_names = iter(_make_distinct(row_names, _NOT_IN_LP))
    for row in range(form.shape[0]):
        lower, upper = float(form.row_lower[row]), float(form.row_upper[row])
        entries = slice(form.A.indptr[row], form.A.indptr[row + 1])
        columns, values = form.A.indices[entries].tolist(), form.A.data[entries].tolist()
        if not columns:
            columns, values = [0], [0.0]  # an empty row must have a term
        sides = [("=", lower)] if lower == upper else [(">=", lower), ("<=", upper)]
        for operator, side in sides:
            if np.isfinite(side):
                yield from _lp_terms(next(distinct_names), columns, values, names)
                yield f"  {operator} {_number(side)}"
    yield "bounds"
    for number, column in enumerate(names.columns):
        yield from _lp_bounds(column, float(form.col_lower[number]), float(form.col_upper[number]))
    integers = [names.columns[number] for number in np.flatnonzero(form.integrality).tolist()]
    yield from ("general", *(f" {column}" for column in integers)) if integers else ()
    yield "end"


def _lp_terms(name: str, columns: list[int], values: list[float], names: FileNames) -> Iterator[str]:
    """Yield the lines of one row: its name, followed by its terms, with at most TERMS_IN_LINE terms on each line.

    Args:
        name: The row's name in the file.
        columns, values: The column index and coefficient of each term.
        names: The names of all columns in the file.
    """
    terms = [
        f"{'-' if value < 0 else '+'} {_number(abs(value))} {names.columns[column]}"
        for column, value in zip(columns, values, strict=True)
    ]
    yield f" {name}:"
    for start in range(0, len(terms), TERMS_IN_LINE):
        yield f"  {' '.join(terms[start : start + TERMS_IN_LINE])}"


def _lp_quadratic(matrix: sparse.csr_matrix, names: FileNames) -> Iterator[str]:
    """Yield the lines of an objective's quadratic part ``x' matrix x / 2``, with columns named as in ``names``."""
    half = sparse.tril(matrix).tocoo()
    yield "  + ["
    for row, column, value in zip(half.row.tolist(), half.col.tolist(), half.data.tolist(), strict=True):
        product = f"{names.columns[row]} ^ 2" if row == column else f"{names.columns[row]} * {names.columns[column]}"
        # The lower triangle has each product of two variables once, but the full matrix has it twice.
        size = abs(value) if row == column else 2 * abs(value)
        yield f"  {'-' if value < 0 else '+'} {_number(size)} {product}"
    yield "  ] / 2"


def _lp_bounds(column: str, lower: float, upper: float) -> Iterator[str]:
    """Yield the line that declares a column's bounds, or nothing if they are the format's default of 0 to infinity."""
    if lower == upper:
        yield f" {column} = {_number(lower)}"
    elif np.isinf(lower) and np.isinf(upper):
        yield f" {column} free"
    elif np.isinf(upper):
        if lower:
            yield f" {column} >= {_number(lower)}"
    else:
        yield f" {'-inf' if np.isinf(lower) else _number(lower)} <= {column} <= {_number(upper)}"
