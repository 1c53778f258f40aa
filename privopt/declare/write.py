"""Writing problem files: plain values as TOML, every number with its exact text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Final

from privopt.declare.exact_text import exact_text
from privopt.errors import UsageError

__all__ = ["Plain", "toml_text", "toml_value"]

Plain = str | bool | int | float | Decimal | Fraction | Sequence["Plain"] | Mapping[str, "Plain"]
"""What a problem file holds."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(problem: Mapping[str, Plain]) -> str:
    """A problem file: its tables, each key on a line, deeper tables in braces.

    >>> print(toml_text({"privacy": {"epsilon": 0.1}, "records": {"grid": {"rows": 2, "cols": 3}}}))
    [privacy]
    epsilon = 0.1
    <BLANKLINE>
    [records]
    grid = { rows = 2, cols = 3 }
    <BLANKLINE>

    Raises:
        UsageError: a value that no problem file can hold.
    """
    loose = {name: value for name, value in problem.items() if not isinstance(value, Mapping)}
    parts = ["".join(f"{_key(name)} = {toml_value(value, name)}\n" for name, value in loose.items())]
    for name, table in problem.items():
        if isinstance(table, Mapping):
            lines = "".join(f"{_key(key)} = {toml_value(value, f'{name}.{key}')}\n" for key, value in table.items())
            parts.append(f"[{_key(name)}]\n{lines}")
    return "\n".join(part for part in parts if part)


def toml_value(value: object, where: str) -> str:
    """One value; ``where`` is its key, for the fault.

    Raises:
        UsageError: it is none that a problem file can hold.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(float(value))
    if isinstance(value, Decimal) and value.is_finite():
        return _decimal(str(value))
    if isinstance(value, Fraction) and "/" not in exact_text(value):
        return _decimal(exact_text(value))
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(str(key))} = {toml_value(kept, f'{where}.{key}')}" for key, kept in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return f"[{', '.join(toml_value(kept, where) for kept in value)}]"
    item = getattr(value, "item", None)  # numbers of NumPy
    if item is not None and getattr(value, "shape", None) == ():
        return toml_value(item(), where)
    raise UsageError(f"{where}: found {value!r}, wanted text, a number that is a finite decimal, a list or a table")


def _decimal(text: str) -> str:
    """A decimal as TOML writes floats: 1E+3 has no point, 5 is a whole number, both are allowed."""
    return text if re.fullmatch(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", text) else repr(float(text))


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
