"""Parameters as sympy atoms, indexed parameters and variables such as ``z[i, k]``, and expressions over whole sets.

Parameters and variables are ``Dummy`` symbols, so two objects with the same name are never equal. The classes have
slots, so that assigning to a misspelt attribute raises an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import sympy
from numpy.typing import ArrayLike
from scipy import sparse

from privopt.arrays import Floats, Ints, read_only
from privopt.dsl.labelled import as_double_matrix, as_doubles, match_labels, refuse_masked
from privopt.dsl.operators import Operators, as_number, as_plain, refuse_array_beside
from privopt.dsl.relations import MisuseError, NoCondition
from privopt.dsl.sets import Axis, IndexSet
from privopt.dsl.sums import Index, Restriction, Total, latex_name
from privopt.errors import ModelError

__all__ = [
    "Access",
    "Index",
    "IndexSet",
    "Param",
    "Restriction",
    "Source",
    "Total",
    "VectorExpression",
    "VectorRelation",
    "vector_relation",
]

Source: TypeAlias = Callable[..., ArrayLike]
"""A function that takes an integer array of positions for each index, and returns an array of values."""

# The size of the axes of a function without declared sets, which accepts index sets of any size.
_ANY = 2**62


class Indexable(Operators, sympy.Dummy):  # type: ignore[misc]
    """Base class for variables and parameters: symbols with a name and index sets, which are indexed with ``[...]``."""

    __slots__ = ("sets",)

    sets: tuple[IndexSet, ...]

    def _sympystr(self, printer: Any) -> str:
        return str(self.name)

    _sympyrepr = _sympystr

    def _latex(self, printer: Any) -> str:
        return latex_name(self.name)

    def __getitem__(self, key: Any) -> Access:
        """Index the variable or parameter, as in ``z[i, k]``. Each index is an index expression, a label or a position.

        Raises:
            ModelError: The number of indices is wrong, or an index does not fit its set.
        """
        indices = key if isinstance(key, tuple) else (key,)
        axes = self.axes(len(indices))
        if len(indices) != len(axes):
            set_names = ", ".join(s.name for s in axes) or "nothing"
            raise ModelError(f"{self.name} must have {len(axes)} indices ({set_names}), got {len(indices)}")
        return Access(
            self, *(self._check_index(x, s, number) for number, (x, s) in enumerate(zip(indices, axes, strict=True)))
        )

    def _check_index(self, value: Any, index_set: IndexSet, number: int) -> sympy.Expr:
        """Check a single index of an access such as ``z[i, k]``, and convert a label to its position.

        Args:
            value: An index expression, a label, or a position.
            index_set: The index set of this axis.
            number: The number of the axis, used in messages.
        """
        if isinstance(value, sympy.Expr):
            # An expression of indices, such as i + 1, is checked again when its values are known.
            for index in value.atoms(Index):
                if not self._accepts_set(index.index_set, index_set):
                    raise ModelError(
                        f"{self.name}[...]: index {index} runs over {index.index_set.name} "
                        f"({len(index.index_set)}), but place {number} of {self.name} over {index_set.name} "
                        f"({len(index_set)})"
                    )
            if value.atoms(sympy.Symbol) - value.atoms(Index):
                raise ModelError(f"{self.name}[...]: index {value} is not an expression in indices and integers")
            return value
        return sympy.Integer(int(index_set.positions([value])[0]))

    def _accepts_set(self, actual: IndexSet, expected: IndexSet) -> bool:
        """Return whether an index over the set ``actual`` may be used on an axis over the set ``expected``."""
        return actual.same_as(expected)

    def _as_vector(self) -> VectorExpression | None:
        """Return the variable or parameter as a vector with one index for each set, or None if it is a scalar."""
        if not self.sets:
            return None
        indices = tuple(Index(name, s) for name, s in zip(index_names(len(self.sets)), self.sets, strict=True))
        return VectorExpression(indices, Access(self, *indices))

    def axes(self, count: int) -> tuple[IndexSet, ...]:
        """Return the index set of each axis of a variable or parameter that is used with ``count`` indices."""
        return self.sets

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each index set."""
        return tuple(len(s) for s in self.sets)


