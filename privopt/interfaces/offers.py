"""A solver's view of the incumbent: the best offer of each origin; a smaller problem has a view of the whole."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from attrs import define, evolve, frozen

from privopt.execution.clock import check

T = TypeVar("T")
C = TypeVar("C")
P = TypeVar("P")
C2 = TypeVar("C2")
P2 = TypeVar("P2")


class Later(Generic[T]):
    """A value that is made on request; its arguments are bound now and never changed after.

    >>> Later(max, 3, 5).value()
    5
    """

    def __init__(self, make: Callable[..., T], *arguments: Any) -> None:
        self._make, self._arguments = make, arguments

    def value(self) -> T:
        """Make it."""
        return self._make(*self._arguments)


def evaluate(value: T | Later[T]) -> T:
    """Return a value, made now where it is to be made."""
    return value.value() if isinstance(value, Later) else value


def near(value: float, bound: float, gap: float, noise: float = 0.0) -> bool:
    """Return whether a relative gap is reached, or a difference so small that it is lost in rounding."""
    return max(abs(value), abs(bound)) < math.inf and value - bound <= max(gap * abs(value), noise)


@frozen(eq=False, kw_only=True)
class Offer(Generic[C, P]):
    """What :meth:`Offers.offer` was given, whose arguments are these."""

    origin: str
    candidate: C | Later[C] | None = None
    value: float | None = None
    bound: float | None = None
    proof: P | Later[P] | None = None
    firm: bool = True

    @property
    def settled(self) -> Offer[C, P]:
        """The same without a candidate that is not firm."""
        return self if self.firm else evolve(self, candidate=None)


@define(eq=False)
class BestOffer(Generic[C, P]):
    """The best that one solver offered, for it to read back.

    Attributes:
        candidate, value: the cheapest candidate and what it promised; infinite before there is one.
        proof, bound: what the best bound is proved from, and the bound.
    """

    candidate: C | Later[C] | None = None
    value: float = math.inf
    proof: P | Later[P] | None = None
    bound: float = -math.inf

    def take(self, offer: Offer[C, P]) -> bool:
        """Take what is better; whether anything was."""
        better = False
        if offer.candidate is not None and offer.value is not None and offer.value < self.value:
            self.candidate, self.value, better = offer.candidate, offer.value, True
        if offer.proof is not None and offer.bound is not None and offer.bound > self.bound:
            self.proof, self.bound, better = offer.proof, offer.bound, True
        return better


class Offers(Generic[C, P]):
    """The part of an incumbent that a solver sees; by itself it certifies nothing, and the caller reads its best back.

    Values are minimised; a solver that maximises offers negatives.

    Attributes:
        gap: relative gap to reach.
        noise: a difference that is lost in rounding.
        best: what was offered here, to read back.
        offered: how often anything was.
    """

    noise: float = 0.0
    offered: int = 0

    def __init__(self, gap: float, *, progress: Callable[[str, int, float | None, float | None], object] | None = None):
        self.gap, self._progress = gap, progress
        self.best: BestOffer[C, P] = BestOffer()

    def offer(
        self,
        origin: str,
        *,
        candidate: C | Later[C] | None = None,
        value: float | None = None,
        bound: float | None = None,
        proof: P | Later[P] | None = None,
        firm: bool = True,
    ) -> None:
        """Offer a candidate, a bound, or both; from any thread; also a place where a solver stops.

        Args:
            origin: the method. The best of each origin is kept, so that a wrong offer displaces no one else's.
            candidate: not changed after; or what makes it.
            value: what the method thinks it costs: it decides what is certified next and nothing else.
            bound: likewise; ``proof`` is evaluated before anything is said.
            proof: what the bound is proved from, or what makes it.
            firm: False for answers of relaxations that cost more once mended: they never count towards the gap, and a
                firm offer of the same origin replaces them whatever they promised.

        Raises:
            OutOfTime: the time is over; the offer was taken.
        """
        self.offered += 1
        self._take(Offer(origin=origin, candidate=candidate, value=value, bound=bound, proof=proof, firm=firm))
        check()

    def _take(self, offer: Offer[C, P]) -> None:
        """Keep what is better, and hand it on."""
        self.best.take(offer)
        if self._progress is not None:
            known = (end if math.isfinite(end) else None for end in (self.best.bound, self.best.value))
            self._progress(offer.origin, self.offered, *known)

    @property
    def reached(self) -> bool:
        """Whether the gap is reached by what firm offers promise."""
        return near(self.best.value, self.best.bound, self.gap, self.noise)

    def confirm(self) -> bool:
        """Check whether the gap is reached by what is certified and proved now, where anything is."""
        return self.reached

    def note(self, step: str, **figures: object) -> None:
        """Add a step to the path that the answer states, and figures to its details; without an answer to none."""

    def through(
        self,
        name: str,
        candidate: Callable[[C2], C] | None,
        proof: Callable[[P2], P] | None,
        *,
        firm: bool = True,
    ) -> View[C2, P2]:
        """Return the same incumbent as a smaller problem sees it.

        Args:
            name: origin of what is offered through it; each offer's own where empty.
            candidate: lifts one of the smaller problem's; None where the whole wants none.
            proof: lifts what a bound is proved from; None where its bounds say nothing of the whole.
            firm: False where a lifted candidate costs more than it promised. Such a view, and one without ``proof`` or
                ``candidate``, counts its gap on its own.
        """
        return View(self, name, candidate, proof, firm=firm)


class View(Offers[C, P]):
    """An incumbent as a smaller problem sees it: an offer is lifted when the incumbent asks for it."""

    def __init__(
        self,
        outer: Offers[C2, P2],
        name: str,
        candidate: Callable[[C], C2] | None,
        proof: Callable[[P], P2] | None,
        *,
        firm: bool,
    ) -> None:
        super().__init__(outer.gap)
        self._outer, self._name, self._candidate, self._proof, self._firm = outer, name, candidate, proof, firm
        self.noise = outer.noise
        self.alone = not firm or proof is None or candidate is None

    def _take(self, offer: Offer[C, P]) -> None:
        self.best.take(offer)
        lift, prove = self._candidate, self._proof
        found = offer.candidate is not None and lift is not None
        proved = offer.proof is not None and prove is not None
        self._outer.offer(
            self._name or offer.origin,
            candidate=Later(_lifted, lift, offer.candidate) if found else None,
            value=offer.value if found else None,
            bound=offer.bound if proved else None,
            proof=Later(_lifted, prove, offer.proof) if proved else None,
            firm=offer.firm and self._firm,
        )

    @property
    def reached(self) -> bool:
        """As offered here, where the whole has nothing to say of it."""
        return super().reached if self.alone else self._outer.reached

    def confirm(self) -> bool:
        """Certify and prove the whole, where that says anything."""
        return self.reached if self.alone else self._outer.confirm()

    def note(self, step: str, **figures: object) -> None:
        """Note a step at the whole problem."""
        self._outer.note(step, **figures)


def _lifted(lift: Callable[[T], Any], value: T | Later[T]) -> Any:
    return lift(evaluate(value))
