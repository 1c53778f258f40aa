"""Expressions over whole sets, such as ``c * z``, whose indices are not written, and their relations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy
from scipy import sparse

from privopt.arrays import Floats, Ints
from privopt.dsl.labelled import as_doubles, match_labels
from privopt.dsl.operators import Operators, as_plain
from privopt.dsl.relations import MisuseError, NoCondition
from privopt.dsl.sets import IndexSet
from privopt.dsl.sums import Index, Restriction, Total
from privopt.dsl.symbols import Access, Indexable, Param
from privopt.errors import ModelError


def index_names(count: int) -> list[str]:
    """Return names for the indices of a vector: i, j, k, l, then with numbers."""
    return [*"ijkl", *(f"i{number}" for number in range(count))][:count]


class VectorExpression(Operators):
    """An expression over the product of sets, without indices in its spelling, such as ``c * z``.

    A model takes relations of such expressions as families, and their sums as objectives.

    >>> import numpy as np
    >>> from privopt.dsl import Index, IndexSet, Model
    >>> m, X = Model("diet"), IndexSet("X", 3)
    >>> z = m.variable("z", X)
    >>> m.minimize((np.array([1.0, 2.0, 3.0]) * z).sum())
    >>> m.require("least", z + 1 >= np.array([1.0, 3.0, 2.0]))
    >>> round(m.solve("highs").objective, 6)
    7.0

    Attributes:
        indices: An index for each set.
        formula: The expression in these indices.
    """

    __slots__ = ("formula", "indices")
    __hash__ = None  # type: ignore[assignment]

    indices: tuple[Index, ...]
    formula: sympy.Expr

    def __init__(self, indices: tuple[Index, ...], formula: sympy.Expr) -> None:
        """Create the expression of a formula in indices."""
        self.indices, self.formula = indices, formula

    def __repr__(self) -> str:
        ranges = ", ".join(f"{index.name} in {index.index_set.name}" for index in self.indices)
        return f"({self.formula} for {ranges})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the sets."""
        return tuple(len(index.index_set) for index in self.indices)

    def __eq__(self, other: object) -> bool:
        raise ModelError("== does not state an equation: write Eq(left, right)")

    def __bool__(self) -> bool:
        raise MisuseError(f"{self} is no condition; its values are numbers only after a solve")

    def _as_vector(self) -> VectorExpression:
        return self

    def map_values(self, function: Callable[[Any], Any]) -> VectorExpression:
        """Return the expression with a function applied to each of its values."""
        return VectorExpression(self.indices, function(self.formula))

    def combine_with(self, operator: Callable[[Any, Any], Any], other: Any) -> VectorExpression:
        """Return ``operator(self, other)`` elementwise; ``other`` is whatever :meth:`read_operand` takes."""
        indices, formula, operand = self.align(other)
        return VectorExpression(indices, operator(formula, operand))

    def align(self, other: Any) -> tuple[tuple[Index, ...], sympy.Expr, sympy.Expr]:
        """Return common indices of this expression and another operand, and both as formulas in these."""
        operand, indices = self.read_operand(other), self.indices
        if isinstance(other, Operators) and (vector := other._as_vector()) is not None:
            # Of two sets the declared one has the labels.
            indices = tuple(b if _is_axis(a.index_set) else a for a, b in zip(indices, vector.indices, strict=True))
            # The operand is already in the indices of this expression.
            other_indices = dict(zip(self.indices, indices, strict=True))
            return indices, replace_indices(self.formula, other_indices), replace_indices(operand, other_indices)
        return indices, self.formula, operand

    def read_operand(self, other: Any) -> sympy.Expr:
        """Return a number, array, scalar, vector or whole variable as a formula in the indices of this expression.

        Arrays are broadcast as NumPy does. Labelled data (dicts, pandas, polars) are matched by label.

        Raises:
            ModelError: The sets or the shape do not fit.
        """
        if isinstance(other, Indexable):
            vector = other._as_vector()
            other = other if vector is None else vector
        if isinstance(other, VectorExpression):
            is_same = len(other.indices) == len(self.indices) and all(
                _fits(a.index_set, b.index_set) for a, b in zip(self.indices, other.indices, strict=True)
            )
            if not is_same:
                raise ModelError(f"{self} and {other} run over different sets; write them with indices")
            return replace_indices(other.formula, dict(zip(other.indices, self.indices, strict=True)))
        if isinstance(other, sympy.Expr | int | float | np.number) and not isinstance(other, bool):
            return sympy.sympify(other.item() if isinstance(other, np.number) else other)
        sets = tuple(index.index_set for index in self.indices)
        values = match_labels(other, sets, f"array beside {self}")
        try:
            numbers = as_doubles(values)
        except (TypeError, ValueError):
            raise ModelError(f"{self} meets a {type(other).__name__}, and must meet numbers") from None
        try:
            numbers = np.broadcast_to(numbers, self.shape)
        except ValueError:
            names = ", ".join(f"{s.name} ({len(s)})" for s in sets)
            raise ModelError(f"an array of shape {numbers.shape} does not fit {self} over {names}") from None
        return Access(Param("array", sets, numbers), *self.indices)

    def multiply_matrix(self, matrix: Any, *, is_left: bool) -> VectorExpression | sympy.Expr:
        """Return ``matrix @ self``, or ``self @ matrix`` if the matrix is not on the left.

        Args:
            matrix: A vector or matrix of numbers, dense or of SciPy's sparse kinds.
            is_left: Whether the matrix is on the left.
        """
        if len(self.indices) != 1:
            raise ModelError(f"{self} runs over {len(self.indices)} sets: @ takes an expression over one")
        if isinstance(matrix, VectorExpression | Indexable):
            raise ModelError(f"@ takes a vector or matrix of numbers beside {self}, got {matrix}; write (x * y).sum()")
        (index,), is_sparse = self.indices, sparse.issparse(matrix)
        try:
            numbers: Any = matrix.tocsr() if is_sparse else np.asarray(matrix, dtype=np.float64)
        except (TypeError, ValueError):
            raise ModelError(f"@: a matrix beside {self} must be of numbers, got a {type(matrix).__name__}") from None
        numbers = numbers if is_left or numbers.ndim == 1 else numbers.T
        size = len(index.index_set)
        if numbers.ndim not in (1, 2) or numbers.shape[-1] != size:
            shape = "(..., " + f"{size})" if is_left else f"({size}, ...)"
            raise ModelError(f"@: a matrix beside {self} must have shape {shape}, got {np.shape(matrix)}")
        if numbers.ndim == 1:
            return self.combine_with(lambda a, b: b * a, numbers).sum()
        row = Index("row", IndexSet("axis 0", numbers.shape[0]))
        sets = (row.index_set, index.index_set)
        if not is_sparse:
            formula = Access(Param("matrix", sets, numbers), row, index) * self.formula
            return VectorExpression((row,), Total(as_plain(formula), sympy.Tuple(index)))
        entries = numbers.tocsr().tocoo()
        restriction = Restriction((row, index), (entries.row.astype(np.int64), entries.col.astype(np.int64)))
        entry_values = Param("matrix", sets, _SparseLookup(numbers.tocsr()))
        formula = Access(entry_values, row, index) * self.formula
        return VectorExpression((row,), Total(as_plain(formula), sympy.Tuple(index), restriction))


