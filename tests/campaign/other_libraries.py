"""Mechanisms of other libraries as the judge takes them, with the claims that they state themselves.

Written against diffprivlib 0.6.6, opendp 0.16.0, multi-freq-ldpy 0.2.5, privkit 0.5.1, qif 1.6.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from importlib.metadata import version
from typing import Any

import numpy as np
from attrs import Factory, field, frozen
from numpy.typing import NDArray

from privopt.errors import UsageError
from privopt.numbers.distances import cosine_of_latitude, great_circle
from privopt.numbers.gaussian import epsilon_of
from privopt.testing.judging import Verdict, judge
from privopt.testing.judging.inputs import Inputs
from privopt_metric_dp.matrix.least_epsilon import LeastEpsilon, least_epsilon


@frozen(kw_only=True)
class Claimed:
    """A mechanism from elsewhere, with what it claims.

    Attributes:
        name: in words.
        library: its distribution.
        version: that is installed.
        mechanism: of one input.
        notion, epsilon, delta, distance: the claim, as :func:`privopt.testing.judge` takes it.
    """

    name: str
    library: str
    version: str = field(init=False, default=Factory(lambda self: version(self.library), takes_self=True))
    mechanism: Callable[..., Any] = field(repr=False)
    notion: str = "pure-dp"
    epsilon: float
    delta: float = 0.0
    distance: Callable[[Any, Any], float] | None = field(default=None, repr=False)

    def judge(
        self, inputs: Inputs, neighbours: Callable[[Any], Any] | None = None, **options: float | int | None
    ) -> Verdict:
        """Judge it: see :func:`privopt.testing.judge`, whose further options these are."""
        claim = {"epsilon": self.epsilon, "delta": self.delta, "distance": self.distance}
        return judge(self.mechanism, inputs, neighbours, self.notion, **{**claim, **options})  # type: ignore[arg-type]


def diffprivlib(mechanism: Any) -> Claimed:
    """Return a mechanism of diffprivlib (``diffprivlib.mechanisms``), with the epsilon and delta that it was made with.

    Args:
        mechanism: has ``randomise``, ``epsilon`` and ``delta``.
    """
    return Claimed(
        name=type(mechanism).__name__,
        library="diffprivlib",
        mechanism=mechanism.randomise,
        epsilon=float(mechanism.epsilon),
        delta=float(mechanism.delta),
    )


def opendp(measurement: Any, d_in: float = 1, *, delta: float = 0.01, name: str = "measurement") -> Claimed:
    """Return a measurement of OpenDP, with what its privacy map says of inputs at a distance.

    Args:
        measurement: callable, with ``map`` and ``output_measure``: MaxDivergence, Approximate(MaxDivergence) or
            ZeroConcentratedDivergence.
        d_in: distance of neighbours, in the measurement's input metric.
        delta: at which a claim of concentrated DP (rho) is judged, by the least epsilon that rho implies there.
        name: for reports.
    """
    measure, loss = str(measurement.output_measure), measurement.map(d_in)
    if measure == "Approximate(MaxDivergence)" and isinstance(loss, tuple):
        epsilon, delta = map(float, loss)
    elif measure == "MaxDivergence" and not isinstance(loss, tuple):
        epsilon, delta = float(loss), 0.0
    elif measure == "ZeroConcentratedDivergence" and not isinstance(loss, tuple):
        epsilon = float(epsilon_of(Fraction(float(loss)), Fraction(str(delta))))
    else:
        raise UsageError(
            f"opendp: expected a claim on MaxDivergence or ZeroConcentratedDivergence, got one on {measure}"
        )
    return Claimed(
        name=name,
        library="opendp",
        mechanism=measurement,
        epsilon=epsilon,
        delta=delta,
    )


def multi_freq_ldpy(client: Callable[..., object], k: int, epsilon: float, **options: bool | int) -> Claimed:
    """Return a client of multi-freq-ldpy's pure frequency oracles: inputs 0 to k - 1, any two are neighbours.

    Args:
        client: ``GRR_Client``, ``UE_Client``, ``LH_Client``, ``SS_Client``, ``HE_Client``.
        k: values.
        epsilon: handed to it, and claimed.
        options: further arguments of the client, by name or as its position is.
    """
    further = tuple(options.values())
    return Claimed(
        name=str(getattr(client, "__name__", client)),
        library="multi-freq-ldpy",
        mechanism=lambda value: client(value, k, epsilon, *further),
        notion="local-dp",
        epsilon=epsilon,
    )


def privkit(mechanism: Any, epsilon: float | None = None) -> Claimed:
    """Return a location mechanism of privkit: inputs are (latitude, longitude) in degrees; epsilon is per metre.

    Args:
        mechanism: has ``get_obfuscated_point``, of which latitude and longitude are taken.
        epsilon: claimed, where it is not the mechanism's own.
    """
    return Claimed(
        name=type(mechanism).__name__,
        library="privkit",
        mechanism=lambda position: tuple(mechanism.get_obfuscated_point(*position)[:2]),
        notion="metric-dp",
        epsilon=float(mechanism.epsilon if epsilon is None else epsilon),
        distance=_metres,
    )


def _metres(start: Sequence[float], end: Sequence[float]) -> float:
    """How far two places in degrees lie apart, on a sphere of 6371 km."""
    cosines = cosine_of_latitude(np.array([start[0], end[0]]))
    places = [np.array([x]) for x in (start[0], start[1], cosines[0], end[0], end[1], cosines[1])]
    return 1000.0 * float(great_circle(*places)[0])


def least_of(channel: NDArray[np.float64], distance: Callable[[int, int], float], epsilon: float) -> LeastEpsilon:
    """Return the least epsilon that a channel matrix keeps, exactly: for libqif (``qif``) and all that make matrices.

    Args:
        channel: (N, K) probabilities; rows over their exact sums are meant.
        distance: of two rows by number, above 0.
        epsilon: claimed.
    """
    z = np.ascontiguousarray(channel, dtype=np.float64)
    pairs = np.array([(i, j) for i in range(len(z)) for j in range(i + 1, len(z))], dtype=np.int64).reshape(-1, 2)
    distances = np.array([distance(i, j) for i, j in pairs.tolist()], dtype=np.float64)
    return least_epsilon(z, pairs, distances, Fraction(epsilon))
