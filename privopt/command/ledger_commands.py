"""``privopt budget``, and what other commands charge to a ledger.

As in :mod:`privopt.command.cli`, what is needed is imported where it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from privopt.command.exit_codes import PATH, guarded, utf8
from privopt.command.terminal import complain, say, say_json
from privopt.declare.exact_text import exact_text
from privopt.errors import UsageError
from privopt.ledger.entries import EPSILON, UNITS, Sum, added, amount_of, said

if TYPE_CHECKING:
    from privopt.ledger.charge import Charge
    from privopt.ledger.entries import Account
    from privopt.ledger.ledger import Ledger
else:
    Account = Charge = Ledger = Any

__all__ = ["budget", "charge_of"]

SPENT_AT_DELTA: Final = (
    "what is said at a delta holds for a limit always; for what was spent where amounts were fixed beforehand, and not "
    "chosen from results"
)


@click.command()
@click.argument("ledger", metavar="LEDGER", type=PATH)
@click.option("--subject", metavar="ID", callback=utf8, help="One subject; left out: all.")
@click.option(
    "--set",
    "limit",
    metavar="PER_SUBJECT",
    callback=utf8,
    help="Make or change the limit: 8, 0.5 or 1/3; of epsilon and delta: 8,1e-6.",
)
@click.option(
    "--window",
    metavar="HOURS",
    callback=utf8,
    help="With --set: the limit is of each window of that length, and nothing limits what they add up to. Alone: what "
    "was spent in the last HOURS.",
)
@click.option(
    "--per",
    type=click.Choice(["day", "week", "month"]),
    help="With --set: the limit is of each calendar period in which a row's own time lies (apply --time); periods add "
    "up without limit. To be chosen before the first charge.",
)
@click.option("--zone", metavar="AREA/CITY", callback=utf8, help="With --per: its time zone; left out: UTC.")
@click.option("--unit", type=click.Choice(UNITS), help="With --set: of what the limit is, where notions differ.")
@click.option("--delta", metavar="D", callback=utf8, help="Tell what all accounts come to as epsilon at this delta.")
@click.option("--forget", metavar="ID", callback=utf8, help="Remove a subject's kept reports (apply --sticky).")
@click.option(
    "--forget-batch",
    metavar="NAME",
    callback=utf8,
    help="Delete the key of an unfinished batch (apply --batch): what it charged stays charged.",
)
@click.option(
    "--hash-subjects",
    "key",
    type=PATH,
    metavar="KEYFILE",
    help="The key under which the ledger hashes subjects.",
)
@click.option("--head", metavar="N:HASH", callback=utf8, help="As told before: entries cut off since end with 1.")
@click.option("--json", "as_json", is_flag=True, help="Amounts as exact text, on standard output.")
@guarded
def budget(
    ledger: Path,
    subject: str | None,
    limit: str | None,
    window: str | None,
    per: str | None,
    zone: str | None,
    unit: str | None,
    delta: str | None,
    forget: str | None,
    forget_batch: str | None,
    key: Path | None,
    head: str | None,
    as_json: bool,
) -> None:
    """Show what subjects have spent, exactly; every entry of the ledger is checked."""
    from privopt.command.terminal import progress_display
    from privopt.ledger.ledger import Ledger

    if per is not None and limit is None:
        raise UsageError("--per must stand beside --set AMOUNT, got it alone")
    if zone is not None and per is None:
        raise UsageError("--zone must stand beside --per day, week or month, got it alone")
    wanted = None if limit is None else _limit(limit, window)
    at = None if delta is None else amount_of(_decimal(delta), "--delta")
    with Ledger(ledger, key=key, make=wanted is not None) as book:
        with progress_display(quiet=False) as progress:
            book.check(head=head, progress=progress)
        if wanted is not None:
            book.set_limit(**wanted, per=per, zone=zone or "UTC", unit=unit)
        if forget is not None:
            _forget(book, forget)
        if forget_batch is not None:
            _forget_batch(book, forget_batch)
        hours = window if wanted is None else None
        if hours is not None and book.limit is not None and book.limit.calendar is not None:
            raise UsageError(f"--window must be left out: {ledger} counts by {book.limit.calendar}")
        units = {
            own: book.accounts(hours=hours, unit=own) if subject is None else _accounts(book, subject, hours, own)
            for own in book.units
        }
        _show(book, units, hours, at, as_json=as_json)


def _limit(amount: str, window: str | None) -> dict[str, Any]:
    """Return what ``--set`` and ``--window`` say: an amount, or epsilon and delta with a comma between."""
    first, *rest = amount.split(",")
    if len(rest) > 1:
        raise UsageError(f"--set: found {amount}, wanted an amount, or epsilon and delta: 8,1e-6")
    return {
        "amount": amount_of(first, "--set", zero=True),
        "delta": amount_of(_decimal(rest[0]), "--set", zero=True) if rest else None,
        "hours": None if window is None else amount_of(window, "--window"),
    }


def _decimal(text: str) -> str:
    """Return a number that is written with an exponent as a plain decimal: deltas are."""
    from decimal import Decimal, InvalidOperation

    try:
        return f"{Decimal(text.strip()):f}" if "e" in text.lower() and len(text) < 20 else text
    except InvalidOperation:
        return text


def _accounts(book: Ledger, subject: str, hours: str | None, unit: str) -> list[Account]:
    """Return a subject's accounts in a unit: one, or by the calendar those of all its periods, or of now."""
    one = book.account(subject, hours=hours, unit=unit)
    if one.period is None:
        return [one]
    periods = dict.fromkeys(charge.period for charge in book.charges(subject) if charge.cost.account == unit)
    return [book.account(subject, period=period, unit=unit) for period in sorted(filter(None, periods))] or [one]


