"""The interface of a notion of privacy: what noise spends, which rows it adds, how a release is measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, Generic, Literal

from attrs import frozen

from privopt import dsl
from privopt.errors import ModelError
from privopt.interfaces.claims import AGAIN, Certificate, Guarantee
from privopt.interfaces.result import Result
from privopt.interfaces.utility import R_contra


@frozen(kw_only=True)
class Shift:
    """What one call of noise has to hide between two inputs.

    Attributes:
        law: ``"laplace"`` (double geometric too) or ``"gaussian"``.
        scale: of the noise, exact; of Gaussian noise the variance.
        change: sum of absolute changes of the numbers that noise is added to.
        square: sum of their squares.
    """

    law: Literal["laplace", "gaussian"]
    scale: Fraction
    change: Fraction
    square: Fraction


class PrivacyConstraint(ABC, Generic[R_contra]):
    """One notion of privacy: emits its rows into a model, measures a release, and says in words what it promises.

    Registered as a kind of role ``"notion"`` (:class:`privopt.specs.KindSpec`), under the name that
    :attr:`Guarantee.kind` has.

    Attributes:
        kind: that name.
        odds: whether it bounds the odds of every output between inputs at distance d by exp(epsilon d), d being 1
            where inputs are neighbours or not. The kit attacks releases of such a notion; what else it tries follows
            from what a release is.
        tails: whether it bounds that but for an event of small probability, for releases that are draws of noise: the
            pairs (epsilon, delta) of :meth:`curve`.
    """

    kind: ClassVar[str] = ""
    odds: ClassVar[bool] = False
    tails: ClassVar[bool] = False

    @classmethod
    def spent(cls, shift: Shift) -> Fraction | None:
        """Return what one call of noise spends between two inputs; calls add up. None: such noise breaks the notion."""
        return shift.change / shift.scale if shift.law == "laplace" else None

    @classmethod
    def allowed(cls, guarantee: Guarantee) -> Fraction | None:
        """Return what all calls together may spend (:meth:`spent`) under a guarantee; None without such a number."""
        return guarantee.epsilon

    @classmethod
    def curve(cls, guarantee: Guarantee) -> tuple[tuple[float, float], ...]:
        """Return pairs (epsilon, delta) that follow from a guarantee.

        An event is likelier by at most the factor exp(epsilon), plus delta. The kit attacks releases at each pair.
        """
        return () if guarantee.epsilon is None else ((float(guarantee.epsilon), 0.0),)

    @classmethod
    def keys(cls) -> type | None:
        """Return the class of ``[privacy]`` in metric problems if ``kind`` names this notion; None if it cannot."""
        return None

    @classmethod
    def promise(cls, result: Result) -> str:
        """State the guarantee in one plain sentence, from a release's result.json."""
        return str(result.guarantee.statement or "No statement.")

    @classmethod
    def warnings(cls, result: Result) -> Sequence[str]:
        """Warn, in sentences, if a valid guarantee is of little value, as its result.json shows."""
        return ()

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """Return what was checked of a release, and what was not: a line each."""
        return [str(result.certificate.arithmetic)], [AGAIN]

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What a release that satisfies it may claim."""

    @property
    def relation(self) -> str:
        """What a ledger's amounts are for: the guarantee's unit, with its distance. No others are added to them."""
        return self.guarantee.unit

    def emit(self, model: dsl.Model, **symbols: Any) -> None:
        """Add its rows to a model; ``symbols`` are the variables and indices they speak of."""
        raise ModelError(f"{type(self).__name__} has no rows to emit: it is kept by the noise, not by a model")

    @abstractmethod
    def measure(self, release: R_contra) -> Certificate:
        """Measure a release in exact arithmetic; never trusts what the release says of itself."""
