"""The notions of pure DP, local DP and no privacy, with their budgets and explanations in words.

Notions for Gaussian noise are in :mod:`privopt.interfaces.gaussian`. Plugins register others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context, Decimal
from typing import ClassVar, Final, TypeVar

from attrs import frozen

from privopt.interfaces.release import PrivacyConstraint
from privopt.interfaces.result import AGAIN, Certificate, Guarantee, Result
from privopt.specs import NOTHING

__all__ = [
    "CURATOR",
    "USELESS_FACTOR",
    "BoundedOdds",
    "LocalDP",
    "NoGuarantee",
    "PureDP",
    "describe_difference",
    "factor",
    "in_100",
]


R_contra = TypeVar("R_contra", contravariant=True)

USELESS_FACTOR: Final = 100
"""The factor beyond which a change in the odds between two inputs is considered to leave almost no doubt."""

HIDING_GUESS: Final = 0.75
"""The largest probability of a correct guess for which a promise says that one individual makes little difference.

This corresponds to odds of 3 to 1.
"""


def factor(epsilon: float) -> str:
    """Return exp(epsilon), rounded up, as text such as "1.11 times". Epsilon must be positive.

    >>> factor(0.1), factor(1e-20)
    ('1.11 times', '1.000000000001 times')
    >>> factor(20.12341)
    'e^20.1235 times'
    >>> factor(1000)
    'e^1000 times'
    """
    # Always rounded up, because the text must never understate the factor, for example as "1.00 times".
    if epsilon > 20:
        exponent = Context(prec=6, rounding=ROUND_CEILING).create_decimal(Decimal(epsilon))
        return f"e^{float(exponent):g} times"
    excess = math.expm1(float(epsilon))
    # The excess over 1 is shown with two significant digits, because small budgets differ only there. More than twelve
    # decimals would be lost when 1 is added.
    digits = min(12, max(0, 1 - math.floor(math.log10(excess))))
    return f"{1 + math.ceil(excess * 10**digits) / 10**digits:.{digits}f} times"


def in_100(share: float) -> str:
    """Return a probability as text such as "52.7 times in 100", rounded up to one decimal place.

    >>> in_100(0.5264), in_100(0.622459), in_100(0.0001)
    ('52.7 times in 100', '62.3 times in 100', '0.1 times in 100')
    """
    # Subtracting 1e-9 prevents a rounding error of the product from raising the last digit.
    return f"{min(1000, math.ceil(1000 * share - 1e-9)) / 10:g} times in 100"


def _is_noun(scope: str) -> bool:
    """Return whether a guarantee's scope is a short noun phrase, such as "one person", rather than a clause."""
    return scope.count(" ") <= 1


def describe_difference(guarantee: Guarantee) -> str:
    """Return a clause that states how neighbouring inputs differ, for use after the words "whether or not"."""
    scope = guarantee.scope or "one individual"
    return f"{scope} is in the data" if _is_noun(scope) else scope


class BoundedOdds(PrivacyConstraint[R_contra]):
    """A notion of privacy that bounds how much more likely a result can be for one input than for a neighbour."""

    @classmethod
    def point(cls, guarantee: Guarantee) -> tuple[float, float]:
        """Return an (epsilon, delta) pair that follows from the guarantee, for use in explanations."""
        return cls.curve(guarantee)[0]

    @classmethod
    def bound(cls, guarantee: Guarantee) -> str:
        """Return a clause about how much more likely a result can be for one input than for a neighbouring one."""
        return (
            f"whether or not {describe_difference(guarantee)}, every result is at most "
            f"{factor(cls.point(guarantee)[0])} as likely in the one case as in the other"
        )

    @classmethod
    def describe_hidden(cls, guarantee: Guarantee) -> str:
        """Return a clause about how well one individual is hidden, based on how likely a correct guess is."""
        if cls.guess(guarantee) <= HIDING_GUESS:
            return "One individual makes little difference"
        return "What one individual changes may show"

    @classmethod
    def guess(cls, guarantee: Guarantee) -> float:
        """Return (exp(epsilon) + delta) / (exp(epsilon) + 1), the largest possible probability of a correct guess."""
        epsilon, delta = cls.point(guarantee)
        # Numerator and denominator are divided by exp(epsilon), which would overflow for large budgets.
        return (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))

    @classmethod
    def describe_attack(cls, guarantee: Guarantee) -> str:
        """Return a sentence about how often an attacker can tell which of two neighbouring inputs was used."""
        question = f"whether or not {describe_difference(guarantee)}"
        return f"An attacker who must tell {question} is right at most {in_100(cls.guess(guarantee))}; by chance, 50."

    @classmethod
    def promise(cls, result: Result) -> str:
        """Return a sentence about how well one individual is hidden and how far that individual can change the odds.

        If the guarantee hides next to nothing, the first of the :meth:`warnings` is returned as a sentence instead.
        """
        # There are warnings only if the guarantee hides next to nothing.
        if warnings := cls.warnings(result):
            return f"{warnings[0][:1].upper()}{warnings[0][1:]}."
        return f"{cls.describe_hidden(result.guarantee)}: {cls.bound(result.guarantee)}."

    @classmethod
    def warnings(cls, result: Result) -> Sequence[str]:
        """Return a warning clause if an attacker can tell two neighbouring inputs apart almost with certainty.

        A guarantee like this is valid, but hides next to nothing.
        """
        # Odds of USELESS_FACTOR to 1 correspond to a probability of USELESS_FACTOR / (USELESS_FACTOR + 1).
        if cls.guess(result.guarantee) <= USELESS_FACTOR / (USELESS_FACTOR + 1):
            return ()
        return (
            f"the promise hides next to nothing: {cls.bound(result.guarantee)}, and a factor of {USELESS_FACTOR} "
            "leaves hardly any doubt; a smaller budget hides more",
        )


