"""The release class of mechanisms that publish a law: the probability distribution of reports for each secret.

The problems of these mechanisms contain no secrets. A release states one rational number, which determines the law, and
each holder of a secret draws reports from the law.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Self

from attrs import frozen

from privopt.arrays import Floats
from privopt.declare import key
from privopt.errors import Fault, InputError, UnknownNameError
from privopt.interfaces import Channel, Release
from privopt.numbers.noise import stated_scale
from privopt_classics.exact import check_epsilon

MAX_ENTRIES: Final = 1 << 22
"""The largest number of probabilities in a channel. A law with more probabilities has no channel."""

_FILE: Final = "law.txt"


def check_names(names: tuple[str, ...]) -> str | None:
    """Return None if the texts can be names of answers or choices, and otherwise a description of valid names."""
    # Names are written to files, one per line. splitlines() also splits at "\r" and other characters that some programs
    # treat as the end of a line.
    is_plain = all(name.splitlines() == [name] == [name.strip()] for name in names)
    is_valid = is_plain and len(set(names)) == len(names) >= 2
    return None if is_valid else "two or more different names, each on one line, without spaces around them"


@frozen(kw_only=True)
class Privacy:
    """The ``[privacy]`` table of a problem file."""

    epsilon: Fraction = key(help="privacy budget", unit="per person", check=check_epsilon)


@frozen(kw_only=True)
class ReportLaw(Release):
    """The distribution of reports for each secret, given by a public problem and one rational number.

    Attributes:
        problem: The problem, which is public.
        parameter: For a local mechanism, the largest ratio r <= exp(epsilon) of two probabilities of a report. For
            noise on a number, the rate of the noise, at most epsilon.
    """

    problem: Any
    parameter: Fraction

    @property
    @abstractmethod
    def records(self) -> Sequence[str]:
        """The ids of the N possible secrets."""

    @abstractmethod
    def count_outputs(self) -> int:
        """Return the number K of possible reports."""

    @abstractmethod
    def outputs(self) -> Sequence[str]:
        """Return all possible reports. There may be too many to list: see :meth:`count_outputs`."""

    @abstractmethod
    def probabilities(self) -> Floats:
        """Return the (N, K) probabilities of each report for each secret, as doubles."""

    @abstractmethod
    def draw_reports(self, index: int, count: int) -> list[str]:
        """Draw ``count`` independent reports for the secret at ``index``, with exactly the law's probabilities."""

    @abstractmethod
    def expected_loss(self) -> float:
        """Return the expected loss in the mechanism's unit."""

    def sample(self, input_id: str, count: int) -> list[str]:
        """Draw ``count`` independent reports for a secret, using the operating system's entropy.

        Args:
            input_id: The id of the secret.
            count: The number of reports.

        Raises:
            UnknownNameError: No secret has this id. The message does not quote it, because it may be a secret.
        """
        if input_id not in self.records:
            raise UnknownNameError("secret", input_id, self.records, is_secret=True)
        return self.draw_reports(self.records.index(input_id), count)

    def channel(self) -> Channel | None:
        """Return the law as a channel for estimates, or None if it has more than :data:`MAX_ENTRIES` probabilities."""
        if len(self.records) * self.count_outputs() > MAX_ENTRIES:
            return None
        return Channel(inputs=self.records, outputs=self.outputs(), probabilities=self.probabilities())

    def write(self, folder: Path) -> None:
        """Write the rational number that determines the law to a file in the release folder."""
        (folder / _FILE).write_text(f"{self.parameter}\n", "utf-8")

    @classmethod
    def read(cls, folder: Path, problem: Any) -> Self:
        """Read the law for a public problem from a release folder.

        Raises:
            InputError: The file does not consist of one positive rational number.
        """
        text = (folder / _FILE).read_text("utf-8")
        try:
            return cls(problem=problem, parameter=stated_scale(text.removesuffix("\n")))
        except ValueError:
            raise InputError([Fault(_FILE, "", repr(text[:20]), "one positive rational number")]) from None
