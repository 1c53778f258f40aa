"""What ``solve`` charges: a release whose noise it draws, before it draws it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import AttrsInstance, fields, frozen, has

from privopt.declare import File, files_of
from privopt.declare.exact_text import exact_text
from privopt.errors import UsageError, cut
from privopt.interfaces import Guarantee, Progress, Release
from privopt.registry import registry
from privopt.run.ledger.entries import Cost
from privopt.run.ledger.ledger import Ledger

__all__ = ["ChargeRelease"]


@frozen(kw_only=True)
class ChargeRelease:
    """Where and whom a solve charges.

    Attributes:
        ledger: its file, made where there is none.
        subject: whom: a person, or the data set that all of whose tables share one limit; None for the name of the
            problem's secret file, of which there may be one: tables that users name may each have their own.
        key: file with the key under which the ledger hashes subjects; None for names as they are.
    """

    ledger: Path
    subject: str | None = None
    key: Path | None = None

    def charge(
        self,
        guarantee: Guarantee,
        declared: AttrsInstance,
        release: type[Release],
        *,
        seeded: bool,
        mechanism: str,
        purpose: str,
        progress: Progress | None = None,
    ) -> str:
        """Charge epsilon, durably.

        Args:
            guarantee: of what is about to be drawn.
            declared: the problem, which names its secret files.
            release: what will be published: one result, or what later draws come from.
            seeded: whether a seed would draw it.
            mechanism: SHA-256 of the public problem file.
            purpose: what is charged for, in words.
            progress: called with how many entries are checked.

        Returns:
            What stays charged whatever comes of it, a sentence.

        Raises:
            UsageError: nothing is drawn, or nothing that could be counted.
            BudgetSpentError: the subject has not enough left; nothing was charged.
            DoesNotHoldError: the ledger was changed.
            InputError: no ledger, or one of another unit.
        """
        if guarantee.epsilon is None or seeded:
            found = "a seed, and no epsilon covers what it draws" if seeded else f"{guarantee.kind}, without epsilon"
            raise UsageError(f"--ledger: found {found}; wanted a method whose noise can be charged")
        if not registry().kind("notion", guarantee.kind).load().odds:
            found = f"{guarantee.kind}, which does not add up by epsilon alone"
            raise UsageError(f"--ledger: found {found}; wanted a notion that does: a ledger has one number a subject")
        if release.sample is not Release.sample:
            found = f"{guarantee.kind}, whose reports are drawn later"
            raise UsageError(f"--ledger: found {found}; wanted one that draws noise now: apply charges those")
        secret = [file.name for file in files_of(declared) if file.secret]
        alike = dict.fromkeys(file.name for file in _of_tables_named(declared) if file.secret)
        if self.subject is None and len(alike) > 1:
            found = f"{len(alike)} secret files of the same individuals ({', '.join(list(alike)[:5])})"
            raise UsageError(
                f"--ledger: found {found}; wanted --subject ID: any of these names would split their limit"
            )
        subject = self.subject or (secret[0] if secret else "")
        if not subject:
            raise UsageError("--ledger: found no secret file whose name could be the subject, wanted --subject ID")
        cost = Cost(
            epsilon=guarantee.epsilon,
            unit=guarantee.unit,
            notion=guarantee.kind,
            mechanism=mechanism,
            purpose=purpose,
        )
        with Ledger(self.ledger, key=self.key) as ledger:
            ledger.check(progress=progress)
            ledger.charge(subject, cost)
        return f"{self.ledger}: subject {cut(subject)} was charged {exact_text(cost.epsilon)} all the same"


def _of_tables_named(problem: Any) -> Iterator[File]:
    """Files of tables whose keys users name: several of one kind."""
    for attribute in fields(type(problem)):
        value = getattr(problem, attribute.name)
        if has(type(value)) and not isinstance(value, File):
            yield from _of_tables_named(value)
        elif isinstance(value, Mapping):
            for table in value.values():
                yield from files_of(table) if has(type(table)) else ()
