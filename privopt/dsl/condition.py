"""Scale a model's rows for a solver without ever loosening a privacy row, and bound the cost of any tightening.

A privacy row ``z_i <= exp(L) z_j`` relates two columns of a model, where z_j is at least 0. Its coefficients are
computed here from the exponent L. A smaller factor exp(L) is stricter, so the factor is rounded down, and an L beyond
the solver's range is capped. In metric DP, L is the product of epsilon and a distance d. Capping L then amounts to
replacing d with the smaller distance ``min(d, cap / epsilon)``, so every point that satisfies the capped rows is also
private for d.

The ranges of coefficients were measured on unit grids (3 x 3 to 8 x 8) with known optima:

- HiGHS drops coefficients below 1e-9 and rejects those of 1e15 or more.
- With plain rows ``z_i - e^L z_j``, HiGHS finds the exact optimum up to L = 24. At L = 28, it reports a value 900
  times the optimum as optimal.
- With rows scaled symmetrically, ``e^(-L/2) z_i - e^(L/2) z_j``, the value from HiGHS differs from the optimum by at
  most 2e-9 up to L = 34. With a tolerance of 1e-12, the value from CBC differs by at most 1e-8 up to L = 22.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import evolve, frozen
from scipy import sparse

from privopt.arrays import Bools, Floats, Ints
from privopt.dsl.duality import dual_bound
from privopt.dsl.form import StandardForm
from privopt.errors import SolverError

# The last part of the error message about a row whose coefficients differ too much in size.
WIDE_ROW_ADVICE = (
    "rescale the row; replace a big-M by implies(binary, relation), which takes the smallest M that the bounds of the "
    "variables allow; or declare a privacy row with its exponent (exp, log_ratio)"
)
EXPONENT_ROUNDING = 2.0**-50
"""A factor for lowering the exponents of privacy rows: an exponent L is lowered by (4 + |L|) times this factor.

It is eight times the unit roundoff (2**-53)."""
MIP_COST = 2.0**13
"""The absolute value to which the largest cost of an integer program is scaled up if it is smaller.

Searches over integers stop at an absolute difference of about 1e-6 (see ``_cost_scale``)."""


@frozen(kw_only=True)
class CoefficientRange:
    """The range of coefficients that a solver can work with.

    Attributes:
        smallest: The absolute value at or below which the solver drops coefficients.
        largest: The absolute value at or above which the solver rejects coefficients or crashes.
        log_cap: The largest exponent L of a privacy row ``z_i <= exp(L) z_j``. Rows with a larger exponent are
            tightened to this one.
    """

    smallest: float = 1e-9
    largest: float = 1e15
    log_cap: float = 20.0


@frozen(kw_only=True)
class TightenedRows:
    """A report on the privacy rows that were tightened, and on the cost of tightening them.

    A privacy row is a constraint ``z_i <= exp(L) z_j``. It is tightened if the solver cannot work with its exponent L.

    Attributes:
        rows: The number of tightened rows.
        log_cap: The largest exponent that the solver can work with. Larger exponents were reduced to this one.
        largest_log: The largest absolute value of an exponent among the tightened rows.
        families: The names of the families with tightened rows.
        cost: An upper bound on the loss in the objective due to tightening, in the objective's units. None before a
            solve, or if the multipliers prove no bound.
    """

    rows: int
    log_cap: float
    largest_log: float
    families: tuple[str, ...]
    cost: float | None = None

    def __str__(self) -> str:
        """Return a sentence that states how many rows were tightened, and the maximum cost of tightening them."""
        cost = "not bounded" if self.cost is None else f"at most {self.cost:.3g}"
        return (
            f"{self.rows} privacy rows of {', '.join(self.families)} tightened from exponents up to "
            f"{self.largest_log:.4g} to {self.log_cap:g}; cost {cost}"
        )


@frozen(eq=False, kw_only=True)
class ScaledForm:
    """A form scaled for a solver that minimises ``c x`` over the scaled rows.

    Its methods convert the solver's results back to the units of the original form.

    Attributes:
        form: The form before scaling.
        c: (n,) The scaled costs to be minimised.
        A: (m, n) The scaled rows as a CSR matrix.
        row_lower, row_upper: (m,) The bounds of the scaled rows.
        row_scale: (m,) The factor by which each row was multiplied. To convert a multiplier y of a scaled row to one of
            the unscaled row, compute ``y * row_scale``. The scale of the costs must be removed separately.
        cost_scale: The factor by which the costs were multiplied. It is negative if the form maximises.
        tightened: The indices of the tightened rows.
        tightening: The report on the tightened rows, or None if there are none.
        wide_rows: The indices of the rows, other than privacy rows, whose coefficients differ by a factor of more than
            1e7. Empty for a linear program in which no coefficient is below 1e-7 or above 1e7 in absolute value.
    """

    form: StandardForm
    c: Floats
    A: Any
    row_lower: Floats
    row_upper: Floats
    row_scale: Floats
    cost_scale: float
    tightened: Ints
    tightening: TightenedRows | None
    wide_rows: Ints

    def with_cost_scale(self, scale: float) -> ScaledForm:
        """Return a copy of this form whose costs are scaled by a different factor.

        Args:
            scale: The factor, which must be positive. It is negated if the form maximises, because solvers minimise.
        """
        signed_scale = scale if self.form.sense == "min" else -scale
        return evolve(self, c=self.form.c * signed_scale, cost_scale=signed_scale)

    def duals(self, scaled: Floats) -> Floats:
        """Convert multipliers of the scaled rows to multipliers of the original form's rows.

        Both are arrays of shape (m,). A row's multiplier is the change in the form's objective per unit change in the
        bound of the row.
        """
        return scaled * self.row_scale / self.cost_scale

    def reduced_costs(self, scaled: Floats) -> Floats:
        """Convert reduced costs of the scaled problem, an array of shape (n,), to those of the original objective."""
        return scaled / self.cost_scale

    def objective(self, point: Floats) -> float:
        """Return the objective value at a point, using the form's own sense (minimise or maximise) and units."""
        return self.form.objective_at(point)

    def bound(self, scaled: float) -> float:
        """Convert a bound on the scaled costs to a bound on the form's objective, including its constant."""
        return scaled / self.cost_scale + self.form.c0


