"""Compare the claims in result.json with what the checker computed from the folder's files.

Every value must be equal bit for bit. The only exceptions are values that the solver computed in double precision. They
are declared by the part of the checker (a plugin's code) for this kind of guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from privopt.checker.exact import need

__all__ = ["compare"]

RELATIVE_TOLERANCE = 1e-9
"""The relative difference allowed in values that were computed in double precision."""


def compare(
    result: Mapping[str, Any],
    *,
    promise: Mapping[str, Any],
    measured: Mapping[str, Any],
    value: float,
    unit: str,
    gap: float | None,
    over: str | None = None,
    close: frozenset[str] = frozenset(),
) -> str:
    """Compare the guarantee, the certificate and the objective in result.json with what the checker computed.

    Args:
        result: The contents of result.json.
        promise: The required contents of ``guarantee``, except for the statement. Its ``epsilon`` and ``epsilon_text``
            are None if the guarantee has no epsilon.
        measured: The required contents of ``certificate``, except for kind, holds, evidence and arithmetic.
        value: The required ``objective.value``.
        unit: The required ``objective.unit``.
        gap: The relative gap between the stated value and the stated bound, or None if no bound is stated.
        over: The required ``objective.bound_over``, or None if this key must be absent.
        close: The tables (such as ``objective``) in which doubles may differ by a relative error of 1e-9. Doubles in
            all other tables must match exactly.

    Returns:
        A short description of the guarantee.

    Raises:
        RefusedError: A value differs, a key is missing or unknown, or ``status`` does not follow from the gap.
    """
    # Free text cannot be computed, so statement and arithmetic are copied from result.json, where they must exist. The
    # bound is copied because the part for the guarantee has already checked it against the proof.
    bound, requested_gap = result["objective"]["lower_bound"], result["asked"]["gap"]
    guarantee = {**promise, "statement": str(result["guarantee"]["statement"])}
    if "seeded" in result["guarantee"]:
        guarantee |= {"seeded": True, "warning": "seeded, not private"}
    certificate = {**measured, "kind": promise["kind"], "holds": True, "evidence": "proved"}
    certificate["arithmetic"] = str(result["certificate"]["arithmetic"])
    objective = {"value": value, "lower_bound": bound, "gap": gap, "unit": unit}
    if over is not None:
        objective["bound_over"] = over
    expected_parts = {"objective": objective, "guarantee": guarantee, "certificate": certificate}
    for part, expected in expected_parts.items():
        unmatched_keys = result[part].keys() ^ expected.keys()
        # A missing key means that a claim fails (code 1). An unknown key cannot be checked (code 2).
        need(
            not unmatched_keys,
            f"{part}: missing or unknown keys {sorted(unmatched_keys)}",
            1 if unmatched_keys <= expected.keys() else 2,
        )
        for key, expected_value in expected.items():
            _compare_figure(f"{part}.{key}", result[part][key], expected_value, loose=part in close)
    # A bound for only the chosen outputs does not cover other outputs, so it does not prove optimality.
    meets_gap = gap is not None and gap <= requested_gap and over != "chosen"
    status = "optimal" if meets_gap else "feasible"
    # True and False are integers in Python, and could pass as gaps.
    is_consistent = status == result["status"] and type(requested_gap) is not bool and 0 < requested_gap < 1
    need(is_consistent, f"status: {result['status']!r} is claimed, {status!r} found (asked.gap is {requested_gap!r})")
    return f"{promise['scope']}, epsilon {promise['epsilon_text']} {promise['unit']}; {status}"


def _compare_figure(name: str, stated: object, expected: object, *, loose: bool) -> None:
    """Check that a value in result.json has the expected value and type.

    Args:
        name: The value's name, for error messages.
        stated: The value in result.json. It may be an integer where a double is expected, because JSON may write 1.0 as
            1.
        expected: The value that the checker computed.
        loose: Whether doubles may differ by a relative error of :data:`RELATIVE_TOLERANCE`.

    Raises:
        RefusedError: The value or its type differs.
    """
    if isinstance(expected, float) and type(stated) in (int, float):
        assert isinstance(stated, int | float)
        is_equal = math.isclose(stated, expected, rel_tol=RELATIVE_TOLERANCE if loose else 0.0)
    else:
        is_equal = type(stated) is type(expected) and stated == expected
    need(is_equal, f"{name}: {str(stated)[:99]!r} is claimed, {str(expected)[:99]!r} found")
