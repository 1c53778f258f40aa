"""The verdict on a privacy claim after a statistical test, as an object, JSON or text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import asdict, field, frozen

from privopt.errors import number_of


@frozen(kw_only=True)
class Verdict:
    """The result of a statistical test: the claim, the evidence found against it, and the power of the tests.

    Attributes:
        notion: The registered name of the claimed notion.
        claimed: The claimed epsilon.
        delta: The claimed delta.
        epsilon_lower: A lower bound on the mechanism's true epsilon at this delta, or 0 if the draws imply no positive
            bound.
        confidence: The confidence level of that bound, across all tests.
        violated: Whether the bound exceeds the claim.
        pair: The representations of the two inputs that demonstrate the bound, starting with the input under which the
            event is more likely, or None if there is no positive bound.
        event: A description of the event (a set of outputs) that demonstrates the bound.
        counts: For each input of the pair, the number of draws in the event and the total number of draws, or None if
            there is no positive bound.
        power: The smallest multiple of the claimed epsilon that would have been detected with probability 0.9, for the
            most likely event among the tests with the most draws. None if not even a multiple of 100 would have been
            detected, because there were few draws or the event was rare.
        by_event: The same multiple as in ``power``, for events of other probabilities. The keys are these probabilities
            as strings.
        rarest: The smallest probability at which an output that only one input can produce would have been detected.
        uncompared: The largest share, across all pairs, of outputs that occurred only once and contain no numbers or an
            unusual count of numbers.
        draws: The number of outputs drawn from the mechanism.
        pairs: The number of pairs of inputs examined.
        seconds: The duration of the test in seconds.
        stopped: The reason why the test ended before all draws were used, or "" if it did not.
        seed: The seed for the judge's choices.
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
        """Return the attributes as a dictionary that can be written as JSON."""
        return asdict(self)

    @property
    def claim(self) -> str:
        """A short description of the claim."""
        delta = f", delta {self.delta:g}" if self.delta else ""
        return f"{self.notion}, epsilon {self.claimed:g}{delta}"

    def __str__(self) -> str:
        """Return a few lines with the finding, what would have been detected, and the number of draws."""
        confidence_text = f"{100 * self.confidence:g} %"
        if self.violated:
            assert self.pair is not None  # a violation always has a pair of inputs
            lines = [
                f"does not hold: {self.claim}; epsilon is at least {self.epsilon_lower:.4g} "
                f"(confidence {confidence_text})"
            ]
            lines.append(f"shown by {self.pair[0]} against {self.pair[1]}: {self.event}{self._format_counts()}")
        else:
            lines = [
                f"nothing found against {self.claim}; epsilon is at least {self.epsilon_lower:.4g} ({confidence_text})"
            ]
            if self.uncompared >= 0.9:
                lines.append("outputs are nearly all different and were not compared")
            elif self.uncompared >= 0.1:
                lines.append(f"{100 * self.uncompared:.0f} % of the outputs occurred only once and were not compared")
            if self.uncompared < 0.9 and self.power is not None:
                # Round up, so that the text never claims more power than the test had.
                min_factor = math.ceil(100 * self.power) / 100
                lines.append(f"would have seen {min_factor:g} epsilon or more at the likeliest event tested")
            if self.uncompared < 0.9 and self.rarest < 1:
                lines.append(
                    f"would have seen an output of probability {self.rarest:.2g} that another input never gives"
                )
        pairs = number_of(self.pairs, "pair")
        lines.append(f"{self.draws:,} draws, {pairs} of inputs, {self.seconds:.1f} s, seed {self.seed}")
        return "\n".join([*lines, *([f"stopped: {self.stopped}"] if self.stopped else [])])

    def _format_counts(self) -> str:
        """Return how often the event occurred for each input, in parentheses, or "" if there are no counts."""
        if self.counts is None:
            return ""
        return " (" + " against ".join(f"{hits:,} of {draws:,}" for hits, draws in self.counts) + ")"