def condition(form: StandardForm, bearing: CoefficientRange) -> ScaledForm:
    """Scale a form's rows and costs so that a solver can handle them in double precision.

    Args:
        form: The form as compiled.
        bearing: The range of coefficients that the solver can work with, and its cap on the exponents of privacy rows.

    Raises:
        SolverError: The coefficients in a row that is not a privacy row differ by more than the solver can handle. The
            message names the row and the terms.
    """
    m, n = form.shape
    data = form.A.data.copy()
    scale = np.ones(m)
    is_privacy = np.zeros(m, dtype=bool)
    tightened: list[Ints] = []
    names, largest = [], 0.0
    # For each privacy family, its rows, their left and right columns, and the coefficients of these columns.
    parts: list[tuple[Ints, Ints, Ints, Floats, Floats]] = []
    for block in form.families:
        if block.log_ratio is None or block.left is None or block.right is None:
            continue
        rows = np.arange(block.start, block.stop)
        is_privacy[rows] = True
        # The rows are a z_left - b z_right <= 0. is_cut marks exponents beyond the cap.
        a, b, row_scale, is_cut = _privacy_coefficients(block.log_ratio, bearing)
        # If both columns are the same, z <= exp(L) z always holds for L >= 0, and means z <= 0 for L < 0.
        is_same_column = block.left == block.right
        a, b, is_cut = (
            np.where(is_same_column & (block.log_ratio >= 0), 0.0, a),
            np.where(is_same_column, 0.0, b),
            is_cut & ~is_same_column,
        )
        parts.append((rows, block.left, block.right, a, b))
        scale[rows] = row_scale
        if is_cut.any():
            tightened.append(rows[is_cut])
            names.append(block.name)
            largest = max(largest, float(np.abs(block.log_ratio[is_cut]).max()))
    # The row of each stored matrix entry, shape (nnz,).
    row_of = np.repeat(np.arange(m), np.diff(form.A.indptr))
    is_wide = _scale_general_rows(form, bearing, data, scale, is_privacy, row_of)
    # All other rows are scaled by powers of two, which is exact. The entries of privacy rows are replaced below.
    data *= np.where(is_privacy, 0.0, scale)[row_of]
    matrix = sparse.csr_matrix((data, form.A.indices.copy(), form.A.indptr.copy()), shape=(m, n))
    if parts:
        matrix = _replace_privacy_rows(matrix, is_privacy[row_of], parts)
    matrix.eliminate_zeros()
    cut_rows = np.concatenate(tightened) if tightened else np.zeros(0, np.int64)
    report = TightenedRows(rows=len(cut_rows), log_cap=bearing.log_cap, largest_log=largest, families=tuple(names))
    cost_scale = _cost_scale(form)
    return ScaledForm(
        form=form,
        c=form.c * cost_scale,
        A=matrix,
        row_lower=form.row_lower * scale,
        row_upper=form.row_upper * scale,
        row_scale=scale,
        cost_scale=cost_scale,
        tightened=cut_rows,
        tightening=report if len(cut_rows) else None,
        wide_rows=np.flatnonzero(is_wide),
    )


