"""Export charges to two other privacy accountants, OpenDP and Google's dp-accounting, if they are installed.

Both accountants support pure differential privacy. Neither can represent an epsilon per unit of distance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Any

from privopt.errors import UsageError
from privopt.interfaces.cost import Cost
from privopt.interfaces.notions import LocalDP, PureDP
from privopt.numbers.exp_log_bounds import float_up
from privopt.registry import registry

if TYPE_CHECKING:
    from opendp.mod import Measurement as Measurement
else:
    Measurement = Any

LARGEST_EPSILON = 700
"""The largest epsilon of a charge that can be exported to dp-accounting. exp(710) would overflow a double."""


def count_by_epsilon(costs: Iterable[Cost]) -> Mapping[Fraction, int]:
    """Return the number of charges at each epsilon.

    Args:
        costs: The costs of the charges, which must all be for pure or local differential privacy.

    Raises:
        UsageError: A charge is for a different privacy notion, or there are no charges.
    """
    counts: Counter[Fraction] = Counter()
    for cost in costs:
        # The class of the charge's privacy notion. A charge without a notion gets `object`, which the next test
        # rejects.
        kind = registry().kind("notion", cost.notion).load() if cost.notion else object
        if not issubclass(kind, PureDP | LocalDP):
            actual = f"charges of {cost.notion or 'no notion'}, {cost.unit}"
            raise UsageError(
                f"ledger: charges must be of differential privacy, which is all that other libraries count, "
                f"got {actual}"
            )
        assert cost.epsilon is not None  # costs of these notions have an epsilon
        counts[cost.epsilon] += 1
    if not counts:
        raise UsageError("ledger: the subject must have a charge to export, got none")
    return counts


def _import_module(name: str, distribution: str) -> Any:
    """Import the module of a privacy accountant.

    Args:
        name: The module's name.
        distribution: The package to install if the module is missing, named in the error message.

    Raises:
        UsageError: The module cannot be imported.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(f"{name} cannot be imported ({error}); install {distribution} to export to it") from None


def to_opendp(costs: Iterable[Cost]) -> Measurement:
    """Convert charges to a single OpenDP measurement whose ``map(1)`` equals their total epsilon.

    The result is a composition (``make_composition``) of one measurement per charge. Two data sets that differ in one
    individual are at distance 1. Invoking the measurement reveals nothing about its argument. Each epsilon is rounded
    up to a double.

    Raises:
        UsageError: A charge is for a notion other than pure or local differential privacy, there are no charges, or
            OpenDP is not installed.
    """
    opendp = _import_module("opendp.prelude", "opendp")
    # OpenDP requires these opt-ins for measurements that users define.
    opendp.enable_features("contrib", "honest-but-curious")

    def make_measurement(epsilon: float) -> Measurement:
        """Return a measurement that costs ``epsilon`` and returns 0 for every data set."""
        return opendp.m.make_user_measurement(
            opendp.atom_domain(T=bool),
            opendp.discrete_distance(),
            opendp.max_divergence(),
            function=lambda _: 0,
            privacy_map=lambda distance: distance * epsilon,
        )

    counts = count_by_epsilon(costs)
    return opendp.c.make_composition(
        [make_measurement(float_up(amount)) for amount, times in counts.items() for _ in range(times)]
    )


def to_dp_accounting(costs: Iterable[Cost]) -> object:
    """Convert charges to a single ``dp_accounting.ComposedDpEvent``.

    Each charge becomes a binary randomized response at the charge's epsilon, which dominates every mechanism with that
    epsilon (Kairouz, Oh, Viswanath, ICML 2015, Theorem 3.4). The event is intended for accountants that use the
    REPLACE_ONE neighbouring relation. The probability of a random answer is rounded down.

    Raises:
        UsageError: A charge is for a notion other than pure or local differential privacy, there are no charges, an
            epsilon exceeds 700, or dp-accounting is missing or too old to support these events.
    """
    events = _import_module("dp_accounting", "dp-accounting")
    counts = count_by_epsilon(costs)
    answers = getattr(events, "RandomizedResponseDpEvent", None)
    if answers is None:
        raise UsageError("dp_accounting must be dp-accounting 0.6 or later, got one without RandomizedResponseDpEvent")
    responses = []
    for epsilon, times in counts.items():
        if epsilon > LARGEST_EPSILON:
            raise UsageError(f"epsilon of a charge must be at most {LARGEST_EPSILON} for dp-accounting, got {epsilon}")
        # There is one event per charge, because PLDAccountant 0.6 counts a self-composed response only once.
        responses += [answers(noise_parameter=_noise_parameter(epsilon), num_buckets=2)] * times
    return events.ComposedDpEvent(responses)


def _noise_parameter(epsilon: Fraction) -> float:
    """Return the probability that randomized response gives a random answer, 2 / (1 + exp(epsilon)), rounded down."""
    # Less noise means a larger privacy loss, so rounding down is safe. The last factor covers the error of exp.
    return 2.0 / (1.0 + math.exp(float_up(epsilon))) * (1.0 - 2.0**-48)
