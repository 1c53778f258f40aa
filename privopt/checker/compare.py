"""Compare result.json with what the files of a folder give."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from privopt.checker.exact import need

__all__ = ["compare"]

RELATIVE_TOLERANCE = 1e-9
"""Relative difference that is allowed where a figure was computed in doubles."""


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
    """Compare guarantee, certificate and objective with what was found, sentences apart.

    Args:
        result: result.json.
        promise: what ``guarantee`` must say.
        measured: what ``certificate`` must say.
        value: what ``objective.value`` must be.
        unit: what it is counted in.
        gap: between value and bound, as they are stated; None without a bound.
        over: what ``objective.bound_over`` must be; None where it must not be there.
        close: those of the three whose figures may differ by a relative 1e-9; the others may by no
            bit.

    Returns:
        The guarantee in a few words.

    Raises:
        RefusedError: something differs, or ``status`` is not what the gap makes of it.
    """
    bound, asked = result["objective"]["lower_bound"], result["asked"]["gap"]
    guarantee = {**promise, "statement": str(result["guarantee"]["statement"])}
    if "seeded" in result["guarantee"]:
        guarantee |= {"seeded": True, "warning": "seeded, not private"}
    certificate = {**measured, "kind": promise["kind"], "holds": True, "evidence": "proved"}
    certificate["arithmetic"] = str(result["certificate"]["arithmetic"])
    objective = {"value": value, "lower_bound": bound, "gap": gap, "unit": unit}
    if over is not None:
        objective["bound_over"] = over
    found = {"objective": objective, "guarantee": guarantee, "certificate": certificate}
    for where, wanted in found.items():
        odd = result[where].keys() ^ wanted.keys()
        need(not odd, f"{where}: {sorted(odd)}", 1 if odd <= wanted.keys() else 2)
        for key, right in wanted.items():
            _compare_one(f"{where}.{key}", result[where][key], right, loose=where in close)
    met = gap is not None and gap <= asked and over != "chosen"
    status = "optimal" if met else "feasible"
    sound = status == result["status"] and type(asked) is not bool and 0 < asked < 1
    need(sound, f"status {status!r}, gap {asked!r}")
    return f"{promise['scope']}, epsilon {promise['epsilon_text']} {promise['unit']}; {status}"


def _compare_one(name: str, stated: object, right: object, *, loose: bool) -> None:
    """Refuse a figure that differs, or is of another type; 1 and 1.0 are one."""
    if isinstance(right, float) and type(stated) in (int, float):
        assert isinstance(stated, int | float)
        same = math.isclose(stated, right, rel_tol=RELATIVE_TOLERANCE if loose else 0.0)
    else:
        same = type(stated) is type(right) and stated == right
    need(same, f"{name}: {str(stated)[:99]!r} is claimed, {str(right)[:99]!r} found")
