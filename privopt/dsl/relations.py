"""Relations that are kept as written, and errors for uses that Python would misinterpret."""

from __future__ import annotations

from typing import Any, NoReturn

import sympy

from privopt.errors import ModelError


class MisuseError(ModelError, TypeError):
    """Raised if an expression or relation is used as a number, a condition or a sequence.

    It is also a TypeError, because that is the exception that NumPy and sympy expect for unsupported operations.
    """


def refuse_as_condition(relation: object) -> NoReturn:
    """Raise the error for using a relation as a condition.

    Python asks for a relation's truth value when it evaluates ``0 <= x <= 1``, ``x >= 0 and y >= 0``, ``if x <= 1:`` or
    ``max(x, y)``. The relation cannot tell which of these is being evaluated, so the message suggests a replacement for
    each.
    """
    raise MisuseError(
        f"{relation} is a relation, which is not true or false: write between(0, x, 1) for 0 <= x <= 1, one require "
        "for each relation in place of 'and', implies(h, relation) with a binary h in place of 'if', 'not' and 'or', "
        "and maximum(x, y) or minimum(x, y) in place of Python's max and min"
    )


def refuse_copy(name: str) -> NoReturn:
    """Raise the error for copying or pickling a model or part of one, called ``name`` in the message."""
    raise MisuseError(
        f"{name} cannot be copied or pickled, because formulas know variables by identity; build the model again, or "
        "pickle the arrays of Model.compile()"
    )


class NoCondition:
    """Mixin for relations, which have no truth value and cannot be combined with ``&``, ``|``, ``^`` or ``~``."""

    __slots__ = ()

    def __bool__(self) -> bool:
        refuse_as_condition(self)

    def __and__(self, other: object) -> NoReturn:
        refuse_as_condition(self)

    __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __and__

    def __invert__(self) -> NoReturn:
        refuse_as_condition(self)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        refuse_copy(str(self))


class AtMost(NoCondition, sympy.Le):  # type: ignore[misc]
    """The relation ``left <= right``."""

    __slots__ = ()


class AtLeast(NoCondition, sympy.Ge):  # type: ignore[misc]
    """The relation ``left >= right``."""

    __slots__ = ()


class Equal(NoCondition, sympy.Eq):  # type: ignore[misc]
    """The equation ``left == right``."""

    __slots__ = ()


class Below(NoCondition, sympy.Lt):  # type: ignore[misc]
    """The strict relation ``left < right``. Models reject it, because it cannot be expressed as a row."""

    __slots__ = ()


class Above(NoCondition, sympy.Gt):  # type: ignore[misc]
    """The strict relation ``left > right``. Models reject it, because it cannot be expressed as a row."""

    __slots__ = ()