def _cost_scale(form: StandardForm) -> float:
    """Return the factor by which to scale the costs, a power of two that is negated if the form maximises.

    Scaling must not make costs small, because solvers have absolute tolerances on costs and would ignore small ones.
    For example, HiGHS and CBC report wrong points as optimal after all costs have been divided by a penalty of 1e5.
    """
    sizes = np.abs(form.c[form.c != 0])
    largest, smallest = float(sizes.max(initial=0.0)), float(sizes.min(initial=np.inf))
    if largest == 0.0:
        scale = 1.0
    elif form.is_mip:
        # Searches over integers stop within about 1e-6 of the optimum, whatever relative gap is requested.
        scale = MIP_COST / largest if largest < MIP_COST else min(1.0, 1.0 / smallest)
    elif largest < 0.1:
        scale = 1.0 / largest
    else:
        # Costs up to 1e4 suit the solvers as they are. Larger costs are scaled down, but none of them below about 1e-3.
        # If scaling makes a wrong point look optimal, its multipliers show it, unlike in an integer program.
        scale = min(1.0, max(1.0 / largest, 1e-3 / smallest)) if largest > 1e4 else 1.0
    # Multiplying by a power of two is exact. The limits keep the scale of costs next to the smallest doubles finite.
    scale = float(2.0 ** np.clip(np.round(np.log2(scale)), -1000.0, 1000.0))
    return scale if form.sense == "min" else -scale


def _privacy_coefficients(log_ratio: Floats, bearing: CoefficientRange) -> tuple[Floats, Floats, Floats, Bools]:
    """Compute coefficients a and b for writing privacy rows ``z_i <= exp(L) z_j`` as ``a z_i - b z_j <= 0``.

    The coefficients are rounded such that ``b / a <= exp(L)``, so that no row becomes looser.

    Args:
        log_ratio: (rows,) The exponent L of each row.
        bearing: The range of coefficients that the solver can work with. Only its cap on exponents is used.

    Returns:
        Four arrays of shape (rows,): the coefficients a and b, the factor by which each row was scaled, and whether its
        exponent was capped.
    """
    cap = bearing.log_cap
    is_above_cap, is_below_cap = log_ratio > cap, log_ratio < -cap
    # The exponent is rounded down by more than the errors of exp and of the product from which L was computed. Beyond
    # the cap, L is replaced, so its own error has no effect.
    slack = EXPONENT_ROUNDING * (4.0 + np.minimum(np.abs(log_ratio), cap))
    safe_log = np.clip(log_ratio, -cap, cap) - slack
    # If the exponent is split evenly, both coefficients of a row are within a factor of e^(cap/2) of 1.
    shift = safe_log / 2
    a, b = np.exp(-shift), np.exp(safe_log - shift)
    # Below -cap, the factor is too small for the solver. The row becomes z_i <= 0, which is stricter.
    b = np.where(is_below_cap, 0.0, b)
    # The row z_i - (b / a) z_j <= 0 becomes a z_i - b z_j <= 0 if it is multiplied by a, so a is its scale.
    return a, b, a.copy(), is_above_cap | is_below_cap