class Param(Indexable):
    """A parameter of a model: known numbers, given as an array or as a function of index arrays.

    Parameters are created by ``Model.param``.

    Attributes:
        sets: The sets that the indices run over. If none were declared, there is one unnamed set for each axis of the
            array.
        declared: Whether the sets were given. If not, any index set of the right size may be used for an axis.
        revision: The number of times the value has changed. Models use it to determine which rows need recompiling.
    """

    __slots__ = ("_source", "declared", "revision")

    _source: Floats | Source
    declared: bool
    revision: int

    def __new__(cls, name: str, sets: tuple[IndexSet, ...] | None, source: ArrayLike | Source) -> Param:
        """Create a parameter, and check its shape and values.

        Args:
            name: The name under which the parameter is printed.
            sets: The sets of the indices. If None, one unnamed set is created for each axis of the array.
            source: A number, an array with one axis per set, or a function of index arrays. The values of a function
                are checked only when they are used.

        Raises:
            ModelError: The numbers do not fit the sets, or contain a NaN.
        """
        param: Param = sympy.Dummy.__new__(cls, name, real=True)
        param.declared = sets is not None
        param.revision = 0
        if callable(source):
            param._source, param.sets = source, sets or ()
            return param
        if sets is None:
            values = match_labels(source, None, f"param {name}")
            try:
                shape: tuple[int, ...] = np.shape(values)
            except (TypeError, ValueError):
                raise ModelError(f"param {name}: must be a number or an array of numbers, got {values}") from None
            sets = tuple(Axis(f"axis {number}", size) for number, size in enumerate(shape))
        param.sets = sets
        param._source = param.check_value(source)
        return param

    @property
    def source(self) -> Floats | Source:
        """The numbers as an array with one axis per set, or a function that takes one integer array for each index."""
        return self._source

    @property
    def value(self) -> Any:
        """The numbers: a float for a scalar, a read-only array with one axis per set, or the function that was given.

        This property can be set to other numbers of the same shape. It can also be set to a function if the sets are
        declared or if the value is already a function. Models use the new value the next time they are solved.
        """
        return float(self.source) if not callable(self.source) and not self.sets else self.source

    @value.setter
    def value(self, source: ArrayLike | Source) -> None:
        self._source = self.check_value(source)
        self.revision += 1

    def check_value(self, source: ArrayLike | Source) -> Floats | Source:
        """Check the shape and entries of a new value, and return a copy of it. A function is returned unchanged.

        Raises:
            ModelError: The value has the wrong shape or contains a NaN, or it is a function where an array is needed,
                or vice versa.
        """
        was_function = callable(getattr(self, "_source", None))
        if callable(source):
            if not (self.declared or was_function):
                raise ModelError(f"param {self.name}: a function needs a param with declared sets; give an array")
            return source
        if was_function and not self.declared:
            raise ModelError(f"param {self.name}: an array needs declared sets in place of a function; give a function")
        source = match_labels(source, self.sets if self.declared else None, f"param {self.name}")
        try:
            array = as_doubles(source)
        except (TypeError, ValueError):
            raise ModelError(f"param {self.name}: must be an array of numbers, got other contents") from None
        if array.shape != self.shape:
            raise ModelError(
                f"param {self.name}: its array must have shape {self.shape} for "
                f"({', '.join(s.name for s in self.sets)}), got {array.shape}"
            )
        if np.isnan(array).any():
            position = tuple(int(p) for p in np.argwhere(np.isnan(array))[0])
            number = ", ".join(repr(s.labels[p]) for s, p in zip(self.sets, position, strict=True))
            raise ModelError(f"param {self.name}[{number}] must be a number, got NaN")
        # The caller may change its array before the model is compiled, but as_doubles has copied it.
        return read_only(array)

    @property
    def is_scalar(self) -> bool:
        """Whether the parameter is used in formulas without indices.

        A parameter that is given as a function without declared sets is never scalar.
        """
        return not self.sets and not (callable(self.source) and not self.declared)

    def axes(self, count: int) -> tuple[IndexSet, ...]:
        """Return the index set of each axis.

        A parameter that is given as a function without declared sets accepts any number of indices over any sets.
        """
        if callable(self.source) and not self.declared:
            return tuple(Axis(f"axis {number}", _ANY) for number in range(count))
        return self.sets

    def _accepts_set(self, actual: IndexSet, expected: IndexSet) -> bool:
        """Return whether an index over ``actual`` fits an axis over ``expected``.

        Only the sizes are compared if the parameter's sets are not declared.
        """
        return actual.same_as(expected) if self.declared else len(expected) in (len(actual), _ANY)

    def values(self, *positions: Ints) -> Floats:
        """Return the values at the given positions, in the common shape of the position arrays.

        ``positions`` contains one integer array for each index.
        """
        if not callable(self.source):
            return np.asarray(self.source[positions], dtype=np.float64)
        values = np.asarray(self.source(*positions), dtype=np.float64)
        shape = np.shape(positions[0]) if positions else ()
        try:
            return np.broadcast_to(values, shape)
        except ValueError:
            raise ModelError(
                f"param {self.name}: its function returned shape {values.shape} for index arrays of shape {shape}"
            ) from None


