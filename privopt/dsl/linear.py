"""Convert sympy expressions to linear terms, and coefficients to NumPy functions.

A family's linearity is checked once, on its formula, rather than for each row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import sympy
from attrs import evolve, frozen

from privopt.arrays import Floats, Ints
from privopt.dsl.operators import as_number, as_plain, is_vector, with_operators
from privopt.dsl.relations import AtLeast, AtMost, Equal
from privopt.dsl.symbols import Access, Index, IndexSet, Param, Restriction, Total, VectorExpression, vector_relation
from privopt.dsl.variables import Variable
from privopt.errors import ModelError

# Maps each index to the positions of its values, counted from 0 in its set. There is one position for each row, so all
# arrays have the same shape.
Places = Mapping[Index, Ints]

_DOUBLE_BITS = 53
"""The precision of Python's floats, in bits."""

Expression: TypeAlias = sympy.Expr | float
"""Part of a formula: a sympy expression or a number."""

Side: TypeAlias = Expression | VectorExpression | Floats
"""One side of a relation: an expression, or a vector or array with one value for each row."""

Where: TypeAlias = Ints | Iterable[object]
"""Index tuples in any of the forms that :func:`read_tuples` accepts."""


def as_expression(value: Expression) -> sympy.Expr:
    """Convert a number or an expression to a plain sympy expression.

    If the outermost operation is one of the operator-overloading subclasses in :mod:`.operators`, it is replaced with
    sympy's own class. Strings are rejected, because sympy would parse them as formulas.

    Raises:
        ModelError: The value is a string, an array, an expression written without indices (``VectorExpression``), or
            not an expression at all.
    """
    if isinstance(value, VectorExpression):
        raise ModelError(f"{value} has a value for each element; write it with indices, or its sum with .sum()")
    if isinstance(value, str):
        raise ModelError(f"an expression must be of variables, params and numbers, got the text {value!r}")
    try:
        expression = sympy.sympify(as_number(value), strict=True)
    except sympy.SympifyError:
        expression = None
    if not isinstance(expression, sympy.Expr):
        raise ModelError(
            f"{value} is not an expression in variables, params and numbers; arrays enter a formula as params, and "
            "several expressions one by one"
        )
    return as_plain(expression)


def exp(exponent: Expression) -> sympy.Expr:
    """Return e to the power of an expression or a number, as an unevaluated exponential.

    sympy's own ``exp`` would evaluate ``exp(1.0)`` to 2.718, so that a row ``z_i <= exp(1.0) z_j`` would no longer be
    recognised as a privacy row.

    >>> exp(1.5)
    exp(1.5)

    Raises:
        ModelError: The exponent is neither an expression nor a finite number.
    """
    expression = as_expression(exponent)
    if not expression.is_number:
        return with_operators(sympy.exp(expression))
    number = float(expression)
    if not np.isfinite(number):
        raise ModelError(f"exp({number}): the exponent must be finite")
    # sympy cannot evaluate a parameter. This one is named after the number, so that it prints like the number.
    return with_operators(sympy.exp(Param(str(exponent), None, number)))


def log(value: Expression) -> sympy.Expr:
    """Return the natural logarithm of a number or of an expression in parameters."""
    return _with_operators_unless_number(sympy.log(as_expression(value)))


def sqrt(value: Expression) -> sympy.Expr:
    """Return the square root of a number or of an expression in parameters."""
    return _with_operators_unless_number(sympy.sqrt(as_expression(value)))


def _with_operators_unless_number(expression: sympy.Expr) -> sympy.Expr:
    """Return an expression with this package's operators added. A number such as ``sqrt(2)`` is returned unchanged."""
    return expression if expression.is_number else with_operators(expression)


def _relation(kind: type[sympy.Rel], left: Side, right: Side) -> Any:
    """Return a relation of class ``kind`` between two sides.

    If either side is a vector, the result is a vector relation. Otherwise, it is a relation between two expressions.
    """
    if is_vector(left) or is_vector(right):
        return vector_relation(kind, left, right)
    return kind(as_expression(left), as_expression(right), evaluate=False)


