"""Lower a family of constraints towards arrays: its formula, its index tuples, its implications and pieces."""

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
    restrict,
    split_exponential,
)
from privopt.dsl.symbols import Index, Variable
from privopt.errors import ModelError


@frozen(eq=False)
class Implication:
    """``binary = 1`` implies ``relation``. Made by ``implies``."""

    binary: sympy.Expr
    relation: sympy.Rel

    def __str__(self) -> str:
        return f"{self.binary} = 1 -> {relation_text(self.relation)}"


Relation: TypeAlias = sympy.Rel | Implication
"""What a family of rows may say."""


def implies(binary: Expression, relation: sympy.Rel) -> Implication:
    """Return an indicator row: where the binary is 1 the relation holds, where it is 0 it need not.

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
        shown: relation or implication as it was written.
        terms: left side minus right side.
        operator: "<=", ">=" or "==".
        forall: indices of its rows.
        restricted, tuples: those of them that are restricted, and their places.
        kind: as in ``FamilyBlock``.
        privacy: True: it must be a privacy family; None: it is where it has that shape; False: it is not.
        switch: indicator rows only: the terms of the binary.
    """

    name: str
    shown: Relation
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


def _relation(relation: sympy.Rel, where: str) -> tuple[list[Term], str]:
    if relation in (True, False, sympy.true, sympy.false):
        raise ModelError(
            f"{where}: the relation is always {bool(relation)}; it speaks of no variable. "
            "Write it with Le, Ge or Eq to keep it as it is"
        )
    operator = _OPERATORS.get(type(relation))
    if operator is None:
        raise ModelError(f"{where}: {relation} must be <=, >= or Eq (strict relations and != cannot be rows)")
    terms = linear_terms(relation.lhs, where)
    terms += [negative(t) for t in linear_terms(relation.rhs, where)]
    if all(t.variable is None for t in terms):
        raise ModelError(f"{where}: {relation_text(relation)} speaks of no variable")
    return terms, operator


def negative(term: Term) -> Term:
    """Return the term with the other sign."""
    return Term(-term.coefficient, term.variable, term.indices, term.bindings)


def family(
    name: str,
    relation: Relation,
    forall: Index | Sequence[Index],
    where: Where | None,
    privacy: bool | None,
    kind: FamilyKind,
) -> Family:
    """Read one ``require``: linearity, operator, indices and tuples are checked here, once for all rows."""
    place = f"family {name}"
    indices = (forall,) if isinstance(forall, Index) else tuple(forall)
    if not all(isinstance(x, Index) for x in indices):
        raise ModelError(f"{place}: forall must be indices, got {forall!r}")
    if len(set(indices)) < len(indices):
        raise ModelError(f"{place}: an index occurs twice in forall")
    switch: list[Term] = []
    row = relation
    if isinstance(relation, Implication):
        row, kind = relation.relation, "indicator"
        switch = linear_terms(relation.binary, f"{place}, binary")
    terms, operator = _relation(row, place)
    _check_indices(place, [*terms, *switch], indices)
    restricted: tuple[Index, ...] = ()
    tuples: tuple[Ints, ...] = ()
    if where is not None:
        try:
            restricted, tuples = restrict(indices, where)
        except ModelError as error:
            raise ModelError(f"{place}: {error}") from None
        if not set(restricted) <= set(indices):
            raise ModelError(
                f"{place}: where speaks of ({', '.join(map(str, restricted))}), "
                f"forall of ({', '.join(map(str, indices))})"
            )
    made = Family(
        name=name,
        shown=relation,
        terms=tuple(terms),
        operator=operator,
        forall=indices,
        restricted=restricted,
        tuples=tuples,
        kind=kind,
        privacy=privacy,
        switch=tuple(switch),
    )
    if privacy and privacy_terms(made) is None:
        raise ModelError(f"{place}: a privacy row must be z_i <= exp(...) * z_j, got {relation_text(row)}")
    return made


def _check_indices(place: str, terms: Sequence[Term], indices: tuple[Index, ...]) -> None:
    free = free_indices(terms)
    for term in terms:
        for index in sorted(term.free() - set(indices), key=str):
            raise ModelError(f"{place}: index {index} of the term {term} is neither in forall nor summed over")
        for binding in term.bindings:
            for index in binding.over:
                if index in indices:
                    raise ModelError(f"{place}: index {index} is both in forall and summed over in the term {term}")
    for index in indices:
        if index not in free:
            raise ModelError(f"{place}: index {index} is in forall but in no term: its rows would all be the same")


def privacy_terms(family: Family) -> tuple[Term, Term] | None:
    """Return the two terms of a row ``z_i <= exp(...) z_j``, or None where the family is not of that shape."""
    if family.kind != "rows" or family.operator == "==" or family.privacy is False:
        return None
    terms = [t for t in family.terms if t.coefficient != 0]
    if len(terms) != 2 or any(t.variable is None or t.bindings for t in terms):
        return None
    if family.privacy is None and all(split_exponential(t.coefficient)[1] == 0 for t in terms):
        return None
    return terms[0], terms[1]


def variable_block(variable: Variable) -> VariableBlock:
    """Return the variable as the compiled form knows it."""
    return VariableBlock(name=variable.name, start=variable.start, sets=variable.sets)


def piecewise_lines(
    name: str, shape: tuple[int, ...], breakpoints: ArrayLike, values: ArrayLike
) -> tuple[Floats, Floats, str]:
    """Return lines whose maximum (convex) or minimum (concave) is the piecewise-linear function.

    Returns:
        Slopes and intercepts, shape (*shape, pieces), and "convex", "concave" or "linear" (one line).
    """
    at = np.asarray(breakpoints, dtype=np.float64)
    at = np.broadcast_to(at, (*shape, at.shape[-1])) if at.ndim else at.reshape(1)
    if not np.isfinite(at).all() or (np.diff(at, axis=-1) <= 0).any():
        raise ModelError(f"piecewise {name}: breakpoints must be finite and rise")
    if at.shape[-1] < 2:
        raise ModelError(f"piecewise {name}: must have two breakpoints or more, got one")
    heights = np.broadcast_to(np.asarray(values, dtype=np.float64), at.shape)
    rise = np.diff(heights, axis=-1) / np.diff(at, axis=-1)
    lift = heights[..., :-1] - rise * at[..., :-1]
    if not (np.isfinite(rise).all() and np.isfinite(lift).all()):
        raise ModelError(f"piecewise {name}: a value or slope is not finite")
    bends = np.diff(rise, axis=-1)
    slack = 1e-9 * (1 + np.abs(rise).max(initial=0.0))
    if (np.abs(bends) <= slack).all():
        return rise[..., :1], lift[..., :1], "linear"
    if (bends >= -slack).all():
        return rise, lift, "convex"
    if (bends <= slack).all():
        return rise, lift, "concave"
    place = tuple(int(p) for p in np.argwhere((bends < -slack) & (bends.max(-1, keepdims=True) > slack))[:1].ravel())
    raise ModelError(
        f"piecewise {name}: neither convex nor concave{f' at {place}' if place else ''}: slopes "
        f"{rise[place[:-1]] if place else rise}"
    )
