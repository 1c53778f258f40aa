"""The exact privacy cost of a report or release for one subject, and explanations of budget limits.

A ledger (:mod:`privopt.ledger`) adds up costs. Amounts are exact rationals, because thousands of rounded additions
could drift past a limit. A subject is the person (or device) whose budget is charged.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import partial
from typing import Any, Final

from attrs import evolve, field, frozen

from privopt.declare.name_forms import MAX_TEXT_CHARACTERS
from privopt.declare.toml_text import exact_text
from privopt.errors import UsageError, cut
from privopt.interfaces.result import Guarantee
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
    "cost_of_draw",
    "limit_meaning",
    "spending_text",
    "sum_text",
]

EXAMPLE_KM: Final = Fraction(1, 2)
"""The distance in kilometres between the two places in the example used to explain a limit."""

EXAMPLE_REPORTS: Final = 6
"""The number of reports in the example that a report page uses to explain a limit."""

EPSILON, RHO, PAIR = "epsilon", "rho", "(epsilon, delta)"
"""The names of a subject's accounts."""
NUMBERS: Final = {EPSILON: ("epsilon",), RHO: ("rho",), PAIR: ("epsilon", "delta")}
"""The amounts that are added up in each account.

These are epsilon for pure DP, rho for zero-concentrated DP, and epsilon and delta for approximate DP. A subject has one
account of each kind.
"""

UNITS: Final = tuple(NUMBERS)
"""The names of all accounts."""

# Matches an amount: a decimal, or a quotient with a positive denominator. The number of digits is limited, because
# amounts come from users, and sums keep all digits.
_AMOUNT: Final = re.compile(r"\d{1,40}(\.\d{1,40})?|\d{1,40}/0*[1-9]\d{0,39}", re.ASCII)

Amount = str | int | Fraction
"""The types in which a caller may pass an amount. Doubles are excluded, because 0.1 as a double is not one tenth."""

Sum = tuple[Fraction, ...]
"""A sum of charges: either a single number, or epsilon and delta."""


def sum_text(value: Sum) -> str:
    """Return a sum of costs as exact text: a single number, or ``(epsilon, delta)``.

    >>> sum_text((Fraction(1, 2),)), sum_text((Fraction(1), Fraction(1, 1000)))
    ('0.5', '(1, 0.001)')
    """
    texts = [exact_text(part) for part in value]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def amount_of(value: Amount, what: str, *, zero: bool = False) -> Fraction:
    """Convert an amount to an exact rational number.

    >>> amount_of("0.10", "epsilon")
    Fraction(1, 10)

    Args:
        value: A rational number, an integer, or a string containing a decimal or a quotient. Doubles are rejected,
            because a double rarely equals the intended number exactly.
        what: The amount's name, for error messages.
        zero: Whether the amount may be 0.

    Raises:
        UsageError: The value has a different type or form, is negative, or is 0 although ``zero`` is False.
    """
    amount: Fraction | None = None
    if isinstance(value, str) and _AMOUNT.fullmatch(value.strip()):
        amount = Fraction(value.strip())
    elif isinstance(value, int | Fraction) and not isinstance(value, bool):  # True is an int, but not an amount
        amount = Fraction(value)
    if amount is None or amount < 0 or (amount == 0 and not zero):
        range_text = "of at least 0" if zero else "above 0"
        raise UsageError(f"{what} must be an amount {range_text}, 0.5 or 1/3, as text or exact, got {cut(repr(value))}")
    return amount


def _convert_epsilon(value: Amount | None) -> Fraction | None:
    """Convert an epsilon to a positive rational number, or return None unchanged."""
    return None if value is None else amount_of(value, "epsilon")


def _convert_rho(value: Amount | None) -> Fraction | None:
    """Convert a rho to a positive rational number, or return None unchanged."""
    return None if value is None else amount_of(value, "rho")


def _convert_delta(value: Amount | None) -> Fraction | None:
    """Convert a delta to a non-negative rational number, or return None unchanged."""
    return None if value is None else amount_of(value, "delta", zero=True)