def Le(left: Side, right: Side) -> Any:  # noqa: N802
    """Return the relation ``left <= right`` exactly as written.

    sympy's own operator might rearrange or evaluate it.
    """
    return _relation(AtMost, left, right)


def Ge(left: Side, right: Side) -> Any:  # noqa: N802
    """Return the relation ``left >= right`` exactly as written.

    sympy's own operator might rearrange or evaluate it.
    """
    return _relation(AtLeast, left, right)


def Eq(left: Side, right: Side) -> Any:  # noqa: N802
    """Return the relation ``left == right`` exactly as written.

    sympy's own ``Eq`` might rearrange or evaluate it.
    """
    return _relation(Equal, left, right)


def read_tuples(indices: Sequence[Index], where: Where) -> tuple[tuple[Index, ...], tuple[Ints, ...]]:
    """Read the index tuples that a family of rows or a sum is restricted to.

    Args:
        indices: The indices that can be restricted. If ``where`` does not name the restricted indices, tuples with m
            entries restrict the first m of ``indices``.
        where: An integer array of positions in the sets, shape (P, m); a sequence of tuples of labels (or plain labels
            if m is 1); or a pair ``(indices, tuples)`` that names the restricted indices.

    Returns:
        The restricted indices, and for each of them an array of shape (P,) with positions in its set.

    Raises:
        ModelError: The tuples have the wrong form or length, or a label or position is not in its set.
    """
    tuples: Any = where
    names_indices = isinstance(tuples, tuple) and len(tuples) == 2 and _are_indices(tuples[0])
    if names_indices:
        restricted: tuple[Index, ...] = (tuples[0],) if isinstance(tuples[0], Index) else tuple(tuples[0])
        tuples = tuples[1]
    # From here on, ``columns`` contains one entry for each restricted index: its positions or labels in all tuples.
    if isinstance(tuples, np.ndarray):
        if tuples.dtype == bool:
            raise ModelError(
                f"where must be tuples, got a mask of booleans of shape {tuples.shape}: np.argwhere(mask) gives tuples"
            )
        columns: list[Any] = (
            [tuples] if tuples.ndim == 1 else [tuples[:, position] for position in range(tuples.shape[1])]
        )
    else:
        entries = list(tuples)
        # Entries are read as labels of several indices only if all of them are tuples or lists.
        sequences = [tuple(x) for x in entries if isinstance(x, tuple | list)]
        if sequences and len(sequences) == len(entries):
            if len({len(x) for x in sequences}) > 1:
                raise ModelError(
                    f"where must be tuples of one length, got {sorted({len(x) for x in sequences})} entries"
                )
            columns = [list(column) for column in zip(*sequences, strict=True)]
        else:
            # One index: a label may also be written as a tuple of one entry.
            column = [x[0] if isinstance(x, tuple | list) and len(x) == 1 else x for x in entries]
            # An empty sequence does not show how many indices it restricts, so it is assumed to restrict all of them.
            columns = [column] if entries else [np.zeros(0, np.int64)] * len(restricted if names_indices else indices)
    if not names_indices:
        restricted = tuple(indices[: len(columns)])
    if len(columns) != len(restricted):
        raise ModelError(
            f"where must be tuples of {len(restricted)} entries for "
            f"({', '.join(str(i) for i in (restricted or indices))}), got {len(columns)}"
        )
    places = []
    for index, column in zip(restricted, columns, strict=True):
        try:
            places.append(index.index_set.positions(column))
        except ModelError as error:
            raise ModelError(f"where, index {index}: {error}") from None
    return restricted, tuple(places)


def _are_indices(value: object) -> bool:
    """Return whether a value is an index or a non-empty sequence of indices."""
    return isinstance(value, Index) or (
        isinstance(value, tuple | list) and bool(value) and all(isinstance(x, Index) for x in value)
    )


