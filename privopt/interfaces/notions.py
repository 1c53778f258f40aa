"""Notions of privacy that are not of one room: additive noise on counts, and no guarantee at all."""

from __future__ import annotations

import math
from typing import ClassVar, TypeVar

from attrs import frozen

from privopt.execution import Executor
from privopt.interfaces.claims import AGAIN, Certificate, Guarantee
from privopt.interfaces.result import Result
from privopt.interfaces.seams import PrivacyConstraint
from privopt.specs import NOTHING

__all__ = ["LocalDP", "NoGuarantee", "PureDP", "factor"]


R_contra = TypeVar("R_contra", contravariant=True)


def factor(epsilon: float) -> str:
    """exp(epsilon) in words, rounded up.

    >>> factor(0.1)
    '1.11 times'
    """
    if epsilon > 20:
        return f"e^{epsilon:g} times"
    excess = math.expm1(float(epsilon))
    digits = max(0, 1 - math.floor(math.log10(excess)))
    return f"{1 + math.ceil(excess * 10**digits) / 10**digits:.{digits}f} times"


class _Additive(PrivacyConstraint[R_contra]):
    odds: ClassVar[bool] = True

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """The scale is checked; that the noise was drawn cannot be."""
        checked = ["The noise's scale against the greatest change that one individual can make, in rationals."]
        return checked, [AGAIN, "That the noise was really drawn at that scale: one release cannot show it."]


class PureDP(_Additive[R_contra]):
    """epsilon-differential privacy between neighbouring inputs (Dwork et al., TCC 2006), kept by fresh noise.

    A mechanism's own constraint subclasses it, and says which inputs are neighbours in its guarantee's statement.
    """

    kind: ClassVar[str] = "pure-dp"

    @classmethod
    def promise(cls, result: Result) -> str:
        """How much one individual can change."""
        guarantee = result.guarantee
        assert guarantee.epsilon is not None  # whoever claims this kind states it
        return (
            f"What one individual changes hardly shows: whether or not {guarantee.scope or 'one individual'}, "
            f"every result is at most {factor(float(guarantee.epsilon))} as likely in the one case as in the other."
        )


class LocalDP(_Additive[R_contra]):
    """epsilon-differential privacy of each sender's own report, also towards the server (Kasiviswanathan et al. 2011).

    A mechanism's own constraint subclasses it.
    """

    kind: ClassVar[str] = "local-dp"

    @classmethod
    def promise(cls, result: Result) -> str:
        """How much the server can learn of one sender."""
        guarantee = result.guarantee
        assert guarantee.epsilon is not None  # whoever claims this kind states it
        return (
            f"Nobody, not even the server that works with the reports, learns much about "
            f"{guarantee.scope or 'one individual'}: whatever is published is at most "
            f"{factor(float(guarantee.epsilon))} as likely with as without."
        )


@frozen(kw_only=True)
class NoGuarantee(PrivacyConstraint[object]):
    """Claims nothing and measures nothing.

    >>> NoGuarantee(reason="no noise is added").measure(None).holds is None
    True

    Attributes:
        reason: why there is no guarantee, in words.
    """

    kind: ClassVar[str] = NOTHING
    reason: str

    @classmethod
    def promise(cls, result: Result) -> str:
        """That there is none."""
        return "This result promises no privacy: it was asked for with --allow-unsafe."

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """Nothing is checked."""
        return ["Nothing: this method claims nothing."], ["Everything."]

    @property
    def guarantee(self) -> Guarantee:
        """Kind ``"none"``, with the reason."""
        return Guarantee(kind=self.kind, statement=f"No privacy guarantee: {self.reason}.")

    def measure(self, release: object, *, executor: Executor | None = None) -> Certificate:
        """Nothing to measure: ``holds`` is None."""
        return Certificate(
            holds=None,
            evidence="none",
            kind=self.kind,
            worst=None,
            allowed=None,
            checked=0,
            arithmetic="nothing is claimed",
        )
