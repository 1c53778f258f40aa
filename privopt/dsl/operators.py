"""The operators of expressions: comparisons kept as written, vector arithmetic, and helpful errors for other uses.

sympy's own operators would evaluate or rearrange relations, and their errors do not say what to write instead. All
expressions that users see therefore inherit from :class:`Operators`, so that ``0 <= x + y <= 1``, for example, raises
the same error as ``0 <= x <= 1``.

Variables, parameters, accesses, sums over indices and extrema inherit from the mixin in their own modules. This module
defines subclasses of sympy's sum, product, power, absolute value, exponential and logarithm. :func:`with_operators`
converts the outermost operation of an expression to its subclass. :func:`as_plain` converts it back before sympy
computes with it. Relations have subclasses of their own (:mod:`.relations`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import numpy as np
import sympy

from privopt.dsl.labelled import MASKED_ADVICE, refuse_masked
from privopt.dsl.relations import Above, AtLeast, AtMost, Below, MisuseError, refuse_copy
from privopt.errors import ModelError

_UFUNC_METHODS = {
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "matmul": ("__matmul__", "__rmatmul__"),
    "power": ("__pow__", "__rpow__"),
    "less_equal": ("__le__", "__ge__"),
    "greater_equal": ("__ge__", "__le__"),
    "less": ("__lt__", "__gt__"),
    "greater": ("__gt__", "__lt__"),
    "remainder": ("__mod__", "__rmod__"),
    "floor_divide": ("__floordiv__", "__rfloordiv__"),
    "negative": ("__neg__", ""),
    "absolute": ("__abs__", ""),
}
"""The operator methods that correspond to each NumPy function.