def _forget(book: Ledger, subject: str) -> None:
    from privopt.ledger.kept_reports import Sticky

    book.account(subject)  # refuses another key than the ledger's, under which nothing would be found
    with Sticky.beside(book, make=False) as kept:
        gone = kept.forget(book.name_of(subject))
    complain(f"{book.path}: {gone:,} kept reports of {subject} removed; what was spent stays spent")


def _forget_batch(book: Ledger, name: str) -> None:
    from privopt.ledger.batches import Batch

    with Batch(ledger=book.path, name=name).opened() as batch:
        gone = "removed" if batch.forget() else "was gone already"
    complain(f"{book.path}: key of batch {name} {gone}; what was charged stays charged, and the name is used up")


def _show(
    book: Ledger, units: Mapping[str, Sequence[Account]], hours: str | None, delta: Fraction | None, *, as_json: bool
) -> None:
    """Accounts on standard output; the head, to be kept elsewhere, on standard error."""
    complain(f"{book.path}: every entry holds; head {book.head}: kept elsewhere, it tells whether the end was cut off")
    totals = {} if delta is None else _totals(book, units, delta)
    if delta is not None:
        complain(f"{book.path}: {SPENT_AT_DELTA}")
    alone = len(units) == 1
    if as_json:
        shown = [_in_json(book, unit, accounts, totals, delta, alone=alone) for unit, accounts in units.items()]
        together = shown[0] if alone else {"units": shown}
        if delta is not None and not alone:
            limits = {unit: limit.sum for unit in units if (limit := book.limit_of(unit)) is not None}
            together |= {
                "delta": exact_text(delta),
                "epsilon": _text(total_epsilon(limits, delta) if len(limits) == len(units) else None),
                "subjects": [{"subject": name, "epsilon": _text(own)} for name, own in totals.items()],
            }
        say_json(json.dumps(together, indent=2, ensure_ascii=False))
        return
    for unit, accounts in units.items():
        _say_unit(book, unit, accounts, hours, totals, delta, alone=alone)


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
    from privopt.ledger.cost_of_report import limit_text

    limit, whom = book.limit_of(unit), book.unit or ""
    words = "no limit: it only counts" if limit is None else limit_text(limit, whom)
    if delta is not None and limit is not None:
        words += f"; the limit is epsilon {_text(total_epsilon({unit: limit.sum}, delta))} at delta {exact_text(delta)}"
    what = whom or "nothing charged yet"
    say(f"{book.path}: {what if alone and unit == EPSILON else f'{unit}, {what}'}; {words}")
    wide = max((len(account.subject) for account in accounts), default=0)
    since = f" in the last {hours} hours" if hours else ""
    for account in accounts:
        left = "" if account.left is None else f", {account.left_text} left"
        when = "" if account.period is None else f"  {account.period}"
        line = f"{account.spent_text} spent{since}{left}, {account.reports:,} charges"
        if delta is not None:
            line += f"; all accounts: epsilon {_text(totals[account.subject])} at delta {exact_text(delta)}"
        say(f"{account.subject:<{wide}}{when}  {line}")


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
        "limit": None if limit is None else said(limit.sum),
        **({} if plain else {"relation": book.unit}),
    }
    if limit is not None and limit.calendar is not None:
        shown |= {"per": limit.calendar.per, "zone": limit.calendar.zone}
    else:
        within = None if limit is None or limit.hours is None else exact_text(limit.hours)
        shown["window_hours"] = None if within is None else _number(within)
    subjects = [account.to_json() for account in accounts]
    if delta is not None:
        at = None if limit is None else total_epsilon({unit: limit.sum}, delta)
        shown |= {"delta": exact_text(delta), "epsilon": _text(at)}
        for own in subjects:
            own["epsilon"] = _text(totals[str(own["subject"])])
    return {**shown, "subjects": subjects}


