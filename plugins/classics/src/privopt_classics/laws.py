"""The release class for mechanisms that publish a law, i.e. the probability distribution of reports for each secret.

The problem files of these mechanisms contain no secrets. A release states one rational number, which together with the
problem determines the law. Reports are drawn from the law later, either by each person or by the data curator.
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
"""The maximum number of probabilities (secrets times reports) for which a law can be turned into a channel."""

_FILE: Final = "law.txt"


def check_names(names: tuple[str, ...]) -> str | None:
    """Return None if ``names`` are valid names of answers or choices, and a description of valid names otherwise."""
    # Names are written to files, one per line. splitlines() also splits at "\r" and other characters that some programs
    # treat as line ends.
    is_plain = all(name.splitlines() == [name] == [name.strip()] for name in names)
    is_valid = is_plain and len(set(names)) == len(names) >= 2
    return None if is_valid else "two or more different names, each on one line, without spaces around them"


@frozen(kw_only=True)
class Privacy:
    """The ``[privacy]`` table of a problem file, which sets the privacy budget per person."""

    epsilon: Fraction = key(help="privacy budget", unit="per person", check=check_epsilon)


@frozen(kw_only=True)
class ReportLaw(Release):
    """The distribution of reports for each secret, determined by a public problem and one rational number.

    Attributes:
        problem: The public problem.
        parameter: The rational number. For a local mechanism, it is the largest ratio r between a report's
            probabilities under two secrets, which is at most exp(epsilon). For a mechanism that adds noise to a number,
            it is the rate of the noise, which is at most epsilon.
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
        """Return all possible reports. There may be too many to list, so check :meth:`count_outputs` first."""

    @abstractmethod
    def probabilities(self) -> Floats:
        """Return an (N, K) array with the probability of each report (column) for each secret (row)."""

    @abstractmethod
    def draw_reports(self, index: int, count: int) -> list[str]:
        """Draw ``count`` independent reports for the secret at ``index``, with exactly the law's probabilities."""

    @abstractmethod
    def expected_loss(self) -> float:
        """Return the expected loss, in the unit given by the mechanism's ``loss_unit``."""

    def sample(self, input_id: str, count: int) -> list[str]:
        """Draw ``count`` independent reports for a secret, using the operating system's entropy.

        Args:
            input_id: The id of the secret.
            count: The number of reports.

        Raises:
            UnknownNameError: There is no secret with this id. The message does not repeat the id, which may itself be
                secret.
        """
        if input_id not in self.records:
            raise UnknownNameError("secret", input_id, self.records, is_secret=True)
        return self.draw_reports(self.records.index(input_id), count)

    def channel(self) -> Channel | None:
        """Return the law as a channel, or None if it has more than :data:`MAX_ENTRIES` probabilities."""
        if len(self.records) * self.count_outputs() > MAX_ENTRIES:
            return None
        return Channel(inputs=self.records, outputs=self.outputs(), probabilities=self.probabilities())

    def write(self, folder: Path) -> None:
        """Write ``parameter``, which determines the law, to the file law.txt in the release folder."""
        (folder / _FILE).write_text(f"{self.parameter}\n", "utf-8")

    @classmethod
    def read(cls, folder: Path, problem: Any) -> Self:
        """Read the law from the file law.txt in a release folder.

        Args:
            folder: The release folder.
            problem: The public problem, which determines the law together with the number in the file.

        Raises:
            InputError: The file does not consist of a single positive rational number.
        """
        text = (folder / _FILE).read_text("utf-8")
        try:
            return cls(problem=problem, parameter=stated_scale(text.removesuffix("\n")))
        except ValueError:
            raise InputError([Fault(_FILE, "", repr(text[:20]), "one positive rational number")]) from None
