"""What charges a subject before anything is drawn: ``privopt-ledger`` brings it (:func:`privopt.registry.brought`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from attrs import AttrsInstance, frozen

from privopt.interfaces.privacy import PrivacyConstraint
from privopt.interfaces.release import Release
from privopt.interfaces.result import Result
from privopt.interfaces.solving import Progress


@frozen(kw_only=True)
class DrawnReports:
    """What is drawn, and was charged.

    Attributes:
        reports: ids of outputs, a block at a time, drawn as they are asked for.
        refused: how many draws the limit did not allow, in words; None where it allowed all.
        sequence: what holds of all reports of the subject.
    """

    reports: Iterator[list[str]]
    refused: str | None
    sequence: str


class Charge(ABC):
    """A ledger, and whom to charge in it before anything is drawn."""

    @classmethod
    @abstractmethod
    def of_options(
        cls, command: str, ledger: Path | None, subject: str | None, key: Path | None, *, whom: str, because: str
    ) -> Self | None:
        """Return the charge that a command was asked for; None for nothing.

        Args:
            command: its name.
            ledger, subject, key: its options.
            whom: the value of ``--subject``, for messages.
            because: why the one option needs the other.

        Raises:
            UsageError: one option without the other that it needs.
        """

    @property
    @abstractmethod
    def path(self) -> Path:
        """The ledger's file."""

    @abstractmethod
    def check_apart(self, folder: Path, *files: Path) -> None:
        """Refuse a ledger or a key in the release's folder, or under the name of a file of the command.

        Raises:
            UsageError: it is there.
        """

    @abstractmethod
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
            release: what will be published: one result, or what later draws come from.
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

    @abstractmethod
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
        """Charge draws to the subject, durably, and then draw.

        All are charged, or as many as the limit allows; which is not a function of the secret, for that is not looked
        at before.

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
            InputError, DoesNotHoldError: a ledger that will not do.
        """