def total(expression: Expression, *, over: Index | Sequence[Index], where: Where | None = None) -> Total:
    """Return the sum of an expression over all values of the given indices, or only over certain tuples of values.

    Args:
        expression: The expression to sum.
        over: The indices to sum over.
        where: The tuples of index values to sum over, as labels or positions, or None for all. In the form
            ``((i, k), tuples)``, the named indices may include indices of the rows in which the sum is used. Each row
            then sums only over the tuples that match its own values of those indices.

    Raises:
        ModelError: An argument is invalid, or an index occurs twice in ``over``.
    """
    indices = read_indices(over, "total")
    args: list[Any] = [as_expression(expression), sympy.Tuple(*indices)]
    if where is not None:
        args.append(Restriction(*read_tuples(indices, where)))
    return Total(*args)


def read_indices(over: Index | Sequence[Index], name: str) -> tuple[Index, ...]:
    """Return ``over`` as a tuple of indices.

    Raises:
        ModelError: ``over`` is neither an index nor a sequence of indices, or an index is repeated. The message begins
            with ``name``, such as "total".
    """
    indices = tuple(over) if isinstance(over, Iterable) and not isinstance(over, sympy.Expr) else (over,)
    if not _are_indices(indices):
        raise ModelError(f"{name}: over must be an index or several, got {over!r}")
    if len(set(indices)) < len(indices):
        raise ModelError(f"{name}: an index occurs twice in over")
    return indices


@frozen(eq=False)
class SummedIndices:
    """The indices of a sum that encloses a term.

    Attributes:
        over: The indices summed over.
        restriction: The tuples of index values that the sum is restricted to, or None if the sum runs over all tuples.
    """

    over: tuple[Index, ...]
    restriction: Restriction | None


@frozen(eq=False)
class Term:
    """A linear term: a constant or ``coefficient * variable[indices]``, summed over ``bindings``.

    Attributes:
        coefficient: An expression in parameters, indices and numbers.
        variable: The variable, or None for a constant.
        indices: The variable's index expressions, such as ``i`` or ``i + 1``, or () for a scalar or a constant.
        bindings: The sums that enclose the term, starting with the outermost.
    """

    coefficient: sympy.Expr
    variable: Variable | None
    indices: tuple[Any, ...]
    bindings: tuple[SummedIndices, ...]

    def __str__(self) -> str:
        if self.variable is None:
            return str(self.coefficient)
        access = Access(self.variable, *self.indices) if self.indices else self.variable
        return str(sympy.Mul(self.coefficient, access, evaluate=False) if self.coefficient != 1 else access)

    def free_indices(self) -> set[Index]:
        """Return the term's indices that are not summed over."""
        indices = set().union(*(x.atoms(Index) for x in (self.coefficient, *self.indices)))
        return unbound_indices(indices, self.bindings)


def unbound_indices(indices: set[Index], bindings: Sequence[SummedIndices]) -> set[Index]:
    """Return the indices that remain free if an expression with the free indices ``indices`` is enclosed in sums.

    ``bindings`` contains the sums, starting with the outermost. The tuples of a restricted sum may depend on indices
    that the sum does not run over. These must be bound further outside, even if an inner sum runs over them too.
    """
    for binding in reversed(bindings):
        restricted = () if binding.restriction is None else binding.restriction.indices
        indices = (indices | set(restricted)) - set(binding.over)
    return indices


def linear_terms(expression: sympy.Expr, where: str) -> list[Term]:
    """Split an expression into linear terms that add up to it.

    Args:
        expression: An expression in variables, parameters, indices and numbers.
        where: The part of the model to name in error messages: a family of rows or "objective".

    Raises:
        ModelError: The expression contains a nonlinear product or function of variables, a sum inside a function, a
            variable without its indices, or the index of a sum that is also used outside that sum.
    """
    # A scalar variable appears on its own, any other variable only with its indices.
    if isinstance(expression, Access | Variable):
        base = expression.base if isinstance(expression, Access) else expression
        if isinstance(base, Variable):
            if isinstance(expression, Variable) and base.sets:
                raise ModelError(f"{where}: {base.name} must be used with its {len(base.sets)} indices, got none")
            return [Term(sympy.S.One, base, expression.indices if isinstance(expression, Access) else (), ())]
    if isinstance(expression, Total):
        binding = SummedIndices(expression.over, expression.restriction)
        # Summing an expression means summing each of its terms, so the sum is recorded on every term.
        return [evolve(t, bindings=(binding, *t.bindings)) for t in linear_terms(expression.body, where)]
    if expression.is_Add:
        return [t for part in expression.args for t in linear_terms(part, where)]
    if expression.is_Mul and expression.has(Variable, Total):
        return _multiply_factors(expression, where)
    # Everything linear was handled above.
    if expression.has(Variable):
        raise ModelError(
            f"{where}: the term {expression} is not linear in {_variable_names(expression)}; Model.piecewise states a "
            "curve by lines"
        )
    if expression.has(Total):
        raise ModelError(f"{where}: a sum inside {expression}; give it as a param")
    return [Term(expression, None, (), ())]