class _Additive(BoundedOdds[R_contra]):
    """A notion achieved by adding noise. Its epsilon bounds how far the odds of any result can change.

    The bound holds for every result, without exceptions of small probability (delta).
    """

    odds: ClassVar[bool] = True

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """Return two lists of lines: what was checked, and what a single release cannot show."""
        checked = ["The noise's scale against the greatest change that one individual can make, in rationals."]
        return checked, [AGAIN, "That the noise was really drawn at that scale: one release cannot show it."]


class PureDP(_Additive[R_contra]):
    """epsilon-differential privacy between neighbouring inputs (Dwork et al., TCC 2006), achieved by fresh noise.

    Subclass this class to define a mechanism's constraint. The statement of its guarantee must say which inputs are
    neighbours.
    """

    kind: ClassVar[str] = "pure-dp"

    @classmethod
    def trust(cls, result: Result) -> str:
        """Return a sentence naming the trusted party: the publisher, who holds the data and draws the noise."""
        return CURATOR


class LocalDP(_Additive[R_contra]):
    """epsilon-differential privacy of each sender's report, even against the server (Kasiviswanathan et al. 2011).

    Subclass this class to define a mechanism's constraint. The guarantee compares reports with and without a sender's
    data, so it does not require a trusted curator.
    """

    kind: ClassVar[str] = "local-dp"

    @classmethod
    def trust(cls, result: Result) -> str:
        """Return a sentence about who must be trusted to have drawn the noise.

        This is either each sender's device or whoever ran a single program that drew the noise for all senders.
        """
        return (
            "No server has to be trusted if each sender's own device really drew the noise. If one program drew it for "
            "all senders, trust whoever ran it."
        )

    @classmethod
    def describe_hidden(cls, guarantee: Guarantee) -> str:
        """Return a clause about how much the server, which sees all reports, can learn about one individual."""
        individual = guarantee.scope or "one sender"
        if cls.guess(guarantee) <= HIDING_GUESS:
            return f"No one, not even the server that works with the reports, learns much about {individual}"
        return f"The reports may tell much about {individual}, also to the server that works with them"

    @classmethod
    def describe_attack(cls, guarantee: Guarantee) -> str:
        """Return a sentence about how often an attacker can tell whether a given sender's data was counted."""
        question = f"whether {guarantee.scope or 'one individual'} was counted"
        return f"An attacker who must tell {question} is right at most {in_100(cls.guess(guarantee))}; by chance, 50."

    @classmethod
    def bound(cls, guarantee: Guarantee) -> str:
        """Return a clause about how much one individual's data can change the odds of a published result."""
        scope = guarantee.scope or "one individual"
        # Under the scope "one answer", a sender always gives some answer, so the comparison is not with the sender's
        # absence.
        cases = f"under {scope} as under another" if scope == "one answer" else f"with as without {scope}"
        return f"whatever is published is at most {factor(cls.point(guarantee)[0])} as likely {cases}"


CURATOR: Final = (
    "Whoever published this has the data. They must be trusted with it, and to have really drawn the noise."
)
"""The sentence about who must be trusted, for notions whose noise is added by the publisher."""

NO_GUARANTEE: Final = "No privacy guarantee: "
"""The opening words of the statement in a guarantee of kind ``"none"``. The reason follows them."""


@frozen(kw_only=True)
class NoGuarantee(PrivacyConstraint[object]):
    """The notion for methods without a privacy guarantee. It claims nothing, and its certificates certify nothing.

    >>> NoGuarantee(reason="no noise is added").measure(None).holds is None
    True

    Attributes:
        reason: The reason why there is no guarantee, in words.
    """

    kind: ClassVar[str] = NOTHING
    reason: str

    @classmethod
    def promise(cls, result: Result) -> str:
        """Return a sentence stating that no privacy is promised, and why not."""
        # A class method has no access to ``reason``, so the reason is taken from the statement.
        reason_text = result.guarantee.statement.removeprefix(NO_GUARANTEE)
        return f"This result promises no privacy: {reason_text}" if reason_text else "This result promises no privacy."

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """Return two lists of one line each, saying that nothing was checked and that everything is unchecked."""
        return ["Nothing: this method claims nothing."], ["Everything."]

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee, of kind ``"none"``, with the reason in its statement."""
        return Guarantee(kind=self.kind, statement=f"{NO_GUARANTEE}{self.reason}.")

    def measure(self, release: object) -> Certificate:
        """Return a certificate with ``holds`` set to None, because nothing is claimed."""
        return Certificate(
            holds=None,
            evidence="none",
            kind=self.kind,
            worst=None,
            allowed=None,
            checked=0,
            arithmetic="nothing is claimed",
        )
