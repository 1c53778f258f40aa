"""Lower a constraint family from its formula to terms, index tuples and kind, ready to be compiled.

Everything that can be wrong with a family as a whole is checked here, once for all of its rows.
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
from privopt.dsl.form import FamilyKind, VariableBlock
from privopt.dsl.linear import (
    Expression,
    Term,
    Where,
    as_expression,
    free_indices,
    linear_terms,
    read_tuples,
    split_exponential,
)
from privopt.dsl.symbols import Index, Variable
from privopt.errors import ModelError


@frozen(eq=False)
class Implication:
    """``binary = 1`` implies ``relation``. Written as ``implies(binary, relation)``."""

    binary: sympy.Expr
    relation: sympy.Rel

    def __str__(self) -> str:
        return f"{self.binary} = 1 -> {relation_text(self.relation)}"


Relation: TypeAlias = sympy.Rel | Implication
"""What a family of rows may say."""


def implies(binary: Expression, relation: sympy.Rel) -> Implication:
    """Return an indicator row: if the binary is 1 the relation holds, and if it is 0 it need not.

    It becomes rows with the smallest big-M that the bounds of the variables give, one for each row; without such
    bounds compiling is an error that names the variable.

    Args:
        binary: a binary variable ``h[j]`` or its opposite ``1 - h[j]``.
        relation: ``<=``, ``>=`` or ``Eq`` of linear expressions.
    """
    return Implication(as_expression(binary), relation)


@frozen(eq=False, kw_only=True)
class Family:
    """One symbolic constraint: ``sum of terms  (<= | >= | ==)  0`` for index tuples.

    Attributes:
        name: of the family.
        statement: relation or implication as it was written.
        terms: left side minus right side.
        operator: "<=", ">=" or "==".
        forall: indices of its rows.
        restricted, tuples: those of them that are restricted, and their places.
        kind: as in ``FamilyBlock``.
        privacy: True: it must be a privacy family; None: it is if it has that shape; False: it is not.
        switch: indicator rows only: the terms of the binary.
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


@frozen(eq=False, kw_only=True)
class Block:
    """Ready rows: ``lower <= matrix x[columns] <= upper``."""

    name: str
    matrix: sparse.csr_matrix
    lower: Floats
    upper: Floats
    columns: Ints
    kind: FamilyKind = field(default="block")


_OPERATORS = {sympy.Le: "<=", sympy.Ge: ">=", sympy.Eq: "=="}


def relation_text(relation: sympy.Rel) -> str:
    """Return a relation as text, each side as it was written."""
    return f"{relation.lhs} {_OPERATORS.get(type(relation), type(relation).__name__)} {relation.rhs}"


def _read_relation(relation: sympy.Rel, where: str) -> tuple[list[Term], str]:
    """Return the terms of left side minus right side, and the operator."""
    if relation in (True, False, sympy.true, sympy.false):
        raise ModelError(
            f"{where}: the relation is always {bool(relation)}; it speaks of no variable. "
            "Write it with Le, Ge or Eq to keep it as it is"
        )
    operator = _OPERATORS.get(type(relation))
    if operator is None:
        raise ModelError(f"{where}: {relation} must be <=, >= or Eq (strict relations and != cannot be rows)")
    terms = linear_terms(relation.lhs, where)
    # All terms move to the left side.
    terms += [negate_term(t) for t in linear_terms(relation.rhs, where)]
    if all(t.variable is None for t in terms):
        raise ModelError(f"{where}: {relation_text(relation)} speaks of no variable")
    return terms, operator


def negate_term(term: Term) -> Term:
    """Return the term with the opposite sign."""
    return Term(-term.coefficient, term.variable, term.indices, term.bindings)