class Access(Operators, sympy.Expr):  # type: ignore[misc]
    """A variable or parameter with its indices, such as ``z[i, k]``."""

    __slots__ = ()
    is_commutative = True
    is_real = True

    @property
    def base(self) -> Any:
        """The variable or parameter."""
        base: Indexable = self.args[0]
        return base

    @property
    def indices(self) -> tuple[Any, ...]:
        """The index expressions."""
        return tuple(self.args[1:])

    def _eval_subs(self, old: Any, new: Any) -> Any:
        # sympy replaces symbols with numbers to see whether a formula is constant, but a number cannot be indexed.
        return self if old == self.base and not isinstance(new, Indexable) else None

    def _sympystr(self, printer: Any) -> str:
        places = zip(self.indices, self.base.axes(len(self.indices)), strict=True)
        labels = [str(s.labels[int(x)]) if x.is_Integer else printer._print(x) for x, s in places]
        return f"{self.base.name}[{', '.join(labels)}]"

    _sympyrepr = _sympystr

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        places = zip(self.indices, self.base.axes(len(self.indices)), strict=True)
        labels = [latex_name(str(s.labels[int(x)])) if x.is_Integer else printer._print(x) for x, s in places]
        power = "" if exp is None else f"^{{{exp}}}"
        return f"{latex_name(self.base.name)}_{{{', '.join(labels)}}}{power}"


def index_names(count: int) -> list[str]:
    """Return names for the indices of a vector: i, j, k and l, followed by i0, i1 and so on."""
    return [*"ijkl", *(f"i{number}" for number in range(count))][:count]


