"""``privopt budget``, and what other commands charge to a ledger.

As in :mod:`privopt.command.cli`, what is needed is imported where it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privopt.command.exit_codes import PATH, guarded, utf8
from privopt.command.terminal import complain, say, say_json
from privopt.errors import UsageError

if TYPE_CHECKING:
    from privopt.ledger.charge import Charge
    from privopt.ledger.entries import Account, Limit
    from privopt.ledger.ledger import Ledger
else:
    Account = Charge = Ledger = Limit = Any

__all__ = ["budget", "charge_of"]


@click.command()
@click.argument("ledger", metavar="LEDGER", type=PATH)
@click.option("--subject", metavar="ID", callback=utf8, help="One subject; left out: all.")
@click.option("--set", "limit", metavar="PER_SUBJECT", callback=utf8, help="Make or change the limit: 8, 0.5 or 1/3.")
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
    wanted = None if limit is None else _limit(limit, window, per, zone or "UTC")
    with Ledger(ledger, key=key, make=wanted is not None) as book:
        with progress_display(quiet=False) as progress:
            book.check(head=head, progress=progress)
        if wanted is not None:
            book.set_limit(wanted.amount, hours=wanted.hours, per=per, zone=zone or "UTC")
        if forget is not None:
            _forget(book, forget)
        if forget_batch is not None:
            _forget_batch(book, forget_batch)
        hours = window if wanted is None else None
        if hours is not None and book.limit is not None and book.limit.calendar is not None:
            raise UsageError(f"--window must be left out: {ledger} counts by {book.limit.calendar}")
        accounts = book.accounts(hours=hours) if subject is None else _accounts(book, subject, hours)
        _show(book, accounts, hours, as_json=as_json)


def _limit(amount: str, window: str | None, per: str | None, zone: str) -> Limit:
    from privopt.ledger.entries import Limit, amount_of
    from privopt.ledger.periods import Calendar

    hours = None if window is None else amount_of(window, "--window")
    calendar = None if per is None else Calendar(per, zone)
    return Limit(amount=amount_of(amount, "--set", zero=True), hours=hours, calendar=calendar)


def _accounts(book: Ledger, subject: str, hours: str | None) -> list[Account]:
    """The accounts of one subject: one, or by the calendar those of all periods; of now where there are none."""
    one = book.account(subject, hours=hours)
    if one.period is None:
        return [one]
    periods = dict.fromkeys(charge.period for charge in book.charges(subject))
    return [book.account(subject, period=period) for period in sorted(filter(None, periods))] or [one]


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


def _show(book: Ledger, accounts: Sequence[Account], hours: str | None, *, as_json: bool) -> None:
    """Accounts on standard output; the head, to be kept elsewhere, on standard error."""
    from privopt.declare.exact_text import exact_text
    from privopt.ledger.cost_of_report import limit_text

    complain(f"{book.path}: every entry holds; head {book.head}: kept elsewhere, it tells whether the end was cut off")
    limit = book.limit
    calendar = None if limit is None else limit.calendar
    within = None if limit is None or limit.hours is None else exact_text(limit.hours)
    if as_json:
        shown = {
            "unit": book.unit,
            "limit": None if limit is None else exact_text(limit.amount),
            **(
                {"window_hours": None if within is None else _number(within)}
                if calendar is None
                else {"per": calendar.per, "zone": calendar.zone}
            ),
            "subjects": [account.to_json() for account in accounts],
        }
        say_json(json.dumps(shown, indent=2, ensure_ascii=False))
        return
    words = "no limit: it only counts" if limit is None else limit_text(limit, book.unit or "")
    say(f"{book.path}: {book.unit or 'nothing charged yet'}; {words}")
    wide = max((len(account.subject) for account in accounts), default=0)
    since = f" in the last {hours} hours" if hours else ""
    for account in accounts:
        left = "" if account.left is None else f", {exact_text(account.left)} left"
        when = "" if account.period is None else f"  {account.period}"
        spent = f"{exact_text(account.spent)} spent{since}{left}, {account.reports:,} charges"
        say(f"{account.subject:<{wide}}{when}  {spent}")


def _number(text: str) -> float | int | str:
    """Hours as a number where it says exactly that."""
    from fractions import Fraction

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
