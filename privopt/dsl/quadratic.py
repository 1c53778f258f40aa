"""Quadratic objectives: products and squares of linear expressions, and checks of their curvature.

A term is a sum of products ``d (f' x + f0) (s' x + s0)``, where d is a coefficient and both factors are linear
expressions in the columns x. It is compiled like two families of rows, one for each factor. Let F be the matrix with
the rows f', S the matrix with the rows s', and D the diagonal matrix of the coefficients d. The term's quadratic part
is then ``x' F' D S x``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import sympy
from attrs import evolve, frozen
from scipy import sparse

from privopt.arrays import Floats
from privopt.dsl.linear import SummedIndices, Term, linear_terms, unbound_indices
from privopt.dsl.symbols import Access, Index, Total
from privopt.dsl.variables import Variable
from privopt.errors import ModelError

MAX_BLOCK = 2000
"""The maximum number of variables in a block whose convexity is checked by computing eigenvalues."""
CURVATURE_ROUNDING = 1e-10
"""The amount by which rounding may push an eigenvalue below 0, as a fraction of the largest eigenvalue in the same
block."""


@frozen(eq=False)
class QuadraticTerm:
    """A term ``coefficient * left * right``, summed over ``bindings``.

    Attributes:
        coefficient: An expression in parameters, indices and numbers.
        left, right: The linear terms of the two factors, including constants.
        bindings: The sums that enclose the term, starting with the outermost.
        is_square: Whether both factors are the same expression.
    """

    coefficient: sympy.Expr
    left: tuple[Term, ...]
    right: tuple[Term, ...]
    bindings: tuple[SummedIndices, ...] = ()
    is_square: bool = False

    def free_indices(self) -> set[Index]:
        """Return the term's indices that are not summed over."""
        indices = set(self.coefficient.atoms(Index)).union(*(t.free_indices() for t in (*self.left, *self.right)))
        return unbound_indices(indices, self.bindings)


def degree(expression: sympy.Expr) -> float:
    """Return an expression's degree as a polynomial in the variables, or infinity if it is not a polynomial in them."""
    if not expression.has(Variable):
        return 0
    if isinstance(expression, Variable):
        return 1
    if isinstance(expression, Access):
        return int(isinstance(expression.base, Variable))
    if isinstance(expression, Total):
        return degree(expression.body)
    if expression.is_Add:
        return max(degree(part) for part in expression.args)
    if expression.is_Mul:
        return sum(degree(part) for part in expression.args)
    if expression.is_Pow and expression.exp.is_Integer and expression.exp > 0:
        return int(expression.exp) * degree(expression.base)
    return float("inf")


def quadratic_terms(expression: sympy.Expr, where: str) -> tuple[list[Term], list[QuadraticTerm]]:
    """Split an expression of degree 2 or less into linear and quadratic terms that add up to it.

    ``where`` is the part of the model to name in error messages.

    Raises:
        ModelError: A term is neither linear nor quadratic, a product of variables is multiplied by a sum, or the index
            of a sum is also used outside that sum. The message names the term.
    """
    if degree(expression) <= 1:
        return linear_terms(expression, where), []
    if isinstance(expression, Total):
        binding = SummedIndices(expression.over, expression.restriction)
        linear, quadratic = quadratic_terms(expression.body, where)
        return (
            [evolve(t, bindings=(binding, *t.bindings)) for t in linear],
            [evolve(t, bindings=(binding, *t.bindings)) for t in quadratic],
        )
    if expression.is_Add:
        parts = [quadratic_terms(part, where) for part in expression.args]
        return [t for linear, _ in parts for t in linear], [t for _, quadratic in parts for t in quadratic]
    if degree(expression) != 2:
        raise ModelError(f"{where}: the term {expression} is neither linear nor quadratic")
    # Of degree 2: a square, or a product of constants with two linear factors or one quadratic factor.
    if expression.is_Pow:
        factor = tuple(linear_terms(expression.base, where))
        return [], [QuadraticTerm(sympy.S.One, factor, factor, is_square=True)]
    constants = [x for x in expression.args if degree(x) == 0]
    factors = [x for x in expression.args if degree(x) > 0]
    coefficient = sympy.Mul(*constants)
    if coefficient.has(Total):
        raise ModelError(f"{where}: a sum multiplies {sympy.Mul(*factors)}; give it as a param")
    if len(factors) == 2:
        left, right = (tuple(linear_terms(factor, where)) for factor in factors)
        return [], [QuadraticTerm(coefficient, left, right)]
    linear, quadratic = quadratic_terms(factors[0], where)
    bindings = [binding for t in linear for binding in t.bindings] + [b for t in quadratic for b in t.bindings]
    bound_indices = {index for binding in bindings for index in binding.over}
    for index in sorted(bound_indices & coefficient.atoms(Index), key=str):
        raise ModelError(f"{where}: index {index} of a sum in {expression} is used outside it too; take another index")
    return (
        [evolve(t, coefficient=coefficient * t.coefficient) for t in linear],
        [evolve(t, coefficient=coefficient * t.coefficient) for t in quadratic],
    )


