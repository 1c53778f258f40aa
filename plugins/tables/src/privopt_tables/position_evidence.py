"""Weigh the evidence that a column's cells contain their rows' secrets, using a method called "testing by betting".

A column is dropped because of accumulated evidence, not because of a single match. A bet is placed on each row whose
cell could contain the row's secret, for example if a number is within half a degree of a coordinate. Let c be the
probability that this cell matches the secret by chance. It is estimated from the number's digits, and from how often
the cell matches the secrets of other rows. If a fraction f of the stake is bet on each such row, the stake is
multiplied by 1 - f + f * (match / c), where match is 1 or 0. In an unrelated column, the expectation of this factor is
at most 1. By Markov's inequality, the probability that the product over all rows of the table reaches
:data:`MIN_EVIDENCE` is therefore at most 1 / MIN_EVIDENCE. Several fractions f are tried. Small ones detect secrets
that appear in only a few rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from attrs import define, field

from privopt.arrays import Bools, Floats

__all__ = ["BETS", "MAX_MATCHES", "Evidence", "conclusive_evidence", "weigh_rows"]

MAX_MATCHES: Final = 1_000
"""Maximum number of matches weighed per part of a table. If there are more, evenly spaced rows are used."""

MIN_EVIDENCE: Final = 1e4
"""Minimum mean stake for a column to be considered to contain the secret."""

BETS: Final = np.array([1e-6, 1e-5, 1e-4, 1e-3, 0.005, 0.02, 0.1, 0.3, 0.9])
"""The fractions f of the stake that are bet on each row. Each fraction has its own stake, and the decision depends on
the mean of these stakes."""

MIN_CHANCE: Final = 1e-9
"""Lower limit on the assumed probability of a chance match. It limits how much evidence a single row provides."""


@define
class Evidence:
    """The evidence that a column contains the secret in a certain form.

    It is collected by a betting scheme. The more often the rows' cells match the secret, and the less likely these
    matches are by chance, the higher the stakes become.

    Attributes:
        logs: The logarithms of the stakes, with one stake for each fraction in :data:`BETS`. Each stake starts at 1 and
            is multiplied by a factor for each row that is bet on.
        matches: The number of rows that contain the secret, which may be extrapolated from a sample.
        searched: The number of rows that were searched.
    """

    logs: Floats = field(factory=lambda: np.zeros(len(BETS)))
    matches: float = 0.0
    searched: float = 0.0

    def add(self, other: Evidence) -> None:
        """Add evidence from other rows for the same column and form, by multiplying the stakes."""
        self.logs = self.logs + other.logs
        self.matches += other.matches
        self.searched += other.searched

    @property
    def is_enough(self) -> bool:
        """Whether the mean of the stakes is at least `MIN_EVIDENCE`, which is very unlikely to happen by chance."""
        return bool(np.logaddexp.reduce(self.logs) - np.log(len(BETS)) >= np.log(MIN_EVIDENCE))


def weigh_rows(near: Bools, matched: Bools, chances: Floats, scale: float) -> Evidence:
    """Compute the evidence provided by C rows of a table.

    Args:
        near: (C,) Whether the cell of each row could contain the secret. Only such rows are used.
        matched: (C,) Whether the cell of each row contains the secret.
        chances: (C,) The probability that the cell of each row matches the secret by chance if the column is unrelated
            to the secret.
        scale: The number of table rows that each of these rows represents. It affects only the number of matches.
    """
    count = int(matched.sum())
    rows = np.flatnonzero(near)
    if count > MAX_MATCHES:
        # More matches than this are conclusive anyway, and the array below has an entry for each. Every n-th row is
        # kept, whether it matches or not, so the evidence becomes weaker but not biased. -(-a // b) is a / b rounded
        # up.
        rows = rows[:: -(-count // MAX_MATCHES)]
    is_match = matched[rows]
    # A bet f multiplies the stake by 1 - f without a match, and by 1 + f * (1 / c - 1) with a match. For each bet, the
    # logarithms of these factors are summed over all rows.
    odds = 1.0 / np.clip(chances[rows[is_match]], MIN_CHANCE, 1.0) - 1.0
    logs = (len(rows) - len(odds)) * np.log1p(-BETS) + np.log1p(BETS * odds[:, None]).sum(axis=0)
    return Evidence(logs, count * scale)


def conclusive_evidence(matches: int, searched: int) -> Evidence:
    """Return evidence that is conclusive on its own, for cells whose pattern alone shows that they contain positions.

    Args:
        matches: The number of cells with this pattern.
        searched: The number of cells that were searched.
    """
    return Evidence(np.full(len(BETS), 2 * np.log(MIN_EVIDENCE)), float(matches), float(searched))
