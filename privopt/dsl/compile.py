"""Compile a model's constraint families and objective to a ``StandardForm``.

Each family becomes one CSR block. Its index tuples are expanded to arrays of positions, on which NumPy evaluates the
coefficients. No Python loop runs over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from attrs import define, evolve, field
from scipy import sparse

from privopt.arrays import Floats, Ints, read_only
from privopt.dsl.form import SEMICONTINUOUS, FamilyBlock, StandardForm, round_integer_bounds
from privopt.dsl.linear import Coefficients, Places, Term
from privopt.dsl.lowering import Block, Family, privacy_terms, variable_block
from privopt.dsl.quadratic import QuadraticPart, QuadraticTerm, check_convexity, merge_parts
from privopt.dsl.row_kinds import Rows, build_indicator_rows, build_privacy_rows, switch_location
from privopt.dsl.symbols import Index, Param
from privopt.dsl.term_entries import bind_indices, location_text, term_entries, terms_matrix
from privopt.dsl.variables import Variable
from privopt.errors import ModelError

RowsKey = tuple[object, ...]
"""A key for a family's rows: the number of columns, the first column of each variable, and the parameters' revisions.

If the family's formula and the bounds are unchanged, equal keys mean equal rows."""


@define(eq=False)
class CompiledParts:
    """The results of a model's last compilation, kept so that the next one can reuse unchanged rows.

    Attributes:
        coefficients: The NumPy functions to which the model's symbolic coefficients were converted.
        form: The last compiled form, or None before the first compilation.
        objective: The terms of the compiled objective.
        keys: A mapping from each family's name to the compiled family and the cache key for its rows. A cache key
            depends on all inputs to the rows except variable bounds, and is None if the rows must be compiled every
            time.
    """

    coefficients: Coefficients = field(factory=Coefficients)
    form: StandardForm | None = None
    objective: Sequence[Term] = ()
    keys: dict[str, tuple[Family | Block, RowsKey | None]] = field(factory=dict)

    def drop_old_coefficients(self, families: Sequence[Family | Block], objective: Sequence[Term]) -> None:
        """Drop cached coefficient functions that the model no longer uses, to free their memory.

        Args:
            families: All current families of the model.
            objective: The terms of the model's current objective.
        """
        current = {id(family) for family in families}
        for family, _ in self.keys.values():
            if id(family) not in current:
                self.coefficients.drop(f"family {family.name}")
                self.coefficients.drop(switch_location(family))
        if self.objective is not objective:
            self.coefficients.drop("objective")


def compile_model(
    variables: Sequence[Variable],
    families: Sequence[Family | Block],
    objective: Sequence[Term],
    sense: Literal["min", "max"],
    parts: CompiledParts | None = None,
    quadratic: Sequence[QuadraticTerm] = (),
) -> StandardForm:
    """Compile a model to a ``StandardForm``, which consists of arrays of costs, bounds and sparse rows.

    Args:
        variables: All variables, in the order of their columns.
        families: Constraint families and blocks of precomputed rows, in the order in which to stack their rows.
        objective: The terms whose sum is minimised or maximised.
        sense: Whether the objective is minimised or maximised.
        parts: The results of the model's last compilation, which are updated in place. A family is compiled again only
            if its formula, parameters or bounds have changed. If None, all families are compiled.
        quadratic: The quadratic terms in the objective.

    Raises:
        ModelError: A coefficient is not finite, a lower bound exceeds its upper bound, a privacy or big-M constraint
            cannot be expressed as a row, or a quadratic objective has the wrong curvature.
    """
    parts = CompiledParts() if parts is None else parts
    n = sum(v.size for v in variables)
    empty = np.zeros(0)
    for variable in variables:
        variable.check_bounds()
    col_lower = np.concatenate([v.lower for v in variables]) if variables else empty
    col_upper = np.concatenate([v.upper for v in variables]) if variables else empty
    integrality = (
        np.concatenate([np.full(v.size, _domain_code(v), dtype=np.uint8) for v in variables]) if variables else empty
    )
    # This comes before the rows, because the big-M of an indicator row is computed from these bounds.
    col_lower, col_upper = round_integer_bounds(col_lower, col_upper, integrality)
    parts.drop_old_coefficients(families, objective)
    # The objective is compiled like a family of a single row.
    cost, constant = _compile_objective(objective, n, parts.coefficients)
    part = _compile_quadratic(quadratic, n, parts.coefficients) if quadratic else None
    has_old_bounds = (
        parts.form is not None
        and np.array_equal(parts.form.col_lower, col_lower)
        and np.array_equal(parts.form.col_upper, col_upper)
    )
    rows_of_families: list[Rows] = []
    keys: dict[str, tuple[Family | Block, RowsKey | None]] = {}
    start = 0
    for family in families:
        key = _rows_key(family, n)
        old_family, old_key = parts.keys.get(family.name, (None, None))
        is_same = family is old_family and key is not None and key == old_key
        if is_same and (has_old_bounds or not _depends_on_bounds(family)) and parts.form is not None:
            rows = _old_rows(parts.form, family.name)
        elif isinstance(family, Block):
            rows = _place_block(family, n)
        else:
            # A semicontinuous column may also be 0, whatever its lower bound.
            lowest = np.where(integrality == SEMICONTINUOUS, 0.0, col_lower)
            rows = _compile_family(family, n, lowest, col_upper, parts.coefficients)
        count = rows.matrix.shape[0]
        # Each family counts its rows from 0. Here they get their positions among all rows.
        rows_of_families.append(evolve(rows, block=evolve(rows.block, start=start, stop=start + count)))
        start += count
        keys[family.name] = (family, key)
    matrix = (
        sparse.vstack([p.matrix for p in rows_of_families], format="csr")
        if rows_of_families
        else sparse.csr_matrix((0, n))
    )
    form = StandardForm(
        c=cost if part is None else cost + part.linear,
        c0=constant if part is None else constant + part.constant,
        Q=None if part is None else part.matrix,
        sense=sense,
        A=matrix,
        row_lower=np.concatenate([p.lower for p in rows_of_families]) if rows_of_families else empty,
        row_upper=np.concatenate([p.upper for p in rows_of_families]) if rows_of_families else empty,
        col_lower=col_lower,
        col_upper=col_upper,
        integrality=integrality,
        families=tuple(p.block for p in rows_of_families),
        variables=tuple(variable_block(v) for v in variables),
    )
    if part is not None:
        check_convexity(part, sense, form.column_name)
    parts.form, parts.objective, parts.keys = form, objective, keys
    return form


