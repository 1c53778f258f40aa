"""The ``privopt budget`` command, which shows, limits and checks the accounts in a ledger."""

from __future__ import annotations

import json
from pathlib import Path

import click

from privopt.command.budget_accounts import parse_delta, parse_limit, show_accounts
from privopt.command.exit_codes import PATH, handle_errors, utf8
from privopt.command.terminal import complain, print_result, progress_display, say_json
from privopt.errors import UsageError, number_of
from privopt.interfaces.cost import UNITS
from privopt.ledger.accounts import Account
from privopt.ledger.ledger import Ledger
from privopt.ledger.rotation import Rotation


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
    help=(
        "With --set: the limit is for each window of that length; their sum is not limited. Alone: show what was "
        "spent in the last HOURS."
    ),
)
@click.option(
    "--per",
    type=click.Choice(["day", "week", "month"]),
    help=(
        "With --set: the limit is for each calendar period, by the rows' own times (apply --time); periods add up "
        "without limit. Must be set before the first charge."
    ),
)
@click.option("--zone", metavar="AREA/CITY", callback=utf8, help="With --per: its time zone; default: UTC.")
@click.option("--unit", type=click.Choice(UNITS), help="With --set: what the limit counts, if notions differ.")
@click.option("--delta", metavar="D", callback=utf8, help="Convert all accounts to one epsilon at this delta.")
@click.option("--forget", metavar="ID", callback=utf8, help="Remove a subject's kept reports (apply --sticky).")
@click.option(
    "--erase",
    metavar="ID",
    callback=utf8,
    help="A person asks for deletion: erase what can be erased, and say what stays and why.",
)
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
@click.option(
    "--rotate",
    is_flag=True,
    help="Close a period: archive the file next to the ledger, and begin a new one with the accounts that still count.",
)
@click.option("--history", is_flag=True, help="Check archived periods too, and what each carried over to the next.")
@click.option("--head", metavar="N:HASH", callback=utf8, help="An earlier head: code 1 if it is missing now.")
@click.option("--json", "as_json", is_flag=True, help="Amounts as exact text, on standard output.")
@handle_errors
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
    erase: str | None,
    forget_batch: str | None,
    key: Path | None,
    rotate: bool,
    history: bool,
    head: str | None,
    as_json: bool,
) -> None:
    """Show what subjects have spent, exactly; the ledger's open period is checked."""
    # The docstring is the text of --help. A subject is a person (or device) whose privacy budget the ledger counts.
    # ``subject``, ``forget`` and ``erase`` are ids of subjects. Amounts are given as texts, so that they can be parsed
    # exactly: ``limit`` is each subject's new limit, and ``window`` is its length in hours. Instead of a window,
    # ``per`` and ``zone`` give a calendar period and its time zone. ``unit`` is the account ("epsilon", "rho" or
    # "(epsilon, delta)"). ``key`` is the file with the key under which the ledger hashes subjects, and ``head`` is an
    # earlier "number:hash" of the last entry.
    if per is not None and limit is None:
        raise UsageError("--per must be used with --set AMOUNT, got it alone")
    if zone is not None and per is None:
        raise UsageError("--zone must be used with --per day, week or month, got it alone")
    other_options = {
        "--subject": subject,
        "--set": limit,
        "--forget": forget,
        "--forget-batch": forget_batch,
        "--delta": delta,
        "--window": window,
        "--unit": unit,
    }
    if erase is not None:
        for option, value in other_options.items():
            if value is not None:
                raise UsageError(f"{option} must be omitted with --erase ID: it is about one subject alone")
    if rotate and (refused := [option for option, value in {**other_options, "--erase": erase}.items() if value]):
        raise UsageError(f"{refused[0]} must be omitted with --rotate: rotate first, or afterwards")
    new_limit = None if limit is None else parse_limit(limit, window)
    exact_delta = parse_delta(delta)
    # Only --set may create a ledger. Showing a ledger that does not exist must fail instead of writing an empty file.
    with Ledger(ledger, key=key, make=new_limit is not None) as book:
        with progress_display(quiet=False) as progress:
            # Check the ledger before anything is changed or shown. For one subject, a partial check is enough, which
            # takes no longer if the open period has more entries. Conversion at a delta reads every charge, so it needs
            # a full check.
            is_full = subject is None or history or delta is not None
            archive = book.check(head=head, full=is_full, progress=progress)
            if archive is not None:
                complain(f"{ledger}: head {head} is of a closed period, {archive.name}, which this ledger continues")
            if history:
                count = book.check_history(progress=progress)
                complain(
                    f"{ledger}: {number_of(count, 'archived period')}: all entries are intact, and so is what they "
                    "carried over"
                )
            if rotate:
                _say_rotation(book, book.rotate(progress=progress), as_json=as_json)
                return
        if new_limit is not None:
            book.set_limit(**new_limit, per=per, zone=zone or "UTC", unit=unit)
        if forget is not None:
            _forget_subject(book, forget)
        if forget_batch is not None:
            _forget_batch(book, forget_batch)
        if erase is not None:
            _erase_subject(book, erase, as_json=as_json)
            return
        # With --set, --window is the limit's window. Without it, --window selects the charges to show.
        hours = window if new_limit is None else None
        # A calendar limit is renewed at fixed times, so it cannot be compared with the amount spent in the last HOURS.
        for account_unit in book.units if hours is not None else ():
            current_limit = book.limit_of(account_unit)
            if current_limit is not None and current_limit.calendar is not None:
                raise UsageError(
                    f"--window must be omitted: {ledger} counts {account_unit} by {current_limit.calendar}"
                )
        # The accounts of all subjects, or of one subject, keyed by unit: epsilon, rho, or (epsilon, delta).
        units = {
            account_unit: book.accounts(hours=hours, unit=account_unit)
            if subject is None
            else _list_accounts(book, subject, hours, account_unit)
            for account_unit in book.units
        }
        show_accounts(book, units, hours, exact_delta, as_json=as_json)


