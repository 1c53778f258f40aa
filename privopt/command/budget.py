"""The command ``privopt budget``: what reads tables is imported where it is needed."""

from __future__ import annotations

from pathlib import Path

import click

from privopt.command.budget_accounts import delta_given, limit_given, show_accounts
from privopt.command.exit_codes import PATH, guarded, utf8
from privopt.command.terminal import complain, progress_display
from privopt.errors import UsageError
from privopt.interfaces.cost import UNITS
from privopt.ledger.accounts import Account
from privopt.ledger.ledger import Ledger


@click.command()
@click.argument("ledger", metavar="LEDGER", type=PATH)
@click.option("--subject", metavar="ID", callback=utf8, help="One subject; default: all.")
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
@click.option("--zone", metavar="AREA/CITY", callback=utf8, help="With --per: its time zone; default: UTC.")
@click.option("--unit", type=click.Choice(UNITS), help="With --set: of what the limit is, where notions differ.")
@click.option("--delta", metavar="D", callback=utf8, help="Convert all accounts to one epsilon at this delta.")
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
@click.option("--head", metavar="N:HASH", callback=utf8, help="An earlier head: code 1 if it is missing now.")
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
    if per is not None and limit is None:
        raise UsageError("--per must be used with --set AMOUNT, got it alone")
    if zone is not None and per is None:
        raise UsageError("--zone must be used with --per day, week or month, got it alone")
    wanted = None if limit is None else limit_given(limit, window)
    at = delta_given(delta)
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
        for own in book.units if hours is not None else ():
            held = book.limit_of(own)
            if held is not None and held.calendar is not None:
                raise UsageError(f"--window must be omitted: {ledger} counts {own} by {held.calendar}")
        units = {
            own: book.accounts(hours=hours, unit=own) if subject is None else _accounts(book, subject, hours, own)
            for own in book.units
        }
        show_accounts(book, units, hours, at, as_json=as_json)


def _accounts(book: Ledger, subject: str, hours: str | None, unit: str) -> list[Account]:
    """Return a subject's accounts in a unit: one, or by the calendar those of all its periods, or of now."""
    one = book.account(subject, hours=hours, unit=unit)
    if one.period is None:
        return [one]
    periods = dict.fromkeys(charge.period for charge in book.charges(subject) if charge.cost.account == unit)
    return [book.account(subject, period=period, unit=unit) for period in sorted(filter(None, periods))] or [one]


def _forget(book: Ledger, subject: str) -> None:
    from privopt.ledger.kept_reports import KeptReports

    book.account(subject)  # refuses another key than the ledger's, under which nothing would be found
    with KeptReports(book, make=False) as kept:
        gone = kept.forget(book.name_of(subject))
    complain(f"{book.path}: {gone:,} kept reports of {subject} removed; what was spent stays spent")


def _forget_batch(book: Ledger, name: str) -> None:
    from privopt.ledger.batches import Batch

    with Batch(ledger=book.path, name=name).opened() as batch:
        gone = "removed" if batch.forget() else "was gone already"
    complain(f"{book.path}: key of batch {name} {gone}; what was charged stays charged, and the name is used up")