@frozen(eq=False)
class QuadraticPart:
    """Compiled quadratic terms, ``x' matrix x / 2 + linear x + constant``.

    Attributes:
        matrix: (n, n) The symmetric CSR matrix.
        linear: (n,) The coefficients of the linear part.
        constant: The constant part.
        square_sign: 1 if all terms are squares with nonnegative coefficients, -1 if all terms are squares with
            nonpositive coefficients, and 0 otherwise. It is also 0 if all coefficients of a term are 0.
    """

    matrix: sparse.csr_matrix
    linear: Floats
    constant: float
    square_sign: int


def check_convexity(part: QuadraticPart, sense: Literal["min", "max"], column_name: Callable[[int], str]) -> None:
    """Check that a quadratic objective is convex if it is minimised, and concave if it is maximised.

    If all terms are squares and no coefficient has the wrong sign, nothing else is checked. Otherwise, the variables
    are divided into blocks such that no product involves variables from different blocks, and the eigenvalues of each
    block are computed.

    Args:
        part: The objective's quadratic terms.
        sense: Whether the objective is minimised or maximised.
        column_name: A function that returns the name of a column, used in messages.

    Raises:
        ModelError: The objective has the wrong curvature, or a block is too large for its eigenvalues to be computed.
    """
    flip = 1 if sense == "min" else -1
    # A sum of squares whose signs suit the sense has the right curvature without further checks.
    if part.square_sign == flip:
        return
    shape, use = ("convex", "minimised") if sense == "min" else ("concave", "maximised")
    # Imported here, because it loads SciPy's linear algebra, which models without quadratic objectives do not need.
    from scipy.sparse.csgraph import connected_components

    _, labels = connected_components(part.matrix, directed=False)
    order = np.argsort(labels, kind="stable")
    for columns in np.split(order, np.cumsum(np.bincount(labels))[:-1]):
        block = flip * part.matrix[columns][:, columns]
        if len(columns) == 1:
            eigenvalues = block.toarray().ravel()
        elif len(columns) > MAX_BLOCK:
            raise ModelError(
                f"objective: {len(columns)} variables multiply one another, more than the {MAX_BLOCK} of which "
                f"it can be checked that the objective is {shape}; state it as a sum of squares"
            )
        else:
            eigenvalues = np.linalg.eigvalsh(block.toarray())
        if eigenvalues.min(initial=0.0) < -CURVATURE_ROUNDING * np.abs(eigenvalues).max(initial=0.0):
            names = ", ".join(column_name(int(column)) for column in columns[:3])
            raise ModelError(
                f"objective: a quadratic objective that is {use} must be {shape}, and this one is not in {names}"
                f"{' and others' if len(columns) > 3 else ''}"
            )


def merge_parts(parts: Sequence[QuadraticPart]) -> QuadraticPart:
    """Return the sum of one or more quadratic parts."""
    signs = {part.square_sign for part in parts}
    matrix = sum((part.matrix for part in parts[1:]), start=parts[0].matrix).tocsr()
    matrix.eliminate_zeros()
    return QuadraticPart(
        matrix,
        np.sum([part.linear for part in parts], axis=0),
        sum(part.constant for part in parts),
        signs.pop() if len(signs) == 1 else 0,
    )
