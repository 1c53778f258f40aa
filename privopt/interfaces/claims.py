"""Guarantee, certificate and objective: what is claimed of a release, what was measured, and its loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final, Literal, Self, get_args

from attrs import frozen

from privopt.declare.exact_text import exact_text
from privopt.declare.schema import document, key, non_negative

AGAIN: Final = "A second release of the same secret: it spends epsilon again."
"""What no notion covers, in a report's words."""

SEEDED: Final = "seeded, not private"
"""The mark of what a seed drew."""

Evidence = Literal["proved", "declared", "none"]
"""What a claim rests on: measured on the release itself; noise whose scale and sensitivity were checked, while that it
was drawn is its maker's word; or no guarantee at all."""


@frozen(kw_only=True)
class Guarantee:
    """What is claimed of a release.

    >>> Guarantee(kind="metric-dp", epsilon=Fraction(1), unit="per km", scope="all-pairs").to_json()["epsilon"]
    1.0

    Attributes:
        kind: name of a registered notion of privacy.
        epsilon: exact value; None where the kind has none. ``result.json`` holds it as the nearest double, and exactly
            in ``epsilon_text``: the decimal of the problem file, which is what is claimed.
        unit: of epsilon, e.g. ``"per km"`` or ``"per group"``.
        scope: which pairs or neighbours: ``"all-pairs"``, ``"neighbours"``, ``"own-matrix"`` for metric DP.
        statement: the promise in words: which inputs it makes alike, and against whom it holds.
        seeded: True where the noise of this release came from ``--seed``; then it is not private.
        extra: further fields of ``result.json``.
    """

    kind: str = key(help="name of a notion")
    epsilon: Fraction | None = key(None, help="a number above 0 or null")
    unit: str = key("", help="of epsilon")
    scope: str = key("", help="which pairs or neighbours")
    statement: str = key("", help="the promise in words")
    seeded: bool = key(False, help="whether a seed drew the noise", omit=True)
    extra: Mapping[str, Any] = key(factory=dict, help="further fields", rest=True)

    def to_json(self) -> dict[str, Any]:
        """Return the ``guarantee`` object of result.json."""
        shown = dict.fromkeys(("kind", "epsilon", "epsilon_text")) | document(self)
        if self.epsilon is not None:
            shown |= {"epsilon": float(self.epsilon), "epsilon_text": exact_text(self.epsilon)}
        return shown | ({"warning": SEEDED} if self.seeded else {})


@frozen(kw_only=True)
class Certificate:
    """What was checked of a release, in exact arithmetic.

    Attributes:
        holds: whether the release keeps the guarantee; None where nothing is claimed.
        evidence: ``"proved"`` where the release itself was measured, ``"declared"`` where noise is its maker's word,
            ``"none"`` where nothing is claimed.
        rests_on: where the evidence is ``"declared"``, what no one can check from the release, in words.
        kind: guarantee kind it was measured for.
        worst: greatest value found (metric DP: log ratio / distance, in epsilon's unit), rounded up.
        allowed: the greatest value permitted, same unit.
        checked: number of conditions checked (metric DP: pairs times outputs).
        arithmetic: what the decision rests on, in words.
        notes: further fields of ``result.json``.
        failures: what failed, one line each, worst first.
    """

    holds: bool | None = key(help="true, false or null")
    evidence: Evidence = key(help="proved, declared or none")
    kind: str = key(help="name of a notion")
    worst: float | None = key(help='a number, "inf" or null', infinite=True)
    allowed: float | None = key(help='a number, "inf" or null', infinite=True)
    checked: int = key(help="a count", check=non_negative)
    arithmetic: str = key(help="what the decision rests on")
    rests_on: str = key("", help="what no one can check", omit=True)
    notes: Mapping[str, Any] = key(factory=dict, help="further fields", rest=True)
    failures: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        if self.evidence not in get_args(Evidence):
            raise ValueError(f"evidence must be one of {', '.join(get_args(Evidence))}, got {self.evidence!r}")

    @property
    def in_words(self) -> str:
        """Say how many conditions were checked, and how near to its limit the tightest is."""
        conditions = f"{self.checked:,} condition{'' if self.checked == 1 else 's'} checked"
        return f"{conditions}, tightest {self.worst:.9g} of {self.allowed:.9g} allowed"


SQUARED: Final = " squared"
"""End of the unit of an objective that adds up squared differences."""


@frozen(kw_only=True)
class Bounds:
    """A value that was reached, and what is proved of the best there can be.

    Attributes:
        value: reached.
        lower_bound: proved bound on what any release could reach; None where there is none. Where the
            objective is maximised it is the upper bound.
        gap: relative gap, never negative; absolute difference where the objective is maximised; None without a
            finite bound.
    """

    value: float = key(help='a number or "inf"', infinite=True)
    lower_bound: float | None = key(None, help='a number, "inf" or null', infinite=True)
    gap: float | None = key(None, help='a number, "inf" or null', infinite=True)

    @classmethod
    def of(cls, value: float, lower_bound: float | None, *, maximise: bool = False, **more: str | None) -> Self:
        """Make an objective with the gap that follows from value and bound; ``more`` are the other fields."""
        gap = None
        if lower_bound is not None and math.isfinite(lower_bound):
            gap = lower_bound - value if maximise else (value - lower_bound) / max(abs(value), 1e-12)
        return cls(value=value, lower_bound=lower_bound, gap=None if gap is None else max(0.0, gap), **more)


@frozen(kw_only=True)
class Objective(Bounds):
    """What a release costs, after the repair.

    Attributes:
        unit: of value and bound.
        bound_over: where the mechanism chose the outputs, whether the bound speaks of releases over these alone
            ("chosen") or over all that it chose from ("all").
    """

    unit: str = key(help="of value and bound")
    bound_over: str | None = key(None, help='"chosen" or "all", where outputs were chosen', omit=True)

    @property
    def measured(self) -> str:
        """Name what the value measures: a loss, what is protected or deleted, or how far noisy values were moved."""
        if self.unit.endswith(SQUARED):  # a bound on that tells nothing of errors
            return "fit to the noisy values"
        return {"locations": "protected", "photos": "deleted"}.get(self.unit, "loss")

    @property
    def unit_in_words(self) -> str:
        """Return the unit for people."""
        noun = self.unit.removesuffix(SQUARED)
        return self.unit if noun == self.unit else f"sum of squared differences, in {noun}"
