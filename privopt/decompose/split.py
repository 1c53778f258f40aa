"""Split a compiled model into complicating columns and blocks, and compute the cuts proved by multipliers.

Once the complicating columns ``z`` are fixed, the blocks are independent linear programs. By weak duality, any
multipliers of a block's rows give a cut over ``z``. The model has m rows and n columns, |Y| of which are complicating.
Block l has m_l rows and n_l columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import evolve, frozen
from scipy import sparse
from scipy.sparse import csr_array

from privopt.arrays import Floats, Ints
from privopt.dsl.duality import implied_bounds, weak_duality
from privopt.dsl.form import FamilyBlock, StandardForm
from privopt.errors import ModelError

__all__ = ["Cut", "Piece", "Split", "cut_of", "restrict", "split_form"]

MIN_CUT_COEFFICIENT = 1e-9
"""The absolute value up to which coefficients are removed from a cut, in a way that keeps the cut valid.

HiGHS would silently drop coefficients this small."""

STEEP, STEEPEST = 2.0**40, 2.0**66
"""The limits on a cut's coefficients.

A cut with a coefficient above the first limit is scaled down to it, so that HiGHS accepts the cut. A cut with a
coefficient above the second limit is not used."""

REDUCED_COST_TOLERANCE = 1e-9
"""The largest absolute value at which a reduced cost counts as a rounding error if its column lacks the required bound.

It is relative to the sum of the absolute values of the reduced cost's terms, if that is above 1."""


@frozen(eq=False, kw_only=True)
class Piece:
    """A block of a split form, which is a linear program once the complicating columns z have fixed values.

    The program minimises ``form.c x`` subject to the rows of ``form``, after ``coupling z`` has been subtracted from
    their bounds. Block l has n_l columns x and m_l rows, and there are |Y| complicating columns.

    Attributes:
        number: The block's index.
        columns: (n_l,) The indices of the block's columns in the whole form.
        rows: (m_l,) The indices of the block's rows in the whole form.
        form: The form restricted to the block's rows and columns, with the row bounds for z = 0.
        coupling: The coefficients of the complicating columns z in the block's rows, a CSR matrix of shape (m_l, |Y|).
        lower, upper: (n_l,) The bounds that the whole form implies for the block's columns.
        outer_lower, outer_upper: (|Y|,) The bounds that the whole form implies for the complicating columns.
    """

    number: int
    columns: Ints
    rows: Ints
    form: StandardForm
    coupling: Any
    lower: Floats
    upper: Floats
    outer_lower: Floats
    outer_upper: Floats

    def sides(self, z: Floats) -> tuple[Floats, Floats]:
        """Return the lower and upper bounds of the block's rows, each of shape (m_l,), for given values of ``z``."""
        shift = self.coupling @ z
        return self.form.row_lower - shift, self.form.row_upper - shift


@frozen(eq=False, kw_only=True)
class Split:
    """A minimisation problem that is split into complicating columns and blocks.

    Once the complicating columns are fixed, the blocks are independent linear programs.

    Attributes:
        form: The whole form as a minimisation problem. Its costs are scaled so that the largest absolute value is 1,
            unless all are 0.
        scale: The factor by which the original costs were multiplied. It is negative if the original form maximises.
        outer: (|Y|,) The indices of the complicating columns.
        outer_rows: The indices of the rows that contain only complicating columns.
        outer_form: The form restricted to these rows and columns.
        pieces: The blocks.
        lower, upper: (n,) The bounds that the form implies for all columns.
    """

    form: StandardForm
    scale: float
    outer: Ints
    outer_rows: Ints
    outer_form: StandardForm
    pieces: tuple[Piece, ...]
    lower: Floats
    upper: Floats