class VectorExpression(Operators):
    """An expression over a product of sets, written without indices, such as ``c * z``.

    A relation between such expressions can be added to a model as a family of constraints, and the sum of such an
    expression can be an objective.

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
    _is_expression_of_vectors = True
    __hash__ = None  # type: ignore[assignment]

    indices: tuple[Index, ...]
    formula: sympy.Expr

    def __init__(self, indices: tuple[Index, ...], formula: sympy.Expr) -> None:
        """Create an expression whose elements are the values of ``formula`` at all values of ``indices``."""
        self.indices, self.formula = indices, formula

    def __repr__(self) -> str:
        ranges = ", ".join(f"{index.name} in {index.index_set.name}" for index in self.indices)
        return f"({self.formula} for {ranges})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each index set."""
        return tuple(len(index.index_set) for index in self.indices)

    def __eq__(self, other: object) -> bool:
        raise ModelError("== does not state an equation: write Eq(left, right)")

    def __bool__(self) -> bool:
        raise MisuseError(f"{self} is not a condition; its values are numbers only after a solve")

    def _as_vector(self) -> VectorExpression:
        return self

    def total(self) -> Total:
        """Return the sum of this expression over all elements of its index sets."""
        return Total(as_plain(self.formula), sympy.Tuple(*self.indices))

    def relate(self, kind: type[sympy.Rel], other: Any, *, is_left: bool) -> VectorRelation:
        """Return a relation between this expression and ``other``.

        Args:
            kind: The class of the relation between formulas.
            other: The other side, in any form that :meth:`read_operand` accepts.
            is_left: Whether this expression is the left side of the relation.
        """
        indices, formula, operand = self.align(other)
        sides = (formula, operand) if is_left else (operand, formula)
        return VectorRelation(kind(*map(as_plain, sides), evaluate=False), indices)

    def map_values(self, function: Callable[[Any], Any]) -> VectorExpression:
        """Return a new expression with ``function`` applied to each of this expression's elements."""
        return VectorExpression(self.indices, function(self.formula))

    def combine_with(self, operator: Callable[[Any, Any], Any], other: Any) -> VectorExpression:
        """Return ``operator(self, other)`` element-wise, for any ``other`` that :meth:`read_operand` accepts."""
        indices, formula, operand = self.align(other)
        return VectorExpression(indices, operator(formula, operand))

    def align(self, other: Any) -> tuple[tuple[Index, ...], sympy.Expr, sympy.Expr]:
        """Rewrite this expression and ``other`` in terms of common indices.

        The other operand may have any form that :meth:`read_operand` accepts. The common indices are those of this
        expression, except that declared sets of the other operand replace unnamed axes.

        Returns:
            The common indices, followed by the formulas of this expression and of the other operand.
        """
        operand, indices = self.read_operand(other), self.indices
        if isinstance(other, Operators) and (vector := other._as_vector()) is not None:
            # Prefer declared sets, whose labels an unnamed axis lacks.
            indices = tuple(
                operand_index if isinstance(index.index_set, Axis) else index
                for index, operand_index in zip(indices, vector.indices, strict=True)
            )
            # read_operand has already written the operand in this expression's indices.
            other_indices = dict(zip(self.indices, indices, strict=True))
            return indices, replace_indices(self.formula, other_indices), replace_indices(operand, other_indices)
        return indices, self.formula, operand

    def read_operand(self, other: Any) -> sympy.Expr:
        """Return the operand ``other`` as a formula in the indices of this expression.

        The operand may be a number, a scalar expression, a vector expression, a whole variable or parameter, an array
        or labelled data. Arrays are broadcast as in NumPy. Labelled data (a dict, pandas, polars) are matched by label.

        Raises:
            ModelError: The sets or the shape of the operand do not fit this expression.
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
        other = as_number(other)
        if isinstance(other, sympy.Expr | int | float) and not isinstance(other, bool):
            return sympy.sympify(other)
        sets = tuple(index.index_set for index in self.indices)
        values = match_labels(other, sets, f"array beside {self}")
        try:
            numbers = as_doubles(values)
        except (TypeError, ValueError):
            raise ModelError(
                f"{self} is combined with a {type(other).__name__}, and must be combined with numbers"
            ) from None
        try:
            numbers = np.broadcast_to(numbers, self.shape)
        except ValueError:
            names = ", ".join(f"{s.name} ({len(s)})" for s in sets)
            raise ModelError(f"an array of shape {numbers.shape} does not fit {self} over {names}") from None
        return Access(Param("array", sets, numbers), *self.indices)

    def multiply_matrix(self, matrix: Any, *, is_left: bool) -> VectorExpression | sympy.Expr:
        """Return ``matrix @ self`` if ``is_left`` is True, and ``self @ matrix`` otherwise.

        Args:
            matrix: A vector or matrix of numbers, dense or SciPy sparse.
            is_left: Whether the matrix is the left operand.

        Raises:
            ModelError: The expression runs over several sets, or the matrix has the wrong shape or contents.
        """
        if len(self.indices) != 1:
            raise ModelError(f"{self} runs over {len(self.indices)} sets: @ takes an expression over one")
        if isinstance(matrix, VectorExpression | Indexable):
            raise ModelError(f"@ takes a vector or matrix of numbers beside {self}, got {matrix}; write (x * y).sum()")
        refuse_masked(matrix, f"@ beside {self}")
        (index,), is_sparse = self.indices, sparse.issparse(matrix)
        try:
            numbers = as_double_matrix(matrix)
        except (TypeError, ValueError):
            raise ModelError(f"@: a matrix beside {self} must be of numbers, got a {type(matrix).__name__}") from None
        numbers = numbers if is_left or numbers.ndim == 1 else numbers.T
        size = len(index.index_set)
        if numbers.ndim not in (1, 2) or numbers.shape[-1] != size:
            shape = "(..., " + f"{size})" if is_left else f"({size}, ...)"
            raise ModelError(f"@: a matrix beside {self} must have shape {shape}, got {np.shape(matrix)}")
        if numbers.ndim == 1:
            return self.combine_with(lambda a, b: b * a, numbers).sum()
        row = Index("row", Axis("axis 0", numbers.shape[0]))
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
    """Return a formula with each key of ``new_indices`` replaced by its value.

    Indices in the restrictions of sums are replaced as well. They are stored as attributes, so sympy's own substitution
    would miss them.
    """
    restrictions = {
        restriction: Restriction(tuple(new_indices.get(x, x) for x in restriction.indices), restriction.positions)
        for restriction in formula.atoms(Restriction)
        if not new_indices.keys().isdisjoint(restriction.indices)
    }
    return formula.xreplace({**new_indices, **restrictions})


class _SparseLookup:
    """A callable that returns the entries of a sparse matrix at given rows and columns."""

    def __init__(self, matrix: sparse.csr_matrix) -> None:
        """Store the matrix whose entries are looked up."""
        self.matrix = matrix

    def __call__(self, rows: Ints, columns: Ints) -> Floats:
        """Return the entries at the given rows and columns as an array of shape (size,)."""
        return np.asarray(self.matrix[rows, columns], dtype=np.float64).ravel()


def _fits(a: IndexSet, b: IndexSet) -> bool:
    """Return whether two sets are the same, or have the same size and at least one is an unnamed axis."""
    return a.same_as(b) or (len(a) == len(b) and (isinstance(a, Axis) or isinstance(b, Axis)))


class VectorRelation(NoCondition):
    """A relation between vectors, which yields one row for each element.

    Attributes:
        relation: The relation, written with indices.
        indices: The indices that the rows run over.
    """

    __slots__ = ("indices", "relation")

    def __init__(self, relation: sympy.Rel, indices: tuple[Index, ...]) -> None:
        """Create a relation with one row for each combination of the indices' values."""
        self.relation, self.indices = relation, indices

    def __repr__(self) -> str:
        return f"({self.relation} for {', '.join(index.name for index in self.indices)})"


def vector_relation(kind: type[sympy.Rel], left: Any, right: Any) -> VectorRelation:
    """Return a relation of class ``kind`` between two sides, at least one of which is a vector."""
    vectors: list[VectorExpression | None] = [
        side._as_vector() if isinstance(side, Operators) else None for side in (left, right)
    ]
    if vectors[0] is not None:
        return vectors[0].relate(kind, right, is_left=True)
    if vectors[1] is None:
        refuse_array_beside(right if isinstance(left, np.ndarray) else left)
    return vectors[1].relate(kind, left, is_left=False)