def _list_accounts(book: Ledger, subject: str, hours: str | None, unit: str) -> list[Account]:
    """Return a subject's accounts in the given unit.

    If the limit applies per calendar period, there is one account for each period with charges. Otherwise, there is a
    single account.

    Args:
        book: The ledger to read.
        subject: The subject's id.
        hours: The length of the window in hours, as a string. Only charges within the window count as spent. If None,
            all charges count.
        unit: The unit of the accounts, one of :data:`privopt.interfaces.cost.UNITS`.
    """
    account = book.account(subject, hours=hours, unit=unit)
    if account.period is None:
        return [account]
    periods = book.periods(subject, unit)
    return [book.account(subject, period=period, unit=unit) for period in periods] or [account]


def _forget_subject(book: Ledger, subject: str) -> None:
    """Remove a subject's stored reports (``--forget``), which ``apply --sticky`` would otherwise repeat.

    Charges are kept, because reports that have already been published have used up part of the budget.
    """
    from privopt.ledger.kept_reports import KeptReports

    book.account(subject)  # raises an error for a wrong key, whose hashes would match no stored report
    with KeptReports(book, make=False) as stored_reports:
        removed_count = stored_reports.forget(book.name_of(subject))
    complain(f"{book.path}: {number_of(removed_count, 'kept report')} of {subject} removed; what was spent stays spent")


def _erase_subject(book: Ledger, subject: str, *, as_json: bool) -> None:
    """Erase a subject's data as far as possible (``--erase``), and print what was erased, what was kept and why.

    If ``as_json`` is set, the output is a JSON document instead of text.
    """
    from privopt.ledger.erasure import erase_subject

    erasure = erase_subject(book, subject)
    if as_json:
        say_json(json.dumps(erasure.to_json(), indent=2))
        return
    print_result(f"{book.path}: subject {erasure.label}")
    for line in erasure.erased:
        print_result(f"erased: {line}")
    for line in erasure.remaining:
        print_result(f"stays: {line}")


def _say_rotation(book: Ledger, rotation: Rotation, *, as_json: bool) -> None:
    """Print the outcome of ``--rotate``, which archives the ledger's open period.

    Args:
        book: The ledger, which now begins with the charges that still count.
        rotation: The archived file, the number of entries in it, and the number of charges that were carried over.
        as_json: Whether to print a JSON document instead of text.
    """
    if as_json:
        say_json(
            json.dumps(
                {
                    "archive": str(rotation.archive),
                    "archived_head": rotation.head,
                    "archived_entries": rotation.entries,
                    "carried_charges": rotation.carried,
                    "open_from": rotation.closed,
                    "head": book.head,
                },
                indent=2,
            )
        )
        return
    print_result(f"{rotation.archive}: {rotation.entries:,} entries archived, head {rotation.head}")
    carried = number_of(rotation.carried, "charge")
    print_result(f"{book.path}: begins with {carried} that still count, head {book.head}")
    for unit, period in rotation.closed.items():
        print_result(f"{book.path}: {unit}: periods before {period} are closed: nothing can be charged to them")


def _forget_batch(book: Ledger, name: str) -> None:
    """Delete the key of an unfinished batch (``--forget-batch``), so that the batch can no longer be resumed.

    A batch is a named run of ``apply``. While its key exists, an interrupted batch can be rerun to yield the same
    reports.
    """
    from privopt.ledger.batches import Batch

    with Batch(ledger=book.path, name=name).open_folder() as batch:
        outcome = "removed" if batch.forget() else "was gone already"
    complain(f"{book.path}: key of batch {name} {outcome}; what was charged stays charged, and the name is used up")
