"""Measure a release: what is claimed about it, what was measured, and its loss.

``solve`` states this measurement, and ``verify`` compares one of its own with what is stated.
"""

from __future__ import annotations

from typing import Any, TypeVar

from attrs import frozen

from privopt.errors import StoppedError
from privopt.interfaces import Certificate, Guarantee, Mechanism, PrivacyConstraint, Release, UtilityLoss
from privopt.interfaces.abilities import notion_of
from privopt.registry import Registered

__all__ = ["Measurement", "measure_release"]

P = TypeVar("P")
R = TypeVar("R", bound=Release)


@frozen(kw_only=True, eq=False)
class Measurement:
    """What follows from a problem and a release alone.

    Attributes:
        guarantee: What the mechanism claims.
        registered_kind: The kind of guarantee that the mechanism is registered for.
        certificate: What its privacy constraint measured.
        utility: The utility loss.
        value: The loss of the release; None if it has none or could not be evaluated.
        value_unit: The unit that the loss is rounded to; None if it is not rounded.
        value_error: Why the loss could not be evaluated; None if it could.
    """

    guarantee: Guarantee
    registered_kind: str
    certificate: Certificate
    utility: UtilityLoss[Any]
    value: float | None
    value_unit: float | None
    value_error: Exception | None


def measure_release(
    registered: Registered,
    mechanism: Mechanism[P, R],
    problem: P,
    release: R,
    method: str,
    *,
    value_unit: float | None = None,
) -> Measurement:
    """Measure a release by the mechanism's own privacy constraint and utility loss.

    Args:
        registered: The mechanism as its plugin registered it.
        mechanism: The mechanism itself.
        problem: The problem that the release is for.
        release: The release.
        method: The method that made it.
        value_unit: The unit that a result states for the loss; None to choose one.

    Raises:
        RegistryError: The mechanism returns an object of another type than its interface requires.
        StoppedError: A time limit came first.
        PrivoptError: The privacy cannot be measured.
    """
    # Costs come first, because the distances that they need also serve the required pairs.
    utility = mechanism.utility(problem, method)
    registered.expect("utility", utility, UtilityLoss)
    privacy = mechanism.privacy(problem, method)
    registered.expect("privacy", privacy, PrivacyConstraint)
    guarantee = privacy.guarantee
    registered.expect("privacy().guarantee", guarantee, Guarantee)
    certificate = privacy.measure(release)
    registered.expect("privacy().measure", certificate, Certificate)
    value: float | None = None
    value_error: Exception | None = None
    try:
        if value_unit is None:
            value, value_unit = utility.state(release)
        else:
            value = utility.restate(release, value_unit)
    except StoppedError:
        raise
    except Exception as error:  # a release that solve did not write may fail in any way
        value_error = error
    return Measurement(
        guarantee=guarantee,
        registered_kind=notion_of(mechanism, problem, method) or registered.spec.kind_of(registered.method(method)),
        certificate=certificate,
        utility=utility,
        value=value,
        value_unit=value_unit,
        value_error=value_error,
    )