Such a function is called if an operand of an operator is an array. The first method is used if the expression is the
left operand, and the second one otherwise.
"""
_NUMPY_ADVICE = {
    "sum": "total(..., over=...) is a sum over indices, and z.sum() that of a whole variable",
    "mean": "a mean is z.sum() divided by the number of its values",
    "average": "a mean is z.sum() divided by the number of its values",
    "dot": "c @ z is the product with an array c of numbers",
    "inner": "c @ z is the product with an array c of numbers",
    "vdot": "c @ z is the product with an array c of numbers",
    **dict.fromkeys(("max", "amax", "maximum", "fmax"), "maximum(...) is the largest of some expressions"),
    **dict.fromkeys(("min", "amin", "minimum", "fmin"), "minimum(...) is the smallest of some expressions"),
    **dict.fromkeys(("exp", "log", "sqrt"), "those of privopt.dsl take parameters"),
    "where": "for an array mask of 0 and 1, write mask * a + (1 - mask) * b",
}


class Operators:
    """Mixin that provides arithmetic and comparison operators for variables, parameters and expressions.

    For a variable z over a set, ``c * z`` multiplies element-wise by an array c, and ``A @ z`` multiplies by a matrix
    A.
    """

    __slots__ = ()
    # Higher than the priority of sympy's own expressions, so that sympy leaves mixed arithmetic to the methods here.
    _op_priority: ClassVar[float] = 11.0
    # Without this, sympy would treat an object with ``__iter__`` as a sequence.
    _iterable = False

    # Whether expressions of this class range over whole sets. A relation with such an expression is between vectors.
    _is_expression_of_vectors: ClassVar[bool] = False

    def _as_vector(self) -> Any:
        """Return this variable, parameter or expression as a ``VectorExpression``, or None if it is a scalar."""
        return None

    def __le__(self, other: Any) -> Any:
        return self._compare(AtMost, other)

    def __ge__(self, other: Any) -> Any:
        return self._compare(AtLeast, other)

    def __lt__(self, other: Any) -> Any:
        return self._compare(Below, other)

    def __gt__(self, other: Any) -> Any:
        return self._compare(Above, other)

    def _compare(self, relation: type[sympy.Rel], other: Any) -> Any:
        """Return a relation exactly as written, without simplifying it.

        The result is a relation between vectors if either side is a vector, and between scalars otherwise.

        Args:
            relation: The class of the relation.
            other: The right side.
        """
        other = as_number(other)
        vector = self._as_vector()
        other_vector: Any = other._as_vector() if isinstance(other, Operators) else None
        has_vectors = is_vector(self) or is_vector(other)
        if vector is None and not has_vectors:
            try:
                right = sympy.sympify(other, strict=True)
            except sympy.SympifyError:
                raise ModelError(f"{self} must be compared with an expression, got {other!r}") from None
            return relation(as_plain(self), as_plain(right), evaluate=False)
        if issubclass(relation, Below | Above):
            raise ModelError(
                f"strict relations cannot be rows, got one of {self}: write <= or >=, and maximum(x, y) or "
                "minimum(x, y) in place of Python's max and min"
            )
        if other_vector is None and not has_vectors:
            raise ModelError(f"{self} must be used with its indices, as {self}[i], or get a bound as {self}.upper")
        if vector is None and other_vector is None:
            refuse_array_beside(self)
        if vector is None:
            return other_vector.relate(relation, self, is_left=False)
        return vector.relate(relation, other, is_left=True)

    def _combine(self, operator: Callable[[Any, Any], Any], other: Any, method: str) -> Any:
        """Apply an arithmetic operator to this expression and another operand.

        Args:
            operator: The operator as a function of this expression and the other operand.
            other: The other operand.
            method: sympy's name for the operator's method, such as ``__radd__``.
        """
        other, vector = as_number(other), self._as_vector()
        if vector is not None:
            return vector.combine_with(operator, other)
        other_vector: Any = other._as_vector() if isinstance(other, Operators) else None
        if other_vector is not None:
            return other_vector.combine_with(lambda a, b: operator(b, a), self)
        if isinstance(other, np.ndarray):
            return self._combine_with_array(operator, other)
        if other is None or isinstance(other, str | bytes | list | tuple | dict | set):
            raise MisuseError(
                f"{self} cannot be combined with {other!r}; arithmetic takes numbers, params and variables"
            )
        return with_operators(getattr(sympy.Expr, method)(as_plain(self), as_plain(other)))

    def _combine_with_array(self, operator: Callable[[Any, Any], Any], array: Any) -> Any:
        """Combine a scalar with each expression in an array.

        Raises:
            ModelError: The array contains numbers instead of expressions.
        """
        refuse_masked(array, str(self))
        if array.dtype != object:
            text = f"({self})" if isinstance(self, sympy.Add) else str(self)
            raise ModelError(
                f"{self} is a scalar, and is combined with an array; write it with indices, as p[i] * {text}"
            )
        result = np.empty(array.shape, dtype=object)
        for place, entry in np.ndenumerate(array):
            result[place] = operator(self, entry)
        return result

    def __add__(self, other: Any) -> Any:
        return self._combine(lambda a, b: a + b, other, "__add__")

    def __radd__(self, other: Any) -> Any:
        return self._combine(lambda a, b: b + a, other, "__radd__")

    def __sub__(self, other: Any) -> Any:
        return self._combine(lambda a, b: a - b, other, "__sub__")

    def __rsub__(self, other: Any) -> Any:
        return self._combine(lambda a, b: b - a, other, "__rsub__")

    def __mul__(self, other: Any) -> Any:
        return self._combine(lambda a, b: a * b, other, "__mul__")

    def __rmul__(self, other: Any) -> Any:
        return self._combine(lambda a, b: b * a, other, "__rmul__")

    def __truediv__(self, other: Any) -> Any:
        return self._combine(lambda a, b: a / b, other, "__truediv__")

    def __rtruediv__(self, other: Any) -> Any:
        return self._combine(lambda a, b: b / a, other, "__rtruediv__")

    def __pow__(self, other: Any) -> Any:
        return self._combine(lambda a, b: a**b, other, "__pow__")

    def __rpow__(self, other: Any) -> Any:
        return self._combine(lambda a, b: b**a, other, "__rpow__")

    def __neg__(self) -> Any:
        vector = self._as_vector()
        return -1 * self if vector is None else vector.map_values(lambda a: -a)

    def __abs__(self) -> Any:
        vector = self._as_vector()
        return with_operators(sympy.Abs(as_plain(self))) if vector is None else vector.map_values(abs)

    def __matmul__(self, other: Any) -> Any:
        return self._multiply_matrix(other, is_left=False)

    def __rmatmul__(self, other: Any) -> Any:
        return self._multiply_matrix(other, is_left=True)

    def _multiply_matrix(self, matrix: Any, *, is_left: bool) -> Any:
        """Return ``matrix @ self`` if ``is_left`` is True, and ``self @ matrix`` otherwise."""
        vector = self._as_vector()
        if vector is None:
            raise ModelError(f"{self} is a scalar: @ multiplies a variable over one set by a matrix or a vector")
        return vector.multiply_matrix(matrix, is_left=is_left)

    def sum(self, axis: None = None, dtype: None = None, out: None = None) -> sympy.Expr:
        """Return the sum of this expression over all elements of its index sets. A scalar is returned unchanged.

        The arguments must be None. They exist only because ``numpy.sum`` passes them.
        """
        if not axis is dtype is out is None:
            raise ModelError(f"{self}.sum() takes no arguments; total(..., over=...) sums over some of the indices")
        vector = self._as_vector()
        return self if vector is None else vector.total()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        refuse_copy(str(self))

    # The methods below reject uses that are not formulas. Their errors say what to write instead.

    def __iter__(self) -> Any:
        advice = "total(..., over=...) is the sum over an index"
        if self._as_vector() is not None:
            advice = f"{self}.sum() or total(..., over=...) is the sum"
        raise MisuseError(f"{self} cannot be iterated over; {advice}")

    def __contains__(self, value: object) -> bool:
        # Without this method, Python would call __iter__ and replace its error with another one.
        return value in iter(self)

    def _refuse_remainder(self, other: object) -> NoReturn:
        """Raise the error for the unsupported operators ``%`` and ``//`` and the function ``divmod``."""
        raise MisuseError(
            f"{self}: % and // are not linear operations; state x == n*q + r by Eq, with an integer variable q and a "
            "variable r from 0 to n - 1"
        )

    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __divmod__ = __rdivmod__ = _refuse_remainder

    def _refuse_bits(self, other: object = None) -> NoReturn:
        """Raise the error for the unsupported operators ``&``, ``|``, ``^``, ``~``, ``<<`` and ``>>``."""
        raise MisuseError(
            f"{self}: &, |, ^, ~, << and >> are not operations on expressions; write ** for a power, 1 - h for 'not' "
            "of a binary h, and rows such as g + h >= 1 for 'or'"
        )

    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse_bits
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __invert__ = _refuse_bits

    def _refuse_as_number(self, *_: object) -> NoReturn:
        """Raise the error for passing an expression to ``float``, ``int``, ``round`` or a function of ``math``."""
        raise MisuseError(
            f"{self} is not a number before a solve; its value is solution[...] of the variable afterwards"
        )

    __float__ = __int__ = __complex__ = __round__ = __trunc__ = __floor__ = __ceil__ = _refuse_as_number

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply an operator that Python has delegated to NumPy because one operand is an array.

        All other NumPy functions raise an error.
        """
        # NumPy passes scalars as arrays without axes.
        inputs = tuple(as_number(value) for value in inputs)
        left, right = inputs[0], inputs[-1]
        if ufunc.__name__ in ("equal", "not_equal"):
            if any(isinstance(value, np.ndarray) for value in inputs):
                raise MisuseError(
                    f"{self} is compared with an array: == does not state an equation; write Eq(left, right)"
                )
            return left == right if ufunc.__name__ == "equal" else left != right
        methods = _UFUNC_METHODS.get(ufunc.__name__)
        if methods is None or method != "__call__" or options:
            self._refuse_numpy(ufunc.__name__)
        if len(inputs) == 1:
            return getattr(left, methods[0])()
        if isinstance(left, Operators):
            return getattr(left, methods[0])(right)
        return getattr(right, methods[1])(left)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        """Support ``numpy.sum`` of vectors and whole variables and ``numpy.where`` of scalars, but nothing else."""
        if function is np.where and not any(
            isinstance(value, Operators) and value._as_vector() is not None for value in arguments
        ):
            return np.where(*map(_in_array, arguments), **options)
        if function is not np.sum or len(arguments) > 1 or options or self._as_vector() is None:
            self._refuse_numpy(function.__name__)
        return self.sum()

    @property
    def _data(self) -> NoReturn:
        """Raise the error for an operation whose left operand is a masked array.

        NumPy reads this attribute only in that case. If no error were raised, NumPy would multiply element-wise.
        """
        raise ModelError(f"{self}: {MASKED_ADVICE}")

    def _refuse_numpy(self, name: str) -> NoReturn:
        """Raise the error for calling the NumPy function ``name`` on an expression."""
        advice = _NUMPY_ADVICE.get(name, "use operators, maximum, minimum, abs and total")
        raise MisuseError(f"numpy.{name} takes numbers, and {self} is not one before a solve; {advice}")


def as_number(value: Any) -> Any:
    """Convert a NumPy scalar or zero-dimensional array to a Python number, and return other values unchanged.

    Without the conversion, sympy would keep the 24-bit precision of a float32 and round any number combined with it to
    that precision.
    """
    if isinstance(value, np.longdouble | np.clongdouble):
        # item() would return the same type, because Python has no such numbers.
        return float(value) if isinstance(value, np.longdouble) else complex(value)
    is_scalar = isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0)
    return value.item() if is_scalar and not isinstance(value, np.ma.MaskedArray) else value


def _in_array(value: Any) -> Any:
    """Wrap an expression in a zero-dimensional array, as NumPy's functions require. Return other values unchanged."""
    if not isinstance(value, Operators):
        return value
    array = np.empty((), dtype=object)
    array[()] = value
    return array


