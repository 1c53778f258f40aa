"""The balance of a subject's account in a ledger, and single charges."""

from __future__ import annotations

from fractions import Fraction

from attrs import frozen

from privopt.interfaces.cost import Cost, Sum, sum_text

__all__ = ["Account", "Charge"]


@frozen(kw_only=True)
class Account:
    """What a subject has spent, and has left, in one unit.

    Attributes:
        subject: as the ledger names it.
        spent_sum: in all, or in the window that was asked for.
        left_sum: until the limit, now; None without one.
        reports: charges in all: of each report, or of traces that are predicted of the first and of each segment.
        period: of the calendar, if the limit is by period: then all of this is of that period alone.
    """

    subject: str
    spent_sum: Sum
    left_sum: Sum | None
    reports: int
    period: str | None = None

    @property
    def spent(self) -> Fraction:
        """The epsilon, or rho, that was spent."""
        return self.spent_sum[0]

    @property
    def left(self) -> Fraction | None:
        """The epsilon, or rho, that is left; None without a limit."""
        return None if self.left_sum is None else self.left_sum[0]

    @property
    def left_text(self) -> str | None:
        """The balance that is left, as exact text; None without a limit."""
        return None if self.left_sum is None else sum_text(self.left_sum)

    def to_json(self) -> dict[str, str | int | None]:
        """Return an item of ``subjects`` of ``privopt budget --json``."""
        return {
            "subject": self.subject,
            **({} if self.period is None else {"period": self.period}),
            "spent": sum_text(self.spent_sum),
            "left": self.left_text,
            "reports": self.reports,
        }


@frozen(kw_only=True)
class Charge:
    """One charge of a subject.

    Attributes:
        number: of its entry.
        subject: as the ledger names it.
        time: microseconds since 1970, UTC.
        cost: what was charged.
        period: that it was charged to; None if the limit is not by the calendar.
    """

    number: int
    subject: str
    time: int
    cost: Cost
    period: str | None = None
