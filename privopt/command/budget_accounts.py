"""Limits as ``privopt budget`` reads them, and accounts as it shows them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from privopt.command.terminal import complain, print_result, say_json
from privopt.declare.exact_text import exact_text
from privopt.errors import UsageError, number_of
from privopt.interfaces.cost import EPSILON, Sum, amount_of, sum_text
from privopt.ledger.accounts import Account, Charge
from privopt.ledger.cost_of_report import limit_text
from privopt.ledger.entries import Limit, add_sums, zero_sum
from privopt.ledger.ledger import Ledger
from privopt.ledger.total_epsilon import total_epsilon

ADD_UP_WITH_DELTA: Final = frozenset({"", "pure-dp", "local-dp", "zcdp", "approx-dp"})
"""Notions whose amounts come to an (epsilon, delta); "": charged by hand, without a notion."""

MAX_AMOUNT_DIGITS: Final = 40
"""Of an amount before its point, and behind it, at most (:func:`privopt.interfaces.cost.amount_of`)."""

SPENT_AT_DELTA: Final = (
    "what is said at a delta holds for a limit always; for what was spent where amounts were fixed beforehand, and not "
    "chosen from results"
)


def delta_given(text: str | None) -> Fraction | None:
    """Return what ``--delta`` says, exactly."""
    return None if text is None else amount_of(_decimal(text), "--delta")


def limit_given(amount: str, window: str | None) -> dict[str, Any]:
    """Return what ``--set`` and ``--window`` say: an amount, or epsilon and delta with a comma between."""
    first, *rest = amount.split(",")
    if len(rest) > 1:
        raise UsageError(f"--set must be an amount, or epsilon and delta such as 8,1e-6, got {amount}")
    return {
        "amount": amount_of(first, "--set", zero=True),
        "delta": amount_of(_decimal(rest[0]), "--set", zero=True) if rest else None,
        "hours": None if window is None else amount_of(window, "--window"),
    }


def _decimal(text: str) -> str:
    """Return a number that is written with an exponent as a plain decimal: deltas are.

    One with more digits than an amount may have stays as it is, to be refused: 1e-9999999999 would fill the memory.
    """
    from decimal import Decimal, InvalidOperation

    try:
        value = Decimal(text.strip()) if "e" in text.lower() and len(text) < 20 else None
    except InvalidOperation:
        return text
    return text if value is None or not value.is_finite() or abs(value.adjusted()) > MAX_AMOUNT_DIGITS else f"{value:f}"


def show_accounts(
    book: Ledger, units: Mapping[str, Sequence[Account]], hours: str | None, delta: Fraction | None, *, as_json: bool
) -> None:
    """Print accounts on standard output, and the head, which is to be kept elsewhere, on standard error."""
    complain(
        f"{book.path}: every entry holds; head {book.head}: keep a copy elsewhere, to see "
        f"later whether entries at the end were cut off"
    )
    if delta is not None and (odd := sorted(filter(None, map(_by_distance, book.charges())))):
        cure = "epsilon per unit of distance grows with the distance, and delta with it: leave --delta out"
        raise UsageError(f"--delta must be asked of differential privacy, got charges of {odd[0]}; {cure}")
    totals = {} if delta is None else _totals(book, units, delta)
    if delta is not None:
        complain(f"{book.path}: {SPENT_AT_DELTA}")
    alone = len(units) == 1
    if as_json:
        shown = [_in_json(book, unit, accounts, totals, delta, alone=alone) for unit, accounts in units.items()]
        together = shown[0] if alone else {"units": shown}
        if delta is not None and not alone:
            together |= _limits_together(book, units, delta)
            together["subjects"] = [{"subject": name, "epsilon": _text(own)} for name, own in totals.items()]
        say_json(json.dumps(together, indent=2, ensure_ascii=False))
        return
    for unit, accounts in units.items():
        _say_unit(book, unit, accounts, hours, totals, delta, alone=alone)


def _by_distance(charge: Charge) -> str:
    """Name the notion of a charge that has no epsilon at a delta; empty for one that does."""
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
    alone: bool,
) -> None:
    limit, whom = book.limit_of(unit), book.unit or ""
    words = "no limit: it only counts" if limit is None else limit_text(limit, whom)
    if delta is not None and limit is not None:
        words += f"; the limit is epsilon {_text(total_epsilon({unit: limit.sum}, delta))} at delta {exact_text(delta)}"
    what = whom or "nothing charged yet"
    print_result(f"{book.path}: {what if alone and unit == EPSILON else f'{unit}, {what}'}; {words}")
    wide = max((len(account.subject) for account in accounts), default=0)
    since = f" in the last {hours} hours" if hours else ""
    for account in accounts:
        left = "" if account.left is None else f", {account.left_text} left"
        when = "" if account.period is None else f"  {account.period}"
        line = f"{sum_text(account.spent_sum)} spent{since}{left}, {number_of(account.reports, 'charge')}"
        if delta is not None:
            line += f"; all accounts: epsilon {_text(totals[account.subject])} at delta {exact_text(delta)}"
        print_result(f"{account.subject:<{wide}}{when}  {line}")


def _in_json(
    book: Ledger,
    unit: str,
    accounts: Sequence[Account],
    totals: Mapping[str, Fraction | None],
    delta: Fraction | None,
    *,
    alone: bool,
) -> dict[str, Any]:
    limit = book.limit_of(unit)
    plain = alone and unit == EPSILON
    shown: dict[str, Any] = {
        "unit": book.unit if plain else unit,
        "limit": None if limit is None else sum_text(limit.sum),
        **({} if plain else {"relation": book.unit}),
    }
    shown |= _period_of(limit)
    subjects = [account.to_json() for account in accounts]
    if delta is not None:
        at = None if limit is None else total_epsilon({unit: limit.sum}, delta)
        shown |= {"delta": exact_text(delta), "epsilon": _text(at)}
        for own in subjects:
            own["epsilon"] = _text(totals[str(own["subject"])])
    return {**shown, "subjects": subjects}


def _limits_together(book: Ledger, units: Iterable[str], delta: Fraction) -> dict[str, Any]:
    """Return what the limits of all units amount to, with their common period; no total where the periods differ."""
    limits = {unit: book.limit_of(unit) for unit in units}
    known = {unit: limit for unit, limit in limits.items() if limit is not None}
    periods = [_period_of(limit) for limit in known.values()]
    whole = len(known) == len(limits) and all(period == periods[0] for period in periods)
    if len(known) == len(limits) and not whole:
        complain(f"{book.path}: limits are of different periods, so no epsilon covers all of them")
    total = total_epsilon({unit: limit.sum for unit, limit in known.items()}, delta) if whole else None
    return {"delta": exact_text(delta), "epsilon": _text(total), **(periods[0] if whole else {})}


def _period_of(limit: Limit | None) -> dict[str, Any]:
    """Return the period that a limit is of, as JSON has it."""
    if limit is not None and limit.calendar is not None:
        return {"per": limit.calendar.per, "zone": limit.calendar.zone}
    hours = None if limit is None else limit.hours
    if hours is None:
        return {"window_hours": None}
    return {"window_hours": next((n for n in (int(hours), float(hours)) if n == hours), exact_text(hours))}


def _totals(book: Ledger, units: Mapping[str, Sequence[Account]], delta: Fraction) -> dict[str, Fraction | None]:
    """Return what all accounts of each subject amount to as epsilon at a delta, over all periods that are shown."""
    sums: dict[str, dict[str, Sum]] = {}
    for unit, accounts in units.items():
        for own in accounts:
            mine = sums.setdefault(own.subject, {})
            mine[unit] = add_sums(mine.get(unit, zero_sum(unit)), own.spent_sum)
    squares: dict[str, Fraction] = {}
    for charge in book.charges():
        if charge.cost.account == EPSILON and charge.cost.epsilon is not None:
            squares[charge.subject] = squares.get(charge.subject, Fraction(0)) + charge.cost.epsilon**2
    return {name: total_epsilon(own, delta, squares=squares.get(name, Fraction(0))) for name, own in sums.items()}


def _text(epsilon: Fraction | None) -> str | None:
    return None if epsilon is None else exact_text(epsilon)
