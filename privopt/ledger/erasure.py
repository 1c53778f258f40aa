"""Erase a subject's data on request, as far as a ledger allows, and explain why other data must remain."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from privopt.errors import number_of
from privopt.ledger.batches import count_batch_keys
from privopt.ledger.kept_reports import KeptReports
from privopt.ledger.ledger import Ledger

__all__ = ["Erasure", "erase_subject"]


@frozen(kw_only=True)
class Erasure:
    """The outcome of an erasure: which of a subject's data was erased, and which remains.

    Attributes:
        label: The subject's name in the ledger, which is a hash if the ledger has a key.
        kept_reports: The number of stored reports that were removed.
        charges: The number of charges that remain in the ledger.
        archived_charges: The number of charges that remain in the ledger's archived periods. Both counts include
            charges that were copied individually by a rotation.
        erased: Sentences describing the removed data.
        remaining: Sentences describing the remaining data and explaining why it cannot be removed.
    """

    label: str
    kept_reports: int
    charges: int
    archived_charges: int
    erased: tuple[str, ...]
    remaining: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object printed by ``privopt budget --erase ID --json``."""
        return {
            "subject": self.label,
            "erased": {"kept_reports": self.kept_reports, "text": list(self.erased)},
            "remaining": {
                "charges": self.charges,
                "archived_charges": self.archived_charges,
                "text": list(self.remaining),
            },
        }


def erase_subject(ledger: Ledger, subject: str) -> Erasure:
    """Remove as much of a subject's data as possible, i.e. the reports stored by ``apply --sticky``.

    Charges cannot be removed. Each entry contains the hash of the previous one, so the ledger would no longer verify.
    Removing the charges would also restore the person's full budget.

    Args:
        ledger: The open ledger.
        subject: The subject, as named in the user's tables.

    Raises:
        InputError: The key is not the one under which the ledger hashes names, so the subject would not be found.
        UsageError: The subject's name is not valid.
    """
    ledger.account(subject)  # raises an error for a key other than the ledger's
    label, charge_count = ledger.label_of(subject), len(ledger.charges(subject))
    kept_count = 0
    if ledger.path.with_name(f"{ledger.path.name}.sticky").is_dir():
        with KeptReports(ledger, make=False) as stored_reports:
            kept_count = stored_reports.forget(ledger.name_of(subject))
    erased = f"{number_of(kept_count, 'kept report')}: which reports were given at which of its places"
    remaining = [
        "tables that were written before: delete its rows there and in the original tables; a published report stays "
        "as private as it was promised",
    ]
    if charge_count:
        contents = "amounts, times and purposes, no place"
        reason = (
            "each entry holds the hash of the one before, and without its charges a person would have the whole budget "
            "again"
        )
        remaining.insert(0, f"{number_of(charge_count, 'charge')} in the ledger ({contents}): {reason}")
    archived_count, archive_names = _count_archived_charges(ledger, subject)
    if archived_count:
        remaining.append(
            f"{number_of(archived_count, 'charge')} in archived periods ({', '.join(archive_names)}): entries there "
            "are chained too; nothing charges these files any more: delete them once nobody checks them by --history"
        )
    if charge_count or archived_count:
        remaining.append(_describe_name(ledger))
    if batch_count := count_batch_keys(ledger.path):
        keys, batches = ("the keys", "batches") if batch_count > 1 else ("the key", "batch")
        remaining.append(
            f"{keys} of {batch_count:,} unfinished {batches} next to the ledger, with which a guess of a row's place "
            "can be tested against its report: finish each such batch, or delete its key (--forget-batch NAME)"
        )
    return Erasure(
        label=label,
        kept_reports=kept_count,
        charges=charge_count,
        archived_charges=archived_count,
        erased=(erased,),
        remaining=tuple(remaining),
    )


def _count_archived_charges(ledger: Ledger, subject: str) -> tuple[int, list[str]]:
    """Return the number of a subject's charges in a ledger's archives, and the names of the archives containing them.

    If an archive has been moved elsewhere, neither it nor any earlier archive is included, because each archive is
    named only in its successor.
    """
    count, names, archive = 0, [], ledger.archive
    while archive is not None and archive.exists():
        with Ledger(archive, key=ledger.key, make=False) as archived:
            if charges := archived.charges(subject):
                count += len(charges)
                names.append(archive.name)
            archive = archived.archive
    return count, names


def _describe_name(ledger: Ledger) -> str:
    """Return a sentence about who can still link the remaining charges to the subject."""
    if ledger.key is None:
        return (
            "its name, in clear, in each of these entries: an entry with another name has another hash; a new ledger "
            "with --hash-subjects holds no names"
        )
    return (
        f"a hash instead of its name in these entries: only whoever has {ledger.key} and the subject's id can tell "
        "whose they are; once the key is destroyed, for all subjects, nobody can, and nothing more can be charged"
    )