@frozen(eq=False, kw_only=True)
class Cut:
    """A cut, that is, an inequality over the complicating columns z that follows from multipliers of a block's rows.

    An optimality cut is ``w_block >= constant + slope z``, where w_block is the block's cost. A feasibility cut has 0
    on its left-hand side instead.

    Attributes:
        block: The index of the block.
        feasibility: Whether this is a feasibility cut, which excludes values of z for which the block has no solution.
        constant: The value of the right-hand side at z = 0.
        places, slope: The positions of the cut's nonzero coefficients among the complicating columns (``places``), and
            the coefficients themselves (``slope``).
        rows, duals: The indices in the whole form of the rows whose multipliers prove the cut (``rows``), and their
            nonzero multipliers (``duals``).
    """

    block: int
    feasibility: bool
    constant: float
    places: Ints
    slope: Floats
    rows: Ints
    duals: Floats

    def value(self, z: Floats) -> float:
        """Return the value of the cut's right-hand side at the point ``z``, an array of shape (|Y|,)."""
        return self.constant + float(self.slope @ z[self.places])


def restrict(form: StandardForm, rows: Ints, columns: Ints) -> tuple[StandardForm, Ints]:
    """Restrict a form to some of its rows and columns.

    The exponent L of a privacy row ``z_i <= exp(L) z_j`` is stored separately. The row keeps its exponent if both of
    its columns remain. Otherwise, it becomes a plain row.

    Args:
        form: The form to restrict.
        rows, columns: The indices of the rows and columns to select.

    Returns:
        The new form, and the indices of the selected rows in the order of the new form. Plain rows come first, followed
        by the privacy rows, grouped by family.
    """
    # The new index of each column, or -1 for a column that is left out.
    new_columns = np.full(form.shape[1], -1, dtype=np.int64)
    new_columns[columns] = np.arange(len(columns))
    is_privacy = np.zeros(form.shape[0], dtype=bool)
    is_selected = np.zeros(form.shape[0], dtype=bool)
    is_selected[rows] = True
    grouped: list[Ints] = []
    families: list[FamilyBlock] = []
    for block in form.families:
        if block.log_ratio is None or block.left is None or block.right is None:
            continue
        left_columns, right_columns = new_columns[block.left], new_columns[block.right]
        block_rows = np.flatnonzero(is_selected[block.start : block.stop] & (left_columns >= 0) & (right_columns >= 0))
        if block_rows.size:
            # Privacy rows of a family stay together, since a family's rows are a range of the form.
            grouped.append(block_rows + block.start)
            is_privacy[block_rows + block.start] = True
            families.append(
                FamilyBlock(
                    name=block.name,
                    start=0,
                    stop=len(block_rows),
                    kind="privacy",
                    log_ratio=block.log_ratio[block_rows],
                    left=left_columns[block_rows],
                    right=right_columns[block_rows],
                )
            )
    # The positions of the families' rows are known only now. One family after another follows the plain rows.
    plain_rows = rows[~is_privacy[rows]]
    order = np.concatenate([plain_rows, *grouped]).astype(np.int64)
    start = len(plain_rows)
    placed = []
    for family in families:
        placed.append(evolve(family, start=start, stop=start + family.stop))
        start += family.stop
    return (
        StandardForm(
            c=form.c[columns],
            A=form.A[order][:, columns],
            row_lower=form.row_lower[order],
            row_upper=form.row_upper[order],
            col_lower=form.col_lower[columns],
            col_upper=form.col_upper[columns],
            integrality=np.zeros(len(columns), dtype=np.uint8),
            families=tuple(placed),
        ),
        order,
    )


