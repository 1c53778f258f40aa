"""Accounts of a ledger: what they are called, what a subject has spent in one, and single charges."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Final

from attrs import frozen

from privopt.errors import BudgetSpentError, cut
from privopt.ledger.entries import EPSILON, UNITS, Cost, sum_text

__all__ = ["Account", "Charge", "account_name", "account_parts", "refused"]

BETWEEN: Final = "\x1f"
"""What stands between a subject's name, a unit but epsilon, and a period in the name of an account: no name holds a
control character."""


@frozen(kw_only=True)
class Account:
    """What a subject has spent in one unit.

    Attributes:
        subject: as the ledger names it.
        spent: in all, or in the window that was asked for.
        left: until the limit, now; None without one.
        reports: charges in all: of each report, or of traces that are predicted of the first and of each segment.
        period: of the calendar, where the limit is by period: then all of this is of that period alone.
        delta: spent in addition to epsilon, if both add up.
        delta_left: likewise.
    """

    subject: str
    spent: Fraction
    left: Fraction | None
    reports: int
    period: str | None = None
    delta: Fraction | None = None
    delta_left: Fraction | None = None

    @property
    def spent_text(self) -> str:
        """What was spent, as exact text."""
        return sum_text((self.spent,) if self.delta is None else (self.spent, self.delta))

    @property
    def left_text(self) -> str | None:
        """What is left, as exact text; None without a limit."""
        if self.left is None:
            return None
        return sum_text((self.left,) if self.delta_left is None else (self.left, self.delta_left))

    def to_json(self) -> dict[str, str | int | None]:
        """Make an item of ``subjects`` of ``privopt budget --json``."""
        return {
            "subject": self.subject,
            **({} if self.period is None else {"period": self.period}),
            "spent": self.spent_text,
            "left": self.left_text,
            "reports": self.reports,
        }


@frozen(kw_only=True)
class Charge:
    """One charge.

    Attributes:
        number: of its entry.
        subject: as the ledger names it.
        time: microseconds since 1970, UTC.
        cost: what was charged.
        period: that it was charged to; None where the limit is not by the calendar.
    """

    number: int
    subject: str
    time: int
    cost: Cost
    period: str | None = None


def account_name(subject: str, period: str | None = None, unit: str = EPSILON) -> str:
    """Name the account of a subject in a unit and a period; the subject's own name if it has neither."""
    parts = [subject, *([] if unit == EPSILON else [unit]), *([] if period is None else [period])]
    return BETWEEN.join(parts)


def account_parts(account: str) -> tuple[str, str | None, str]:
    """Split what :func:`account_name` made: subject, period, unit."""
    name, *rest = account.split(BETWEEN)
    unit = rest.pop(0) if rest and rest[0] in UNITS else EPSILON
    return name, rest[0] if rest else None, unit


def refused(ledger: Path, subject: str, cost: Cost, account: Account) -> BudgetSpentError:
    """Make the error of a charge that was refused: what it takes, and what its subject has left."""
    left, within = account.left_text, f" in {account.period}" if account.period else ""
    asked = f"{cost.account} {sum_text(cost.amount)}"
    found = f"asked for {asked} where {left} is left{within}" if left is not None else "no budget"
    return BudgetSpentError(f"{ledger}: subject {cut(subject)}: budget spent: {found}; nothing was charged")