def _variable_names(expression: sympy.Expr) -> str:
    """Return the names of an expression's variables as a comma-separated string, for error messages."""
    return ", ".join(sorted(v.name for v in expression.atoms(Variable)))


def _multiply_factors(expression: sympy.Expr, where: str) -> list[Term]:
    """Expand a product, in which at most one factor may contain variables, into linear terms.

    Args:
        expression: The product.
        where: The part of the model to name in error messages: a family of rows or "objective".
    """
    constant_factors = [x for x in expression.args if not x.has(Variable, Total)]
    variable_factors = [x for x in expression.args if x.has(Variable, Total)]
    if sum(x.has(Variable) for x in variable_factors) > 1:
        raise ModelError(
            f"{where}: the term {expression} is not linear: it multiplies variables ({_variable_names(expression)}); "
            "implies states a row that depends on a binary, and numbers enter as params"
        )
    # Start with the constant factors, then multiply the terms so far by those of each remaining factor in turn.
    terms = [Term(sympy.Mul(*constant_factors), None, (), ())]
    for factor in variable_factors:
        terms = [
            Term(
                a.coefficient * b.coefficient,
                # At most one of the two has a variable (checked above), and its indices come with it.
                b.variable or a.variable,
                b.indices or a.indices,
                _merge_bindings(a, b, expression, where),
            )
            for a in terms
            for b in linear_terms(factor, where)
        ]
    return terms


def _merge_bindings(a: Term, b: Term, expression: sympy.Expr, where: str) -> tuple[SummedIndices, ...]:
    """Return the sums that enclose the product of two terms: the sums around ``a``, followed by those around ``b``.

    Args:
        a, b: Terms of two factors of a product.
        expression: The whole product, used in error messages.
        where: The part of the model to name in error messages.

    Raises:
        ModelError: An index that one factor sums over also occurs in the other factor.
    """
    summed_indices = [{i for binding in t.bindings for i in binding.over} for t in (a, b)]
    # The product is written inside all the sums, so an index summed over in one factor would capture the same index in
    # the other.
    clash = (summed_indices[0] & (summed_indices[1] | b.free_indices())) | (summed_indices[1] & a.free_indices())
    if clash:
        raise ModelError(
            f"{where}: index {min(map(str, clash))} of a sum in {expression} is used outside it too; take another index"
        )
    return (*a.bindings, *b.bindings)


def _numpy_function(arguments: list[sympy.Dummy], body: sympy.Expr) -> Callable[..., Any]:
    """Compile the expression ``body`` to a NumPy function of the symbols ``arguments``.

    Most coefficients are products of symbols and integers, such as ``-p[i]``. These are evaluated without generated
    code, because generating a function with sympy takes milliseconds.
    """
    factors = sympy.Mul.make_args(body)
    if not all(factor in arguments or factor.is_Integer for factor in factors):
        function: Callable[..., Any] = sympy.lambdify(arguments, body, modules="numpy", cse=False)
        return function
    number = math.prod(int(factor) for factor in factors if factor.is_Integer)
    positions = [arguments.index(factor) for factor in factors if not factor.is_Integer]

    def multiply(*values: Any) -> Any:
        """Return the product of the integer factors and the values of the symbols."""
        product: Any = values[positions[0]]
        for position in positions[1:]:
            product = product * values[position]
        return product if number == 1 else number * product

    return multiply