def _domain_code(variable: Variable) -> int:
    """Return the code for a variable's columns in ``StandardForm.integrality``."""
    return SEMICONTINUOUS if variable.kind == "semicontinuous" else int(variable.integer)


def _rows_key(family: Family | Block, n: int) -> RowsKey | None:
    """Return a cache key for a family's compiled rows in a model with ``n`` columns.

    The key depends on all inputs to the rows except variable bounds, so the rows can be reused as long as the key and
    the bounds are unchanged. The result is None if the rows must be compiled every time.
    """
    if isinstance(family, Block):
        return None  # placing it takes less time than comparing its arrays
    params: set[Param] = set().union(*(t.coefficient.atoms(Param) for t in family.all_terms))
    if any(callable(p.source) for p in params):
        return None  # a function may return other numbers each time
    # Columns that stand for absolute values and extrema move if the model gets further variables.
    starts = tuple(t.variable.start for t in family.all_terms if t.variable is not None)
    return n, starts, frozenset((p, p.revision) for p in params)


def _depends_on_bounds(family: Family | Block) -> bool:
    """Return whether a family's rows depend on variable bounds, as they do for implications and privacy families."""
    return isinstance(family, Family) and (family.kind == "indicator" or privacy_terms(family) is not None)


def _old_rows(form: StandardForm, name: str) -> Rows:
    """Return the rows of the family ``name`` from an earlier form."""
    block = form.family(name)
    rows = slice(block.start, block.stop)
    return Rows(form.A[rows], form.row_lower[rows], form.row_upper[rows], block)


def _compile_objective(terms: Sequence[Term], n: int, coefficients: Coefficients) -> tuple[Floats, float]:
    """Return an objective's coefficients as an array of shape (n,), and its constant."""
    cost, constant = np.zeros(n), 0.0
    for term in terms:
        # No index is free in an objective, so each term is evaluated as if for a single row.
        _, columns, values = term_entries(term, {}, 1, "objective", coefficients)
        if columns is None:
            constant += float(values.sum())
        else:
            # A column can occur in several entries of a term, and indexed addition would count only one of them.
            cost += np.bincount(columns, weights=values, minlength=n)
    return cost, constant