def replace_indices(formula: sympy.Expr, new_indices: dict[Index, Index]) -> sympy.Expr:
    """Return a formula with other indices, also in the restrictions of its sums, which sympy does not look into."""
    restrictions = {
        restriction: Restriction(tuple(new_indices.get(x, x) for x in restriction.indices), restriction.positions)
        for restriction in formula.atoms(Restriction)
        if not new_indices.keys().isdisjoint(restriction.indices)
    }
    return formula.xreplace({**new_indices, **restrictions})


class _SparseLookup:
    """The entries of a sparse matrix as a function of arrays of rows and columns."""

    def __init__(self, matrix: sparse.csr_matrix) -> None:
        """Keep a matrix."""
        self.matrix = matrix

    def __call__(self, rows: Ints, columns: Ints) -> Floats:
        """Return the entries of these rows and columns, shape (size,)."""
        return np.asarray(self.matrix[rows, columns], dtype=np.float64).ravel()


def _fits(a: IndexSet, b: IndexSet) -> bool:
    """Return whether two sets are the same, or one is an unnamed axis of the other's size."""
    return a.same_as(b) or (len(a) == len(b) and (_is_axis(a) or _is_axis(b)))


def _is_axis(index_set: IndexSet) -> bool:
    """Return whether a set is an unnamed axis of an array that was given without its sets."""
    return index_set.name.startswith("axis ")


class VectorRelation(NoCondition):
    """A relation of vectors, which states a row for each of their values.

    Attributes:
        relation: The relation in indices.
        indices: The indices of the rows.
    """

    __slots__ = ("indices", "relation")

    def __init__(self, relation: sympy.Rel, indices: tuple[Index, ...]) -> None:
        """Create a relation with a row for each value of the indices."""
        self.relation, self.indices = relation, indices

    def __repr__(self) -> str:
        return f"({self.relation} for {', '.join(index.name for index in self.indices)})"


def is_vector(value: Any) -> bool:
    """Return whether a side of a relation makes it one of vectors: an array, or an expression without indices."""
    return isinstance(value, VectorExpression | np.ndarray)


def vector_relation(kind: type[sympy.Rel], left: Any, right: Any) -> VectorRelation:
    """Return the relation of two sides, of which one is a vector, and the other whatever fits it."""
    vectors = [side._as_vector() if isinstance(side, Operators) else None for side in (left, right)]
    if vectors[0] is not None:
        indices, left_formula, right_formula = vectors[0].align(right)
    elif vectors[1] is not None:
        indices, right_formula, left_formula = vectors[1].align(left)
    else:
        scalar = right if isinstance(left, np.ndarray) else left
        raise ModelError(
            f"{scalar} meets an array; write the array with indices, as p[i], where p is a param, or compare it with a "
            "whole variable"
        )
    return VectorRelation(kind(as_plain(left_formula), as_plain(right_formula), evaluate=False), indices)
