"""Choose the ledger and the subjects to charge: for table rows, single draws, or noise that a solve draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from attrs import AttrsInstance, field, frozen

from privopt import interfaces
from privopt.declare import files_of
from privopt.declare.name_forms import normal_column
from privopt.errors import UsageError, cut, number_of
from privopt.interfaces import DrawnReports, PrivacyConstraint, Progress, Release, Result
from privopt.interfaces.cost import priced, sum_text
from privopt_ledger.cost_of_report import cost_of, sequence_of
from privopt_ledger.ledger import Ledger
from privopt_ledger.subject_names import subject_name


@frozen(kw_only=True)
class Charge(interfaces.Charge):
    """The ledger and the subject to charge before anything is drawn.

    Attributes:
        ledger: open, or its file, made where there is none.
        subject: of a table, the column that says whom each row is about. For a solve, a person, or a data set whose
            tables all share one limit; None for the name of the problem's only secret file. The ledger may know no one
            else then, or next year's copy of the file would have a budget of its own.
        key: file with the key under which a ledger's file hashes subjects; None for names as they are.
        sticky: of a table: keep and repeat the first report of each subject's place.
        within: km from the centre of a kept report's cell up to which it is repeated; None for its own cell alone.
    """

    ledger: Ledger | Path | str
    subject: str | None = field(default=None, converter=normal_column)
    key: Path | None = None
    sticky: bool = False
    within: float | None = None

    @classmethod
    def of_options(
        cls,
        command: str,
        ledger: Path | None,
        subject: str | None,
        key: Path | None,
        *,
        whom: str,
        because: str,
        sticky: bool = False,
        within: float | None = None,
    ) -> Self | None:
        """Return the charge that a command was asked for; ``sticky`` and ``within`` are options of tables alone."""
        given = {"--ledger": ledger, "--subject": subject, "--sticky": sticky or None, "--hash-subjects": key}
        found = " and ".join(name for name, value in given.items() if value is not None)
        if not found:
            return None
        if ledger is None or subject is None:
            lacks = "--ledger FILE" if ledger is None else f"--subject {whom}"
            raise UsageError(f"{command}: {found} must be used with {lacks}: {because}")
        return cls(ledger=ledger, subject=subject, sticky=sticky, within=within, key=key)

    @property
    def path(self) -> Path:
        """The ledger's file."""
        return self.ledger.path if isinstance(self.ledger, Ledger) else Path(self.ledger)

    def check_apart(self, folder: Path, *files: Path) -> None:
        """Refuse a ledger or a key in the release's folder, or under the name of a file of the command."""
        for option, path in (("--ledger", self.path), ("--hash-subjects", self.key)):
            if path is None:
                continue
            place = path.absolute().resolve()
            if place.is_relative_to(folder.resolve()):
                wanted = "which holds the release alone; name a file elsewhere"
                raise UsageError(f"{option} {path}: lies in {folder}, {wanted}")
            if place in [file.absolute().resolve() for file in files]:
                raise UsageError(f"{option} {path} must be a file of its own, got the name of a table")

    @contextmanager
    def opened(self, progress: Progress | None = None) -> Iterator[Ledger]:
        """Yield a ledger: one that is open as its owner left it, or one opened and checked here.

        Raises:
            DoesNotHoldError: an entry that is not as it was written.
            InputError, UsageError, StoppedError: as of :class:`Ledger`.
        """
        if isinstance(self.ledger, Ledger):
            yield self.ledger
            return
        with Ledger(self.ledger, key=self.key) as book:
            book.check(progress=progress)
            yield book

    def charge_solve(
        self,
        privacy: PrivacyConstraint[Any],
        declared: AttrsInstance,
        release: type[Release],
        *,
        seeded: bool,
        mechanism: str,
        purpose: str,
        progress: Progress | None = None,
    ) -> str:
        """Charge a release whose noise is about to be drawn, durably; return what stays charged."""
        mark = "a seed, and no epsilon covers what it draws" if seeded else None
        cost = priced(privacy.guarantee, privacy.relation, mechanism, purpose, mark=mark)
        if isinstance(cost, str):
            raise UsageError(f"--ledger must be used with a method whose noise can be charged, got {cost}")
        if release.sample is not Release.sample:
            found = f"{privacy.guarantee.kind}, whose reports are drawn later"
            raise UsageError(
                f"--ledger must be used with a method that draws noise now, got {found}: apply charges those"
            )
        secret = list(dict.fromkeys(file.name for file in files_of(declared) if file.secret))
        if self.subject is None and len(secret) != 1:
            found = f"{len(secret)} secret files" + (f" ({', '.join(secret[:5])})" if secret else "")
            raise UsageError(f"--ledger must be used with --subject ID, got {found}: one's name would be the subject's")
        subject = secret[0] if self.subject is None else self.subject
        with self.opened(progress) as ledger:
            ledger.charge(subject, cost, alone=self.subject is None)
        return f"{self.path}: subject {cut(subject)} was charged {sum_text(cost.amount)} all the same"

    def charge_draws(
        self,
        draw: Callable[[int], Iterator[list[str]]],
        count: int,
        *,
        folder: Path,
        result: Result,
        relation: str,
        progress: Progress | None = None,
    ) -> DrawnReports:
        """Charge draws to the subject, durably, and then draw as many as the limit allows."""
        subject = self.subject or ""
        subject_name(subject)  # what is none is refused before a ledger is made
        cost = cost_of(folder, result, relation, "sample")
        with self.opened(progress) as ledger:
            if progress is not None:
                progress("charging", 0, None, None)
            granted = ledger.charge_times(subject, count, cost)
            if not granted:
                raise ledger.refusal(subject, cost)
            left, limit = ledger.account(subject, unit=cost.account).left_text, ledger.limit_of(cost.account)
        try:
            reports = draw(granted)
        except UsageError as error:
            raise UsageError(f"{error}; charged all the same: {number_of(granted, 'draw')}") from error
        refused = None
        if granted < count and left is not None:
            refused = (
                f"{count - granted:,} of {count:,} draws refused: budget spent: subject {cut(subject)} has "
                f"{left} left, each takes {sum_text(cost.amount)}"
            )
        return DrawnReports(reports=reports, refused=refused, sequence=sequence_of(cost, limit, "draw"))
