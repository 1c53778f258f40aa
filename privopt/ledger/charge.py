"""The ledger and the subject to charge for a table's rows, for single draws, or for the noise drawn by a solve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from attrs import AttrsInstance, field, frozen

from privopt.declare import files_of
from privopt.declare.name_forms import normal_column
from privopt.errors import UsageError, number_of
from privopt.files.log_file import path_of
from privopt.files.new_folder import is_same_file
from privopt.interfaces import PrivacyConstraint, Progress, Release, Result
from privopt.interfaces.cost import cost_of_draw, sum_text
from privopt.ledger.cost_of_report import cost_of, sequence_of
from privopt.ledger.ledger import Ledger
from privopt.ledger.subject_names import key_path, subject_name


def check_apart(option: str, path: Path, folder: Path, *files: Path) -> None:
    """Check that a file has no other use, and is not in the release's folder, where it could be published.

    Args:
        option: The option that specifies the file, for error messages.
        path: The file to check.
        folder: The release's folder.
        files: The other files read or written by the command.

    Raises:
        UsageError: The file lies in the release's folder, or is one of ``files``.
    """
    # Links are resolved, so that a link into the folder is rejected too.
    location = path.absolute().resolve()
    if location.is_relative_to(folder.resolve()):
        raise UsageError(f"{option} {path}: lies in {folder}, which holds the release alone; name a file elsewhere")
    if any(is_same_file(path, file) for file in files):
        raise UsageError(f"{option} {path} must be a file of its own, got the name of a table")


@frozen(kw_only=True)
class DrawnReports:
    """Reports that have been charged and are drawn on demand.

    Attributes:
        reports: An iterator over blocks of output ids. The first block is drawn immediately, and each later block when
            it is requested.
        refused: A sentence stating how many draws were not allowed by the limit, or None if all were allowed.
        sequence: A sentence stating the guarantee for all reports about the subject together.
    """

    reports: Iterator[list[str]]
    refused: str | None
    sequence: str


def _ledger_or_path(value: Ledger | Path | str) -> Ledger | Path:
    """Return an open ledger unchanged, and convert a file name to a path.

    Raises:
        UsageError: The value is neither an open ledger nor a path.
    """
    return value if isinstance(value, Ledger) else path_of(value, "ledger")


@frozen(kw_only=True)
class Charge:
    """The ledger and the subject to charge before anything is drawn.

    Attributes:
        ledger: An open ledger, or the path of its file, which is created if it does not exist.
        subject: For a table, the column containing each row's subject. For ``solve``, a person, or a data set whose
            tables all share one limit. If ``solve`` is given no subject, it uses the name of the problem's only secret
            file. The ledger must then have no other subjects, because a renamed copy of the file, such as next year's,
            would get a separate budget.
        key: The file containing the ledger's key for hashing subjects' names. If None, names are stored in plain text.
        sticky: For a table, whether each subject's first report at a place is stored and repeated at later visits.
        within: With ``sticky``, the distance in km from a cell's centre within which the cell's stored report is
            repeated. If None, a report is repeated only in its own cell.
    """

    ledger: Ledger | Path = field(converter=_ledger_or_path)
    subject: str | None = field(default=None, converter=normal_column)
    key: Path | None = field(default=None, converter=key_path)
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
        """Return the charge described by a command's options, or None if none of these options are given.

        Args:
            command: The command's name, for error messages.
            ledger, subject, key: The values of ``--ledger``, ``--subject`` and ``--hash-subjects``.
            whom: The kind of value accepted by ``--subject``, for error messages.
            because: The reason why these options must be used together, for error messages.
            sticky, within: The values of the options that exist only for tables.

        Raises:
            UsageError: An option is given without the ledger or the subject.
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
    def has_key(self) -> bool:
        """Whether the ledger hashes its subjects' names under a key."""
        return (self.ledger.key if isinstance(self.ledger, Ledger) else self.key) is not None

    @property
    def path(self) -> Path:
        """The ledger's file."""
        return self.ledger.path if isinstance(self.ledger, Ledger) else self.ledger

    def check_apart(self, folder: Path, *files: Path) -> None:
        """Check that the ledger and the key file have no other use, and are not in the release's folder.

        Args:
            folder: The release's folder.
            files: The other files read or written by the command.

        Raises:
            UsageError: Either file lies in the release's folder, or is one of ``files``.
        """
        for option, path in (("--ledger", self.path), ("--hash-subjects", self.key)):
            if path is not None:
                check_apart(option, path, folder, *files)

    @contextmanager
    def open_ledger(self, progress: Progress | None = None) -> Iterator[Ledger]:
        """Yield the ledger, opening and checking it first if only its path was given.

        Args:
            progress: A function to call with the number of entries checked so far.

        Raises:
            DoesNotHoldError: An entry was changed after it was written.
            InputError, UsageError, StoppedError: The ledger cannot be opened (see :class:`Ledger`).
        """
        if isinstance(self.ledger, Ledger):
            yield self.ledger
            return
        with Ledger(self.ledger, key=self.key) as ledger:
            # Nothing may be charged to a ledger that was changed. Only entries since the last check are checked, so
            # that nightly runs do not become slower over a long period.
            ledger.check(full=False, progress=progress)
            yield ledger

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
        """Durably charge the subject for a release whose noise is about to be drawn.

        Args:
            privacy: The privacy constraint, which provides the release's guarantee and neighbouring relation.
            declared: The problem, which names its secret files.
            release: The class of the release. Classes of releases whose reports are drawn later, such as matrices, are
                rejected.
            seeded: Whether the noise is drawn with a seed, in which case it cannot be charged.
            mechanism: The SHA-256 of the problem file, which is public.
            purpose: The purpose of the charge, in words.
            progress: A function to call with the number of entries checked so far.

        Returns:
            A sentence describing the charge, to be shown if the run subsequently fails.

        Raises:
            UsageError: The noise is drawn with a seed or only later, a ledger cannot account for this kind of
                guarantee, or no subject is given although one is required.
            BudgetSpentError: The subject's remaining budget is too small. Nothing was charged.
            DoesNotHoldError: The ledger was changed.
            InputError: The file is not a ledger, or its charges are in a different unit.
        """
        mark = "a seed, and no epsilon covers what it draws" if seeded else None
        cost = cost_of_draw(privacy.guarantee, privacy.relation, mechanism, purpose, mark=mark)
        # A string is the reason why no ledger can count the cost.
        if isinstance(cost, str):
            raise UsageError(f"--ledger must be used with a method whose noise can be charged, got {cost}")
        # If a release class defines `sample`, it draws no noise now. Each of its later reports is charged separately.
        if release.sample is not Release.sample:
            actual = f"{privacy.guarantee.kind}, whose reports are drawn later"
            raise UsageError(
                f"--ledger must be used with a method that draws noise now, got {actual}: apply charges those"
            )
        # If there is one secret file, its name can stand for the data set. If there are several or none, there is no
        # natural name.
        secret_files = list(dict.fromkeys(file.name for file in files_of(declared) if file.secret))
        if self.subject is None and len(secret_files) != 1:
            actual = f"{len(secret_files)} secret files" + (f" ({', '.join(secret_files[:5])})" if secret_files else "")
            raise UsageError(
                f"--ledger must be used with --subject ID, got {actual}: one's name would be the subject's"
            )
        subject = secret_files[0] if self.subject is None else self.subject
        with self.open_ledger(progress) as ledger:
            ledger.charge(subject, cost, alone=self.subject is None)
            label = ledger.label_of(subject)
        return f"{self.path}: subject {label} was charged {sum_text(cost.amount)} all the same"

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
        """Durably charge the subject for as many draws as the limit allows, and then draw them.

        The secret is read only after the charge, so the number of charged draws does not depend on it.

        Args:
            draw: A function that takes a count and returns that many reports about the secret, in blocks. It draws the
                first block immediately.
            count: The number of draws to make.
            folder, result: The release's folder and the contents of its result.json.
            relation: The neighbouring relation to which a draw's cost refers (:attr:`PrivacyConstraint.relation`).
            progress: A function to call with the name of each step.

        Raises:
            BudgetSpentError: The limit allows no draws. Nothing was charged.
            UsageError: The subject has no valid name, the release has no guarantee, or the secret is unknown. For an
                unknown secret, the message states what was charged.
            InputError: The file is not a ledger, or its charges are in a different unit.
            DoesNotHoldError: The ledger was changed.
        """
        subject = self.subject or ""
        subject_name(subject)  # a missing or invalid name raises an error before a ledger's file is created
        cost = cost_of(folder, result, relation, "sample")
        with self.open_ledger(progress) as ledger:
            if progress is not None:
                progress("charging", 0, None, None)
            granted = ledger.charge_times(subject, count, cost)
            if not granted:
                raise ledger.refusal(subject, cost)
            label = ledger.label_of(subject)
            remaining, limit = ledger.account(subject, unit=cost.account).left_text, ledger.limit_of(cost.account)
        # A charge for an unknown secret stays. If it were refunded, the ledger would reveal that the secret is unknown.
        try:
            reports = draw(granted)
        except UsageError as error:
            raise UsageError(f"{error}; charged all the same: {number_of(granted, 'draw')}") from error
        refused = None
        if granted < count and remaining is not None:
            refused = (
                f"{count - granted:,} of {count:,} draws refused: budget spent: subject {label} has "
                f"{remaining} left, each takes {sum_text(cost.amount)}"
            )
        return DrawnReports(reports=reports, refused=refused, sequence=sequence_of(cost, limit, "draw"))