def family(
    name: str,
    relation: Relation,
    forall: Index | Sequence[Index],
    where: Where | None,
    privacy: bool | None,
    kind: FamilyKind,
) -> Family:
    """Read one ``require``, and check its linearity, operator, indices and tuples."""
    location = f"family {name}"
    indices = (forall,) if isinstance(forall, Index) else tuple(forall)
    if not all(isinstance(x, Index) for x in indices):
        raise ModelError(f"{location}: forall must be indices, got {forall!r}")
    if len(set(indices)) < len(indices):
        raise ModelError(f"{location}: an index occurs twice in forall")
    switch: list[Term] = []
    row = relation
    if isinstance(relation, Implication):
        row, kind = relation.relation, "indicator"
        switch = linear_terms(relation.binary, f"{location}, binary")
    terms, operator = _read_relation(row, location)
    _check_indices(location, [*terms, *switch], indices)
    restricted: tuple[Index, ...] = ()
    tuples: tuple[Ints, ...] = ()
    if where is not None:
        try:
            restricted, tuples = read_tuples(indices, where)
        except ModelError as error:
            raise ModelError(f"{location}: {error}") from None
        if not set(restricted) <= set(indices):
            raise ModelError(
                f"{location}: where speaks of ({', '.join(map(str, restricted))}), "
                f"forall of ({', '.join(map(str, indices))})"
            )
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
    )
    if privacy and privacy_terms(result) is None:
        raise ModelError(f"{location}: a privacy row must be z_i <= exp(...) * z_j, got {relation_text(row)}")
    return result


def _check_indices(location: str, terms: Sequence[Term], indices: tuple[Index, ...]) -> None:
    """Check that each index of the terms is in forall or summed over, and not in both."""
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
    """Return the two terms of a row ``z_i <= exp(...) z_j``, or None if the family does not have that shape."""
    if family.kind != "rows" or family.operator == "==" or family.privacy is False:
        return None
    # A row like z <= exp(L) y + 0 still has the shape.
    terms = [t for t in family.terms if t.coefficient != 0]
    if len(terms) != 2 or any(t.variable is None or t.bindings for t in terms):
        return None
    if family.privacy is None and all(split_exponential(t.coefficient)[1] == 0 for t in terms):
        return None
    return terms[0], terms[1]


def variable_block(variable: Variable) -> VariableBlock:
    """Return the compiled form's record of a variable."""
    return VariableBlock(name=variable.name, start=variable.start, sets=variable.sets)


def piecewise_lines(
    name: str, shape: tuple[int, ...], breakpoints: ArrayLike, values: ArrayLike
) -> tuple[Floats, Floats, str]:
    # Slopes are quotients of differences; the slack keeps their rounding from turning a line into pieces.
    """Return lines whose maximum (convex) or minimum (concave) is the piecewise-linear function.

    Returns:
        Slopes and intercepts, shape (*shape, pieces), and "convex", "concave" or "linear" (one line).
    """
    points = np.asarray(breakpoints, dtype=np.float64)
    points = np.broadcast_to(points, (*shape, points.shape[-1])) if points.ndim else points.reshape(1)
    if not np.isfinite(points).all() or (np.diff(points, axis=-1) <= 0).any():
        raise ModelError(f"piecewise {name}: breakpoints must be finite and rise")
    if points.shape[-1] < 2:
        raise ModelError(f"piecewise {name}: must have two breakpoints or more, got one")
    heights = np.broadcast_to(np.asarray(values, dtype=np.float64), points.shape)
    # Piece p is the line slope * x + intercept through breakpoints p and p + 1.
    slopes = np.diff(heights, axis=-1) / np.diff(points, axis=-1)
    intercepts = heights[..., :-1] - slopes * points[..., :-1]
    if not (np.isfinite(slopes).all() and np.isfinite(intercepts).all()):
        raise ModelError(f"piecewise {name}: a value or slope is not finite")
    # A function is convex if its slopes never fall, concave if they never rise.
    bends = np.diff(slopes, axis=-1)
    slack = 1e-9 * (1 + np.abs(slopes).max(initial=0.0))
    if (np.abs(bends) <= slack).all():
        return slopes[..., :1], intercepts[..., :1], "linear"
    if (bends >= -slack).all():
        return slopes, intercepts, "convex"
    if (bends <= slack).all():
        return slopes, intercepts, "concave"
    bend_index = tuple(
        int(p) for p in np.argwhere((bends < -slack) & (bends.max(-1, keepdims=True) > slack))[:1].ravel()
    )
    raise ModelError(
        f"piecewise {name}: neither convex nor concave{f' at {bend_index}' if bend_index else ''}: slopes "
        f"{slopes[bend_index[:-1]] if bend_index else slopes}"
    )
