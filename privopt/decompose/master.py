"""The Benders master problem: complicating columns ``z``, a column ``w`` a block, rows over ``z``, the cuts so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import frozen
from scipy import sparse

from privopt.arrays import Floats, Ints
from privopt.backends import Basis, Outcome, get
from privopt.backends.highs import BEARING
from privopt.decompose.split import REDUCED_COST_TOLERANCE, Cut, Split, row_scale, sparse_rows
from privopt.dsl.duality import weak_duality
from privopt.dsl.form import StandardForm

MULTIPLIER_TOLERANCE = 1e-12
"""Multipliers up to this count as none."""

IMPLIED_TOLERANCE = 1e-6
"""A valid row may promise more than its proof by this, relative: it is added in doubles."""


@frozen(eq=False, kw_only=True)
class ValidRows:
    """Rows over the complicating columns that the whole form implies: ``matrix z <= upper``.

    Attributes:
        matrix: CSR, (rows, |Y|).
        upper: shape (rows,).
        proof: CSR, (rows, m): the combination of the form's rows (multipliers of a minimum's signs, so none above 0
            on ``<=`` rows) that, negated, gives each row. It keeps the bounds honest: without it they would rest on
            the caller's word.
    """

    matrix: Any
    upper: Floats
    proof: Any

    def __len__(self) -> int:
        return len(self.upper)


@frozen(eq=False, kw_only=True)
class _Row:
    """One appended row: a cut, or a valid row with its proof."""

    cut: Cut | None = None
    places: Ints
    slope: Floats
    upper: float = 0.0
    proof_rows: Ints
    proof: Floats

    @property
    def scale(self) -> float:
        """The solver has the row times this."""
        return row_scale(float(np.abs(self.slope).max(initial=0.0)))


@frozen(eq=False, kw_only=True)
class MasterAnswer:
    """What the master says.

    Attributes:
        outcome: of the solve.
        z: complicating columns; w: one a block (NaN where no cut speaks of it).
        bound: proved lower bound on the whole form's (scaled) optimum; -inf where there is none.
        duals: (m,) multipliers of the whole form's rows that prove it.
        active: which appended rows have a multiplier.
    """

    outcome: Outcome
    z: Floats | None = None
    w: Floats | None = None
    bound: float = -np.inf
    duals: Floats | None = None
    active: Any = None
    seconds: float = 0.0


def proved(split: Split, duals: Floats) -> tuple[float, Floats]:
    """Lower bound that multipliers prove (without the constant c0; -inf where none), and the multipliers used.

    Privacy rows whose exponents exceed what solvers can represent were tightened when the multipliers were found.
    Multipliers of such rows are omitted if they spoil the bound.
    """
    form = split.form
    best, used = -np.inf, duals
    candidates = [duals]
    far = [b.start + np.flatnonzero(b.log_ratio > BEARING.log_cap) for b in form.families if b.log_ratio is not None]
    if sum(map(len, far)):
        without = duals.copy()
        without[np.concatenate(far)] = 0.0
        candidates.append(without)
    for candidate in candidates:
        bound, kept = weak_duality(form, form.c, candidate, split.lower, split.upper, slack=REDUCED_COST_TOLERANCE)
        if bound > best:
            best, used = bound, kept
    return best, used


def follows(split: Split, places: Ints, slope: Floats, upper: float, duals: Floats) -> bool:
    """Check by multipliers that ``slope z <= upper`` over the complicating columns follows from the form's rows.

    What the combination of rows leaves of other columns, or of the slope, is taken up by the columns' bounds.
    """
    cost = np.zeros_like(split.form.c)
    np.add.at(cost, split.outer[places], -slope)
    least, _ = weak_duality(split.form, cost, duals, split.lower, split.upper, slack=REDUCED_COST_TOLERANCE)
    return -least <= upper + IMPLIED_TOLERANCE * (1.0 + abs(upper))


class Master:
    """The master problem, changed and solved again."""

    def __init__(self, split: Split, solver: str) -> None:
        self.split, self.solver = split, solver
        self.rows: list[_Row] = []
        self.idle: list[int] = []
        self.basis: Basis | None = None
        self.box = np.inf
        self.blocks = len(split.pieces)
        self._known = np.zeros(self.blocks, dtype=bool)
        self._engine = get(solver).session(self._form())

    @property
    def width(self) -> int:
        """Complicating columns."""
        return len(self.split.outer)

    @property
    def known(self) -> bool:
        """Whether every block has an optimality cut, so that there can be a lower bound."""
        return bool(self._known.all())

    def _form(self) -> StandardForm:
        inner, m = self.split.outer_form, self.blocks
        return StandardForm(
            c=np.concatenate([inner.c, np.ones(m)]),
            A=sparse.hstack([inner.A, sparse.csr_matrix((inner.shape[0], m))], format="csr"),
            row_lower=inner.row_lower,
            row_upper=inner.row_upper,
            col_lower=np.concatenate([inner.col_lower, np.zeros(m)]),
            col_upper=np.concatenate([inner.col_upper, np.zeros(m)]),
            integrality=np.zeros(inner.shape[1] + m, dtype=np.uint8),
            families=inner.families,
        )

    def set_box(self, size: float) -> None:
        """Keep columns without bounds within ``size``; bounds that lean on it are not bounds."""
        self.box = size
        inner = self.split.outer_form
        self._engine.change_column_bounds(
            np.arange(self.width), np.maximum(inner.col_lower, -size), np.minimum(inner.col_upper, size)
        )

    def add_cuts(self, cuts: Sequence[Cut]) -> None:
        """Append cuts."""
        none = np.zeros(0, dtype=np.int64)
        self._append(
            [
                _Row(
                    cut=cut, places=cut.places, slope=cut.slope, upper=-cut.constant, proof_rows=none, proof=np.zeros(0)
                )
                for cut in cuts
            ]
        )

    def add_valid(self, valid: ValidRows) -> None:
        """Append rows that the form implies."""
        matrix, proof = valid.matrix.tocsr(), valid.proof.tocsr()
        rows = []
        for r in range(len(valid)):
            own = slice(matrix.indptr[r], matrix.indptr[r + 1])
            why = slice(proof.indptr[r], proof.indptr[r + 1])
            rows.append(
                _Row(
                    places=matrix.indices[own].astype(np.int64),
                    slope=matrix.data[own],
                    upper=float(valid.upper[r]),
                    proof_rows=proof.indices[why].astype(np.int64),
                    proof=proof.data[why],
                )
            )
        self._append(rows)

    def put_valid(self, places: Ints, slope: Floats, upper: float, rows: Ints, proof: Floats) -> None:
        """Append one valid row from its parts."""
        self._append([_Row(places=places, slope=slope, upper=upper, proof_rows=rows, proof=proof)])

    def _append(self, rows: Sequence[_Row]) -> None:
        if not rows:
            return
        fresh = {row.cut.block for row in rows if row.cut is not None and not row.cut.feasibility}
        opened = np.array([b for b in sorted(fresh) if not self._known[b]], dtype=np.int64)
        self._known[opened] = True
        matrix = self._matrix(rows)
        low, high = np.full(len(rows), -np.inf), np.array([row.upper * row.scale for row in rows])
        if opened.size:
            free = np.full(len(opened), np.inf)
            self._engine.change_column_bounds(self.width + opened, -free, free)
        self._engine.add_rows(matrix, low, high)
        self.rows.extend(rows)
        self.idle.extend([0] * len(rows))

    def _matrix(self, rows: Sequence[_Row]) -> Any:
        """Rows as ``slope z - w <= upper`` (cuts) and ``slope z <= upper`` (valid rows), each times its scale."""
        slopes = sparse_rows(rows, self.width)  # type: ignore[arg-type]
        of = [(r, row.cut.block) for r, row in enumerate(rows) if row.cut is not None and not row.cut.feasibility]
        minus = sparse.csr_matrix(
            (-np.ones(len(of)), ([r for r, _ in of], [b for _, b in of])), shape=(len(rows), self.blocks)
        )
        scales = sparse.diags_array([row.scale for row in rows]) if rows else sparse.identity(0)
        return (scales @ sparse.hstack([slopes, minus])).tocsr()

    def solve(self) -> MasterAnswer:
        """Minimise; the bound is evaluated from the multipliers on the whole form, not taken from the solver."""
        answer = self._engine.solve(basis=self.basis)
        if answer.outcome is not Outcome.OPTIMAL or answer.x is None or answer.duals is None:
            return MasterAnswer(outcome=answer.outcome, seconds=answer.seconds)
        self.basis = self._engine.basis
        inner = self.split.outer_form
        z = np.clip(answer.x[: self.width], inner.col_lower, inner.col_upper)
        w = np.where(self._known, answer.x[self.width :], np.nan)
        first = inner.shape[0]
        weights = -answer.duals[first:] * np.array([row.scale for row in self.rows])
        active = np.abs(weights) > MULTIPLIER_TOLERANCE
        self.idle = [0 if on else age + 1 for on, age in zip(active.tolist(), self.idle, strict=True)]
        bound, duals = -np.inf, self._whole(answer.duals[:first], weights)
        if duals is not None:
            bound, duals = proved(self.split, duals)
        return MasterAnswer(
            outcome=answer.outcome, z=z, w=w, bound=bound, duals=duals, active=active, seconds=answer.seconds
        )

    def _whole(self, outer: Floats, weights: Floats) -> Floats | None:
        """Multipliers of the whole form: cuts are combinations of block rows, weighted to 1 for each block."""
        if not self.known:
            return None
        total = np.zeros(self.blocks)
        for row, weight in zip(self.rows, weights.tolist(), strict=True):
            if row.cut is not None and not row.cut.feasibility and weight > 0:
                total[row.cut.block] += weight
        if (np.abs(total - 1) > 1e-6).any():
            return None
        duals = np.zeros(self.split.form.shape[0])
        duals[self.split.outer_rows] = outer
        for row, weight in zip(self.rows, weights.tolist(), strict=True):
            if weight <= 0:
                continue
            if row.cut is None:
                duals[row.proof_rows] += weight * row.proof
            else:
                share = weight if row.cut.feasibility else weight / total[row.cut.block]
                duals[row.cut.rows] += share * row.cut.duals
        return duals

    def clean(self, age: int, min_rows: int) -> int:
        """Drop rows without a multiplier in the last ``age`` solves, while more than ``min_rows`` are there."""
        old = [r for r, idle in enumerate(self.idle) if idle >= age]
        old = old[: max(0, len(self.rows) - min_rows)]
        if not old or self.basis is None:
            return 0
        first = self.split.outer_form.shape[0]
        places = np.array(old) + first
        basic = self.basis.rows[places] == 1  # a basis loses a row only where its slack is basic
        old, places = [r for r, b in zip(old, basic.tolist(), strict=True) if b], places[basic]
        self._engine.delete_rows(places)
        self.basis = Basis(columns=self.basis.columns, rows=np.delete(self.basis.rows, places))
        gone = set(old)
        self.rows = [row for r, row in enumerate(self.rows) if r not in gone]
        self.idle = [idle for r, idle in enumerate(self.idle) if r not in gone]
        return len(old)