def _replace_privacy_rows(matrix: Any, is_privacy_entry: Any, parts: Any) -> Any:
    """Return a matrix in which the privacy rows have coefficients computed from their exponents.

    Args:
        matrix: (m, n) The CSR matrix, in which all other rows are already scaled.
        is_privacy_entry: (nnz,) A mask of the stored entries that belong to a privacy row.
        parts: One tuple per privacy family. It contains the indices of the family's rows, the left and right column of
            each row, and the coefficients a and b in the rows ``a x[left] - b x[right] <= 0``.
    """
    rows = np.concatenate([p[0] for p in parts])
    data = matrix.data.copy()
    data[is_privacy_entry] = 0.0
    # Only the entries of other rows stay. Those of privacy rows are replaced.
    general_rows = sparse.csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    # If there are no entries of other rows, an empty matrix avoids adding one full of stored zeros.
    if len(rows) == matrix.shape[0] or not (~is_privacy_entry).any():
        general_rows = sparse.csr_matrix(matrix.shape)
    left_columns, right_columns = np.concatenate([p[1] for p in parts]), np.concatenate([p[2] for p in parts])
    a, b = np.concatenate([p[3] for p in parts]), np.concatenate([p[4] for p in parts])
    kind = matrix.indices.dtype
    places = (np.concatenate([rows, rows]).astype(kind), np.concatenate([left_columns, right_columns]).astype(kind))
    entries = sparse.csr_matrix((np.concatenate([a, -b]), places), shape=matrix.shape)
    return entries + general_rows if general_rows.nnz else entries


def _scale_general_rows(
    form: StandardForm, bearing: CoefficientRange, data: Floats, scale: Floats, is_privacy: Bools, row_of: Ints
) -> Bools:
    """Scale the rows that have very large or very small coefficients by powers of two.

    Privacy rows are not scaled here. Entries that are too small to matter are dropped.

    Args:
        form: The form, whose column bounds determine which entries can matter.
        bearing: The range of coefficients that the solver can work with.
        data: (nnz,) The matrix entries. Dropped entries are set to 0 in place.
        scale: (m,) The factor for each row, set in place.
        is_privacy: (m,) A mask of the privacy rows. These rows are not changed.
        row_of: (nnz,) The row index of each entry.

    Returns:
        A mask of shape (m,) that marks the rows whose coefficients differ by a factor of more than 1e7. It is False
        everywhere for a linear program whose rows need no scaling.
    """
    size = np.abs(data)
    is_live = (size > 0) & ~is_privacy[row_of]
    # Coefficients between 1e-7 and 1e7 are within every solver's range, so a linear program with no others keeps its
    # rows as they are. Integer programs are always examined, because their wide rows are reported.
    if not form.is_mip and not (is_live & ((size < 1e-7) | (size > 1e7))).any():
        return np.zeros(len(scale), dtype=bool)
    max_sizes, min_sizes = np.zeros(len(scale)), np.full(len(scale), np.inf)
    np.maximum.at(max_sizes, row_of[is_live], size[is_live])
    np.minimum.at(min_sizes, row_of[is_live], size[is_live])
    is_out_of_range = (max_sizes > 0) & ((min_sizes < 1e-7) | (max_sizes > 1e7))
    # The middle of a row is the geometric mean of its smallest and largest coefficient, here as a logarithm to base 2.
    log_middles = (np.log2(max_sizes[is_out_of_range]) + np.log2(min_sizes[is_out_of_range])) / 2
    # A row of similar coefficients is scaled by its largest one, and a row of very different ones by the geometric mean
    # of its extremes.
    is_narrow = min_sizes[is_out_of_range] >= 1e-7 * max_sizes[is_out_of_range]
    # A row of very different coefficients, such as a big-M row, is not scaled down if the solver accepts it as it is.
    # Scaling it down would allow a larger violation in the row's own units.
    is_too_large = max_sizes[is_out_of_range] >= bearing.largest
    log_middles = np.where(is_too_large, log_middles, np.minimum(log_middles, 0.0))
    scale[is_out_of_range] = 2.0 ** -np.round(np.where(is_narrow, np.log2(max_sizes[is_out_of_range]), log_middles))
    is_too_wide = is_out_of_range & ((max_sizes * scale >= bearing.largest) | (min_sizes * scale <= bearing.smallest))
    # A row that no scaling brings into the range is scaled by its largest coefficient. Its smallest coefficients are
    # dropped, or an error is raised if they matter.
    if is_too_wide.any():
        scale[is_too_wide] = 2.0 ** -np.round(np.log2(max_sizes[is_too_wide]))
        _drop_harmless_entries(form, bearing, data, scale, is_live & is_too_wide[row_of], row_of)
    return (max_sizes > 0) & (min_sizes < 1e-7 * max_sizes)


