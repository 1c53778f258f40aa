"""The cost of a draw, and the guarantee of all charged draws together."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Final

from privopt.declare.exact_text import exact_text
from privopt.errors import UsageError, number_of
from privopt.files.release_folder import SUMS, sha256
from privopt.interfaces import Guarantee, Result
from privopt.ledger.entries import EPSILON, Cost, Limit, sum_text
from privopt.registry import registry

APART: Final = Fraction(1, 2)
"""Km between the two places by which a limit is explained."""

EXAMPLE_REPORTS: Final = 6
"""Reports of a limit by which a report page explains it."""


def cost_of(folder: Path, result: Result, relation: str, purpose: str) -> Cost:
    """Return the cost of one report of the release in a folder."""
    cost = priced(result.guarantee, relation, sha256(folder / SUMS), purpose, mark=result.mark)
    if isinstance(cost, str):
        raise UsageError(f"{folder}: its reports cannot be charged to a ledger: got {cost}")
    return cost


def priced(guarantee: Guarantee, relation: str, mechanism: str, purpose: str, *, mark: str | None = None) -> Cost | str:
    """Return the cost of one draw under a guarantee; or, in words, why no ledger can count it.

    Args:
        guarantee: of what is drawn.
        relation: what its amounts are for (:attr:`privopt.interfaces.PrivacyConstraint.relation`).
        mechanism, purpose: as of :class:`Cost`.
        mark: words for a draw without privacy, whatever its guarantee says.
    """
    if mark:
        return mark
    told = partial(Cost, unit=relation, notion=guarantee.kind, mechanism=mechanism, purpose=purpose)
    rho, delta = (guarantee.extra.get(f"{name}_text") for name in ("rho", "delta"))
    if rho is not None:
        return told(rho=Fraction(rho))
    if guarantee.epsilon is None:
        return f"{guarantee.kind}, without epsilon or rho"
    if delta is not None:
        return told(epsilon=guarantee.epsilon, delta=Fraction(delta))
    if not registry().kind("notion", guarantee.kind).load().odds:
        return f"{guarantee.kind}, which does not add up by epsilon alone"
    return told(epsilon=guarantee.epsilon)


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
    """Return what a cost is, in its unit, such as ``epsilon 0.5 per km``."""
    return f"{cost.account} {sum_text(cost.amount)} {cost.unit}".rstrip()


def price_text(ledger: Path, cost: Cost, limit: Limit | None, counted: str) -> str:
    """Say what a row costs its subject, and how many rows the limit is enough for, before anything is drawn.

    Args:
        ledger: its file.
        cost: of what is counted.
        limit: of the ledger.
        counted: what costs that much.
    """
    price = f"each {counted} costs its subject {unit_price(cost)}"
    if limit is None:
        return f"{price}; {ledger} has no limit and only counts (privopt budget {ledger} --set AMOUNT makes one)"
    count = min(int(most / each) for most, each in zip(limit.sum, cost.amount, strict=True) if each)
    return f"{price}; the limit of {sum_text(limit.sum)}{_within(limit)} is enough for {number_of(count, counted)}"


def _within(limit: Limit) -> str:
    """Say in which periods a limit may be spent; empty for once and for ever."""
    if limit.hours is not None:
        return f" in any {exact_text(limit.hours)} hours"
    return "" if limit.calendar is None else f" in each {limit.calendar}"


def window_text(limit: Limit | None) -> str:
    """Return what a limit by window or calendar leaves open, in words; empty without one."""
    within = "" if limit is None else _within(limit)
    return f"; the limit holds{within}: several such periods add up without a limit" if within else ""


def limit_text(limit: Limit, unit: str) -> str:
    """Explain what each subject may spend, and what that hides: within one period, for the periods add up.

    Args:
        limit: of the ledger.
        unit: of its amounts; empty before the first charge.
    """
    within = _within(limit)
    unit = unit if limit.account == EPSILON else f"{limit.account}, {unit}".rstrip(", ")
    text = f"each subject may spend {sum_text(limit.sum)}{' ' if unit else ''}{unit}{within or ' in all'}"
    if unit and limit.account == EPSILON:
        distance = unit.removeprefix("per ")
        pair, exponent = f"two secrets one {distance} apart", limit.amount
        if distance.split()[0] == "km":
            pair, exponent = f"two places {float(APART):g} km apart{distance.removeprefix('km')}", exponent * APART
        elif distance == unit:
            pair = "two values"
        text += f"; all reports of a subject{within} together change the odds between {pair} by {_factor(exponent)}"
    return f"{text}; several such periods add up without a limit" if within else text


def limit_meaning(guarantee: Guarantee, relation: str) -> tuple[str, ...]:
    """Explain what a limit of a few reports would hide, in a sentence; nothing of a notion that is not counted so."""
    cost = priced(guarantee, relation, "", "")
    if isinstance(cost, str) or cost.account != EPSILON or guarantee.epsilon is None:
        return ()
    text = limit_text(Limit(amount=EXAMPLE_REPORTS * Fraction(guarantee.epsilon)), cost.unit)
    return (f"For example, under a limit of {EXAMPLE_REPORTS} reports {text}.",)


def _factor(exponent: Fraction) -> str:
    """Write exp of an exponent, rounded up: a whole number, or two digits and a power of ten.

    >>> _factor(Fraction("8.31")), _factor(Fraction(100))
    ('a factor of at most 4,065', 'a factor of at most 2.7e+43')
    """
    if exponent > 700:
        return "a factor beyond 1e304"
    factor = (Decimal(exponent.numerator) / exponent.denominator).exp() * (1 + Decimal("1e-9"))
    if factor < 10:
        shown = f"{factor.quantize(Decimal('.01'), ROUND_CEILING).normalize():f}"
    elif factor < 1_000_000:
        shown = f"{math.ceil(factor):,}"
    else:
        shown = f"{Context(prec=2, rounding=ROUND_CEILING).plus(factor):.1e}"
    return f"a factor of at most {shown}"