def is_vector(value: Any) -> bool:
    """Return whether one side of a relation is a vector: an array, or an expression written without indices."""
    return isinstance(value, np.ndarray) or (isinstance(value, Operators) and value._is_expression_of_vectors)


def refuse_array_beside(scalar: Any) -> NoReturn:
    """Raise the error for a relation between a scalar expression and an array."""
    raise ModelError(
        f"{scalar} is compared with an array; write the array with indices, as p[i], where p is a param, or compare "
        "it with a whole variable"
    )


class _Sum(Operators, sympy.Add):  # type: ignore[misc]
    """A sum whose terms contain variables or parameters."""

    __slots__ = ()


class _Product(Operators, sympy.Mul):  # type: ignore[misc]
    """A product whose factors contain variables or parameters."""

    __slots__ = ()


class _Power(Operators, sympy.Pow):  # type: ignore[misc]
    """A power whose base or exponent contains variables or parameters."""

    __slots__ = ()


class Abs(Operators, sympy.Abs):  # type: ignore[misc]
    """The absolute value of an expression. It has the same name as sympy's class, because sympy prints class names."""

    __slots__ = ()


class exp(Operators, sympy.exp):  # type: ignore[misc]  # noqa: N801
    """The exponential of an expression in parameters.

    It has the same name as sympy's class, because sympy prints class names.
    """

    __slots__ = ()