class Coefficient:
    """A coefficient expression that has been compiled to a NumPy function of index arrays.

    It is compiled only once for all rows of a family. Non-integer numbers are passed to the function as arguments,
    because sympy would write only 15 of their digits into the generated code.

    Attributes:
        expression: The coefficient, in parameters, indices and numbers.
        where: The part of the model to name in error messages.
        _accesses: The parameters in the expression, with their indices. They are the function's first arguments.
        _numbers: The numbers in the expression that are not integers. They are the function's last arguments.
        _constant: The coefficient's value if the expression contains no parameters, indices or non-integer numbers, or
            None otherwise.
        _function: The NumPy function, or None if ``_constant`` is set.
    """

    def __init__(self, expression: sympy.Expr, where: str) -> None:
        """Compile an expression in parameters, indices and numbers. Error messages begin with ``where``.

        Raises:
            ModelError: The expression is not real, or it contains symbols other than parameters and indices.
        """
        # This rejects log(0) and sqrt(-1), for example, which sympy has already evaluated.
        if expression.has(sympy.zoo, sympy.nan, sympy.I):
            raise ModelError(f"{where}: the coefficient {expression} must be a real number")
        self.expression = expression
        self.where = where
        # Sorted, because the order of a set may differ between processes.
        self._accesses = sorted(expression.atoms(Access) | {p for p in expression.atoms(Param) if p.is_scalar}, key=str)
        for param in expression.atoms(Param):
            if not param.is_scalar and not any(isinstance(a, Access) and a.base is param for a in self._accesses):
                raise ModelError(f"{where}: {param.name} must be used with its indices, got none")
        # NumPy cannot compute with integers of more than 308 digits, which become infinite as doubles.
        numbers = [x for x in expression.atoms(sympy.Number) if not x.is_Integer or abs(x) > 2**_DOUBLE_BITS]
        for number in numbers:
            if number.is_Float and number._prec < _DOUBLE_BITS:
                raise ModelError(
                    f"{where}: the coefficient {expression} has a number of {number._prec} bits, such as a float32, to "
                    "which sympy rounds the numbers beside it; write float(...) around it"
                )
        # Params and fractional numbers become arguments of the function, because sympy would print only 15 of their
        # digits.
        stand_ins = {
            x: sympy.Dummy(f"q{position}", real=True) for position, x in enumerate((*self._accesses, *numbers))
        }
        body = expression.xreplace(stand_ins)
        free_symbols = body.atoms(sympy.Symbol) - set(stand_ins.values())
        if free_symbols:
            names = ", ".join(sorted(str(x) for x in free_symbols))
            raise ModelError(
                f"{where}: {names} in the coefficient {expression} must be a param; "
                "numbers that depend on an index enter as a param"
            )
        self._numbers = [float(x) for x in numbers]
        # A coefficient made of integers only, such as -1, needs no compiled function.
        self._constant = float(body) if body.is_number and body.is_finite and not numbers else None
        self._function = None if self._constant is not None else _numpy_function(list(stand_ins.values()), body)

    def __call__(self, places: Places, size: int) -> Floats:
        """Return the coefficient's value for each index tuple as an array of shape (size,).

        Args:
            places: For each index, an array of shape (size,) with the positions of its values in its set.
            size: The number of index tuples.
        """
        if self._constant is not None or self._function is None:
            return np.full(size, self._constant, dtype=np.float64)
        values = [param_values(a, places, size, self.where) for a in self._accesses]
        # The caller checks for values that are not finite, because it can name the entry.
        with np.errstate(all="ignore"):
            result = self._function(*values, *self._numbers)
        return np.ascontiguousarray(np.broadcast_to(np.asarray(result, dtype=np.float64), (size,)))


