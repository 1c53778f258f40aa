"""The measurement of a release: its guarantee, certificate and loss, computed from the problem and the release alone.

``solve`` writes the measurement to result.json, and ``verify`` repeats it and compares the results. Both commands call
the same function, so they cannot disagree about how a value is computed. Within a :func:`remembering` block, slow parts
of a measurement can cache their results under a hash of their input to avoid computing them twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.errors import StoppedError
from privopt.interfaces import Certificate, Guarantee, Mechanism, PrivacyConstraint, Release, UtilityLoss
from privopt.interfaces.abilities import notion_of
from privopt.registry import Registered

__all__ = ["Measurement", "content_key", "facts", "measure_release", "remembering"]

P = TypeVar("P")
R = TypeVar("R", bound=Release)
_FACTS: ContextVar[dict[bytes, Any] | None] = ContextVar("_FACTS", default=None)


@frozen(kw_only=True, eq=False)
class Measurement:
    """The quantities that can be computed from a problem and a release alone.

    Attributes:
        guarantee: The guarantee claimed by the mechanism.
        registered_kind: The only kind of guarantee that the method may claim. It is the one that the mechanism chooses
            for the problem (:class:`privopt.interfaces.abilities.ChoosesNotion`) or, if it chooses none, the one in its
            spec.
        certificate: The certificate issued by the mechanism's privacy constraint.
        utility: The mechanism's utility loss, which was used to evaluate the release.
        value: The release's loss, or None if it has no loss or the loss could not be evaluated.
        value_unit: The unit to which the loss is rounded, so that programs with different rounding errors report the
            same loss. If None, the loss is not rounded.
        value_error: The error that prevented the loss from being evaluated, or None.
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
    """Measure a release with the mechanism's own privacy constraint and utility loss.

    Args:
        registered: The mechanism as registered by its plugin.
        mechanism: The mechanism itself.
        problem: The problem for which the release was made.
        release: The release.
        method: The name of the method that computed the release.
        value_unit: The unit to which the loss is rounded, as recorded in an existing result. If None, a unit is chosen.

    Raises:
        RegistryError: The mechanism returned an object of the wrong type.
        StoppedError: The time limit was reached.
        PrivoptError: The release's privacy cannot be measured.
    """
    # The utility comes first, because the distances computed for its costs are reused for the privacy constraint.
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
    except Exception as error:
        # verify also measures releases that solve did not write, with which the utility may raise any error.
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


@contextmanager
def remembering() -> Iterator[None]:
    """Provide an empty cache for measurements made within a ``with`` block.

    A run measures its release twice, the second time after reading back the written files. Parts of the measurement
    that use the cache (:func:`facts`) are computed again only if their input has changed.
    """
    token = _FACTS.set({})
    try:
        yield
    finally:
        _FACTS.reset(token)


def facts() -> dict[bytes, Any] | None:
    """Return the cache, which maps content keys to measured results, or None outside a :func:`remembering` block."""
    return _FACTS.get()


def content_key(words: str, *arrays: NDArray[Any]) -> bytes:
    """Return a cache key: the SHA-256 digest of ``words`` and the arrays' bytes.

    ``words`` must say what was computed, and must include the arrays' shapes and types if these can vary.
    """
    digest = hashlib.sha256(words.encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.digest()
