"""What a report, or a release, costs a subject, exactly; and what a limit on such costs hides, in words."""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import partial
from typing import Any, Final

from attrs import evolve, field, frozen

from privopt.declare.exact_text import exact_text
from privopt.declare.name_forms import MAX_TEXT_CHARACTERS
from privopt.errors import UsageError, cut
from privopt.interfaces.claims import Guarantee
from privopt.registry import registry

__all__ = [
    "EPSILON",
    "NUMBERS",
    "PAIR",
    "RHO",
    "UNITS",
    "Amount",
    "Cost",
    "Sum",
    "amount_of",
    "limit_meaning",
    "priced",
    "spending_text",
    "sum_text",
]

APART: Final = Fraction(1, 2)
"""Km between the two places by which a limit is explained."""

EXAMPLE_REPORTS: Final = 6
"""Reports of a limit by which a report page explains it."""

EPSILON, RHO, PAIR = "epsilon", "rho", "(epsilon, delta)"
NUMBERS: Final = {EPSILON: ("epsilon",), RHO: ("rho",), PAIR: ("epsilon", "delta")}
"""What notions add up, by unit: pure DP epsilon, zero-concentrated DP rho, approximate DP both of its numbers. A
subject has an account in each."""

UNITS: Final = tuple(NUMBERS)

_AMOUNT: Final = re.compile(r"\d{1,40}(\.\d{1,40})?|\d{1,40}/0*[1-9]\d{0,39}", re.ASCII)

Amount = str | int | Fraction
"""How a caller may say an amount: no double, for it would not be what was meant."""

Sum = tuple[Fraction, ...]
"""What charges come to: one number, or epsilon and delta."""


def sum_text(value: Sum) -> str:
    """Return a sum as exact text: one number, or ``(epsilon, delta)``.

    >>> sum_text((Fraction(1, 2),)), sum_text((Fraction(1), Fraction(1, 1000)))
    ('0.5', '(1, 0.001)')
    """
    texts = [exact_text(part) for part in value]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def amount_of(value: Amount, what: str, *, zero: bool = False) -> Fraction:
    """Return an amount, exactly.

    >>> amount_of("0.10", "epsilon")
    Fraction(1, 10)

    Args:
        value: a rational, a whole number, or text: a decimal or a quotient. No double: it would not be what was meant.
        what: its name in messages.
        zero: whether it may be 0.

    Raises:
        UsageError: something else, or an amount below 0.
    """
    found: Fraction | None = None
    if isinstance(value, str) and _AMOUNT.fullmatch(value.strip()):
        found = Fraction(value.strip())
    elif isinstance(value, int | Fraction) and not isinstance(value, bool):
        found = Fraction(value)
    if found is None or found < 0 or (found == 0 and not zero):
        least = "of at least 0" if zero else "above 0"
        raise UsageError(f"{what} must be an amount {least}, 0.5 or 1/3, as text or exact, got {cut(repr(value))}")
    return found


def _epsilon(value: Amount | None) -> Fraction | None:
    return None if value is None else amount_of(value, "epsilon")


def _rho(value: Amount | None) -> Fraction | None:
    return None if value is None else amount_of(value, "rho")


def _delta(value: Amount | None) -> Fraction | None:
    return None if value is None else amount_of(value, "delta", zero=True)


def _short(instance: object, attribute: object, value: str) -> None:
    name = getattr(attribute, "name", "")
    if not isinstance(value, str) or len(value) > MAX_TEXT_CHARACTERS or not value.isprintable():
        raise UsageError(f"{name} must be a line of at most {MAX_TEXT_CHARACTERS:,} characters, got {cut(repr(value))}")


@frozen(kw_only=True)
class Cost:
    """What one report, or one release, costs a subject.

    >>> Cost(epsilon="0.5", unit="per km", purpose="morning").epsilon
    Fraction(1, 2)

    Attributes:
        epsilon: exactly; text is read as a decimal or a quotient. None where the notion is counted by rho.
        rho: of zero-concentrated DP, exactly.
        delta: of approximate DP, in addition to epsilon.
        unit: whom it is for, as the notion has it: the relation of neighbours. A ledger has one.
        notion: name of the notion of privacy; empty where it has none.
        mechanism: SHA-256 of what is drawn from: of a folder's SHA256SUMS, or of a problem file.
        purpose: what it was charged for, in words.

    Raises:
        UsageError: an amount that is none, neither or both of epsilon and rho, or text of more than a line.
    """

    epsilon: Fraction | None = field(default=None, converter=_epsilon)
    rho: Fraction | None = field(default=None, converter=_rho)
    delta: Fraction | None = field(default=None, converter=_delta)
    unit: str = field(validator=_short)
    notion: str = field(default="", validator=_short)
    mechanism: str = field(default="", validator=_short)
    purpose: str = field(default="", validator=_short)

    def __attrs_post_init__(self) -> None:
        if tuple(self._numbers) not in NUMBERS.values():
            found = " and ".join(self._numbers) or "nothing"
            raise UsageError(f"epsilon must be an amount above 0, or of rho, or of epsilon and delta, got {found}")

    @property
    def _numbers(self) -> dict[str, Fraction]:
        numbers = {"epsilon": self.epsilon, "rho": self.rho, "delta": self.delta}
        return {name: value for name, value in numbers.items() if value is not None}

    @property
    def amount(self) -> Sum:
        """What is added to the account."""
        return tuple(self._numbers.values())

    def times(self, count: int) -> Cost:
        """Return the cost of several reports."""
        numbers: dict[str, Any] = {name: count * value for name, value in self._numbers.items()}
        return evolve(self, **numbers)

    @property
    def account(self) -> str:
        """One of `UNITS`: the account that it is charged to."""
        return RHO if self.rho is not None else EPSILON if self.delta is None else PAIR


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


def limit_meaning(guarantee: Guarantee, relation: str) -> tuple[str, ...]:
    """Explain what a limit of a few reports would hide, in a sentence; nothing of a notion that is not counted so."""
    cost = priced(guarantee, relation, "", "")
    if isinstance(cost, str) or cost.account != EPSILON or guarantee.epsilon is None:
        return ()
    text = spending_text(EPSILON, (EXAMPLE_REPORTS * Fraction(guarantee.epsilon),), cost.unit)
    return (f"For example, under a limit of {EXAMPLE_REPORTS} reports {text}.",)


def spending_text(account: str, amount: Sum, unit: str, *, within: str = "") -> str:
    """Explain what each subject may spend, and what that hides: within one period, for the periods add up.

    Args:
        account: one of `UNITS`.
        amount: that may be spent of it.
        unit: of the amounts, as of :class:`Cost`; empty where it is not known.
        within: in which periods it may be spent, in words; empty for once and for ever.
    """
    unit = unit if account == EPSILON else f"{account}, {unit}".rstrip(", ")
    text = f"each subject may spend {sum_text(amount)}{' ' if unit else ''}{unit}{within or ' in all'}"
    if unit and account == EPSILON:
        distance = unit.removeprefix("per ")
        pair, exponent = f"two secrets one {distance} apart", amount[0]
        if distance.split()[0] == "km":
            pair, exponent = f"two places {float(APART):g} km apart{distance.removeprefix('km')}", exponent * APART
        elif distance == unit:
            pair = "two values"
        text += f"; all reports of a subject{within} together change the odds between {pair} by {_factor(exponent)}"
    return f"{text}; several such periods add up without a limit" if within else text


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
