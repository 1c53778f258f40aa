"""The cost of a draw, and the guarantee of all charged draws together."""

from __future__ import annotations

from pathlib import Path

from privopt.declare.exact_text import exact_text
from privopt.errors import UsageError, number_of
from privopt.files.release_folder import SUMS, sha256
from privopt.interfaces import Result
from privopt.interfaces.cost import Cost, priced, spending_text, sum_text
from privopt.ledger.entries import Limit


def cost_of(folder: Path, result: Result, relation: str, purpose: str) -> Cost:
    """Return the cost of one report of the release in a folder."""
    cost = priced(result.guarantee, relation, sha256(folder / SUMS), purpose, mark=result.mark)
    if isinstance(cost, str):
        raise UsageError(f"{folder}: its reports cannot be charged to a ledger: got {cost}")
    return cost


def sequence_of(cost: Cost, limit: Limit | None, counted: str) -> str:
    """State the guarantee of all reports of a subject that are drawn afresh.

    Args:
        cost: of each.
        limit: of the ledger.
        counted: what is charged, whatever its position.
    """
    return (
        f"what holds of all reports of a subject: the guarantee of one, at {unit_price(cost)} times their number; "
        f"each {counted} counts, whatever its position, so charges and refusals reveal nothing of it"
        f"{window_text(limit)}"
    )


def unit_price(cost: Cost) -> str:
    """Return a cost with its unit, such as ``epsilon 0.5 per km``."""
    return f"{cost.account} {sum_text(cost.amount)} {cost.unit}".rstrip()


def price_text(ledger: Path, cost: Cost, limit: Limit | None, counted: str) -> str:
    """State what a row costs its subject, and for how many rows the limit is enough, before anything is drawn.

    Args:
        ledger: its file.
        cost: of what is counted.
        limit: of the ledger.
        counted: what costs that much.
    """
    price = f"each {counted} costs its subject {unit_price(cost)}"
    if limit is None:
        return f"{price}; {ledger} has no limit and only counts (privopt budget {ledger} --set AMOUNT makes one)"
    count = min(
        int(limit_number / cost_number)
        for limit_number, cost_number in zip(limit.sum, cost.amount, strict=True)
        if cost_number
    )
    return f"{price}; the limit of {sum_text(limit.sum)}{_period_text(limit)} is enough for {number_of(count, counted)}"


def _period_text(limit: Limit) -> str:
    """Return the periods in which a limit may be spent; empty if it is spent once and for ever."""
    if limit.hours is not None:
        return f" in any {exact_text(limit.hours)} hours"
    return "" if limit.calendar is None else f" in each {limit.calendar}"


def window_text(limit: Limit | None) -> str:
    """State what a limit by window or calendar does not bound; empty without one."""
    within = "" if limit is None else _period_text(limit)
    return f"; the limit holds{within}: several such periods add up without a limit" if within else ""


def limit_text(limit: Limit, unit: str) -> str:
    """State what each subject may spend, and what that hides within one period.

    Args:
        limit: of the ledger.
        unit: of its amounts; empty before the first charge.
    """
    return spending_text(limit.account, limit.sum, unit, within=_period_text(limit))
