"""Read and write problem files as TOML text, with exact decimals and a limit on their length."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NoReturn

import tomli_w

from privopt.declare.exact_text import exact_text
from privopt.declare.schema import File
from privopt.errors import Fault, InputError, UsageError, reason_of

LARGEST_TOML: Final = 16 * 2**20
"""Bytes of the largest problem file: tables belong into files of their own."""
MOST_DIGITS: Final = 2_000
"""Digits of the longest number. Exact doubles need at most 1,077; Python does not print whole numbers above 4,300."""


def _read_decimal(text: str) -> Decimal:
    """Read a decimal exactly; very long ones are refused."""
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text):,} digits")
    return Decimal(text)


def _check_lengths(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the tables, unless a whole number has too many digits to be printed (hexadecimal text can have them)."""
    # A loop instead of recursion, since tables may be nested deeply.
    pending: list[Any] = [tables]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, int) and value.bit_length() > 3 * MOST_DIGITS:  # a digit has 3.3 bits
            raise ValueError("a whole number of too many digits")
    return tables


def read_toml(source: File) -> dict[str, Any]:
    """Return the tables of a TOML file, its decimals exact.

    Raises:
        InputError: it is too large, or not TOML.
    """
    raw = source.contents

    def refuse(got: str, expectation: str) -> NoReturn:
        raise InputError([Fault(source.name, "", got, expectation)])

    if len(raw) > LARGEST_TOML:
        refuse(f"{len(raw):,} bytes", f"TOML 1.0 of at most {LARGEST_TOML:,}")
    try:
        return _check_lengths(tomllib.loads(raw.decode("utf-8-sig"), parse_float=_read_decimal))
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        refuse(f"a byte in line {line} that is not UTF-8", "TOML 1.0 in UTF-8")
    except (ValueError, ArithmeticError, RecursionError) as error:  # TOMLDecodeError, or a number of 4,300 digits
        refuse(f"text that is not TOML: {reason_of(error)}", "TOML 1.0")


def to_toml(tables: Mapping[str, object]) -> str:
    """Write nested mappings as TOML 1.0 with tomli-w. Rationals become the decimals that they equal.

    >>> print(to_toml({"privacy": {"epsilon": 0.5}, "records": {"grid": {"rows": 2}}}), end="")
    [privacy]
    epsilon = 0.5
    <BLANKLINE>
    [records.grid]
    rows = 2
    """
    return str(tomli_w.dumps({str(name): _to_plain(inner, str(name)) for name, inner in tables.items()}))


def _to_plain(value: object, where: str) -> object:
    """Convert a value to one that TOML can hold."""
    if isinstance(value, Mapping):
        return {str(name): _to_plain(inner, f"{where}.{name}") for name, inner in value.items()}
    if isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_to_plain(inner, where) for inner in value]
    if isinstance(value, Fraction) and "/" not in exact_text(value):
        return Decimal(exact_text(value))
    if isinstance(value, (float, Decimal)):
        return value if type(value) in (float, Decimal) else float(value)
    if getattr(value, "shape", None) == ():  # a number of NumPy
        return _to_plain(value.item(), where)  # type: ignore[attr-defined]
    raise UsageError(f"{where} must be text, a number with finitely many decimals, a list or a table, got {value!r}")
