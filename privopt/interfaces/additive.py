"""Certificates for additive noise, based on the exact budget spent by a release's noise.

A noise call adds Laplace or discrete Gaussian noise to some numbers. :func:`certify_noise` sums the costs of all calls
(:meth:`privopt.interfaces.PrivacyConstraint.cost_of_call`) as rationals and compares the total with the guarantee.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, Literal, Protocol

from attrs import field, frozen

from privopt.errors import UsageError
from privopt.interfaces.gaussian import ZCDP, ApproxDP
from privopt.interfaces.notions import LocalDP, PureDP
from privopt.interfaces.release import PrivacyConstraint, Shift
from privopt.interfaces.result import Certificate, Guarantee
from privopt.numbers.exp_log_bounds import float_up
from privopt.numbers.gaussian import delta_of

__all__ = ["AdditiveNoise", "NoiseCall", "ScaledNoiseRelease", "certify_noise"]

# A release is a single sample, which cannot show that noise was drawn, so every such certificate relies on this
# assumption.
DRAWN: Final = "that the noise was drawn, freshly and at those {scales}"
# The notions whose budgets certify_noise can add up, keyed by Guarantee.kind.
_NOTIONS: Final[Mapping[str, type[PrivacyConstraint[Any]]]] = {
    notion.kind: notion for notion in (PureDP, LocalDP, ZCDP, ApproxDP)
}
# The formula, in words, for the budget that one call with each law of noise spends.
_SUMS: Final = {
    "laplace": "sensitivity / scale",
    "gaussian": "squared L2 sensitivity / (2 variance)",
}
# The name of the scale of each law of noise.
_SCALE_NAMES: Final = {"laplace": "scale", "gaussian": "variance"}


@frozen(kw_only=True)
class NoiseCall:
    """One addition of noise to one or more numbers, as recorded in a release.

    Attributes:
        scale: The exact scale at which the noise was drawn (:attr:`privopt.numbers.noise.NoiseRecord.scale`), or, for
            Gaussian noise, the variance.
        sensitivity: The L1 sensitivity of the numbers between neighbouring inputs, or, for Gaussian noise, the squared
            L2 sensitivity.
        law: The distribution of the noise: ``"laplace"`` (also for double geometric noise) or ``"gaussian"``.
        budget_share: The part of the budget that this call may spend, or None if only the sum over all calls is
            limited.
        name: The name used for the call in descriptions of failures, such as ``"level 2"``.
    """

    scale: Fraction
    sensitivity: Fraction | int = 1
    law: Literal["laplace", "gaussian"] = "laplace"
    budget_share: Fraction | None = None
    name: str = "a call"


def certify_noise(
    guarantee: Guarantee,
    calls: Sequence[NoiseCall],
    *,
    failures: Sequence[str] = (),
    notes: Mapping[str, Any] | None = None,
    checked: int | None = None,
    rests_on: str | None = None,
) -> Certificate:
    """Certify, in exact rational arithmetic, that noise calls together spend at most the budget of a guarantee.

    A noise call is an addition of noise to one or more numbers.

    >>> claimed = Guarantee(kind="pure-dp", epsilon=Fraction(1))
    >>> calls = [NoiseCall(scale=Fraction(3), sensitivity=2), NoiseCall(scale=Fraction(4), budget_share=Fraction(1, 4))]
    >>> certificate = certify_noise(claimed, calls)
    >>> certificate.holds, certificate.worst <= 11 / 12 + 1e-15
    (True, True)

    Args:
        guarantee: The claim. Its kind is ``pure-dp``, ``local-dp``, ``zcdp`` (with the exact ``rho_text`` in ``extra``)
            or ``approx-dp`` (with ``delta_text``).
        calls: The noise calls of the release.
        failures: One line for each additional claim that failed. If there are any, the certificate does not hold.
        notes: Fields to add to the certificate's notes, which already contain ``sensitivities`` and ``scales``. The
            ``scales`` field is named ``variances`` if all calls are Gaussian, or ``scales_or_variances`` if only some
            of them are.
        checked: The number of values to which noise was added. The default is the number of calls.
        rests_on: A description of the assumption that cannot be checked from the release. The default is the assumption
            that the noise was freshly drawn at the given scales.

    Raises:
        UsageError: A call's noise is neither Laplace nor Gaussian, so the mechanism must certify it itself.
    """
    notion = _NOTIONS[guarantee.kind]
    allowed = notion.budget_of(guarantee)
    complaints, spent = list(failures), Fraction(0)
    for call in calls:
        if call.law not in _SUMS:
            raise UsageError(f"{call.name}: law must be {' or '.join(sorted(_SUMS))}, got {call.law!r}")
        change = Fraction(call.sensitivity)
        # The calls may come from a folder that is being verified, so their scales and sensitivities may be invalid.
        is_valid = call.scale > 0 and change >= 0
        # The sensitivity is passed as both norms, because Laplace noise uses only ``change`` and Gaussian noise only
        # ``square``.
        shift = Shift(law=call.law, scale=call.scale, change=change, square=change)
        loss = notion.cost_of_call(shift) if is_valid else None
        if loss is None:
            scale_text = f"{_SCALE_NAMES[call.law]} {call.scale}"
            noise_text = f"{call.law} noise of {scale_text} at sensitivity {call.sensitivity}"
            complaints.append(f"{call.name} has {noise_text}, which does not satisfy {guarantee.kind}")
            continue
        spent += loss
        if call.budget_share is not None and loss > call.budget_share:
            complaints.append(f"{call.name} spends {loss}, its share of the budget is {call.budget_share}")
    laws = sorted({call.law for call in calls}, reverse=True)
    arithmetic = f"exact rationals: sum of {' and of '.join(_SUMS[law] for law in laws)}"
    scale_names = [f"{_SCALE_NAMES[law]}s" for law in laws] or ["scales"]
    certificate_notes: dict[str, Any] = {
        # Field names have no spaces.
        "_or_".join(scale_names): [str(call.scale) for call in calls],
        "sensitivities": [str(call.sensitivity) for call in calls],
        **(notes or {}),
    }
    worst = spent
    # For approximate DP, costs are in rho, because rho adds up exactly over calls. Only the sum is converted to a
    # delta.
    if guarantee.kind == ApproxDP.kind and guarantee.epsilon is not None:
        worst = delta_of(spent, guarantee.epsilon) if spent > 0 else Fraction(0)
        allowed = Fraction(guarantee.extra["delta_text"])
        certificate_notes["rho"] = str(spent)
        arithmetic += "; the delta that this rho implies at epsilon, by ball arithmetic (Canonne et al. 2020)"
    if allowed is None or worst > allowed:
        complaints.append(f"all calls together: expected at most {allowed}, got {float_up(worst):.9g}")
    # Both values become doubles. If only rounding would put worst above the limit, it is capped there, so that the
    # published values agree with the verdict.
    stated_worst, limit = float_up(worst), None if allowed is None else float(allowed)
    if allowed is not None and worst <= allowed:
        stated_worst = min(stated_worst, float(allowed))
    return Certificate(
        holds=not complaints,
        evidence="declared",
        kind=guarantee.kind,
        worst=stated_worst,
        allowed=limit,
        # A call may add noise to many numbers, but only the mechanism knows how many.
        checked=len(calls) if checked is None else checked,
        arithmetic=arithmetic,
        rests_on=DRAWN.format(scales=" or ".join(scale_names)) if rests_on is None else rests_on,
        notes=certificate_notes,
        failures=tuple(complaints),
    )


class ScaledNoiseRelease(Protocol):
    """Protocol for releases that provide the scale of each of their noise calls (additions of noise)."""

    @property
    def scales(self) -> Sequence[Fraction]:
        """The exact scale at which each call's noise was drawn (:attr:`privopt.numbers.noise.NoiseRecord.scale`).

        It may differ from the requested scale.
        """


@frozen(kw_only=True)
class AdditiveNoise(PureDP[ScaledNoiseRelease]):
    """Pure differential privacy from Laplace noise, certified at the scales recorded in the release.

    A mechanism should call :func:`certify_noise` itself if its noise has other distributions, if its noise calls have
    fixed shares of the budget, or if further conditions must be checked.

    Attributes:
        epsilon: The exact budget.
        unit: The unit of epsilon, such as ``"per person"``.
        scope: The difference between neighbouring inputs, such as ``"one person"``.
        statement: The guarantee in words.
        sensitivities: For each noise call, the L1 sensitivity of its numbers between neighbouring inputs.
    """

    epsilon: Fraction
    unit: str
    scope: str
    statement: str
    sensitivities: Sequence[Fraction | int] = field(default=(1,), converter=tuple)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of kind ``"pure-dp"``."""
        return Guarantee(
            kind=self.kind, epsilon=self.epsilon, unit=self.unit, scope=self.scope, statement=self.statement
        )

    def measure(self, release: ScaledNoiseRelease) -> Certificate:
        """Certify a release by comparing the sum of sensitivity / scale over its noise calls with epsilon, exactly.

        The certificate fails if the number of scales in the release differs from the number of sensitivities.
        """
        scales, expected_count = release.scales, len(self.sensitivities)
        # Not strict, because a forged release may contain any number of scales, which must not raise an error here.
        pairs = zip(scales, self.sensitivities, strict=False)
        calls = [NoiseCall(scale=scale, sensitivity=change) for scale, change in pairs]
        complaints = [] if len(scales) == expected_count else [f"expected {expected_count} scales, got {len(scales)}"]
        return certify_noise(self.guarantee, calls, failures=complaints)
