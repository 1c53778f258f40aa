"""Parse the limits given to ``privopt budget``, and print accounts as text or JSON. All amounts are exact."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from privopt.command.terminal import complain, print_result, say_json
from privopt.declare.toml_text import exact_text
from privopt.errors import UsageError, number_of
from privopt.interfaces.cost import EPSILON, Sum, amount_of, sum_text
from privopt.ledger.accounts import Account, Charge
from privopt.ledger.cost_of_report import limit_text
from privopt.ledger.entries import Limit, add_sums, zero_sum
from privopt.ledger.ledger import Ledger
from privopt.ledger.total_epsilon import total_epsilon
from privopt.numbers.distances import amount_text

ADD_UP_WITH_DELTA: Final = frozenset({"", "pure-dp", "local-dp", "zcdp", "approx-dp"})
"""The privacy notions for which amounts can be converted to (epsilon, delta). "" stands for manual charges without a
notion.
"""

MAX_AMOUNT_DIGITS: Final = 40
"""The maximum number of digits in an amount on either side of the decimal point (``cost.amount_of``)."""

SPENT_AT_DELTA: Final = (
    "an epsilon at a delta always holds for a limit; for what was spent, it holds only if amounts were fixed "
    "beforehand and not chosen from results"
)
"""A caution printed with conversions to an epsilon at a given delta: they may be wrong if amounts were chosen based on
earlier results."""


def parse_delta(text: str | None) -> Fraction | None:
    """Parse ``--delta`` as an exact rational number, or return None if the option is omitted.

    Raises:
        UsageError: The value is not a number above 0.
    """
    return None if text is None else amount_of(_to_plain_decimal(text), "--delta")


def parse_limit(amount: str, window: str | None) -> dict[str, Any]:
    """Parse ``--set`` (an amount, or epsilon and delta separated by a comma) and ``--window``.

    Args:
        amount: The value of ``--set``.
        window: The value of ``--window`` in hours, or None if the option is omitted.

    Returns:
        The keyword arguments for :meth:`privopt.ledger.ledger.Ledger.set_limit`.

    Raises:
        UsageError: One of the values is not an amount.
    """
    epsilon_text, *further_parts = amount.split(",")
    if len(further_parts) > 1:
        raise UsageError(f"--set must be an amount, or epsilon and delta such as 8,1e-6, got {amount}")
    return {
        "amount": amount_of(epsilon_text, "--set", zero=True),
        "delta": amount_of(_to_plain_decimal(further_parts[0]), "--set", zero=True) if further_parts else None,
        "hours": None if window is None else amount_of(window, "--window"),
    }


def _to_plain_decimal(text: str) -> str:
    """Convert a number in exponent notation, such as ``1e-6``, to a plain decimal.

    A number with more digits than an amount can have is returned unchanged, so that :func:`amount_of` rejects it.
    """
    from decimal import Decimal, InvalidOperation

    try:
        value = Decimal(text.strip()) if "e" in text.lower() and len(text) < 20 else None
    except InvalidOperation:
        return text
    # Without the limit on the exponent (``adjusted()``), 1e-9999999999 would be written out with ten billion digits.
    return text if value is None or not value.is_finite() or abs(value.adjusted()) > MAX_AMOUNT_DIGITS else f"{value:f}"


def show_accounts(
    book: Ledger, units: Mapping[str, Sequence[Account]], hours: str | None, delta: Fraction | None, *, as_json: bool
) -> None:
    """Print accounts to stdout, and the ledger's head to stderr so that users can keep a copy of it elsewhere.

    Args:
        book: The ledger. Its head consists of the number and hash of the last entry.
        units: The accounts to print, by unit (:data:`privopt.interfaces.cost.UNITS`).
        hours: The length of the window in hours, as a string. Only charges within the window count as spent. If None,
            all charges count.
        delta: The delta at which all accounts of a subject are converted to a single epsilon, or None for no
            conversion.
        as_json: Whether to print a JSON document instead of text.

    Raises:
        UsageError: ``delta`` is given, but some charges belong to a privacy notion whose amounts cannot be converted.
    """
    checked = "every entry is intact"
    # `checked_from` is the number of the first entry that the last check recomputed. It is 1 after a full check.
    if book.checked_from != 1:
        checked = (
            "the accounts and limits of the last check, and all entries since then, are intact (privopt budget "
            f"{book.path} checks every entry)"
        )
    complain(
        f"{book.path}: {checked}; head {book.head}: keep a copy elsewhere, to see "
        f"later whether entries at the end were cut off"
    )
    if delta is not None and (refused_notions := sorted(filter(None, map(_by_distance, book.charges())))):
        cure = "epsilon per unit of distance grows with the distance, and delta with it: leave --delta out"
        raise UsageError(f"--delta must be asked of differential privacy, got charges of {refused_notions[0]}; {cure}")
    # Charges per unit of distance have raised an error above, because the ledger does not know the distance on which
    # their delta would depend.
    totals = {} if delta is None else _add_up_totals(book, units, delta)
    if delta is not None:
        complain(f"{book.path}: {SPENT_AT_DELTA}")
    is_only_unit = len(units) == 1
    if as_json:
        unit_documents = [
            _in_json(book, unit, accounts, totals, delta, is_only_unit=is_only_unit) for unit, accounts in units.items()
        ]
        together = unit_documents[0] if is_only_unit else {"units": unit_documents}
        if delta is not None and not is_only_unit:
            together |= _limits_together(book, units, delta)
            together["subjects"] = [
                {"subject": name, "epsilon": _format_epsilon(epsilon)} for name, epsilon in totals.items()
            ]
        say_json(json.dumps(together, indent=2, ensure_ascii=False))
        return
    for unit, accounts in units.items():
        _say_unit(book, unit, accounts, hours, totals, delta, is_only_unit=is_only_unit)


def _by_distance(charge: Charge) -> str:
    """Return the notion and unit of a charge that cannot be converted to (epsilon, delta), or "" if the charge can.

    Charges per unit of distance cannot be converted. If a charge does not name a notion, the unit determines whether it
    can be converted.
    """
    notion, unit = charge.cost.notion, charge.cost.unit
    if notion in ADD_UP_WITH_DELTA and (notion or not unit.startswith(("per km", "per unit"))):
        return ""
    return f"{notion or 'no notion'} ({unit})"


def _say_unit(
    book: Ledger,
    unit: str,
    accounts: Sequence[Account],
    hours: str | None,
    totals: Mapping[str, Fraction | None],
    delta: Fraction | None,
    *,
    is_only_unit: bool,
) -> None:
    """Print the accounts in one unit as text: a line about the limit, followed by one line per account.

    Args:
        book: The ledger that contains the accounts.
        unit: The unit of the accounts.
        accounts: The accounts to print.
        hours: The length of the window in hours, as a string. Only charges within the window count as spent. If None,
            all charges count.
        totals: Each subject's total epsilon at ``delta`` across all accounts.
        delta: The delta at which amounts are converted to an epsilon, or None for no conversion.
        is_only_unit: Whether this is the ledger's only unit, in which case it need not be named.
    """
    # ``book.unit`` is the neighbouring relation to which the amounts refer, such as "per km". It is empty before the
    # first charge.
    limit, relation = book.limit_of(unit), book.unit or ""
    limit_words = "no limit: it only counts" if limit is None else limit_text(limit, relation)
    if delta is not None and limit is not None:
        limit_epsilon = _format_epsilon(total_epsilon({unit: limit.sum}, delta))
        limit_words += f"; the limit is epsilon {limit_epsilon} at delta {exact_text(delta)}"
    unit_text = relation or "nothing charged yet"
    print_result(
        f"{book.path}: {unit_text if is_only_unit and unit == EPSILON else f'{unit}, {unit_text}'}; {limit_words}"
    )
    name_width = max((len(account.subject) for account in accounts), default=0)
    since = f" in the last {amount_text(hours, 'hour')}" if hours else ""
    for account in accounts:
        remaining_text = "" if account.left is None else f", {account.left_text} left"
        period_text = "" if account.period is None else f"  {account.period}"
        line = f"{sum_text(account.spent_sum)} spent{since}{remaining_text}, {number_of(account.reports, 'charge')}"
        if delta is not None:
            line += f"; all accounts: epsilon {_format_epsilon(totals[account.subject])} at delta {exact_text(delta)}"
        print_result(f"{account.subject:<{name_width}}{period_text}  {line}")


def _in_json(
    book: Ledger,
    unit: str,
    accounts: Sequence[Account],
    totals: Mapping[str, Fraction | None],
    delta: Fraction | None,
    *,
    is_only_unit: bool,
) -> dict[str, Any]:
    """Return the JSON object for the accounts in one unit.

    Amounts are strings, because JSON numbers would be read as doubles and lose digits.

    Args:
        book: The ledger that contains the accounts.
        unit: The unit of the accounts, one of :data:`privopt.interfaces.cost.UNITS`.
        accounts: The accounts to include.
        totals: Each subject's total epsilon at ``delta`` across all accounts.
        delta: The delta at which amounts are converted to an epsilon, or None for no conversion.
        is_only_unit: Whether this is the ledger's only unit.
    """
    limit = book.limit_of(unit)
    # A ledger usually counts only epsilon. The document then has no separate member for the relation.
    is_plain = is_only_unit and unit == EPSILON
    members: dict[str, Any] = {
        "unit": book.unit if is_plain else unit,
        "limit": None if limit is None else sum_text(limit.sum),
        **({} if is_plain else {"relation": book.unit}),
    }
    members |= _period_of(limit)
    subjects = [account.to_json() for account in accounts]
    if delta is not None:
        limit_epsilon = None if limit is None else total_epsilon({unit: limit.sum}, delta)
        members |= {"delta": exact_text(delta), "epsilon": _format_epsilon(limit_epsilon)}
        for subject in subjects:
            subject["epsilon"] = _format_epsilon(totals[str(subject["subject"])])
    return {**members, "subjects": subjects}


def _limits_together(book: Ledger, units: Iterable[str], delta: Fraction) -> dict[str, Any]:
    """Return the JSON members for the combined limit across all units: an epsilon at ``delta`` and the period.

    The epsilon is null if a unit has no limit or if the limits apply to different periods.
    """
    limits = {unit: book.limit_of(unit) for unit in units}
    limits_by_unit = {unit: limit for unit, limit in limits.items() if limit is not None}
    periods = [_period_of(limit) for limit in limits_by_unit.values()]
    # One epsilon covers all units only if each has a limit and all limits renew together.
    is_complete = len(limits_by_unit) == len(limits) and all(period == periods[0] for period in periods)
    if len(limits_by_unit) == len(limits) and not is_complete:
        complain(f"{book.path}: limits are of different periods, so no epsilon covers all of them")
    total = total_epsilon({unit: limit.sum for unit, limit in limits_by_unit.items()}, delta) if is_complete else None
    return {"delta": exact_text(delta), "epsilon": _format_epsilon(total), **(periods[0] if is_complete else {})}


def _period_of(limit: Limit | None) -> dict[str, Any]:
    """Return the JSON members that describe the period to which a limit applies."""
    if limit is not None and limit.calendar is not None:
        return {"per": limit.calendar.per, "zone": limit.calendar.zone}
    hours = None if limit is None else limit.hours
    if hours is None:
        return {"window_hours": None}
    # Hours are an integer if they are whole, a double if a double equals them, and otherwise a string, so that nothing
    # is rounded.
    return {"window_hours": next((n for n in (int(hours), float(hours)) if n == hours), exact_text(hours))}


def _add_up_totals(book: Ledger, units: Mapping[str, Sequence[Account]], delta: Fraction) -> dict[str, Fraction | None]:
    """Return each subject's total epsilon at ``delta`` across the given accounts, in all units and periods.

    Args:
        book: The ledger that contains the accounts.
        units: The accounts, by unit.
        delta: The delta at which amounts are converted to an epsilon.

    Returns:
        A dict from subjects to epsilons. An epsilon of None means that the subject's charges use up the entire delta.
    """
    sums: dict[str, dict[str, Sum]] = {}
    for unit, accounts in units.items():
        for account in accounts:
            sums_by_unit = sums.setdefault(account.subject, {})
            sums_by_unit[unit] = add_sums(sums_by_unit.get(unit, zero_sum(unit)), account.spent_sum)
    # An epsilon-DP charge is also rho-zCDP with rho = epsilon^2 / 2, and many small charges add up to less in rho. The
    # squares of each subject's epsilons are therefore summed, too.
    squares: dict[str, Fraction] = {}
    for charge in book.charges():
        if charge.cost.account == EPSILON and charge.cost.epsilon is not None:
            squares[charge.subject] = squares.get(charge.subject, Fraction(0)) + charge.cost.epsilon**2
    return {
        name: total_epsilon(subject_sums, delta, squares=squares.get(name, Fraction(0)))
        for name, subject_sums in sums.items()
    }


def _format_epsilon(epsilon: Fraction | None) -> str | None:
    """Format an epsilon as an exact decimal or fraction. None is returned unchanged."""
    return None if epsilon is None else exact_text(epsilon)
