"""Predictions about a release before epsilon is chosen and before any secret is read."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from attrs import field, frozen

from privopt.declare.exact_text import exact_text

MAX_NAME_CHARACTERS: Final = 24
"""Characters of a part's name that a table in a terminal shows."""

Errors = Mapping[Fraction, tuple[float, ...]]


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
        best: of all splits the one whose errors at the problem's budget, weighed, add up to least, as far as the search
            came; and those errors.
        weights: what an error of each part weighs in that sum; empty: all the same.
        baselines: by name, errors of simpler methods at the same budgets: a method that loses to them is not worth its
            use.
        own: the problem's budget.
        notes: what anyone who reads it must know.
    """

    method: str
    budget: str
    unit: str
    basis: str
    parts: tuple[str, ...]
    errors: Errors
    shares: tuple[Fraction, ...] = ()
    best: tuple[tuple[Fraction, ...], tuple[float, ...]] | None = None
    weights: tuple[Fraction, ...] = ()
    baselines: Mapping[str, Errors] = field(factory=dict)
    own: Fraction = Fraction(0)
    notes: tuple[str, ...] = ()

    def _rows(self, errors: Errors) -> list[dict[str, Any]]:
        return [{self.budget: exact_text(budget), "by_part": list(by_part)} for budget, by_part in errors.items()]

    def to_json(self) -> dict[str, Any]:
        """Return the plan for ``privopt plan --json``; budgets, shares and weights are exact text."""
        return {
            "method": self.method,
            "unit": self.unit,
            "basis": self.basis,
            "parts": list(self.parts),
            "errors": self._rows(self.errors),
            "shares": [str(share) for share in self.shares],
            "best": None
            if self.best is None
            else {"shares": [str(share) for share in self.best[0]], "by_part": list(self.best[1])},
            "weights": [str(weight) for weight in self.weights],
            "baselines": [
                {
                    "name": name,
                    "by_part": None if self.own not in errors else list(errors[self.own]),
                    "errors": self._rows(errors),
                }
                for name, errors in self.baselines.items()
            ],
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """Return the plan as a table in plain text, a line a part, at most 100 characters wide but for notes."""
        columns: dict[str, tuple[float, ...]] = {exact_text(budget): own for budget, own in self.errors.items()}
        for name, errors in self.baselines.items():
            if self.own in errors:
                columns[name] = errors[self.own]
        if self.best is not None:
            columns["best split"] = self.best[1]
        wide = min(MAX_NAME_CHARACTERS, max(len(self.budget), *map(len, self.parts)))
        widths = {head: max(7, len(head)) for head in columns}
        head = f"{self.budget:<{wide}}" + "".join(f"  {name:>{widths[name]}}" for name in columns)
        rows = [
            f"{_short(part):<{wide}}" + "".join(f"  {own[k]:>{widths[name]}.3g}" for name, own in columns.items())
            for k, part in enumerate(self.parts)
        ]
        shown = [f"Errors to expect of {self.method}, in {self.unit}: {self.basis}", head, *rows]
        if self.shares:
            shown.append("shares of the budget, in the order of these lines: " + ", ".join(map(str, self.shares)))
        if self.best is not None:
            shown.append(f"best split of the budget found, in the same order: {', '.join(map(str, self.best[0]))}")
        return shown + list(self.notes)


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME_CHARACTERS else name[: MAX_NAME_CHARACTERS - 3] + "..."
