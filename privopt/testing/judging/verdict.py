"""The verdict of a statistical test of a privacy claim."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import asdict, field, frozen

from privopt.errors import number_of


@frozen(kw_only=True)
class Verdict:
    """What was claimed, what was shown, and what would have been seen.

    Attributes:
        notion: registered name of what is claimed.
        claimed: its epsilon.
        delta: of the claim.
        epsilon_lower: no epsilon below it is kept (at this delta); 0 where nothing was shown.
        confidence: with which that holds, over all that was tested.
        violated: whether it is above what is claimed.
        pair: inputs where it was shown, the likelier first, in words; None where nothing was.
        event: of their outputs, in words.
        counts: (hits, draws) from each of them.
        power: the least factor of the claim that the draws would have shown, nine times in ten, at the likeliest event
            of the longest test; None where even a hundredfold breach would not have been (few draws, a rare event).
        by_event: the same for events by how likely they are.
        rarest: an output at least so likely under one input, and impossible under the other, would have been seen.
        uncompared: greatest share of outputs of a pair that came once and have no numbers to go by.
        draws: calls of the mechanism.
        pairs: of inputs that were tried.
        seconds: that it took.
        stopped: why it ended before the draws that were asked for; empty where it did not.
        seed: of the judge's own choices.
    """

    notion: str
    claimed: float
    delta: float = 0.0
    epsilon_lower: float = 0.0
    confidence: float
    violated: bool = False
    pair: tuple[str, str] | None = None
    event: str = ""
    counts: tuple[tuple[int, int], tuple[int, int]] | None = None
    power: float | None = None
    by_event: Mapping[str, float | None] = field(factory=dict)
    rarest: float = 1.0
    uncompared: float = 0.0
    draws: int
    pairs: int
    seconds: float
    stopped: str = ""
    seed: int

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as a JSON object."""
        return asdict(self)

    @property
    def claim(self) -> str:
        """What was claimed, in a few words."""
        delta = f", delta {self.delta:g}" if self.delta else ""
        return f"{self.notion}, epsilon {self.claimed:g}{delta}"

    def __str__(self) -> str:
        sure = f"{100 * self.confidence:g} %"
        if self.violated:
            assert self.pair is not None  # where it was shown
            lines = [f"does not hold: {self.claim}; epsilon is at least {self.epsilon_lower:.4g} (confidence {sure})"]
            lines.append(f"shown by {self.pair[0]} against {self.pair[1]}: {self.event}{self._shares()}")
        else:
            lines = [f"nothing found against {self.claim}; epsilon is at least {self.epsilon_lower:.4g} ({sure})"]
            if self.uncompared >= 0.9:
                lines.append("outputs are nearly all different and were not compared")
            elif self.uncompared >= 0.1:
                lines.append(f"{100 * self.uncompared:.0f} % of the outputs came but once and were not compared")
            if self.uncompared < 0.9 and self.power is not None:
                least = math.ceil(100 * self.power) / 100
                lines.append(f"would have seen {least:g} epsilon or more at the likeliest event tested")
            if self.uncompared < 0.9 and self.rarest < 1:
                lines.append(
                    f"would have seen an output of probability {self.rarest:.2g} that another input never gives"
                )
        pairs = number_of(self.pairs, "pair")
        lines.append(f"{self.draws:,} draws, {pairs} of inputs, {self.seconds:.1f} s, seed {self.seed}")
        return "\n".join([*lines, *([f"stopped: {self.stopped}"] if self.stopped else [])])

    def _shares(self) -> str:
        if self.counts is None:
            return ""
        return " (" + " against ".join(f"{hits:,} of {draws:,}" for hits, draws in self.counts) + ")"
