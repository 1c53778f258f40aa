"""Read and write TOML problem files, with exact decimals of limited length.

:class:`StatedFraction` is a rational that remembers the decimal string it was written as.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from typing import Any, Final, NoReturn

import tomli_w

from privopt.declare.schema import File
from privopt.errors import Fault, InputError, UsageError, reason_of


class StatedFraction(Fraction):
    """A rational number that remembers how it was written in a problem file. Arithmetic on it returns plain fractions.

    >>> stated = StatedFraction("0.10")
    >>> stated == Fraction(1, 10), stated.text, type(stated + 1).__name__
    (True, '0.10', 'Fraction')
    """

    __slots__ = ("text",)

    text: str

    def __new__(cls, written: Any, denominator: int | None = None) -> Any:
        """Create an instance from a decimal string.

        If it is called with numbers, as it is by Fraction's own methods, a plain Fraction is created instead.
        """
        if not isinstance(written, str):
            return Fraction(written, denominator)
        fraction = super().__new__(cls, Decimal(written))
        fraction.text = written
        return fraction

    def __reduce__(self) -> Any:
        return StatedFraction, (self.text,)

    def __copy__(self) -> StatedFraction:
        return self

    def __deepcopy__(self, memo: Any) -> StatedFraction:
        return self


def exact_text(value: Fraction) -> str:
    """Format a rational exactly.

    The result is the decimal as it was written, if that is known. Otherwise, it is a finite decimal if one exists, or
    else a quotient.

    >>> exact_text(Fraction(1, 8)), exact_text(Fraction(1, 3))
    ('0.125', '1/3')
    """
    if isinstance(value, StatedFraction):
        return value.text
    # If the denominator has d decimal digits and no prime factors except 2 and 5, the quotient has at most 3.33 d
    # decimals, so this many digits are enough for any finite decimal.
    digits = len(str(value.numerator)) + 4 * len(str(value.denominator))
    try:
        return str(Context(prec=digits, traps=[Inexact]).divide(Decimal(value.numerator), Decimal(value.denominator)))
    except Inexact:
        return str(value)


LARGEST_TOML: Final = 16 * 2**20
"""The maximum size of a problem file, in bytes. Large tables belong in separate files."""
MOST_DIGITS: Final = 2_000
"""The maximum number of digits accepted in a number.

Exact doubles need at most 1,077 digits, and Python prints integers of up to 4,300 digits.
"""


def _read_decimal(text: str) -> Decimal:
    """Parse a decimal exactly, and reject strings of more than :data:`MOST_DIGITS` characters."""
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text):,} digits")
    return Decimal(text)


def _check_lengths(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the tables unchanged, or raise a ValueError if they contain an integer with too many digits.

    Python parses hexadecimal integers of any length, but does not print integers of more than a few thousand digits.
    """
    # This is a loop instead of a recursion, because tables may be nested deeply.
    pending: list[Any] = [tables]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        # A decimal digit takes 3.3 bits, so numbers of about 1,800 digits and more are rejected.
        elif isinstance(value, int) and value.bit_length() > 3 * MOST_DIGITS:
            raise ValueError("a whole number of too many digits")
    return tables


def read_toml(source: File) -> dict[str, Any]:
    """Read the tables of a TOML file, with exact decimals (:class:`Decimal`).

    Raises:
        InputError: The file is too large, or is not TOML.
    """
    raw = source.contents

    def refuse(got: str, expectation: str) -> NoReturn:
        """Raise an InputError that says what the file contains and what was expected instead."""
        raise InputError([Fault(source.name, "", got, expectation)])

    if len(raw) > LARGEST_TOML:
        refuse(f"{len(raw):,} bytes", f"TOML 1.0 of at most {LARGEST_TOML:,}")
    try:
        return _check_lengths(tomllib.loads(raw.decode("utf-8-sig"), parse_float=_read_decimal))
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        refuse(f"a byte in line {line} that is not UTF-8", "TOML 1.0 in UTF-8")
    except (ValueError, ArithmeticError, RecursionError) as error:  # TOMLDecodeError, or a number with too many digits
        refuse(f"text that is not TOML: {reason_of(error)}", "TOML 1.0")


_HEADER: Final = re.compile(r"^\s*\[\[?\s*([^\]\[]+?)\s*\]\]?\s*(?:#.*)?$")
"""Matches a line such as ``[privacy]`` or ``[[records]]``, and captures the name."""
_ASSIGNMENT: Final = re.compile(r"^\s*([^=#\s\[][^=#]*?)\s*=")
"""Matches the beginning of a line such as ``epsilon = 1``, and captures the key."""


def find_line(text: str, key: str) -> int | None:
    """Return the number of the line in a TOML text that assigns a key or opens a table, or None if in doubt.

    ``tomllib`` does not record positions, so this function searches the text line by line. Text inside a multi-line
    string could look like such a line, so a line is returned only if it is the only match. For a key in an inline
    table, the line of the table is returned.

    >>> find_line("[privacy]\\nepsilom = 1", "privacy.epsilom")
    2

    Args:
        text: A valid TOML text.
        key: The key, preceded by the names of the tables that contain it, all separated by dots.
    """
    table = ""
    lines_by_key: dict[str, list[int]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _plain_key(header[1])
            lines_by_key.setdefault(table, []).append(number)
        elif assignment := _ASSIGNMENT.match(line):
            name = _plain_key(assignment[1])
            lines_by_key.setdefault(f"{table}.{name}" if table else name, []).append(number)
    # A key in an inline table has no line of its own. The line of the innermost table that has one is returned instead.
    parts = key.split(".")
    for end in range(len(parts), 0, -1):
        if lines := lines_by_key.get(".".join(parts[:end])):
            return lines[0] if len(lines) == 1 else None
    return None


def _plain_key(text: str) -> str:
    """Return a dotted key with quotes and surrounding blanks removed from its parts."""
    return ".".join(part.strip().strip("\"'") for part in text.split("."))


def to_toml(tables: Mapping[str, object]) -> str:
    """Format nested mappings as TOML 1.0. Rationals are written as exact decimals.

    >>> print(to_toml({"privacy": {"epsilon": 0.5}, "records": {"grid": {"rows": 2}}}), end="")
    [privacy]
    epsilon = 0.5
    <BLANKLINE>
    [records.grid]
    rows = 2
    """
    return str(tomli_w.dumps({str(name): _to_plain(inner, str(name)) for name, inner in tables.items()}))


def _to_plain(value: object, where: str) -> object:
    """Convert a value to a type that TOML can express.

    Args:
        value: The value to convert.
        where: The name of the value, used in the error message.

    Raises:
        UsageError: TOML cannot express the value.
    """
    if isinstance(value, Mapping):
        return {str(name): _to_plain(inner, f"{where}.{name}") for name, inner in value.items()}
    if isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_to_plain(inner, where) for inner in value]
    if isinstance(value, Fraction) and "/" not in exact_text(value):
        return Decimal(exact_text(value))
    if isinstance(value, (float, Decimal)):
        # Instances of subclasses, such as NumPy's doubles, are converted, because they may be written differently.
        return value if type(value) in (float, Decimal) else float(value)
    if getattr(value, "shape", None) == ():  # one of NumPy's numbers
        return _to_plain(value.item(), where)  # type: ignore[attr-defined]
    raise UsageError(f"{where} must be text, a number with finitely many decimals, a list or a table, got {value!r}")
