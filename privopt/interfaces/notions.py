"""Pure, local and no differential privacy as notions: what each promises in words, and how it is measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Final, TypeVar

from attrs import frozen

from privopt.interfaces.claims import AGAIN, Certificate, Guarantee
from privopt.interfaces.privacy import PrivacyConstraint
from privopt.interfaces.result import Result
from privopt.specs import NOTHING

__all__ = ["USELESS_FACTOR", "BoundedOdds", "LocalDP", "NoGuarantee", "PureDP", "factor"]


R_contra = TypeVar("R_contra", contravariant=True)

USELESS_FACTOR: Final = 100
"""A change of odds beyond which a release leaves next to no doubt between two inputs."""


def factor(epsilon: float) -> str:
    """Write exp(epsilon) in words, rounded up.

    >>> factor(0.1)
    '1.11 times'
    """
    if epsilon > 20:
        return f"e^{epsilon:g} times"
    excess = math.expm1(float(epsilon))
    digits = max(0, 1 - math.floor(math.log10(excess)))
    return f"{1 + math.ceil(excess * 10**digits) / 10**digits:.{digits}f} times"


class BoundedOdds(PrivacyConstraint[R_contra]):
    """A notion that bounds how much likelier results are for one input than for its neighbour."""

    @classmethod
    def point(cls, guarantee: Guarantee) -> tuple[float, float]:
        """Return an epsilon, and a delta, that follow from the guarantee."""
        return cls.curve(guarantee)[0]

    @classmethod
    def bound(cls, guarantee: Guarantee) -> str:
        """State, as a clause, how much likelier a result can be at most."""
        return (
            f"whether or not {guarantee.scope or 'one individual'}, every result is at most "
            f"{factor(cls.point(guarantee)[0])} as likely in the one case as in the other"
        )

    @classmethod
    def hidden(cls, guarantee: Guarantee) -> str:
        """Describe what stays hidden under a bound at which a guess is not almost certain."""
        return "What one individual changes hardly shows"

    @classmethod
    def guess(cls, guarantee: Guarantee) -> float:
        """Bound how often a guess is right between two neighbours: (exp(epsilon) + delta) / (exp(epsilon) + 1)."""
        epsilon, delta = cls.point(guarantee)
        return (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))

    @classmethod
    def promise(cls, result: Result) -> str:
        """State how much one individual can change, and whether that is little."""
        if found := cls.warnings(result):
            return f"{found[0][:1].upper()}{found[0][1:]}."
        return f"{cls.hidden(result.guarantee)}: {cls.bound(result.guarantee)}."

    @classmethod
    def warnings(cls, result: Result) -> Sequence[str]:
        """Return a warning that the promise hides next to nothing, where a guess can be nearly certain."""
        if cls.guess(result.guarantee) <= USELESS_FACTOR / (USELESS_FACTOR + 1):
            return ()
        return (
            f"the promise hides next to nothing: {cls.bound(result.guarantee)}, and a factor of {USELESS_FACTOR} "
            "leaves hardly a doubt; a smaller budget hides more",
        )


class _Additive(BoundedOdds[R_contra]):
    odds: ClassVar[bool] = True

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """Say that the scale is checked, and that no one can check that the noise was drawn."""
        checked = ["The noise's scale against the greatest change that one individual can make, in rationals."]
        return checked, [AGAIN, "That the noise was really drawn at that scale: one release cannot show it."]


class PureDP(_Additive[R_contra]):
    """epsilon-differential privacy between neighbouring inputs (Dwork et al., TCC 2006), kept by fresh noise.

    A mechanism's own constraint subclasses it, and says which inputs are neighbours in its guarantee's statement.
    """

    kind: ClassVar[str] = "pure-dp"


class LocalDP(_Additive[R_contra]):
    """epsilon-differential privacy of each sender's own report, also towards the server (Kasiviswanathan et al. 2011).

    A mechanism's own constraint subclasses it.
    """

    kind: ClassVar[str] = "local-dp"

    @classmethod
    def hidden(cls, guarantee: Guarantee) -> str:
        """Describe what stays hidden."""
        return "No one, not even the server that works with the reports, learns much about one sender"

    @classmethod
    def bound(cls, guarantee: Guarantee) -> str:
        """State how much likelier a report can be at most."""
        return (
            f"whatever is published is at most {factor(cls.point(guarantee)[0])} as likely with as without "
            f"{guarantee.scope or 'one individual'}"
        )


NO_GUARANTEE: Final = "No privacy guarantee: "
"""Begins the statement of kind ``"none"``, before the reason."""


@frozen(kw_only=True)
class NoGuarantee(PrivacyConstraint[object]):
    """A notion that claims nothing and measures nothing.

    >>> NoGuarantee(reason="no noise is added").measure(None).holds is None
    True

    Attributes:
        reason: why nothing is guaranteed, in words.
    """

    kind: ClassVar[str] = NOTHING
    reason: str

    @classmethod
    def promise(cls, result: Result) -> str:
        """State in a sentence that no privacy is promised, and why."""
        why = result.guarantee.statement.removeprefix(NO_GUARANTEE)
        return f"This result promises no privacy: {why}" if why else "This result promises no privacy."

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """Return that nothing is checked."""
        return ["Nothing: this method claims nothing."], ["Everything."]

    @property
    def guarantee(self) -> Guarantee:
        """Kind ``"none"``, with the reason."""
        return Guarantee(kind=self.kind, statement=f"{NO_GUARANTEE}{self.reason}.")

    def measure(self, release: object) -> Certificate:
        """Return a certificate whose ``holds`` is None: nothing is measured."""
        return Certificate(
            holds=None,
            evidence="none",
            kind=self.kind,
            worst=None,
            allowed=None,
            checked=0,
            arithmetic="nothing is claimed",
        )
