"""Read result.json, and compare its claims with its files, leaf by leaf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from privopt.declare import structure
from privopt.declare.schema import RefusedValueError
from privopt.errors import Fault, InputError, cut
from privopt.files.release_folder import RESULT, read_document
from privopt.interfaces import Result

RELATIVE_TOLERANCE: Final = 1e-9
"""Relative difference allowed between a figure in result.json and the same figure computed again."""


def read_result(folder: Path) -> Result:
    """Read the result.json of a DIR, before anything in it is checked."""
    return result_of(read_document(folder), str(folder / RESULT))


def result_of(document: Mapping[str, Any], file: str) -> Result:
    """Parse a result.json.

    What follows from other leaves (the status, epsilon as a double, the warning about a seed) is not read: ``verify``
    compares it with :meth:`Result.to_json`.
    """
    stated = {name: value for name, value in document.items() if name != "status"}
    guarantee = document.get("guarantee")
    if isinstance(guarantee, Mapping):
        claimed = {name: value for name, value in guarantee.items() if name not in ("epsilon_text", "warning")}
        try:
            stated["guarantee"] = claimed | {"epsilon": _exactly(guarantee.get("epsilon_text"))}
        except RefusedValueError as error:
            raise InputError([Fault(file, "guarantee.epsilon_text", error.found, error.wanted)]) from None
    return structure(Result, stated, file)


def _exactly(text: object) -> Decimal | Fraction | None:
    """Return the rational that :func:`privopt.declare.exact_text.exact_text` wrote; callers check its size."""
    if text is None:
        return None
    if isinstance(text, str):
        try:
            return Fraction(text) if "/" in text else Decimal(text)
        except (ValueError, ZeroDivisionError, InvalidOperation):
            pass
    raise RefusedValueError(text, "an exact number as text, or null")


def differences(stated: object, wanted: object, where: str, *, near: float = RELATIVE_TOLERANCE) -> Iterator[str]:
    """Yield a line for each leaf of result.json that is not what its claim implies; doubles may differ by ``near``."""
    if isinstance(wanted, dict) and isinstance(stated, dict):
        for name in {**wanted, **stated}:
            inner = f"{where}.{name}".lstrip(".")
            if name not in stated:
                yield f"{inner}: missing; it should be {cut(repr(wanted[name]))}"
            elif name not in wanted:
                yield f"{inner}: claims {cut(repr(stated[name]))}, which nothing here gives"
            else:
                yield from differences(stated[name], wanted[name], inner, near=near)
    elif isinstance(wanted, list) and isinstance(stated, list) and len(wanted) == len(stated):
        for place, (one, other) in enumerate(zip(stated, wanted, strict=True)):
            yield from differences(one, other, f"{where}[{place}]", near=near)
    elif not _same(stated, wanted, near):
        yield f"{where}: claims {cut(repr(stated))}, the files give {cut(repr(wanted))}"


def _same(stated: object, wanted: object, near: float) -> bool:
    if type(stated) is type(wanted) and stated == wanted:
        return True
    if bool in (type(stated), type(wanted)) or not (isinstance(stated, float) or isinstance(wanted, float)):
        return False
    if not isinstance(stated, (int, float)) or not isinstance(wanted, (int, float)):
        return False
    one, other = Fraction(stated), Fraction(wanted)  # a whole number may be larger than any double
    return abs(one - other) <= Fraction(near) * max(abs(one), abs(other))
