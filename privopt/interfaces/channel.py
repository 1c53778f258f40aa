"""The channel of a release: the probabilities of its reports, on which estimates rely."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import field, frozen

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError


@frozen(kw_only=True, eq=False)
class Channel:
    """Each report is drawn from the row of its secret, independently of all others.

    A frequency oracle that answers with one of finitely many outputs has one, and ``privopt estimate`` needs no more::

        def channel(self):
            return Channel(inputs=self.answers, outputs=self.answers, probabilities=self.matrix)

    Attributes:
        inputs: (N,) ids of the secrets.
        outputs: (K,) ids of the reports.
        probabilities: (N, K), rows summing to 1.
        prior: (N,) the problem's own probabilities of the secrets; None where it has none.
        distances: of (M,) places in ``inputs``: their (M, N) distances to all inputs; None where there are none.
        unit: of ``distances``.
        coordinates: (N, 2) of the secrets on a map, latitude and longitude or x and y; None without a map.
        geographic: whether they are degrees.
        streets: (E, 2) numbers of secrets that a street joins, for maps; None without streets.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    probabilities: Floats = field()
    prior: Floats | None = None
    distances: Callable[[Ints], Floats] | None = None
    unit: str = ""
    coordinates: Floats | None = None
    geographic: bool = False
    streets: Ints | None = None

    def __attrs_post_init__(self) -> None:
        shape, wanted = self.probabilities.shape, (len(self.inputs), len(self.outputs))
        if shape != wanted:
            raise UsageError(f"channel: probabilities must be of shape {wanted}, inputs by outputs, got {shape}")
        if (self.probabilities < 0).any() or not (abs(self.probabilities.sum(axis=1) - 1.0) <= 1e-9).all():
            raise UsageError("channel: each row must be probabilities that sum to 1, got other rows")

    def paired(self, other: Channel) -> Channel:
        """Combine two independent reports of each person, one by each channel, as one: outputs are ``(first, second)``.

        Args:
            other: over the same inputs; its outputs vary fastest.
        """
        if list(self.inputs) != list(other.inputs):
            raise UsageError("channel: inputs must be those of the first channel, in its order, got others")
        both = self.probabilities[:, :, None] * other.probabilities[:, None, :]
        return Channel(
            inputs=self.inputs,
            outputs=[f"({first}, {second})" for first in self.outputs for second in other.outputs],
            probabilities=both.reshape(len(self.inputs), -1),
        )


@frozen(kw_only=True, eq=False)
class NoisyCounts:
    """Noisy counts: each input publishes how many people are there, with noise of its own.

    Attributes:
        inputs: (N,) ids of what is counted at.
        reach: of a probability a in (0, 1): a number that one noise exceeds in size with probability at most a.
    """

    inputs: Sequence[str]
    reach: Callable[[float], float]