class Coefficients:
    """A cache of compiled coefficients, which lets a model be recompiled for new parameter values without sympy.

    Attributes:
        _functions: The compiled coefficients, keyed first by the family of rows (or "objective") that uses them, and
            then by expression.
    """

    def __init__(self) -> None:
        self._functions: dict[str, dict[sympy.Expr, Coefficient]] = {}

    def get(self, expression: sympy.Expr, where: str) -> Coefficient:
        """Return the compiled coefficient for an expression, compiling it if it is not cached.

        ``where`` is the family of rows (or "objective") that uses the coefficient. Error messages begin with it.
        """
        functions = self._functions.setdefault(where, {})
        if expression not in functions:
            functions[expression] = Coefficient(expression, where)
        return functions[expression]

    def drop(self, where: str) -> None:
        """Remove all cached coefficients of a family of rows or of the objective.

        ``where`` is the family's name or "objective", as passed to :meth:`get`.
        """
        self._functions.pop(where, None)


def param_values(access: Param | Access, places: Places, size: int, where: str) -> Floats:
    """Return a parameter's value for each index tuple as an array of shape (size,).

    Args:
        access: The parameter with its index expressions, or a scalar parameter.
        places: For each index, an array of shape (size,) with the positions of its values.
        size: The number of index tuples.
        where: The part of the model to name in error messages: a family of rows or "objective".

    Raises:
        ModelError: A value is NaN, or a position is outside the parameter's set.
    """
    if isinstance(access, Param):
        return np.broadcast_to(np.asarray(access.values(), dtype=np.float64), (size,))
    axes = access.base.axes(len(access.indices))
    arrays = [index_values(x, s, places, size, f"{where}: {access}") for x, s in zip(access.indices, axes, strict=True)]
    values: Floats = access.base.values(*arrays)
    if np.isnan(values).any():
        entry = int(np.flatnonzero(np.isnan(values))[0])
        label = ", ".join(repr(s.labels[int(a[entry])]) for s, a in zip(axes, arrays, strict=True))
        raise ModelError(f"{where}: {access.base.name}[{label}] must be a number, got NaN")
    return values


def index_values(expression: sympy.Expr, index_set: IndexSet, places: Places, size: int, where: str) -> Ints:
    """Evaluate an index expression such as ``i``, ``i + 1`` or a constant, and return its positions as a (size,) array.

    Args:
        expression: The index expression.
        index_set: The set that the positions must lie in.
        places: For each index, an array of shape (size,) with the positions of its values.
        size: The number of index tuples.
        where: The part of the model to name in error messages.

    Raises:
        ModelError: A position is fractional or outside the set.
    """
    if isinstance(expression, Index):
        return places[expression]
    if expression.is_Integer:
        return np.full(size, int(expression), dtype=np.int64)
    indices = sorted(expression.atoms(Index), key=str)
    function = sympy.lambdify(indices, expression, modules="numpy")
    # An expression without indices, such as 1/2, has a single value.
    positions = np.broadcast_to(function(*(places[i] for i in indices)), (size,))
    # An expression such as i / 2 may not be an integer.
    is_outside = (positions < 0) | (positions >= len(index_set)) | (positions != np.floor(positions))
    if is_outside.any():
        k = int(np.flatnonzero(is_outside)[0])
        location = ", ".join(f"{i} = {i.index_set.labels[int(places[i][k])]!r}" for i in indices)
        ending = f" at {location}; omit such rows with where=" if indices else ""
        raise ModelError(
            f"{where}: index {expression} must be a place from 0 to "
            f"{len(index_set) - 1} of {index_set.name}, got {positions[k]}{ending}"
        )
    return positions.astype(np.int64)


def split_exponential(coefficient: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """Split a coefficient ``factor * exp(log)`` into ``factor`` and ``log``. If there is no exponential, ``log`` is 0.

    Privacy rows ``z_i <= exp(log) z_j`` store the logarithm, because its exponential may be too large for a double.
    """
    factors = sympy.Mul.make_args(coefficient)
    logs = [x.args[0] for x in factors if isinstance(x, sympy.exp)]
    return sympy.Mul(*(x for x in factors if not isinstance(x, sympy.exp))), sympy.Add(*logs)


def free_indices(terms: Iterable[Term]) -> set[Index]:
    """Return the free indices of the terms: those that occur in at least one term without being summed over in it."""
    return set().union(*(t.free_indices() for t in terms))
