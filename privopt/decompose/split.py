"""A compiled model split into complicating columns and blocks, and the cuts that a block's multipliers prove.

Once the complicating columns ``z`` are fixed, the blocks are independent linear programs. Weak duality turns any
multipliers of a block's rows into a cut over ``z``.
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
"""Coefficients of a cut up to this are taken out of it, in favour of validity: HiGHS would drop them in silence."""

STEEP, STEEPEST = 2.0**40, 2.0**66
"""Cuts steeper than the first are scaled down to it, so that HiGHS takes them; beyond the second there is none."""

REDUCED_COST_TOLERANCE = 1e-9
"""A reduced cost up to this, on a column without the bound it calls for, is the solver's rounding."""


@frozen(eq=False, kw_only=True)
class Piece:
    """One block: minimise ``form.c x`` over rows of ``form`` whose sides are shifted by ``-coupling z``.

    Attributes:
        number: of the block.
        columns: in the whole form, of the block's own columns, shape (n_l,).
        rows: in the whole form, shape (m_l,).
        form: over the block's own columns, sides as for z = 0.
        coupling: CSR (m_l, |Y|), over the complicating columns.
        lower, upper: bounds of the own columns that the whole form implies, shape (n_l,).
        outer_lower, outer_upper: the same of the complicating columns, shape (|Y|,).
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
        """Return the row sides with the complicating columns at ``z``."""
        shift = self.coupling @ z
        return self.form.row_lower - shift, self.form.row_upper - shift


@frozen(eq=False, kw_only=True)
class Split:
    """A form split into blocks; always a minimisation.

    Attributes:
        form: the whole, minimised, costs scaled to a largest one of 1.
        scale: costs of ``form`` are the user's times this (negative if the user maximises).
        outer: complicating columns, shape (|Y|,).
        outer_rows: rows over them alone.
        outer_form: these rows and columns.
        pieces: the blocks.
        lower, upper: bounds of all columns that the form implies.
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
    """``w_block >= constant + slope z``, or ``0 >= constant + slope z`` for a feasibility cut, with its multipliers.

    Attributes:
        block: number of the block.
        feasibility: whether it is one.
        constant: its constant.
        places, slope: sparse slope over the complicating columns.
        rows, duals: sparse multipliers over the whole form's rows.
    """

    block: int
    feasibility: bool
    constant: float
    places: Ints
    slope: Floats
    rows: Ints
    duals: Floats

    def value(self, z: Floats) -> float:
        """Evaluate the right-hand side at ``z``."""
        return self.constant + float(self.slope @ z[self.places])


def restrict(form: StandardForm, rows: Ints, columns: Ints) -> tuple[StandardForm, Ints]:
    """Return some rows and columns of a form. Privacy rows keep their exponents if both of their columns remain.

    Returns:
        The form, and the rows in its order (rows of one family stay together).
    """
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
    """Split a form into blocks of columns and the complicating columns, which are all others.

    Args:
        form: the model; without integer columns.
        blocks: column numbers of each block; a column may be in one block only.

    Raises:
        ModelError: a column in two blocks or out of range, a row that joins two blocks, integer columns.
    """
    if form.is_mip:
        raise ModelError("Benders decomposition takes no integer columns: its cuts come from multipliers")
    n = form.shape[1]
    owner = np.full(n, -1, dtype=np.int64)
    for number, block in enumerate(blocks):
        columns = np.asarray(block, dtype=np.int64)
        if columns.size and (columns.min() < 0 or columns.max() >= n):
            raise ModelError(f"block {number} names column {int(columns.max())} of {n}")
        if (owner[columns] >= 0).any() or len(np.unique(columns)) < len(columns):
            repeated = columns[owner[columns] >= 0]
            name = form.column_name(int(repeated[0])) if repeated.size else "a column"
            raise ModelError(f"{name} is in two blocks, or twice in block {number}")
        owner[columns] = number
    # With a largest cost of 1, the solver's absolute tolerances are relative to the largest cost.
    largest = float(np.abs(form.c).max(initial=0.0))
    scale = (1.0 if form.sense == "min" else -1.0) / (largest or 1.0)
    minimised = evolve(form, c=form.c * scale, c0=form.c0 * scale, sense="min")
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
    """Return the block of each row, or -1 if it has only complicating columns."""
    rows = np.repeat(np.arange(form.shape[0]), np.diff(form.A.indptr))
    entry_owners = owner[form.A.indices]
    is_in_block = entry_owners >= 0
    max_owner = np.full(form.shape[0], -1, dtype=np.int64)
    # A row belongs to a block if all its block columns have one owner; the two extremes then agree.
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
    """Return the cut that multipliers of a block's rows prove by weak duality, or None if they prove nothing.

    Any multipliers are valid, also those of a solver that is slightly wrong: the bounds of the block's columns take up
    the reduced costs. Multipliers of the wrong sign count as 0.
    """
    form = piece.form
    cost = np.zeros_like(form.c) if feasibility else form.c
    constant, y = weak_duality(form, cost, duals, piece.lower, piece.upper, slack=REDUCED_COST_TOLERANCE)
    if constant == -np.inf:
        return None
    nonzero = np.flatnonzero(y)
    slope = -np.asarray(piece.coupling.T @ y)
    places = np.flatnonzero(slope)
    largest = float(np.abs(slope[places]).max(initial=0.0))
    if largest > STEEPEST:
        return None
    small = places[np.abs(slope[places]) <= MIN_CUT_COEFFICIENT / row_scale(largest)]
    # A dropped coefficient is replaced by its smallest value over the column's bounds, which keeps the cut valid.
    if small.size:
        extremes = np.where(slope[small] > 0, piece.outer_lower[small], piece.outer_upper[small])
        is_finite = np.isfinite(extremes)
        constant += float(slope[small][is_finite] @ extremes[is_finite])
        slope[small] = 0.0
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


def row_scale(largest: float) -> float:
    """Return a power of two that reduces a coefficient above ``STEEP`` to it.

    >>> row_scale(8.0), row_scale(2.0**41)
    (1.0, 0.5)
    """
    return 1.0 if largest <= STEEP else float(2.0 ** np.floor(np.log2(STEEP / largest)))


def sparse_rows(cuts: Sequence[Cut], width: int) -> csr_array:
    """Return the slopes of cuts as CSR, one row for each cut."""
    lengths = [len(cut.places) for cut in cuts]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.concatenate([cut.places for cut in cuts]) if cuts else np.zeros(0, dtype=np.int64)
    slopes = np.concatenate([cut.slope for cut in cuts]) if cuts else np.zeros(0)
    return sparse.csr_matrix((slopes, places, indptr), shape=(len(cuts), width))
