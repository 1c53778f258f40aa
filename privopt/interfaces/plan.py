"""What can be said of a release before epsilon is chosen and before any secret is read."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from attrs import frozen

from privopt.declare.exact_text import exact_text

__all__ = ["Plan"]


@frozen(kw_only=True)
class Plan:
    """Errors to expect of a method, by part of the release, for several budgets.

    >>> plan = Plan(
    ...     method="noisy", budget="epsilon", unit="people", basis="the noise's own spread", parts=("all places",),
    ...     errors={Fraction(1, 2): (2.0,), Fraction(1): (1.0,)},
    ... )
    >>> plan.to_json()["errors"][0]
    {'epsilon': '0.5', 'by_part': [2.0]}

    Attributes:
        method: of the mechanism.
        budget: name of what is chosen: ``"epsilon"``.
        unit: of the errors.
        basis: what the errors are worked out from, in words.
        parts: names of the parts of the release that errors are stated for.
        errors: budget -> errors by part.
        shares: of the budget by part, as the problem has them; empty where it is not divided.
        best: of the splits that were tried the one whose errors at the problem's budget add up to least, and those
            errors. Splits are tried on a grid: others may have less.
        notes: what whoever reads it must know.
    """

    method: str
    budget: str
    unit: str
    basis: str
    parts: tuple[str, ...]
    errors: dict[Fraction, tuple[float, ...]]
    shares: tuple[Fraction, ...] = ()
    best: tuple[tuple[Fraction, ...], tuple[float, ...]] | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For ``privopt plan --json``; budgets and shares are exact text."""
        return {
            "method": self.method,
            "unit": self.unit,
            "basis": self.basis,
            "parts": list(self.parts),
            "errors": [
                {self.budget: exact_text(budget), "by_part": list(errors)} for budget, errors in self.errors.items()
            ],
            "shares": [str(share) for share in self.shares],
            "best": None
            if self.best is None
            else {"shares": [str(share) for share in self.best[0]], "by_part": list(self.best[1])},
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """The plan as a table in plain text."""
        wide = max(12, *(len(part) for part in self.parts))
        head = f"{self.budget:>12}" + "".join(f"  {part:>{wide}}" for part in self.parts)
        rows = [
            f"{exact_text(budget):>12}" + "".join(f"  {error:>{wide},.4g}" for error in errors)
            for budget, errors in self.errors.items()
        ]
        shown = [f"Errors to expect of {self.method}, in {self.unit}: {self.basis}", head, *rows]
        if self.shares:
            shown.append("shares: " + ", ".join(map(str, self.shares)))
        if self.best is not None:
            found = ", ".join(f"{error:,.4g}" for error in self.best[1])
            shown.append(f"least of the splits tried: shares {', '.join(map(str, self.best[0]))}: {found}")
        return shown + list(self.notes)
