"""Data classes for the balance of a subject's account in a ledger, and for a single charge."""

from __future__ import annotations

from fractions import Fraction

from attrs import frozen

from privopt.interfaces.cost import Cost, Sum, sum_text

__all__ = ["Account", "Charge"]


@frozen(kw_only=True)
class Account:
    """A subject's balance in one unit, such as epsilon.

    Attributes:
        subject: The subject's name in the ledger.
        spent_sum: The amount spent, in total or in the requested window: epsilon or rho, followed by delta if the unit
            has one.
        left_sum: The amount remaining under the limit, in the same form, or None if there is no limit.
        reports: The number of charges to the account, regardless of the requested window. Each report is charged once,
            except in predicted traces, where the first report and each segment are charged once.
        period: The calendar period to which the other values refer, or None if the limit is not per calendar period.
    """

    subject: str
    spent_sum: Sum
    left_sum: Sum | None
    reports: int
    period: str | None = None

    @property
    def spent(self) -> Fraction:
        """The epsilon or rho spent, in total or in the requested window."""
        return self.spent_sum[0]

    @property
    def left(self) -> Fraction | None:
        """The remaining epsilon or rho, or None if there is no limit."""
        return None if self.left_sum is None else self.left_sum[0]

    @property
    def left_text(self) -> str | None:
        """The remaining budget, formatted without rounding, or None if there is no limit."""
        return None if self.left_sum is None else sum_text(self.left_sum)

    def to_json(self) -> dict[str, str | int | None]:
        """Return the account as a JSON object, as listed under ``subjects`` by ``privopt budget --json``."""
        return {
            "subject": self.subject,
            **({} if self.period is None else {"period": self.period}),
            "spent": sum_text(self.spent_sum),
            "left": self.left_text,
            "reports": self.reports,
        }


@frozen(kw_only=True)
class Charge:
    """A single charge to a subject's account.

    Attributes:
        number: The number of the charge's entry in the ledger.
        subject: The subject's name in the ledger.
        time: The time of the charge in microseconds since 1970, UTC.
        cost: The cost charged.
        period: The calendar period that was charged, or None if the limit is not per calendar period.
    """

    number: int
    subject: str
    time: int
    cost: Cost
    period: str | None = None
