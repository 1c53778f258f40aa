"""The channel of a release: the probability of each report given each secret. Estimators invert it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import field, frozen

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError


# Compared by identity (eq=False), because comparing arrays does not give a single truth value.
@frozen(kw_only=True, eq=False)
class Channel:
    """The probability of each report given each secret, for a release whose reports are drawn independently.

    ``privopt estimate`` needs nothing else from a release. For example, a frequency oracle with finitely many outputs
    can provide its channel as follows::

        def channel(self):
            return Channel(inputs=self.answers, outputs=self.answers, probabilities=self.matrix)

    Attributes:
        inputs: (N,) ids of the secrets.
        outputs: (K,) ids of the reports.
        probabilities: (N, K) probabilities, with rows summing to 1.
        prior: (N,) probabilities of the secrets in the problem, or None if it has no prior.
        distances: A function that takes (M,) indices of inputs and returns their (M, N) distances to all inputs. It is
            None if the problem has no distances.
        unit: The unit of ``distances``.
        coordinates: (N, 2) positions of the secrets on a map, as (latitude, longitude) or (x, y), or None if they
            have no positions.
        coordinate_unit: The unit of x and y.
        geographic: Whether the coordinates are degrees.
        streets: (E, 2) indices of the two inputs joined by each street, for maps, or None if there are no streets.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    probabilities: Floats = field()
    prior: Floats | None = None
    distances: Callable[[Ints], Floats] | None = None
    unit: str = ""
    coordinates: Floats | None = None
    coordinate_unit: str = "km"
    geographic: bool = False
    streets: Ints | None = None

    def __attrs_post_init__(self) -> None:
        """Check that the probabilities have the right shape and that each row is a probability distribution.

        Raises:
            UsageError: The shape of the probabilities does not match the ids, or a row is not a probability
                distribution.
        """
        shape, expected_shape = self.probabilities.shape, (len(self.inputs), len(self.outputs))
        if shape != expected_shape:
            raise UsageError(
                f"channel: probabilities must be of shape {expected_shape}, inputs by outputs, got {shape}"
            )
        # Double precision is enough for estimates. NaN is rejected too, because NaN <= 1e-9 is false.
        if (self.probabilities < 0).any() or not (abs(self.probabilities.sum(axis=1) - 1.0) <= 1e-9).all():
            raise UsageError("channel: each row must be probabilities that sum to 1, got other rows")

    def pair_with(self, other: Channel) -> Channel:
        """Return the channel of two independent reports, one from each of two channels.

        The outputs of the combined channel are named ``(first, second)``. It has no prior, distances or map.

        Args:
            other: A channel over the same inputs. Its outputs vary fastest in the combined channel.

        Raises:
            UsageError: The two channels have different inputs.
        """
        if list(self.inputs) != list(other.inputs):
            raise UsageError("channel: inputs must be those of the first channel, in its order, got others")
        # Given the secret, the two reports are independent, so their joint probabilities are products.
        joint_probabilities = self.probabilities[:, :, None] * other.probabilities[:, None, :]
        return Channel(
            inputs=self.inputs,
            outputs=[f"({first}, {second})" for first in self.outputs for second in other.outputs],
            probabilities=joint_probabilities.reshape(len(self.inputs), -1),
        )


@frozen(kw_only=True, eq=False)
class NoisyCounts:
    """A release of noisy counts: for each place, the number of people there plus independent noise.

    Attributes:
        inputs: (N,) ids of the places where people are counted.
        reach: A function that takes a probability a in (0, 1) and returns the half width of a confidence interval at
            level 1 - a. The absolute value of the noise in a single count exceeds the half width with probability at
            most a.
    """

    inputs: Sequence[str]
    reach: Callable[[float], float]
