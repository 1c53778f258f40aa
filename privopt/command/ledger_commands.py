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
@click.option("--forget", metavar="ID", callback=utf8, help="Remove a subject's kept reports (apply --sticky).")
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
    forget: str | None,
    key: Path | None,
    head: str | None,
    as_json: bool,
) -> None:
    """What subjects have spent, exactly; every entry of the ledger is checked."""
    from privopt.command.terminal import progress_display
    from privopt.ledger.ledger import Ledger

    wanted = None if limit is None else _limit(limit, window)
    with Ledger(ledger, key=key, make=wanted is not None) as book:
        with progress_display(quiet=False) as progress:
            book.check(head=head, progress=progress)
        if wanted is not None:
            book.set_limit(wanted.amount, hours=wanted.hours)
        if forget is not None:
            _forget(book, forget)
        hours = window if wanted is None else None
        accounts = book.accounts(hours=hours) if subject is None else [book.account(subject, hours=hours)]
        _show(book, accounts, hours, as_json=as_json)


def _limit(amount: str, window: str | None) -> Limit:
    from privopt.ledger.entries import Limit, amount_of

    hours = None if window is None else amount_of(window, "--window")
    return Limit(amount=amount_of(amount, "--set", zero=True), hours=hours)


def _forget(book: Ledger, subject: str) -> None:
    from privopt.ledger.kept_reports import Sticky

    book.account(subject)  # refuses another key than the ledger's, under which nothing would be found
    with Sticky.beside(book, make=False) as kept:
        gone = sum(kept.forget(name) for name in book.names_of([subject])[subject])
    complain(f"{book.path}: {gone:,} kept reports of {subject} removed; what was spent stays spent")


def _show(book: Ledger, accounts: Sequence[Account], hours: str | None, *, as_json: bool) -> None:
    """Accounts on standard output; the head, to be kept elsewhere, on standard error."""
    from privopt.declare.exact_text import exact_text

    complain(f"{book.path}: every entry holds; head {book.head}: kept elsewhere, it tells whether the end was cut off")
    limit = book.limit
    within = None if limit is None or limit.hours is None else exact_text(limit.hours)
    if as_json:
        shown = {
            "unit": book.unit,
            "limit": None if limit is None else exact_text(limit.amount),
            "window_hours": None if within is None else _number(within),
            "subjects": [account.to_json() for account in accounts],
        }
        say_json(json.dumps(shown, indent=2, ensure_ascii=False))
        return
    words = "no limit: it only counts" if limit is None else f"limit {exact_text(limit.amount)} a subject"
    say(f"{book.path}: {book.unit or 'nothing charged yet'}; {words}{f' in any {within} hours' if within else ''}")
    wide = max((len(account.subject) for account in accounts), default=0)
    since = f" in the last {hours} hours" if hours else ""
    for account in accounts:
        left = "" if account.left is None else f", {exact_text(account.left)} left"
        say(f"{account.subject:<{wide}}  {exact_text(account.spent)} spent{since}{left}, {account.reports:,} charges")


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

    Raises:
        UsageError: one of the options without the other.
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