def _compile_quadratic(terms: Sequence[QuadraticTerm], n: int, coefficients: Coefficients) -> QuadraticPart:
    """Compile the quadratic terms of an objective into a matrix over ``n`` columns, a linear part and a constant.

    Raises:
        ModelError: A coefficient is not finite.
    """
    where, parts = "objective", []
    for term in terms:
        places: Places = {}
        rows, size = np.arange(1), 1
        for binding in term.bindings:
            places, rows, size = bind_indices(binding, places, rows, size)
        weights = coefficients.get(term.coefficient, where)(places, size)
        if not np.isfinite(weights).all():
            entry = int(np.flatnonzero(~np.isfinite(weights))[0])
            actual = f"{weights[entry]}{location_text(places, entry)}"
            raise ModelError(f"{where}: the coefficient {term.coefficient} must be finite, got {actual}")
        left, left_constant = terms_matrix(term.left, places, size, n, where, coefficients)
        right, right_constant = (
            (left, left_constant) if term.is_square else terms_matrix(term.right, places, size, n, where, coefficients)
        )
        # The term is the sum of weight * (l x + l0) (r x + r0) over the rows l and r. QuadraticPart stands for x'
        # matrix x / 2, so its matrix is the product plus its transpose. Products of a row and a constant are linear.
        product = left.T @ sparse.diags(weights) @ right
        is_positive, is_negative = bool((weights >= 0).all()), bool((weights <= 0).all())
        parts.append(
            QuadraticPart(
                (product + product.T).tocsr(),
                left.T @ (weights * right_constant) + right.T @ (weights * left_constant),
                float((weights * left_constant) @ right_constant),
                int(is_positive) - int(is_negative) if term.is_square else 0,
            )
        )
    return merge_parts(parts)


def _row_positions(family: Family) -> tuple[dict[Index, Ints], int]:
    """Return the index values of each row of a family, as positions in their index sets.

    There is one row for each tuple of index values. Indices that are restricted by ``where`` take the values in the
    given tuples, and all other indices run over their whole sets.

    Returns:
        The positions as one array of shape (rows,) per index, and the number of rows.
    """
    places = dict(zip(family.restricted, family.tuples, strict=True))
    size = len(family.tuples[0]) if family.tuples else 1
    for index in family.forall:
        if index in places:
            continue
        n = len(index.index_set)
        # Form the product with one more set, in which every tuple so far is repeated n times, next to all positions of
        # the set.
        places = {i: np.repeat(p, n) for i, p in places.items()}
        places[index] = np.tile(np.arange(n), size)
        size *= n
    return {i: places[i] for i in family.forall}, size


def _compile_family(family: Family, n: int, col_lower: Floats, col_upper: Floats, coefficients: Coefficients) -> Rows:
    """Compile a symbolic constraint family into rows.

    Privacy rows and indicator rows are built by separate functions, because their coefficients differ from those in the
    formula.

    Args:
        family: The family to compile.
        n: The number of columns in the model.
        col_lower, col_upper: (n,) The column bounds.
        coefficients: The NumPy functions for the model's coefficients. Missing functions are added.

    Raises:
        ModelError: A row's lower bound exceeds its upper bound, a coefficient is not finite, or a privacy or big-M
            constraint cannot be expressed as a row.
    """
    places, size = _row_positions(family)
    block = FamilyBlock(
        name=family.name,
        start=0,
        stop=size,
        indices=tuple(i.name for i in family.forall),
        sets=tuple(i.index_set for i in family.forall),
        positions=tuple(read_only(p) for p in places.values()),
        kind=family.kind,
    )
    pair = privacy_terms(family)
    if pair is not None:
        privacy_rows = build_privacy_rows(family, pair, places, size, n, col_lower, block, coefficients)
        # The result is None if the coefficients show that these are not privacy rows. The family is then compiled like
        # any other.
        if privacy_rows is not None:
            return privacy_rows
    where = f"family {family.name}"
    # Only plain rows may have infinite bounds, because no big-M can be computed from these.
    is_row = family.kind == "rows"
    matrix, constant = terms_matrix(family.terms, places, size, n, where, coefficients, allow_infinite=is_row)
    infinite = np.full(size, np.inf)
    # The terms are the left side minus the right side, so their constant becomes the row's bound with the opposite
    # sign.
    lower = -infinite if family.operator == "<=" else -constant
    upper = infinite if family.operator == ">=" else -constant
    if family.upper_terms:
        # The upper side consists of constants, so its matrix is empty.
        _, upper_constant = terms_matrix(
            family.upper_terms, places, size, n, where, coefficients, allow_infinite=is_row
        )
        upper = -upper_constant
        crossed = np.flatnonzero(lower > upper)
        if crossed.size:
            row = int(crossed[0])
            excess = lower[row] - upper[row]
            raise ModelError(f"{block.row_name(row)}: its lower side is above its upper one by {excess}")
    rows = Rows(matrix, lower, upper, block)
    if family.kind != "indicator":
        return rows
    return build_indicator_rows(family, rows, places, n, col_lower, col_upper, coefficients)


def _place_block(block: Block, n: int) -> Rows:
    """Return a block's rows, with its matrix expanded to all ``n`` columns of the model."""
    # Several columns of the block can stand for the same column of the model. Building a CSR matrix adds up their
    # entries.
    source = block.matrix.tocoo()
    matrix = sparse.csr_matrix((source.data, (source.row, block.columns[source.col])), shape=(source.shape[0], n))
    family_block = FamilyBlock(name=block.name, start=0, stop=source.shape[0], kind="block")
    return Rows(matrix, block.lower, block.upper, family_block)