def _drop_harmless_entries(
    form: StandardForm, bearing: CoefficientRange, data: Floats, scale: Floats, is_live: Bools, row_of: Ints
) -> None:
    """Set to 0 all entries that are too small for the solver, or raise an error if they could matter.

    Args:
        form: The form, which provides column bounds and the names used in messages.
        bearing: The range of coefficients that the solver can work with. The solver drops scaled coefficients with an
            absolute value of at most ``bearing.smallest``.
        data: (nnz,) The matrix entries before scaling, modified in place.
        scale: (m,) The factor for each row.
        is_live: (nnz,) A mask of the entries to examine.
        row_of: (nnz,) The row index of each entry.

    Raises:
        SolverError: An entry is too small for the solver, but could change the value of its row by more than 1e-10.
    """
    columns = form.A.indices
    is_small = is_live & (np.abs(data) * scale[row_of] <= bearing.smallest)
    # A dropped entry moves its row by at most the coefficient times the largest absolute value of its column.
    largest_values = np.maximum(np.abs(form.col_lower), np.abs(form.col_upper))[columns]
    # An entry is harmless if the row moves by at most 1e-10, both in its own units and scaled. If the column lacks a
    # bound, its largest value is infinite, so the entry is never harmless.
    with np.errstate(invalid="ignore"):
        is_harmless = is_small & (np.abs(data) * largest_values * np.maximum(1.0, scale[row_of]) <= 1e-10)
    harmful_entries = np.flatnonzero(is_small & ~is_harmless)
    if harmful_entries.size:
        row = int(row_of[harmful_entries[0]])
        entries = np.arange(form.A.indptr[row], form.A.indptr[row + 1])
        largest, smallest = int(entries[np.argmax(np.abs(data[entries]))]), int(harmful_entries[0])
        raise SolverError(
            f"{form.row_name(row)}: coefficients {data[largest]:.6g} of {form.column_name(int(columns[largest]))} and "
            f"{data[smallest]:.6g} of {form.column_name(int(columns[smallest]))} differ by more than double "
            f"precision solvers can represent; {WIDE_ROW_ADVICE}"
        )
    data[is_harmless] = 0.0


def tightening_cost(conditioned: ScaledForm, duals: Floats, objective: float) -> float | None:
    """Return an upper bound on the loss in the objective due to tightening, or None if the multipliers prove no bound.

    The result is the difference between the objective and a dual bound on the optimum of the untightened problem. Two
    sets of multipliers are tried, and the better bound is used. In one set, the multipliers of the tightened rows are
    set to 0. In the other, they are divided by the factor by which ``exp(L)`` was reduced.

    Args:
        conditioned: The scaled form, which lists the tightened rows.
        duals: (m,) The multipliers of the original form's rows, in its own sense.
        objective: The objective value that was reached, in the form's units.
    """
    form, rows = conditioned.form, conditioned.tightened
    logs = np.concatenate([b.log_ratio for b in form.families if b.log_ratio is not None])
    privacy_rows = np.concatenate([np.arange(b.start, b.stop) for b in form.families if b.log_ratio is not None])
    # The amount by which each row's exponent exceeds the cap.
    excess = np.zeros(form.shape[0])
    cap = conditioned.tightening.log_cap if conditioned.tightening else np.inf
    excess[privacy_rows] = np.maximum(logs - cap, 0.0)
    bounds = []
    # A multiplier y of the tightened row corresponds to y e^(cap - L) of the untightened row. A multiplier of 0 is
    # always valid.
    for factor in (0.0, np.exp(-excess[rows])):
        y = duals.copy()
        y[rows] = y[rows] * factor
        bounds.append(dual_bound(form, y))
    # The better of the two bounds is the one nearer to the objective.
    gaps = [abs(objective - b) for b in bounds if np.isfinite(b)]
    return min(gaps) if gaps else None