def _totals(book: Ledger, units: Mapping[str, Sequence[Account]], delta: Fraction) -> dict[str, Fraction | None]:
    """Return what all accounts of each subject come to as epsilon at a delta, over all periods that are shown."""
    sums: dict[str, dict[str, Sum]] = {}
    for unit, accounts in units.items():
        for own in accounts:
            spent = (own.spent,) if own.delta is None else (own.spent, own.delta)
            mine = sums.setdefault(own.subject, {})
            mine[unit] = added(mine[unit], spent) if unit in mine else spent
    return {name: total_epsilon(own, delta, squares=book.squares(name)) for name, own in sums.items()}


def total_epsilon(sums: Mapping[str, Sum], delta: Fraction, *, squares: Fraction | None = None) -> Fraction | None:
    """See :func:`privopt.ledger.total_epsilon.total_epsilon`, whose arithmetic is loaded when it is asked for."""
    from privopt.ledger.total_epsilon import total_epsilon as total

    return total(sums, delta, squares=squares)


def _text(epsilon: Fraction | None) -> str | None:
    return None if epsilon is None else exact_text(epsilon)


def _number(text: str) -> float | int | str:
    """Hours as a number where it says exactly that."""
    value = Fraction(text)
    if value.denominator == 1:
        return int(value)
    return float(value) if Fraction(float(value)) == value or "/" not in text else text


def charge_of(
    command: str,
    ledger: Path | None,
    subject: str | None,
    key: Path | None,
    *,
    whom: str,
    because: str,
    sticky: bool = False,
) -> Charge | None:
    """What a command was asked to charge; None for nothing.

    Args:
        command: its name.
        ledger, subject, key, sticky: its options.
        whom: the value of ``--subject``, for messages.
        because: why the one option is wanted beside the other.
    """
    given = {"--ledger": ledger, "--subject": subject, "--sticky": sticky or None, "--hash-subjects": key}
    found = " and ".join(name for name, value in given.items() if value is not None)
    if not found:
        return None
    if ledger is None or subject is None:
        lacks = "--ledger FILE" if ledger is None else f"--subject {whom}"
        raise UsageError(f"{command}: found {found}, wanted {lacks} beside: {because}")
    from privopt.ledger.charge import Charge

    return Charge(ledger=ledger, subject=subject, sticky=sticky, key=key)