def _check_text(instance: object, attribute: object, value: str) -> None:
    """Check that a value is a single printable line of at most MAX_TEXT_CHARACTERS characters (an attrs validator)."""
    name = getattr(attribute, "name", "")
    if not isinstance(value, str) or len(value) > MAX_TEXT_CHARACTERS or not value.isprintable():
        raise UsageError(f"{name} must be a line of at most {MAX_TEXT_CHARACTERS:,} characters, got {cut(repr(value))}")


@frozen(kw_only=True)
class Cost:
    """The privacy cost of one report or release for one subject.

    >>> Cost(epsilon="0.5", unit="per km", purpose="morning").epsilon
    Fraction(1, 2)

    Attributes:
        epsilon: The exact epsilon, or None if the cost is measured in rho. It may be given as a string containing a
            decimal or a quotient.
        rho: The exact rho of zero-concentrated DP, or None for other notions.
        delta: The exact delta of approximate DP, given in addition to epsilon, or None for other notions.
        unit: The neighbouring relation to which the amounts refer. All costs in a ledger have the same unit.
        notion: The name of the notion of privacy, or "" if unknown.
        mechanism: The SHA-256 of the file that identifies the report's source: a folder's SHA256SUMS, or a problem
            file.
        purpose: The purpose of the charge, in words.

    Raises:
        UsageError: An amount is invalid, the amounts do not form a valid combination, or a text field is not one line.
    """

    epsilon: Fraction | None = field(default=None, converter=_convert_epsilon)
    rho: Fraction | None = field(default=None, converter=_convert_rho)
    delta: Fraction | None = field(default=None, converter=_convert_delta)
    unit: str = field(validator=_check_text)
    notion: str = field(default="", validator=_check_text)
    mechanism: str = field(default="", validator=_check_text)
    purpose: str = field(default="", validator=_check_text)

    def __attrs_post_init__(self) -> None:
        """Check that the amounts given form a valid combination: epsilon alone, rho alone, or epsilon with delta."""
        if tuple(self._numbers) not in NUMBERS.values():
            actual = " and ".join(self._numbers) or "nothing"
            raise UsageError(f"epsilon must be an amount above 0, or of rho, or of epsilon and delta, got {actual}")

    @property
    def _numbers(self) -> dict[str, Fraction]:
        """The amounts that are not None, keyed by name."""
        # In the same order as the tuples in NUMBERS, with which the names are compared.
        numbers = {"epsilon": self.epsilon, "rho": self.rho, "delta": self.delta}
        return {name: value for name, value in numbers.items() if value is not None}

    @property
    def amount(self) -> Sum:
        """The numbers to add to the account: epsilon, rho, or epsilon and delta."""
        return tuple(self._numbers.values())

    def times(self, count: int) -> Cost:
        """Return the total cost, by sequential composition, of ``count`` reports that each have this cost."""
        numbers: dict[str, Any] = {name: count * value for name, value in self._numbers.items()}
        return evolve(self, **numbers)

    @property
    def account(self) -> str:
        """The account to charge: one of `UNITS`."""
        return RHO if self.rho is not None else EPSILON if self.delta is None else PAIR


def cost_of_draw(
    guarantee: Guarantee, relation: str, mechanism: str, purpose: str, *, mark: str | None = None
) -> Cost | str:
    """Return the cost of one draw under a guarantee, or a string explaining why a ledger cannot account for it.

    Args:
        guarantee: The guarantee of the draw.
        relation: The unit of the guarantee's amounts (:attr:`privopt.interfaces.PrivacyConstraint.relation`).
        mechanism: The SHA-256 of the file that identifies the draw's source: a folder's SHA256SUMS, or a problem file.
        purpose: The purpose of the charge, in words.
        mark: The reason why the draw is not private, in words, or None if it is private. Any reason is returned
            unchanged, regardless of the guarantee.
    """
    if mark:
        return mark
    make_cost = partial(Cost, unit=relation, notion=guarantee.kind, mechanism=mechanism, purpose=purpose)
    rho, delta = (guarantee.extra.get(f"{name}_text") for name in ("rho", "delta"))
    # Read the exact texts instead of the doubles beside them, so that rounding errors are not charged.
    if rho is not None:
        return make_cost(rho=Fraction(rho))
    if guarantee.epsilon is None:
        return f"{guarantee.kind}, without epsilon or rho"
    if delta is not None:
        return make_cost(epsilon=guarantee.epsilon, delta=Fraction(delta))
    # By sequential composition, epsilons add up if the notion bounds the odds of every output. For other notions, they
    # may not.
    if not registry().kind("notion", guarantee.kind).load().odds:
        return f"{guarantee.kind}, which does not add up by epsilon alone"
    return make_cost(epsilon=guarantee.epsilon)


