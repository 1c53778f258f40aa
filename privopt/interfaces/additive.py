"""The certificate of additive noise: what the calls of a release spend, by the law of each, in exact rationals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, Literal, Protocol

from attrs import field, frozen

from privopt.errors import UsageError
from privopt.interfaces.claims import Certificate, Guarantee
from privopt.interfaces.gaussian import ZCDP, ApproxDP
from privopt.interfaces.notions import LocalDP, PureDP
from privopt.interfaces.privacy import PrivacyConstraint, Shift
from privopt.numbers.exp_log_bounds import float_up
from privopt.numbers.gaussian import delta_of

__all__ = ["AdditiveNoise", "NoiseCall", "ScaledNoiseRelease", "certify_noise"]

DRAWN: Final = "that the noise was drawn, freshly and at those scales"
_NOTIONS: Final[Mapping[str, type[PrivacyConstraint[Any]]]] = {
    notion.kind: notion for notion in (PureDP, LocalDP, ZCDP, ApproxDP)
}
_SUMS: Final = {
    "laplace": "sensitivity / scale",
    "gaussian": "squared L2 sensitivity / (2 variance)",
}


@frozen(kw_only=True)
class NoiseCall:
    """One call of noise that a release states.

    Attributes:
        scale: that it was drawn at, exact (:attr:`privopt.numbers.noise.NoiseRecord.scale`); a Gaussian's variance.
        sensitivity: greatest change between neighbours of the sum of absolute values; of the sum of squares under
            Gaussian noise.
        law: ``"laplace"`` (double geometric too) or ``"gaussian"``.
        share: of the budget, which this call alone may not exceed; None where there is none.
        name: in words, for failures: ``"level 2"``.
    """

    scale: Fraction
    sensitivity: Fraction | int = 1
    law: Literal["laplace", "gaussian"] = "laplace"
    share: Fraction | None = None
    name: str = "a call"


def certify_noise(
    guarantee: Guarantee,
    calls: Sequence[NoiseCall],
    *,
    failures: Sequence[str] = (),
    notes: Mapping[str, Any] | None = None,
    checked: int | None = None,
    rests_on: str = DRAWN,
) -> Certificate:
    """Measure what noise spends against a guarantee: calls add up, in exact rationals.

    >>> claimed = Guarantee(kind="pure-dp", epsilon=Fraction(1))
    >>> calls = [NoiseCall(scale=Fraction(3), sensitivity=2), NoiseCall(scale=Fraction(4), share=Fraction(1, 4))]
    >>> found = certify_noise(claimed, calls)
    >>> found.holds, found.worst <= 11 / 12 + 1e-15
    (True, True)

    Args:
        guarantee: what is claimed. Its kind is ``pure-dp``, ``local-dp``, ``zcdp`` or ``approx-dp``, whose exact
            ``rho_text`` and ``delta_text`` are in ``extra``.
        calls: of the noise, as the release states them.
        failures: what else does not hold, a line each: then the certificate does not either.
        notes: further fields of the certificate; scales and sensitivities are there anyway.
        checked: numbers that noise was added to; default: the calls.
        rests_on: what no one can check.

    Raises:
        UsageError: a call of another law than Laplace's or Gauss's; a certificate of it is the mechanism's own.
    """
    notion = _NOTIONS[guarantee.kind]
    allowed = notion.allowed(guarantee)
    found, spent = list(failures), Fraction(0)
    for call in calls:
        if call.law not in _SUMS:
            raise UsageError(f"{call.name}: law must be {' or '.join(sorted(_SUMS))}, got {call.law!r}")
        change = Fraction(call.sensitivity)
        sound = call.scale > 0 and change >= 0
        shift = Shift(law=call.law, scale=call.scale, change=change, square=change)
        loss = notion.spent(shift) if sound else None
        if loss is None:
            drawn = f"{call.law} noise of scale {call.scale} at sensitivity {call.sensitivity}"
            found.append(f"{call.name} has {drawn}, which does not keep {guarantee.kind}")
            continue
        spent += loss
        if call.share is not None and loss > call.share:
            found.append(f"{call.name} spends {loss}, its share of the budget is {call.share}")
    laws = sorted({call.law for call in calls}, reverse=True)
    arithmetic = f"exact rationals: sum of {' and of '.join(_SUMS[law] for law in laws)}"
    told: dict[str, Any] = {
        "scales": [str(call.scale) for call in calls],
        "sensitivities": [str(call.sensitivity) for call in calls],
        **(notes or {}),
    }
    worst = spent
    if guarantee.kind == ApproxDP.kind and guarantee.epsilon is not None:
        worst = delta_of(spent, guarantee.epsilon) if spent > 0 else Fraction(0)
        allowed = Fraction(guarantee.extra["delta_text"])
        told["rho"] = str(spent)
        arithmetic += "; the delta that this rho implies at epsilon, by ball arithmetic (Canonne et al. 2020)"
    if allowed is None or worst > allowed:
        found.append(f"all calls together: expected at most {allowed}, got {float_up(worst):.9g}")
    limit = None if allowed is None else float(allowed)
    kept = limit is not None and allowed is not None and worst <= allowed
    return Certificate(
        holds=not found,
        evidence="declared",
        kind=guarantee.kind,
        worst=min(float_up(worst), limit) if kept and limit is not None else float_up(worst),
        allowed=limit,
        checked=len(calls) if checked is None else checked,
        arithmetic=arithmetic,
        rests_on=rests_on,
        notes=told,
        failures=tuple(found),
    )


class ScaledNoiseRelease(Protocol):
    """A release that says at which scale each call of its noise was drawn."""

    @property
    def scales(self) -> Sequence[Fraction]:
        """The scale of each call, exactly: :attr:`privopt.numbers.noise.NoiseRecord.scale`, not what was meant."""


@frozen(kw_only=True)
class AdditiveNoise(PureDP[ScaledNoiseRelease]):
    """Pure DP by Laplace noise on numbers, measured at the scales that the release says it was drawn at.

    A mechanism whose calls have laws, shares or conditions of their own calls :func:`certify_noise` instead.

    Attributes:
        epsilon: exact.
        unit: of epsilon, e.g. ``"per person"``.
        scope: what neighbours differ in, e.g. ``"one person"``.
        statement: the promise in words.
        sensitivities: of each call, the greatest change between neighbours of the sum of absolute values.
    """

    epsilon: Fraction
    unit: str
    scope: str
    statement: str
    sensitivities: Sequence[Fraction | int] = field(default=(1,), converter=tuple)

    @property
    def guarantee(self) -> Guarantee:
        """Kind ``"pure-dp"``."""
        return Guarantee(
            kind=self.kind, epsilon=self.epsilon, unit=self.unit, scope=self.scope, statement=self.statement
        )

    def measure(self, release: ScaledNoiseRelease) -> Certificate:
        """Sum of sensitivity over scale, in rationals; other numbers of calls and of scales do not hold."""
        scales, wanted = release.scales, len(self.sensitivities)
        pairs = zip(scales, self.sensitivities, strict=False)
        calls = [NoiseCall(scale=scale, sensitivity=change) for scale, change in pairs]
        other = [] if len(scales) == wanted else [f"expected {wanted} scales, got {len(scales)}"]
        return certify_noise(self.guarantee, calls, failures=other)
