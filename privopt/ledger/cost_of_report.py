"""The cost of drawing a report, and sentences about costs, limits and the joint guarantee for all charged reports."""

from __future__ import annotations

from pathlib import Path

from privopt.declare.toml_text import exact_text
from privopt.errors import UsageError, number_of
from privopt.files.release_folder import SUMS, sha256
from privopt.interfaces import Result
from privopt.interfaces.cost import Cost, cost_of_draw, spending_text, sum_text
from privopt.ledger.entries import Limit
from privopt.numbers.distances import amount_text


def cost_of(folder: Path, result: Result, relation: str, purpose: str) -> Cost:
    """Return the cost charged by a ledger for one report from the release in a folder.

    Args:
        folder: The release folder.
        result: The parsed result.json of the release.
        relation: The neighbouring relation to which the cost refers (:attr:`PrivacyConstraint.relation`).
        purpose: The purpose of the charge, in words.

    Raises:
        UsageError: A ledger cannot account for the release's reports, for example because the release is seeded.
    """
    # The checksum of SHA256SUMS identifies the release, because this file contains the checksums of its public files.
    cost = cost_of_draw(result.guarantee, relation, sha256(folder / SUMS), purpose, mark=result.mark)
    if isinstance(cost, str):
        raise UsageError(f"{folder}: its reports cannot be charged to a ledger: got {cost}")
    return cost


def sequence_of(cost: Cost, limit: Limit | None, counted: str) -> str:
    """Return a sentence about the joint guarantee for all independently drawn reports about one subject.

    Args:
        cost: The cost of each report.
        limit: The ledger's limit, or None if it has none.
        counted: The noun for the items charged, such as "draw".
    """
    return (
        f"the guarantee for all reports of a subject: that of one report, at {unit_price(cost)} times their number; "
        f"each {counted} counts, whatever its position, so charges and refusals reveal nothing about "
        f"it{window_text(limit)}"
    )


def unit_price(cost: Cost) -> str:
    """Return a cost and its unit as text, such as ``epsilon 0.5 per km``."""
    return f"{cost.account} {sum_text(cost.amount)} {cost.unit}".rstrip()


def price_text(ledger: Path, cost: Cost, limit: Limit | None, counted: str) -> str:
    """Return a sentence about how much each item costs its subject, and how many items the limit allows.

    Args:
        ledger: The ledger's file.
        cost: The cost of each item.
        limit: The ledger's limit, or None if it has none.
        counted: The noun for the items charged, such as "row".
    """
    price = f"each {counted} costs its subject {unit_price(cost)}"
    if limit is None:
        return f"{price}; {ledger} has no limit and only counts (privopt budget {ledger} --set AMOUNT makes one)"
    # Epsilon and delta are both limited, and the one that is used up first counts. A cost of 0 uses up nothing.
    count = min(
        int(limit_number / cost_number)
        for limit_number, cost_number in zip(limit.sum, cost.amount, strict=True)
        if cost_number
    )
    return f"{price}; the limit of {sum_text(limit.sum)}{_period_text(limit)} is enough for {number_of(count, counted)}"


def _period_text(limit: Limit) -> str:
    """Return a phrase describing the periods of a limit, or "" if the limit applies for all time."""
    if limit.hours is not None:
        return f" in any {amount_text(exact_text(limit.hours), 'hour')}"
    return "" if limit.calendar is None else f" in each {limit.calendar}"


def window_text(limit: Limit | None) -> str:
    """Return a warning that a limit per window or calendar period does not bound the total over all periods.

    The warning is "" if the limit applies for all time or if there is no limit.
    """
    within = "" if limit is None else _period_text(limit)
    return f"; the limit holds{within}: several such periods add up without a limit" if within else ""


def limit_text(limit: Limit, unit: str) -> str:
    """Return a sentence about each subject's budget in each period of the limit, and the protection that it provides.

    Args:
        limit: The ledger's limit.
        unit: The unit of the amounts, such as "per km", or "" before the first charge.
    """
    return spending_text(limit.account, limit.sum, unit, within=_period_text(limit))
