"""Options of a solve."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

from attrs import Attribute, Converter, field, frozen

from privopt.errors import check_number
from privopt.interfaces import Progress
from privopt.ledger.charge import Charge

__all__ = ["ABOVE", "Options"]

ABOVE: Final = math.ulp(0.0)
"""The least double above 0."""


def _checked(value: Any, attribute: Attribute[Any]) -> Any:
    """Return a plain number, of NumPy's too, which JSON would not take."""
    if value is None:
        return None
    check_number(attribute.name, value, **attribute.metadata)
    return int(value) if attribute.metadata["whole"] else float(value)


def _number(wanted: str, *, minimum: float = -math.inf, whole: bool = False) -> Any:
    rule = {"wanted": wanted, "minimum": minimum, "whole": whole}
    return field(default=None, converter=Converter(_checked, takes_field=True), metadata=rule)


@frozen(kw_only=True)
class Options:
    """How to solve; the command line's options.

    Attributes:
        method: of the mechanism; its default where None.
        solver: ``"cbc"``, ``"highs"`` or another that is registered.
        jobs: processes, and threads in each; None for one process and a thread a processor, 8 at most.
        executor: URL of a cluster (``dask://host:port``), or None.
        time_limit: seconds until the search ends, or None. Certifying and writing follow.
        memory: gigabytes (10^9 bytes) that the process may hold; None for what is free and what it may take.
        gap: relative gap asked for; the method's own where None.
        seed: for experiments only.
        force: replace an existing DIR.
        allow_unsafe: permit methods whose guarantee kind is ``"none"``.
        resume: go on from ``DIR.partial/``.
        copy_to: folder to make for clean copies of what the release lets out, of mechanisms that can; or None.
        progress: called by long work, or None.
        charged: where epsilon is charged before noise is drawn, or None.

    Raises:
        UsageError: numbers that are none, or cannot be meant so.
    """

    method: str | None = None
    solver: str = "cbc"
    jobs: int | None = _number("a whole number of at least 1", minimum=1, whole=True)
    executor: str | None = None
    time_limit: float | None = _number("a finite number of seconds above 0", minimum=ABOVE)
    memory: float | None = _number("a finite number of gigabytes above 0", minimum=ABOVE)
    gap: float | None = _number("a number above 0 and below 1")
    seed: int | None = _number("a whole number of at least 0", whole=True, minimum=0)
    force: bool = False
    allow_unsafe: bool = False
    resume: bool = False
    copy_to: Path | None = None
    progress: Progress | None = None
    charged: Charge | None = None