def limit_meaning(guarantee: Guarantee, relation: str) -> tuple[str, ...]:
    """Return a sentence about how well a subject is protected under an example limit.

    The example is a limit of :data:`EXAMPLE_REPORTS` reports.

    Args:
        guarantee: The guarantee of one report.
        relation: The unit of the guarantee's epsilon (:attr:`privopt.interfaces.PrivacyConstraint.relation`).

    Returns:
        A tuple with the sentence, or an empty tuple if a ledger cannot charge a report by epsilon alone.
    """
    cost = cost_of_draw(guarantee, relation, "", "")
    if isinstance(cost, str) or cost.account != EPSILON or guarantee.epsilon is None:
        return ()
    # Only an example can be given, because the ledgers that will be charged for the reports are unknown here.
    text = spending_text(EPSILON, (EXAMPLE_REPORTS * Fraction(guarantee.epsilon),), cost.unit)
    return (f"Reports add up. Under a limit of {EXAMPLE_REPORTS} reports, for example, {text}.",)


def spending_text(account: str, amount: Sum, unit: str, *, within: str = "") -> str:
    """Return a clause about how much of the privacy budget each subject may spend.

    If the budget is an epsilon with a known unit, the clause also states the factor by which all reports about a
    subject together can change the odds between two possible secrets.

    Args:
        account: The account: one of `UNITS`.
        amount: The budget limit: a tuple of one number, or of an epsilon and a delta.
        unit: The neighbouring relation to which the amounts refer, such as ``"per km"``, or "" if unknown.
        within: The period of the limit, in words, or "" for a limit that applies for all time.
    """
    unit = unit if account == EPSILON else f"{account}, {unit}".rstrip(", ")
    text = f"each subject may spend {sum_text(amount)}{' ' if unit else ''}{unit}{within or ' in all'}"
    # Only epsilon bounds a change in the odds directly, so there is no such clause for rho and (epsilon, delta).
    if unit and account == EPSILON:
        distance = unit.removeprefix("per ")
        # A unit such as "unit of distance between vectors" also says what the distance is between. Omit that before
        # "apart".
        pair, exponent = f"two secrets one {distance.partition(' between ')[0]} apart", amount[0]
        if distance.split()[0] == "km":
            # For a unit such as "per km", the odds depend on the distance. Half a kilometre is easy to picture.
            place_pair = f"two places {float(EXAMPLE_KM):g} km apart{distance.removeprefix('km')}"
            pair, exponent = place_pair, exponent * EXAMPLE_KM
        elif distance == unit:  # without "per", it is not a distance
            pair = "two values"
        text += (
            f"; all reports of a subject{within} together change the odds between {pair} by {_format_factor(exponent)}"
        )
    return f"{text}; several such periods add up without a limit" if within else text


def _format_factor(exponent: Fraction) -> str:
    """Return a phrase such as "a factor of at most 4,065" for the factor exp(exponent), rounded up.

    >>> _format_factor(Fraction("8.31")), _format_factor(Fraction(100))
    ('a factor of at most 4,065', 'a factor of at most 2.7e+43')
    """
    if exponent > 700:  # e^700 is about 1.01e304
        return "a factor beyond 1e304"
    # The factor 1 + 1e-9 covers the rounding errors of the quotient and of exp, so that the text never understates the
    # factor.
    factor = (Decimal(exponent.numerator) / exponent.denominator).exp() * (1 + Decimal("1e-9"))
    # The shown digits are rounded up too, because the text is an upper bound.
    if factor < 10:
        digits = f"{factor.quantize(Decimal('.01'), ROUND_CEILING).normalize():f}"
    elif factor < 1_000_000:
        digits = f"{math.ceil(factor):,}"
    else:
        digits = f"{Context(prec=2, rounding=ROUND_CEILING).plus(factor):.1e}"
    return f"a factor of at most {digits}"
