"""Convert a constraint family from a formula into the terms, index tuples and kind of row used to compile it.

Errors that concern a family as a whole are detected here, once for all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import sympy
from attrs import field, frozen
from numpy.typing import ArrayLike
from scipy import sparse

from privopt.arrays import Floats, Ints
from privopt.dsl.extrema import Epigraph, FunctionReplacer, has_functions
from privopt.dsl.form import FamilyKind, VariableBlock
from privopt.dsl.labelled import as_doubles
from privopt.dsl.linear import (
    Expression,
    Ge,
    Le,
    Term,
    Where,
    as_expression,
    free_indices,
    linear_terms,
    read_tuples,
    split_exponential,
)
from privopt.dsl.symbols import Index, VectorRelation
from privopt.dsl.variables import Variable
from privopt.errors import ModelError


@frozen(eq=False)
class Range:
    """A relation ``lower <= expression <= upper`` whose bounds contain no variables, created by :func:`between`."""

    lower: sympy.Expr
    expression: sympy.Expr
    upper: sympy.Expr

    def __str__(self) -> str:
        return f"{self.lower} <= {self.expression} <= {self.upper}"


@frozen(eq=False)
class Implication:
    """A relation that must hold whenever a binary variable is 1, created by :func:`implies`."""

    binary: sympy.Expr
    relation: sympy.Rel | Range

    def __str__(self) -> str:
        return f"{self.binary} = 1 -> {relation_text(self.relation)}"


Relation: TypeAlias = sympy.Rel | Range | Implication
"""A relation that can be expressed by the rows of a family."""


def broadcast_side(name: str, side_name: str, value: ArrayLike, rows: int) -> Floats:
    """Broadcast the lower or upper bounds of a block of rows to shape (rows,).

    Args:
        name: The name of the block, used in messages.
        side_name: "lower" or "upper", for messages.
        value: One number for all rows, or one for each row.
        rows: The number of rows.

    Raises:
        ModelError: The value is not numeric, does not fit the number of rows, or contains a NaN.
    """
    subject = f"block {name}: {side_name}"
    sides = _broadcast_numbers(subject, _read_numbers(subject, value), (rows,)).copy()
    if np.isnan(sides).any():
        raise ModelError(f"{subject} holds a NaN")
    return sides


def between(lower: Expression, expression: Expression, upper: Expression) -> Range:
    """Return the relation ``lower <= expression <= upper``, which is compiled to rows with two bounds.

    Args:
        lower, upper: Numbers or parameters, without variables.
        expression: A linear expression.

    Raises:
        ModelError: An argument is not an expression.
    """
    return Range(as_expression(lower), as_expression(expression), as_expression(upper))


def implies(binary: Expression, relation: sympy.Rel | Range) -> Implication:
    """Return a relation that must hold if a binary variable is 1, and need not hold if it is 0.

    It is compiled to big-M rows, each with the smallest M that the variables' bounds allow. If a variable lacks a bound
    that M depends on, compiling the model raises an error that names the variable.

    Args:
        binary: A binary variable ``h[j]`` or its complement ``1 - h[j]``.
        relation: A ``<=``, ``>=`` or ``Eq`` relation between linear expressions, or a range created by ``between``.

    Raises:
        ModelError: The binary is not an expression, or the relation is written between whole variables without indices.
    """
    if isinstance(relation, VectorRelation):
        raise ModelError(f"implies({binary}, ...): got a relation of whole variables; write it with indices")
    return Implication(as_expression(binary), relation)


@frozen(eq=False, kw_only=True)
class Family:
    """A symbolic constraint ``sum of terms  (<= | >= | ==)  0`` with one row for each of its index tuples.

    Attributes:
        name: The family's name.
        statement: The relation or implication as the user wrote it.
        terms: The terms of the left side minus those of the right side.
        operator: "<=", ">=" or "==".
        forall: The indices that the rows run over.
        restricted: The indices in ``forall`` whose values are restricted to given tuples.
        tuples: For each restricted index, an array of shape (number of tuples,) with the positions of its values.
        kind: The kind of row: "rows", "indicator" (big-M rows with a binary) or "piecewise".
        privacy: Whether the rows must (True) or must not (False) be treated as privacy rows ``z_i <= exp(...) z_j``. If
            None, this depends on the form of the relation.
        switch: For indicator rows, the terms of the binary ``h`` or of its complement ``1 - h``; () for other rows.
        upper_terms: For rows with two bounds, the constant terms of ``expression - upper``. For these rows, ``terms``
            contains all terms of ``expression - lower``, and the operator is ">=".
        epigraphs: The absolute values, minima and maxima in the relation, each of which is represented by a variable in
            the terms.
    """

    name: str
    statement: Relation
    terms: tuple[Term, ...]
    operator: str
    forall: tuple[Index, ...] = ()
    restricted: tuple[Index, ...] = ()
    tuples: tuple[Ints, ...] = ()
    kind: FamilyKind = "rows"
    privacy: bool | None = None
    switch: tuple[Term, ...] = ()
    upper_terms: tuple[Term, ...] = ()
    epigraphs: tuple[Epigraph, ...] = ()

    @property
    def all_terms(self) -> tuple[Term, ...]:
        """All terms that the rows depend on."""
        return (*self.terms, *self.switch, *self.upper_terms)


@frozen(eq=False, kw_only=True)
class Block:
    """Rows ``lower <= matrix x[columns] <= upper``, given as arrays instead of a formula.

    Attributes:
        name: The name of the block of rows.
        matrix: (rows, number of ``columns``) A CSR matrix.
        lower, upper: (rows,) The lower and upper bounds of the rows, infinite where a row is unbounded on that side.
        columns: The model's column index for each column of ``matrix``.
        kind: Always "block".
    """

    name: str
    matrix: sparse.csr_matrix
    lower: Floats
    upper: Floats
    columns: Ints
    kind: FamilyKind = field(default="block")


_OPERATORS = {sympy.Le: "<=", sympy.Ge: ">=", sympy.Eq: "=="}


def relation_operator(relation: sympy.Rel) -> str:
    """Return a relation's operator if it is "<=", ">=" or "==", and the name of the relation's class otherwise."""
    return next((text for kind, text in _OPERATORS.items() if isinstance(relation, kind)), type(relation).__name__)


def relation_text(relation: sympy.Rel | Range) -> str:
    """Return a relation as a string, with both sides as written by the user."""
    if isinstance(relation, Range):
        return str(relation)
    return f"{relation.lhs} {relation_operator(relation)} {relation.rhs}"


def _read_relation(relation: sympy.Rel, where: str) -> tuple[list[Term], str]:
    """Return the terms of a relation's left side minus its right side, and the relation's operator.

    ``where`` is the part of the model to name in error messages.

    Raises:
        ModelError: The relation cannot be expressed as a row, because its operator is unsuitable, it contains no
            variable, or one of its terms is not linear.
    """
    if isinstance(relation, np.ndarray):
        raise ModelError(
            f"{where}: must be a relation, got an array of shape {relation.shape}; a relation of whole variables, as "
            "A @ x <= b, states a row for each value, and one of numbers alone states nothing"
        )
    # Python or sympy has already evaluated a relation without variables.
    if relation in (True, False, sympy.true, sympy.false):
        raise ModelError(
            f"{where}: the relation is always {bool(relation)}; it contains no variable. Write it with Le, Ge or Eq "
            "to keep it as it is; == and != compare formulas, and state nothing"
        )
    operator = relation_operator(relation)
    if operator not in _OPERATORS.values():
        raise ModelError(f"{where}: {relation} must be <=, >= or Eq (strict relations and != cannot be rows)")
    terms = linear_terms(relation.lhs, where)
    # All terms move to the left side.
    terms += [negate_term(t) for t in linear_terms(relation.rhs, where)]
    if all(t.variable is None for t in terms):
        raise ModelError(f"{where}: {relation_text(relation)} contains no variable")
    return terms, operator


def _read_range(relation: Range, where: str) -> tuple[list[Term], str, list[Term]]:
    """Return the ``terms``, ``operator`` and ``upper_terms`` of the :class:`Family` that represents a range.

    ``where`` is the part of the model to name in error messages.

    Raises:
        ModelError: A bound contains a variable, the expression contains none, or a term is not linear.
    """
    terms, lower, upper = (linear_terms(x, where) for x in (relation.expression, relation.lower, relation.upper))
    if any(t.variable is not None for t in (*lower, *upper)):
        raise ModelError(f"{where}: the sides of {relation} must have no variables")
    if all(t.variable is None for t in terms):
        raise ModelError(f"{where}: {relation} contains no variable")
    constants = [t for t in terms if t.variable is None]
    return [*terms, *map(negate_term, lower)], ">=", [*constants, *map(negate_term, upper)]


def negate_term(term: Term) -> Term:
    """Return the term with the opposite sign."""
    return Term(-term.coefficient, term.variable, term.indices, term.bindings)


def build_family(
    name: str,
    relation: Relation,
    forall: Index | Sequence[Index],
    where: Where | None,
    privacy: bool | None,
    kind: FamilyKind,
) -> Family:
    """Create a family of rows from the arguments of ``Model.require``.

    This first checks that the relation is linear and that its operator, indices and index tuples are valid.

    Args:
        name: The family's name.
        relation: The relation or implication that each row expresses.
        forall: The indices of the rows.
        where: The index tuples to create rows for, in any form that ``read_tuples`` accepts, or None for all.
        privacy: Whether the rows must be privacy rows ``z_i <= exp(...) z_j``. If None, this is determined by the form
            of the relation.
        kind: The kind of row. For an implication, it is replaced by "indicator".

    Raises:
        ModelError: An argument is invalid. The message names the family.
    """
    location = f"family {name}"
    indices = (forall,) if isinstance(forall, Index) else tuple(forall)
    if not all(isinstance(x, Index) for x in indices):
        raise ModelError(f"{location}: forall must be indices, got {forall!r}")
    if len(set(indices)) < len(indices):
        raise ModelError(f"{location}: an index occurs twice in forall")
    switch: list[Term] = []
    # An implication is stored as its relation, with the terms of its binary (the switch) kept separately.
    row = relation
    if isinstance(relation, Implication):
        row, kind = relation.relation, "indicator"
        switch = linear_terms(relation.binary, f"{location}, binary")
    restricted: tuple[Index, ...] = ()
    tuples: tuple[Ints, ...] = ()
    if where is not None:
        try:
            restricted, tuples = read_tuples(indices, where)
        except ModelError as error:
            raise ModelError(f"{location}: {error}") from None
        if not set(restricted) <= set(indices):
            raise ModelError(
                f"{location}: where has the indices ({', '.join(map(str, restricted))}), forall has "
                f"({', '.join(map(str, indices))})"
            )
    replacer = FunctionReplacer(name, ((restricted, tuples),))
    row = _replace_functions(row, replacer, location, is_implied=bool(switch))
    # Linearity, operator and indices are checked on the formula, once for all rows.
    upper_terms: list[Term] = []
    if isinstance(row, Range):
        terms, operator, upper_terms = _read_range(row, location)
    else:
        terms, operator = _read_relation(row, location)
    _check_indices(location, [*terms, *switch, *upper_terms], indices)
    result = Family(
        name=name,
        statement=relation,
        terms=tuple(terms),
        operator=operator,
        forall=indices,
        restricted=restricted,
        tuples=tuples,
        kind=kind,
        privacy=privacy,
        switch=tuple(switch),
        upper_terms=tuple(upper_terms),
        epigraphs=tuple(replacer.epigraphs),
    )
    # A user who declares a privacy family must not get ordinary rows, whose factors a solver may round either way.
    if privacy and privacy_terms(result) is None:
        raise ModelError(f"{location}: a privacy row must be z_i <= exp(...) * z_j, got {relation_text(row)}")
    return result


def _replace_functions(
    row: sympy.Rel | Range, replacer: FunctionReplacer, location: str, *, is_implied: bool
) -> sympy.Rel | Range:
    """Return a copy of a relation in which absolute values, minima and maxima are replaced by variables.

    Args:
        row: The relation.
        replacer: The object that replaces the functions and records the replacements.
        location: The part of the model to name in error messages.
        is_implied: Whether the relation belongs to an implication.

    Raises:
        ModelError: An absolute value, minimum or maximum occurs in an implication or in a bound of a range.
    """
    sides = (row.lower, row.expression, row.upper) if isinstance(row, Range) else getattr(row, "args", ())
    if not any(isinstance(side, sympy.Expr) and has_functions(side) for side in sides):
        return row
    if is_implied:
        raise ModelError(
            f"{location}: an absolute value or extremum cannot be in an implication; write an implication for each of "
            "its expressions, as between(-b, e, b) for abs(e) <= b"
        )
    if isinstance(row, Range):
        if has_functions(row.lower) or has_functions(row.upper):
            raise ModelError(f"{location}: the sides of {row} must have no variables")
        return Range(row.lower, replacer.replace(row.expression), row.upper)
    return row.func(replacer.replace(row.lhs), replacer.replace(row.rhs), evaluate=False)


def line_families(epigraph: Epigraph) -> list[Family]:
    """Return one family of rows for each line of an epigraph, which represents a piecewise-linear function.

    The rows keep the epigraph's variable on or above the line if the function is convex, and on or below it if the
    function is concave.
    """
    relation = Ge if epigraph.is_convex else Le
    return [
        build_family(name, relation(epigraph.term, line.body), line.indices, line.where, False, "piecewise")
        for name, line in zip(epigraph.line_names, epigraph.lines, strict=True)
    ]


def _check_indices(location: str, terms: Sequence[Term], indices: tuple[Index, ...]) -> None:
    """Check that a relation and its ``forall`` use the same indices.

    Each index in the terms must either be in ``forall`` or be summed over, and each index in ``forall`` must be used.

    Args:
        location: The part of the model to name in error messages.
        terms: The terms of the relation.
        indices: The indices in ``forall``.
    """
    free = free_indices(terms)
    for term in terms:
        for index in sorted(term.free_indices() - set(indices), key=str):
            raise ModelError(f"{location}: index {index} of the term {term} is neither in forall nor summed over")
        for binding in term.bindings:
            for index in binding.over:
                if index in indices:
                    raise ModelError(f"{location}: index {index} is both in forall and summed over in the term {term}")
    for index in indices:
        if index not in free:
            raise ModelError(f"{location}: index {index} is in forall but in no term: its rows would all be the same")


def privacy_terms(family: Family) -> tuple[Term, Term] | None:
    """Return the two terms of rows ``z_i <= exp(...) z_j``, or None if the family's formula does not have this form.

    The result is also None for families declared not to be privacy rows. Only the formula is examined here; signs and
    bounds are checked when the rows are compiled.
    """
    if family.kind != "rows" or family.operator == "==" or family.privacy is False or family.upper_terms:
        return None
    # Terms with coefficient 0 do not matter, as in z <= exp(L) y + 0.
    terms = [t for t in family.terms if t.coefficient != 0]
    if len(terms) != 2 or any(t.variable is None or t.bindings for t in terms):
        return None
    # Without an exponential, z_i <= 2 z_j is a row like any other, unless it is declared a privacy row.
    if family.privacy is None and all(split_exponential(t.coefficient)[1] == 0 for t in terms):
        return None
    return terms[0], terms[1]


def variable_block(variable: Variable) -> VariableBlock:
    """Return the block of columns that a variable occupies in the compiled form, including the column names."""
    return VariableBlock(name=variable.name, start=variable.start, sets=variable.sets)


def _read_numbers(subject: str, values: ArrayLike) -> Floats:
    """Convert values to an array of doubles.

    If they are not numbers, raise a ModelError whose message begins with ``subject``.
    """
    try:
        return as_doubles(values)
    except (TypeError, ValueError):
        raise ModelError(f"{subject} must be numbers") from None


def _broadcast_numbers(subject: str, values: Floats, shape: tuple[int, ...]) -> Floats:
    """Broadcast values to a shape. If they do not fit, raise a ModelError whose message begins with ``subject``."""
    try:
        return np.broadcast_to(values, shape)
    except ValueError:
        raise ModelError(f"{subject} must fit shape {shape}, got {values.shape}") from None


def piecewise_lines(
    name: str, shape: tuple[int, ...], breakpoints: ArrayLike, values: ArrayLike
) -> tuple[Floats, Floats, str]:
    """Express a piecewise-linear function as the maximum (if convex) or minimum (if concave) of lines.

    Args:
        name: The name of the piecewise term, used in messages.
        shape: The sizes of the sets that the term is indexed by, or () for a single function.
        breakpoints: Two or more increasing numbers, either an array of shape (B,) shared by all functions, or an array
            of shape (*shape, B) with separate breakpoints for each function.
        values: The functions' values at the breakpoints, in a shape that broadcasts to (*shape, B).

    Returns:
        The slopes and intercepts of the lines, each of shape (*shape, pieces), and "convex", "concave" or "linear" (a
        single line).

    Raises:
        ModelError: There are fewer than two breakpoints, the breakpoints do not increase, the numbers have the wrong
            shape or are not finite, a function is neither convex nor concave, or some functions are convex and others
            concave.
    """
    points = _read_numbers(f"piecewise {name}: breakpoints", breakpoints)
    points = points if points.ndim else points.reshape(1)
    points = _broadcast_numbers(f"piecewise {name}: breakpoints", points, (*shape, points.shape[-1]))
    if not np.isfinite(points).all() or (np.diff(points, axis=-1) <= 0).any():
        raise ModelError(f"piecewise {name}: breakpoints must be finite and rise")
    if points.shape[-1] < 2:
        raise ModelError(f"piecewise {name}: must have two breakpoints or more, got one")
    heights = _read_numbers(f"piecewise {name}: values", values)
    heights = _broadcast_numbers(f"piecewise {name}: values", heights, points.shape)
    # Piece p is the line slope * x + intercept through breakpoints p and p + 1.
    slopes = np.diff(heights, axis=-1) / np.diff(points, axis=-1)
    intercepts = heights[..., :-1] - slopes * points[..., :-1]
    if not (np.isfinite(slopes).all() and np.isfinite(intercepts).all()):
        raise ModelError(f"piecewise {name}: a value or slope is not finite")
    # A function is convex if its slopes never fall, concave if they never rise.
    bends = np.diff(slopes, axis=-1)
    # Slopes are quotients of differences. The slack prevents their rounding errors from splitting a line into pieces.
    # It is relative to each function's own numbers, because a bend of 1e-10 is all that a function of small values has.
    rounding = 2.0**-50 * np.abs(heights).max(axis=-1, keepdims=True) / np.diff(points, axis=-1).min(-1, keepdims=True)
    slack = 1e-9 * np.abs(slopes).max(axis=-1, keepdims=True) + rounding
    if (np.abs(bends) <= slack).all():
        return slopes[..., :1], intercepts[..., :1], "linear"
    if (bends >= -slack).all():
        return slopes, intercepts, "convex"
    if (bends <= slack).all():
        return slopes, intercepts, "concave"
    # Name the first function that bends both ways, and its first bend downwards.
    bend_index = tuple(
        int(p) for p in np.argwhere((bends < -slack) & (bends.max(-1, keepdims=True) > slack))[:1].ravel()
    )
    raise ModelError(
        f"piecewise {name}: neither convex nor concave{f' at {bend_index}' if bend_index else ''}: slopes "
        f"{slopes[bend_index[:-1]] if bend_index else slopes}"
    )