def split_form(form: StandardForm, blocks: Sequence[Any]) -> Split:
    """Split a form into the given blocks of columns and the remaining columns, which are called complicating columns.

    Once the complicating columns are fixed, each block is a separate linear program.

    Args:
        form: The compiled model, which must not have integer columns.
        blocks: The column indices of each block. No column may be in more than one block.

    Raises:
        ModelError: A column is in two blocks or out of range, a row joins two blocks, or the form has integer columns
            or a quadratic objective.
    """
    if form.is_mip:
        raise ModelError("Benders decomposition takes no integer columns: its cuts come from multipliers")
    form.check_linear("Benders decomposition")
    n = form.shape[1]
    # The block of each column, or -1 for a complicating column.
    owner = np.full(n, -1, dtype=np.int64)
    for number, block in enumerate(blocks):
        columns = np.asarray(block, dtype=np.int64)
        is_outside = (columns < 0) | (columns >= n)
        if is_outside.any():
            raise ModelError(f"block {number} names column {int(columns[is_outside][0])} of {n}")
        if (owner[columns] >= 0).any() or len(np.unique(columns)) < len(columns):
            repeated = columns[owner[columns] >= 0]
            name = form.column_name(int(repeated[0])) if repeated.size else "a column"
            raise ModelError(f"{name} is in two blocks, or twice in block {number}")
        owner[columns] = number
    # With a largest cost of 1, the solver's absolute tolerances are relative to the largest cost.
    largest = float(np.abs(form.c).max(initial=0.0))
    # A negative scale turns a maximisation into a minimisation, which is all that the following code handles.
    scale = (1.0 if form.sense == "min" else -1.0) / (largest or 1.0)
    minimised = evolve(form, c=form.c * scale, c0=form.c0 * scale, sense="min")
    # The block of each row, or -1 for a row over complicating columns alone.
    row_owner = _row_owners(minimised, owner)
    lower, upper = implied_bounds(minimised)
    outer = np.flatnonzero(owner < 0)
    outer_rows = np.flatnonzero(row_owner < 0)
    outer_form, outer_rows = restrict(minimised, outer_rows, outer)
    pieces = []
    for number in range(len(blocks)):
        columns = np.flatnonzero(owner == number)
        block_form, rows = restrict(minimised, np.flatnonzero(row_owner == number), columns)
        pieces.append(
            Piece(
                number=number,
                columns=columns,
                rows=rows,
                form=block_form,
                coupling=minimised.A[rows][:, outer].tocsr(),
                lower=lower[columns],
                upper=upper[columns],
                outer_lower=lower[outer],
                outer_upper=upper[outer],
            )
        )
    return Split(
        form=minimised,
        scale=scale,
        outer=outer,
        outer_rows=outer_rows,
        outer_form=outer_form,
        pieces=tuple(pieces),
        lower=lower,
        upper=upper,
    )


def _row_owners(form: StandardForm, owner: Ints) -> Ints:
    """Return the index of each row's block, or -1 for rows that have only complicating columns.

    The result is an array of shape (m,).

    Args:
        form: The form that contains the rows.
        owner: (n,) The index of each column's block, or -1 for a complicating column.

    Raises:
        ModelError: A row has columns from two blocks.
    """
    rows = np.repeat(np.arange(form.shape[0]), np.diff(form.A.indptr))
    entry_owners = owner[form.A.indices]
    is_in_block = entry_owners >= 0
    max_owner = np.full(form.shape[0], -1, dtype=np.int64)
    # All of a row's columns that belong to blocks have the same owner exactly if the smallest and the largest owner
    # agree.
    np.maximum.at(max_owner, rows[is_in_block], entry_owners[is_in_block])
    min_owner = np.full(form.shape[0], np.iinfo(np.int64).max)
    np.minimum.at(min_owner, rows[is_in_block], entry_owners[is_in_block])
    joining_rows = np.flatnonzero((max_owner >= 0) & (min_owner != max_owner))
    if joining_rows.size:
        row = int(joining_rows[0])
        raise ModelError(
            f"{form.row_name(row)} joins blocks {int(min_owner[row])} and {int(max_owner[row])}; "
            "one of its columns must be complicating"
        )
    return max_owner


