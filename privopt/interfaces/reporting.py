"""A mechanism's view of a release: its part of the report, its figures, its map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from privopt.arrays import Figure
from privopt.interfaces.report_parts import Layer, Section
from privopt.interfaces.result import Result

P = TypeVar("P")
R = TypeVar("R")


class Reporting(Generic[P, R]):
    """Show a mechanism's releases: subclass it and name the class in :attr:`Mechanism.reporting`.

    It is imported when a report is asked for, and not before: what it draws with need not be loaded to solve. Each
    method may be omitted.
    """

    def report(self, problem: P, release: R, result: Result) -> Sequence[Section]:
        """Return the body of the report, from public data alone; the frame around it is the same for all mechanisms."""
        return ()

    def in_readers_unit(self, problem: P, result: Result, value: float) -> str:
        """Return a value or bound of the objective in the unit that the problem's readers count in; empty without."""
        return ""

    def report_check(self, release: R, result: Result, folder: Path) -> Section | None:
        """Return a section that carries the release and proves its claims in the reader's browser; None without one."""
        return None

    def report_truth(self, problem: P, release: R, result: Result, private: Path) -> Sequence[Section]:
        """Compare the release with the secrets in ``private``, in sections that are written there only."""
        return ()

    def figures(self, problem: P, release: R, result: Result) -> Mapping[str, Figure]:
        """Return the report's figures by file name, without ending."""
        return {}

    def geo(self, problem: P, release: R, result: Result) -> Layer | None:
        """Return the release as a map shows it, from public data only; None if it has no places."""
        return None
