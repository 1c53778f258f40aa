"""Write problem files: plain values as TOML, every number with its exact text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

import tomli_w

from privopt.declare.exact_text import exact_text
from privopt.errors import UsageError


def to_toml(tables: Mapping[str, object]) -> str:
    """Return nested mappings as TOML 1.0, by tomli-w; rationals are written as the decimals that they equal.

    >>> print(to_toml({"privacy": {"epsilon": 0.5}, "records": {"grid": {"rows": 2}}}), end="")
    [privacy]
    epsilon = 0.5
    <BLANKLINE>
    [records.grid]
    rows = 2
    """
    return str(tomli_w.dumps({str(name): _plain(inner, str(name)) for name, inner in tables.items()}))


def _plain(value: object, where: str) -> object:
    if isinstance(value, Mapping):
        return {str(name): _plain(inner, f"{where}.{name}") for name, inner in value.items()}
    if isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_plain(inner, where) for inner in value]
    if isinstance(value, Fraction) and "/" not in exact_text(value):
        return Decimal(exact_text(value))
    if isinstance(value, (float, Decimal)):
        return value if type(value) in (float, Decimal) else float(value)
    if getattr(value, "shape", None) == ():  # a number of NumPy
        return _plain(value.item(), where)  # type: ignore[attr-defined]
    raise UsageError(f"{where} must be text, a number with finitely many decimals, a list or a table, got {value!r}")