class log(Operators, sympy.log):  # type: ignore[misc]  # noqa: N801
    """The logarithm of an expression in parameters.

    It has the same name as sympy's class, because sympy prints class names.
    """

    __slots__ = ()


_SUBCLASSES = {
    sympy.Add: _Sum,
    sympy.Mul: _Product,
    sympy.Pow: _Power,
    sympy.Abs: Abs,
    sympy.exp: exp,
    sympy.log: log,
}
_SYMPY_CLASSES = {subclass: sympy_class for sympy_class, subclass in _SUBCLASSES.items()}


def with_operators(expression: Any) -> Any:
    """Convert a sympy operation to the subclass with this module's operators, and return other values unchanged.

    Only the outermost operation is converted, so that sympy can compare and simplify the inner ones as usual.
    """
    return _rebuild(expression, _SUBCLASSES)


def as_plain(expression: Any) -> Any:
    """Convert an expression back to sympy's own class, undoing :func:`with_operators`."""
    return _rebuild(expression, _SYMPY_CLASSES)


def _rebuild(expression: Any, classes: dict[Any, Any]) -> Any:
    """Rebuild an expression as an instance of another class, without simplifying its arguments.

    ``classes`` maps each class to its replacement. An expression of any other class is returned unchanged.
    """
    new_class = classes.get(type(expression))
    if new_class is None:
        return expression
    if issubclass(new_class, sympy.Add | sympy.Mul):
        # The constructor would examine every argument again, which is slow for a sum that is built in a loop.
        return new_class._from_args(expression.args, is_commutative=expression.is_commutative)
    return new_class(*expression.args, evaluate=False)
