"""What a draw costs, and what holds of all that are charged."""

from __future__ import annotations

from pathlib import Path

from privopt.declare.exact_text import exact_text
from privopt.errors import UsageError
from privopt.files.release_folder import SUMS, sha256
from privopt.interfaces import Guarantee, Result
from privopt.ledger.entries import Cost, Limit
from privopt.registry import registry

__all__ = ["cost_of", "priced", "sequence_of", "window_text"]


def cost_of(folder: Path, result: Result, purpose: str) -> Cost:
    """What one report of the release in a folder costs.

    Raises:
        UsageError: it promises nothing that could be counted.
    """
    cost = priced(result.guarantee, sha256(folder / SUMS), purpose, mark=result.mark)
    if isinstance(cost, str):
        raise UsageError(f"{folder}: found {cost}, wanted a release whose reports cost what can be charged")
    return cost


def priced(guarantee: Guarantee, mechanism: str, purpose: str, *, mark: str | None = None) -> Cost | str:
    """What one draw under a guarantee costs; or, in words, what it is that no ledger can count.

    Args:
        guarantee: of what is drawn.
        mechanism, purpose: as of :class:`Cost`.
        mark: words for a draw without privacy, whatever its guarantee says.
    """
    if mark:
        return mark
    if guarantee.epsilon is None:
        return f"{guarantee.kind}, without epsilon"
    if not registry().kind("notion", guarantee.kind).load().odds:
        return f"{guarantee.kind}, which does not add up by epsilon alone"
    return Cost(
        epsilon=guarantee.epsilon,
        unit=guarantee.unit,
        notion=guarantee.kind,
        mechanism=mechanism,
        purpose=purpose,
    )


def sequence_of(cost: Cost, limit: Limit | None, counted: str) -> str:
    """What holds of all reports of a subject that are drawn afresh, in words.

    Args:
        cost: of each.
        limit: of the ledger.
        counted: what is charged, whatever its position.
    """
    price = f"epsilon {exact_text(cost.epsilon)} {cost.unit}".rstrip()
    return (
        f"what holds of all reports of a subject: as much as one promises, at {price} times their number; "
        f"each {counted} counts, whatever its position, so charges and refusals tell nothing of it{window_text(limit)}"
    )


def window_text(limit: Limit | None) -> str:
    """Return what a limit by window leaves open, in words; empty without one."""
    if limit is None or limit.hours is None:
        return ""
    return f"; the limit is of any {exact_text(limit.hours)} hours: what longer times add up to has none"
