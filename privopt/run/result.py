"""What result.json claims: how it must look before anything in it is believed, and what it has to say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, get_args

from attrs import frozen

from privopt.errors import Fault, cut
from privopt.interfaces import Certificate, Evidence, Guarantee, Objective

__all__ = ["LP", "NEAR", "SEEDED", "TOLD", "Claim", "claim_faults", "differences", "mark"]

Test = Callable[[Any], bool]


def _number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _number_or_infinite(value: Any) -> bool:
    return _number(value) or value in ("inf", "-inf")


def _perhaps(test: Test) -> Test:
    return lambda value: value is None or test(value)


def _is(*types: type) -> Test:
    return lambda value: isinstance(value, types) and not (isinstance(value, bool) and bool not in types)


TEXT: Final = (_is(str), "text")
NUMBER: Final = (_number, "a number")
COUNT: Final = (lambda value: _is(int)(value) and 0 <= value < 2**63, "a count")
PERHAPS: Final = (_perhaps(_number_or_infinite), 'a number, "inf" or null')
AT_LEAST_0: Final = (
    _perhaps(lambda value: value == "inf" or (_number(value) and value >= 0)),
    'a number of at least 0, "inf" or null',
)
TABLE: Final = (_is(dict), "an object")

SHAPE: Final[Mapping[str, tuple[Test, str]]] = {
    "mechanism": TEXT,
    "method": TEXT,
    "plugin": TABLE,
    "plugin.name": TEXT,
    "plugin.version": TEXT,
    "privopt": TEXT,
    "problem": TABLE,
    "problem.file": TEXT,
    "problem.sha256": TEXT,
    "seed": (_perhaps(_is(int)), "a whole number or null"),
    "status": TEXT,
    "asked": TABLE,
    "asked.method": TEXT,
    "asked.gap": (lambda value: _number(value) and value > 0, "a number above 0"),
    "asked.time_limit": (_perhaps(lambda value: _number(value) and value > 0), "a number above 0 or null"),
    "asked.memory": (_perhaps(lambda value: _number(value) and value > 0), "a number above 0 or null"),
    "asked.solver": TEXT,
    "guarantee": TABLE,
    "guarantee.kind": TEXT,
    "guarantee.epsilon": (_perhaps(lambda value: _number(value) and value > 0), "a number above 0 or null"),
    "guarantee.epsilon_text": (_perhaps(_is(str)), "text or null"),
    "guarantee.unit": TEXT,
    "guarantee.scope": TEXT,
    "guarantee.statement": TEXT,
    "objective": TABLE,
    "objective.value": (_number_or_infinite, 'a number or "inf"'),
    "objective.lower_bound": PERHAPS,
    "objective.gap": PERHAPS,
    "objective.unit": TEXT,
    "certificate": TABLE,
    "certificate.holds": (_perhaps(_is(bool)), "true, false or null"),
    "certificate.evidence": (lambda value: value in get_args(Evidence), "proved, declared or none"),
    "certificate.kind": TEXT,
    "certificate.worst": AT_LEAST_0,
    "certificate.allowed": AT_LEAST_0,
    "certificate.checked": COUNT,
    "certificate.arithmetic": TEXT,
    "time": TABLE,
    **{f"time.{phase}": NUMBER for phase in ("build", "solve", "repair", "verify", "total")},
    "solver": TABLE,
    "details": TABLE,
    "details.told": TABLE,
}
"""Every key that each result has: what its value must be, and that in words. More keys may stand beside them."""


NEAR: Final = 1e-9
"""Relative difference allowed between a figure in result.json and the same figure computed again."""

TOLD: Final = "told"
"""Key of ``details`` for what nobody checks."""

LP: Final = "lp"
"""Key of ``details`` for the program whose gap ``--gap`` and the status mean, where the objective has none."""

SEEDED: Final = "seeded, not private"
"""The mark of what a seed drew."""


@frozen(kw_only=True)
class Claim:
    """All that a DIR claims and that follows from the files beside result.json.

    Attributes:
        guarantee, certificate, objective: as measured on the release.
        details: that follow from problem and release.
        lp: ``value``, ``lower_bound`` and ``gap`` of the program that was solved, where that is what the status means.
        asked: the options of the run.
    """

    guarantee: Guarantee
    certificate: Certificate
    objective: Objective
    details: Mapping[str, Any]
    lp: Mapping[str, Any] | None
    asked: Mapping[str, Any]

    @property
    def status(self) -> str:
        """``"optimal"`` where the gap asked for is met, else ``"feasible"``, also where there is no bound."""
        gap = self.objective.gap if self.lp is None else self.lp["gap"]
        return "optimal" if gap is not None and gap != "inf" and gap <= self.asked["gap"] else "feasible"

    def to_json(self) -> dict[str, Any]:
        """Those parts of result.json."""
        return {
            "status": self.status,
            "guarantee": self.guarantee.to_json(),
            "objective": self.objective.to_json(),
            "certificate": self.certificate.to_json(),
            "details": {**self.details, **({} if self.lp is None else {LP: self.lp})},
        }


def mark(result: Mapping[str, Any]) -> str | None:
    """The words that a release without privacy is shown with, wherever it is shown; None where it has some."""
    if result["guarantee"].get("seeded"):
        return SEEDED
    return "no privacy guarantee" if result["certificate"]["evidence"] == "none" else None


def differences(stated: Any, wanted: Any, where: str, *, near: float = NEAR) -> Iterator[str]:
    """A line for each leaf of result.json that is not what its claim comes to; doubles may differ by ``near``."""
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


def _same(stated: Any, wanted: Any, near: float) -> bool:
    if _number(stated) and _number(wanted) and (isinstance(stated, float) or isinstance(wanted, float)):
        return bool(abs(stated - wanted) <= near * max(abs(stated), abs(wanted)))
    return type(stated) is type(wanted) and bool(stated == wanted)


def claim_faults(result: Mapping[str, Any], file: str) -> Iterator[Fault]:
    """What of a result.json is missing or of another kind, outer keys before inner ones.

    >>> [str(fault) for fault in claim_faults({"mechanism": 3}, "result.json")][:2]
    ['result.json: mechanism: found 3, wanted text', 'result.json: method: found nothing, wanted text']
    """
    broken: set[str] = set()
    for key, (test, wanted) in SHAPE.items():
        outer, _, name = key.rpartition(".")
        if outer in broken:
            continue
        table = result if not outer else result[outer]
        if name not in table:
            yield Fault(file, key, "nothing", wanted)
            broken.add(key)
        elif not test(table[name]):
            yield Fault(file, key, repr(table[name]), wanted)
            broken.add(key)
    for name in result:
        if name not in SHAPE:
            yield Fault(file, name, "an unknown key", "those of a result alone")
    if "details" in result and "details" not in broken and LP in result["details"]:
        lp = result["details"][LP]
        for name in ("value", "lower_bound"):
            test, wanted = SHAPE[f"objective.{name}"]
            if not isinstance(lp, dict) or name not in lp or not test(lp[name]):
                yield Fault(file, f"details.{LP}.{name}", "something else", wanted)
