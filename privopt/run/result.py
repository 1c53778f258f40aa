"""What a result.json must look like before anything in it is believed or shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, get_args

from privopt.errors import Fault
from privopt.interfaces import Evidence

__all__ = ["claim_faults"]

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
    "guarantee": TABLE,
    "guarantee.kind": TEXT,
    "guarantee.epsilon": (_perhaps(lambda value: _number(value) and value > 0), "a number above 0 or null"),
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
}
"""Every key that each result has: what its value must be, and that in words. More keys may stand beside them."""


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
