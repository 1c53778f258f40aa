"""Predictions of a release's errors, made before epsilon is chosen or any secrets are read (``privopt plan``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from attrs import field, frozen

from privopt.declare.toml_text import exact_text

MAX_NAME_CHARACTERS: Final = 24
"""The maximum length of part names in the text table, in characters. Longer names are truncated."""

Errors = Mapping[Fraction, tuple[float, ...]]
"""The errors of all parts, keyed by budget."""


@frozen(kw_only=True)
class Plan:
    """The expected errors of a method, for each part of the release and for several budgets.

    >>> plan = Plan(
    ...     method="noisy", budget="epsilon", unit="people", basis="the noise's own spread", parts=("all places",),
    ...     errors={Fraction(1, 2): (2.0,), Fraction(1): (1.0,)},
    ... )
    >>> plan.to_json()["errors"][0]
    {'epsilon': '0.5', 'by_part': [2.0]}

    Attributes:
        method: The name of the method.
        budget: The name of the parameter to choose: ``"epsilon"``.
        unit: The unit of the errors.
        basis: What the predictions are based on, in words.
        parts: The names of the parts of the release for which errors are predicted.
        errors: The errors of all parts, keyed by budget.
        shares: The fraction of the budget allotted to each part in the problem, or () if the budget is not divided.
        best: The best split of the budget found, as the shares and errors of all parts, or None if there was no search.
            The search minimises the weighted sum of errors at the problem's budget.
        weights: The weight of each part's error in the weighted sum, or () for equal weights.
        baselines: The errors of simpler methods at the same budgets, by name. A method with larger errors than these is
            not worth using.
        problem_budget: The budget in the problem file.
        notes: Sentences that readers of the plan should see.
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
    problem_budget: Fraction = Fraction(0)
    notes: tuple[str, ...] = ()

    def _rows(self, errors: Errors) -> list[dict[str, Any]]:
        """Return a JSON object for each budget, with the budget as exact text and the error of each part.

        The budget is given as text because a JSON number such as 0.1 would be rounded to a double.
        """
        return [{self.budget: exact_text(budget), "by_part": list(by_part)} for budget, by_part in errors.items()]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as the JSON object printed by ``privopt plan --json``.

        Budgets, shares and weights, which are rational numbers, are converted to exact text. Errors are estimates and
        remain doubles.
        """
        return {
            "method": self.method,
            "unit": self.unit,
            "basis": self.basis,
            "parts": list(self.parts),
            "errors": self._rows(self.errors),
            "shares": [str(fraction) for fraction in self.shares],
            "best": None
            if self.best is None
            else {"shares": [str(fraction) for fraction in self.best[0]], "by_part": list(self.best[1])},
            "weights": [str(weight) for weight in self.weights],
            "baselines": [
                {
                    "name": name,
                    # None if errors were not predicted at the problem's budget.
                    "by_part": None if self.problem_budget not in errors else list(errors[self.problem_budget]),
                    "errors": self._rows(errors),
                }
                for name, errors in self.baselines.items()
            ],
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """Return the plan as lines of text: a table of errors, a table of budget shares, and the notes.

        The first table has one row for each part and one column for each budget. Its last columns show the errors of
        the baselines and of the best split at the problem's budget. The second table shows, in percent, how the budget
        is divided in the problem and in the best split. It is omitted if the budget is not divided.
        """
        columns: dict[str, tuple[float, ...]] = {
            exact_text(budget): column_errors for budget, column_errors in self.errors.items()
        }
        for name, errors in self.baselines.items():
            if self.problem_budget in errors:  # a baseline has only one column, to keep the table narrow
                columns[name] = errors[self.problem_budget]
        if self.best is not None:
            columns["best split"] = self.best[1]
        lines = [
            f"Errors to expect of {self.method}, in {self.unit}: {self.basis}",
            *self._format_table(self.budget, columns),
        ]
        shares = {"problem": self.shares} if self.shares else {}
        if self.best is not None:
            shares["best split"] = self.best[0]
        if shares:
            percentages = {name: tuple(100 * float(part) for part in parts) for name, parts in shares.items()}
            lines += ["Shares of the budget, in percent", *self._format_table("", percentages)]
        return lines + list(self.notes)

    def _format_table(self, corner: str, columns: Mapping[str, Sequence[float]]) -> list[str]:
        """Return the lines of a table with one row for each part.

        Args:
            corner: The heading of the first column, which contains the names of the parts.
            columns: The numbers of all parts, keyed by the column's heading. They are displayed with three significant
                digits.
        """
        # Long names are shortened, so that the errors for several budgets fit beside them.
        name_width = min(MAX_NAME_CHARACTERS, max(len(corner), *map(len, self.parts)))
        # Most numbers with three significant digits take at most 7 characters.
        widths = {head: max(7, len(head)) for head in columns}
        head = f"{corner:<{name_width}}" + "".join(f"  {name:>{widths[name]}}" for name in columns)
        rows = [
            f"{_shorten_name(part):<{name_width}}"
            + "".join(f"  {numbers[k]:>{widths[name]}.3g}" for name, numbers in columns.items())
            for k, part in enumerate(self.parts)
        ]
        return [head, *rows]


def _shorten_name(name: str) -> str:
    """Shorten a part's name to at most :data:`MAX_NAME_CHARACTERS` characters, ending in "..." if it was longer."""
    return name if len(name) <= MAX_NAME_CHARACTERS else name[: MAX_NAME_CHARACTERS - 3] + "..."
