"""A solver's view of a search: it offers candidates and bounds, and a smaller problem has a view of the whole."""

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
    """A value that is computed on request. Its arguments are bound now and must not change afterwards.

    >>> Later(max, 3, 5).value()
    5
    """

    def __init__(self, function: Callable[..., T], *arguments: Any) -> None:
        self._function, self._arguments = function, arguments

    def value(self) -> T:
        """Compute the value."""
        return self._function(*self._arguments)


def evaluate(value: T | Later[T]) -> T:
    """Return a value, computed now if it is a :class:`Later`."""
    return value.value() if isinstance(value, Later) else value


def is_within_gap(value: float, bound: float, gap: float, noise: float = 0.0) -> bool:
    """Return whether a value and a bound differ by a relative gap at most, or by no more than rounding."""
    return max(abs(value), abs(bound)) < math.inf and value - bound <= max(gap * abs(value), noise)


@frozen(eq=False, kw_only=True)
class Offer(Generic[C, P]):
    """The arguments of :meth:`Offers.offer`."""

    origin: str
    candidate: C | Later[C] | None = None
    value: float | None = None
    bound: float | None = None
    proof: P | Later[P] | None = None
    firm: bool = True

    @property
    def firm_part(self) -> Offer[C, P]:
        """The same offer, without its candidate if that is not firm."""
        return self if self.firm else evolve(self, candidate=None)


@define(eq=False)
class BestOffer(Generic[C, P]):
    """The best candidate and the best bound of one solver, which it can read back.

    Attributes:
        candidate: The candidate of the lowest promised value; None before the first one.
        value: Its promised value; infinite before the first one.
        proof: What the highest bound is proved from; None before the first one.
        bound: That bound; minus infinity before the first one.
    """

    candidate: C | Later[C] | None = None
    value: float = math.inf
    proof: P | Later[P] | None = None
    bound: float = -math.inf

    def take(self, offer: Offer[C, P]) -> bool:
        """Store the parts of an offer that are better, and return whether any was."""
        improved = False
        if offer.candidate is not None and offer.value is not None and offer.value < self.value:
            self.candidate, self.value, improved = offer.candidate, offer.value, True
        if offer.proof is not None and offer.bound is not None and offer.bound > self.bound:
            self.proof, self.bound, improved = offer.proof, offer.bound, True
        return improved


class Offers(Generic[C, P]):
    """The part of a search that a solver sees. By itself it certifies nothing.

    Values are minimised; a solver that maximises offers negatives.

    Attributes:
        gap: Relative gap to reach.
        noise: Differences up to this are rounding errors.
        best: The best that was offered here.
        offer_count: Number of offers.
    """

    noise: float = 0.0
    offer_count: int = 0

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
        """Offer a candidate, a bound, or both; from any thread. A solver whose time is over stops here.

        Args:
            origin: Name of the method. The best offer of each is stored, so that a wrong offer displaces no other's.
            candidate: A candidate that is not changed afterwards, or a :class:`Later` that computes one.
            value: Its value as the method knows it. It only decides which candidate is certified next.
            bound: A bound as the method knows it. ``proof`` is evaluated before any bound is stated.
            proof: What the bound is proved from, or a :class:`Later` that computes it.
            firm: False for a candidate of a relaxation, whose value rises once it is repaired. It does not count
                towards the gap, and a firm offer of the same origin replaces it, whatever the values.

        Raises:
            OutOfTime: The time is over; the offer was stored.
        """
        self.offer_count += 1
        self._take(Offer(origin=origin, candidate=candidate, value=value, bound=bound, proof=proof, firm=firm))
        check()

    def _take(self, offer: Offer[C, P]) -> None:
        """Store an offer and report the progress."""
        self.best.take(offer)
        if self._progress is not None:
            finite_ends = (end if math.isfinite(end) else None for end in (self.best.bound, self.best.value))
            self._progress(offer.origin, self.offer_count, *finite_ends)

    @property
    def reached(self) -> bool:
        """Whether the values that firm offers promise reach the gap."""
        return is_within_gap(self.best.value, self.best.bound, self.gap, self.noise)

    def confirm(self) -> bool:
        """Certify and prove offers if they promise to reach the gap; return whether it is reached."""
        return self.reached

    def note(self, step: str, **figures: object) -> None:
        """Record a step of the search, and figures for the details of its answer, if it has one."""

    def through(
        self,
        name: str,
        candidate: Callable[[C2], C] | None,
        proof: Callable[[P2], P] | None,
        *,
        firm: bool = True,
    ) -> View[C2, P2]:
        """Return a view of this search for a smaller problem.

        Args:
            name: Origin of all offers of the view; ``""`` keeps the origin of each.
            candidate: Lifts a candidate of the smaller problem; None if the whole problem wants none.
            proof: Lifts what a bound is proved from; None if its bounds do not hold for the whole problem.
            firm: False if a lifted candidate has a higher value than promised. Such a view, and one without
                ``proof`` or ``candidate``, has a gap of its own.
        """
        return View(self, name, candidate, proof, firm=firm)


class View(Offers[C, P]):
    """A view of a search for a smaller problem. A candidate is lifted only when the search evaluates it.

    Attributes:
        has_own_gap: Whether the gap is that of the offers made here, because the whole problem says nothing about it.
    """

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
        self._outer, self._name, self._lift_candidate, self._lift_proof = outer, name, candidate, proof
        self._firm, self.noise = firm, outer.noise
        self.has_own_gap = not firm or proof is None or candidate is None

    def _take(self, offer: Offer[C, P]) -> None:
        self.best.take(offer)
        candidate: Later[Any] | None = None
        proof: Later[Any] | None = None
        if offer.candidate is not None and self._lift_candidate is not None:
            candidate = Later(_lift, self._lift_candidate, offer.candidate)
        if offer.proof is not None and self._lift_proof is not None:
            proof = Later(_lift, self._lift_proof, offer.proof)
        self._outer.offer(
            self._name or offer.origin,
            candidate=candidate,
            value=None if candidate is None else offer.value,
            bound=None if proof is None else offer.bound,
            proof=proof,
            firm=offer.firm and self._firm,
        )

    @property
    def reached(self) -> bool:
        """Whether the gap is reached: here if the view has its own gap, else in the whole problem."""
        return super().reached if self.has_own_gap else self._outer.reached

    def confirm(self) -> bool:
        """Certify and prove offers of the whole problem, unless the view has its own gap."""
        return self.reached if self.has_own_gap else self._outer.confirm()

    def note(self, step: str, **figures: object) -> None:
        """Record a step in the whole problem's search."""
        self._outer.note(step, **figures)


def _lift(lift: Callable[[T], Any], value: T | Later[T]) -> Any:
    return lift(evaluate(value))
