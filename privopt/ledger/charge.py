"""Choose the ledger and the subjects to charge: for table rows, single draws, or noise that a solve draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from attrs import AttrsInstance, field, frozen

from privopt.declare import files_of
from privopt.declare.name_forms import normal_column
from privopt.errors import UsageError, cut, number_of
from privopt.interfaces import PrivacyConstraint, Progress, Release, Result
from privopt.interfaces.cost import priced, sum_text
from privopt.ledger.cost_of_report import cost_of, sequence_of
from privopt.ledger.ledger import Ledger
from privopt.ledger.subject_names import subject_name


@frozen(kw_only=True)
class DrawnReports:
    """Reports that were charged, and are drawn on demand.

    Attributes:
        reports: ids of outputs, a block at a time, drawn as they are asked for.
        refused: how many draws the limit did not allow, in words; None if it allowed all.
        sequence: the guarantee of all reports of the subject together.
    """

    reports: Iterator[list[str]]
    refused: str | None
    sequence: str


@frozen(kw_only=True)
class Charge:
    """The ledger and the subject to charge before anything is drawn.

    Attributes:
        ledger: open, or its file, made if there is none.
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
        """Return the charge that a command's options ask for, or None if they ask for none.

        Args:
            command: its name.
            ledger, subject, key: its options.
            whom: the value of ``--subject``, for messages.
            because: why the one option needs the other.
            sticky, within: options of tables alone.

        Raises:
            UsageError: one option without the other that it needs.
        """
        options = {"--ledger": ledger, "--subject": subject, "--sticky": sticky or None, "--hash-subjects": key}
        given_names = " and ".join(name for name, value in options.items() if value is not None)
        if not given_names:
            return None
        if ledger is None or subject is None:
            missing = "--ledger FILE" if ledger is None else f"--subject {whom}"
            raise UsageError(f"{command}: {given_names} must be used with {missing}: {because}")
        return cls(ledger=ledger, subject=subject, sticky=sticky, within=within, key=key)

    @property
    def path(self) -> Path:
        """The ledger's file."""
        return self.ledger.path if isinstance(self.ledger, Ledger) else Path(self.ledger)

    def check_apart(self, folder: Path, *files: Path) -> None:
        """Refuse a ledger or key inside the release's folder, or under the name of a file of the command.

        Raises:
            UsageError: it is there.
        """
        for option, path in (("--ledger", self.path), ("--hash-subjects", self.key)):
            if path is None:
                continue
            location = path.absolute().resolve()
            if location.is_relative_to(folder.resolve()):
                rule = "which holds the release alone; name a file elsewhere"
                raise UsageError(f"{option} {path}: lies in {folder}, {rule}")
            if location in [file.absolute().resolve() for file in files]:
                raise UsageError(f"{option} {path} must be a file of its own, got the name of a table")

    @contextmanager
    def opened(self, progress: Progress | None = None) -> Iterator[Ledger]:
        """Yield the ledger: the given one if it is open, or one that is opened and checked here.

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
        """Charge a release whose noise is about to be drawn, durably.

        Args:
            privacy: of what is about to be drawn.
            declared: the problem, which names its secret files.
            release: the class of what will be published: one result, or what later draws come from.
            seeded: whether a seed would draw it.
            mechanism: SHA-256 of the public problem file.
            purpose: what is charged for, in words.
            progress: called with how many entries are checked.

        Returns:
            What stays charged whatever comes of it, a sentence.

        Raises:
            UsageError: nothing is drawn, or nothing that could be counted; or no subject, where one is needed.
            BudgetSpentError: the subject has not enough left; nothing was charged.
            DoesNotHoldError: the ledger was changed.
            InputError: no ledger, or one of another unit.
        """
        mark = "a seed, and no epsilon covers what it draws" if seeded else None
        cost = priced(privacy.guarantee, privacy.relation, mechanism, purpose, mark=mark)
        if isinstance(cost, str):
            raise UsageError(f"--ledger must be used with a method whose noise can be charged, got {cost}")
        if release.sample is not Release.sample:
            actual = f"{privacy.guarantee.kind}, whose reports are drawn later"
            raise UsageError(
                f"--ledger must be used with a method that draws noise now, got {actual}: apply charges those"
            )
        # One secret file can name the data set; with several, or none, there is no natural name.
        secret_files = list(dict.fromkeys(file.name for file in files_of(declared) if file.secret))
        if self.subject is None and len(secret_files) != 1:
            actual = f"{len(secret_files)} secret files" + (f" ({', '.join(secret_files[:5])})" if secret_files else "")
            raise UsageError(
                f"--ledger must be used with --subject ID, got {actual}: one's name would be the subject's"
            )
        subject = secret_files[0] if self.subject is None else self.subject
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
        """Charge draws to the subject, durably, and then draw as many as the limit allows.

        How many are charged is not a function of the secret, which is not read before.

        Args:
            draw: returns as many reports of the secret as it is asked for, in blocks; it draws the first at once.
            count: draws.
            folder, result: the release, and what it says of itself.
            relation: for which a ledger charges draws (:attr:`PrivacyConstraint.relation`).
            progress: called with what is being done.

        Raises:
            BudgetSpentError: the limit allows none; nothing was charged.
            UsageError: no name of a subject, a release that promises nothing, or a secret that is none: what was
                charged for it is said.
            InputError, DoesNotHoldError: a ledger that cannot be used.
        """
        subject = self.subject or ""
        subject_name(subject)  # an invalid name is refused before a ledger's file is created
        cost = cost_of(folder, result, relation, "sample")
        with self.opened(progress) as ledger:
            if progress is not None:
                progress("charging", 0, None, None)
            # The number of charged draws must not depend on the secret, which is read only afterwards.
            granted = ledger.charge_times(subject, count, cost)
            if not granted:
                raise ledger.refusal(subject, cost)
            remaining, limit = ledger.account(subject, unit=cost.account).left_text, ledger.limit_of(cost.account)
        try:
            reports = draw(granted)
        except UsageError as error:
            raise UsageError(f"{error}; charged all the same: {number_of(granted, 'draw')}") from error
        refused = None
        if granted < count and remaining is not None:
            refused = (
                f"{count - granted:,} of {count:,} draws refused: budget spent: subject {cut(subject)} has "
                f"{remaining} left, each takes {sum_text(cost.amount)}"
            )
        return DrawnReports(reports=reports, refused=refused, sequence=sequence_of(cost, limit, "draw"))