def cut_of(piece: Piece, duals: Floats, *, feasibility: bool = False) -> Cut | None:
    """Return the cut that follows, by weak duality, from multipliers of a block's rows, or None if it is not usable.

    A cut is a lower bound on the block's cost that is linear in the complicating columns. Any multipliers, even inexact
    ones, give a valid cut, because the bounds of the block's columns compensate for nonzero reduced costs. Multipliers
    of the wrong sign are treated as 0.

    Args:
        piece: The block to which the rows belong.
        duals: (m_l,) The multipliers of the block's m_l rows.
        feasibility: Whether to make a feasibility cut, for which the block's costs are treated as 0. The block has no
            solution at any point where the value of the cut is above 0.
    """
    form = piece.form
    cost = np.zeros_like(form.c) if feasibility else form.c
    constant, y = weak_duality(form, cost, duals, piece.lower, piece.upper, slack=REDUCED_COST_TOLERANCE)
    if constant == -np.inf:
        return None
    nonzero = np.flatnonzero(y)
    # The rows' bounds are shifted by -coupling z, so the multipliers weigh the columns z with the opposite sign.
    slope = -np.asarray(piece.coupling.T @ y)
    places = np.flatnonzero(slope)
    largest = float(np.abs(slope[places]).max(initial=0.0))
    # Even after scaling, the solver would not accept a cut this steep.
    if largest > STEEPEST:
        return None
    # The solver gets the cut multiplied by its scale, which is at most 1. So in the cut's own units, the smallest
    # coefficient that it keeps is larger.
    min_coefficient = MIN_CUT_COEFFICIENT / row_scale(largest)
    small = places[np.abs(slope[places]) <= min_coefficient]
    moved_constant = _move_small_terms(slope, small, 2.0 * min_coefficient, piece.outer_lower, piece.outer_upper)
    if moved_constant == -np.inf:
        return None
    constant += moved_constant
    places = np.flatnonzero(slope)
    return Cut(
        block=piece.number,
        feasibility=feasibility,
        constant=constant,
        places=places,
        slope=slope[places],
        rows=piece.rows[nonzero],
        duals=y[nonzero],
    )


def _move_small_terms(slope: Floats, small: Ints, steeper: float, lower: Floats, upper: Floats) -> float:
    """Remove small coefficients from a cut's slope in place, and return the amount to add to the cut's constant.

    To keep the cut valid, each removed term is replaced by its minimum over the column's bounds. If that minimum is
    infinite, the coefficient is enlarged instead, and the constant is adjusted so that the new cut does not exceed the
    old one anywhere within the bounds.

    Args:
        slope: (|Y|,) The coefficients of the complicating columns, modified in place.
        small: The positions of the coefficients to remove.
        steeper: The absolute value to use for coefficients that cannot be removed, large enough that solvers keep it.
        lower, upper: (|Y|,) The bounds of the complicating columns.

    Returns:
        The amount to add to the constant. It is minus infinity if a column has no bounds, in which case no valid cut
        remains.
    """
    gain = 0.0
    for column in small:
        coefficient = float(slope[column])
        # The bound at which the term is smallest, and the opposite one.
        lowest, opposite = (lower, upper) if coefficient > 0.0 else (upper, lower)
        if np.isfinite(lowest[column]):
            gain += coefficient * float(lowest[column])
            slope[column] = 0.0
        elif np.isfinite(opposite[column]):
            # For every z within the bounds, coefficient z >= steep z + (coefficient - steep) times the opposite bound.
            steep = float(np.copysign(steeper, coefficient))
            gain += (coefficient - steep) * float(opposite[column])
            slope[column] = steep
        else:
            return -np.inf
    return gain


def row_scale(largest: float) -> float:
    """Return the power of two that scales a row's largest coefficient to ``STEEP`` or less, or 1 if it already is.

    >>> row_scale(8.0), row_scale(2.0**41)
    (1.0, 0.5)
    """
    return 1.0 if largest <= STEEP else float(2.0 ** np.floor(np.log2(STEEP / largest)))


def sparse_rows(cuts: Sequence[Cut], width: int) -> csr_array:
    """Return the slopes of cuts as a CSR matrix with one row per cut.

    Args:
        cuts: The cuts. Only their ``places`` and ``slope`` are used.
        width: The number of columns in the matrix, i.e. the number of complicating columns.
    """
    lengths = [len(cut.places) for cut in cuts]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.concatenate([cut.places for cut in cuts]) if cuts else np.zeros(0, dtype=np.int64)
    slopes = np.concatenate([cut.slope for cut in cuts]) if cuts else np.zeros(0)
    return sparse.csr_matrix((slopes, places, indptr), shape=(len(cuts), width))
