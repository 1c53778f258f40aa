"""The incumbent of a search: offers, which are not trusted, and certified entries, which may be released.

A solver offers candidates and bounds while it works. A mechanism's :class:`ClosingStep` turns a candidate into a
certified release and multipliers into a proof. An :class:`Incumbent` keeps the best offer of each origin, and what was
certified and proved: a wrong offer costs a try, never truth.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from attrs import evolve, frozen

from privopt.errors import CertificationError, InputError, SolverError, StoppedError
from privopt.execution.clock import OutOfTime, clock, in_thread
from privopt.execution.compiled import compilations
from privopt.interfaces.offers import BestOffer, Later, Offer, Offers, evaluate, near
from privopt.interfaces.solving import Progress

T = TypeVar("T")
C = TypeVar("C")
P = TypeVar("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
C_contra = TypeVar("C_contra", contravariant=True)
P_contra = TypeVar("P_contra", contravariant=True)

MARGIN_WRITING: Final = 1.25
MARGIN_CLOSING: Final = 1.5
"""What is kept of the time for writing, and for certifying and proving: so many times what they took in this run. Where
writing was measured something stands by, so that a miss costs quality alone (at 2 the exponential mechanism of 2,032
streets had no time under a limit of 3 s)."""
SECONDS_PER_POLL: Final = 0.2
"""Seconds between two looks at a closing step that does not end."""


class ClosingStep(Protocol[C_contra, P_contra, R_co]):
    """How a mechanism turns what was found into what is said; the only code that is believed."""

    def certify(self, candidate: C_contra) -> tuple[float, R_co]:
        """Make the release of a candidate, and evaluate it."""

    def prove(self, proof: P_contra, value: float) -> tuple[float, Any]:
        """Evaluate what a bound is proved from exactly; ``value`` is that of the release."""


def _promised(offer: Offer[Any, Any]) -> float:
    """Return the stated cost of an offer's candidate; infinite if none is stated."""
    return math.inf if offer.value is None else offer.value


@frozen(eq=False, kw_only=True)
class Answer(Generic[R]):
    """The outcome of an incumbent's search.

    Attributes:
        release, value: certified.
        bound, proof: proved; None where nothing is.
        origin: the method that the release is of.
        offers: how often that method offered anything.
        path: what was tried, in words.
        stopped: whether a limit or an interrupt ended the work early.
        trajectory: (seconds, bound, value) as they were promised.
        details: figures of the methods.
    """

    release: R
    value: float
    bound: float | None
    proof: Any
    origin: str
    offers: int
    path: str
    stopped: bool
    trajectory: tuple[tuple[float, float, float], ...]
    details: Mapping[str, Any]


class Incumbent(Offers[C, P], Generic[C, P, R]):
    """The best offers of each origin, and what was certified and proved of them.

    One lock around the tables; what is to be made is made under it. Privacy never hangs on it: a torn matrix is
    repaired and certified like any other, torn multipliers are evaluated again. A step that does not end is left
    behind (:attr:`late`): its lock may be held for ever, so nothing more is certified after it.

    Attributes:
        hard: the scope of time that it was made in, which closing must end in.
        late: whether a step was left behind.
        cost: most seconds that "certify", "prove" and "write" took so far in this run. One in which code was compiled
            counts until another was measured: a cold cache of compiled code makes the first some seconds longer.
        cold: those of them that were measured only while code was compiled.
        changed: set by each offer.
    """

    def __init__(
        self,
        closing: ClosingStep[C, P, R],
        gap: float,
        *,
        asked: float | None = None,
        noise: float = 0.0,
        progress: Progress | None = None,
    ) -> None:
        """Begin with nothing.

        Args:
            closing: what certifies and proves.
            gap: relative gap that solvers are to reach.
            asked: the gap to be certified and proved, where it is another: what repair loses lies between the two.
            noise: a difference that is lost in rounding.
            progress: called with each offer.
        """
        self.closing, self.gap, self.asked, self.noise = closing, gap, asked or gap, noise
        self.best, self.hard, self.late = BestOffer(), clock(), False
        self.cost = {"certify": 0.0, "prove": 0.0, "write": 0.0}
        self.cold: set[str] = set()
        self.changed = threading.Event()
        self.certified: tuple[float, R | None, str] = (math.inf, None, "")
        self.proved: tuple[float, Any, str] = (-math.inf, None, "")
        self.path: list[str] = []
        self.details: dict[str, Any] = {}
        self._lock, self._turn = threading.RLock(), threading.Lock()
        self._offers: dict[str, Offer[C, P]] = {}
        self._bounds: dict[str, tuple[float, P | Later[P]]] = {}
        self._tried: dict[str, float] = {}
        self._count: dict[str, int] = {}
        self._progress, self._began = progress, time.monotonic()
        self._trajectory: list[tuple[float, float, float]] = []

    # --- what solvers do ----------------------------------------------------------------------------

    def _take(self, offer: Offer[C, P]) -> None:
        origin = offer.origin
        with self._lock:
            self._count[origin] = self._count.get(origin, 0) + 1
            if offer.candidate is not None and self._beats(offer, self._offers.get(origin)):
                self._offers[origin] = offer
            bound, proof = offer.bound, offer.proof
            if proof is not None and bound is not None and bound > self._bounds.get(origin, (-math.inf,))[0]:
                self._bounds[origin] = bound, proof
            better = self.best.take(offer.settled)
            low, high = self.bound, self.value
            if better and math.isfinite(low + high):
                self._trajectory.append((time.monotonic() - self._began, low, high))
            count = self._count[origin]
        self.changed.set()
        if self._progress is not None:
            self._progress(origin, count, *(end if math.isfinite(end) else None for end in (low, high)))

    def _beats(self, offer: Offer[C, P], old: Offer[C, P] | None) -> bool:
        """Return whether an offer takes the place of its origin's last one."""
        if old is None or offer.firm != old.firm:
            return old is None or offer.firm
        return _promised(offer) < _promised(old)

    @property
    def value(self) -> float:
        """The least value that is certified, or that a firm offer promises."""
        with self._lock:
            return min([self.certified[0], *(_promised(offer) for offer in self._offers.values() if offer.firm)])

    @property
    def bound(self) -> float:
        """The greatest bound that is proved, or that an offer promises."""
        with self._lock:
            return max([self.proved[0], *(bound for bound, _ in self._bounds.values())])

    @property
    def reached(self) -> bool:
        """Whether the gap is reached by what firm offers promise."""
        return near(self.value, self.bound, self.gap, self.noise)

    def note(self, step: str, **figures: object) -> None:
        """See :class:`Offers`."""
        with self._lock:
            if step:
                self.path.append(step)
            self.details.update(figures)

    # --- what closing does --------------------------------------------------------------------------

    def measured(self, what: str, work: Callable[[], T]) -> T | None:
        """Do a closing step in a thread of its own; None where it was left behind, for the hard end came near."""
        if self.late:
            return None
        compiled, known = compilations(), self.cost[what]
        began, running = time.monotonic(), in_thread(work, within=self.hard)
        keep = MARGIN_WRITING * self.cost["write"] if what != "write" else 0.0
        while not running.done and self.hard.left > keep:
            running.wait(min(SECONDS_PER_POLL, self.hard.left - keep))
        took = time.monotonic() - began
        if compilations() == compiled:
            self.cost[what] = took if what in self.cold else max(known, took)
            self.cold.discard(what)
        elif known == 0.0 or what in self.cold:
            self.cost[what] = max(known, took)
            self.cold.add(what)
        self.late = not running.done or isinstance(running.error, OutOfTime)
        return None if self.late else running.result()

    def certify(self) -> bool:
        """Certify the most promising offer that was not tried yet; False where there is none that promises more.

        What comes out costs what it costs: an offer that lied or loses by its repair keeps its certified value, one
        that fails is dropped, and the next best origin has its turn.
        """
        with self._turn:  # one at a time: who comes second finds what the first made
            return self._certify()

    def _certify(self) -> bool:
        with self._lock:
            able = [(_promised(offer), name) for name, offer in self._offers.items() if self._promising(offer)]
            if self.late or not able:
                return False
            promise, origin = min(able)
            offer = self._offers[origin]
            self._tried[origin] = promise

        def work() -> tuple[float, R | None]:
            try:
                assert offer.candidate is not None  # none is taken without
                with self._lock:
                    candidate = evaluate(offer.candidate)
                return self.closing.certify(candidate)
            except OutOfTime:
                raise
            except (CertificationError, InputError, SolverError, StoppedError, MemoryError, ArithmeticError) as fault:
                self.note(f"{origin} (not certified: {str(fault) or type(fault).__name__})")
                return math.inf, None

        found = self.measured("certify", work)
        if found is None:
            return False
        value, release = found
        if release is not None and value > promise + max(0.01 * abs(promise), self.noise) and offer.firm:
            self.note(f"{origin} ({promise:.6g} as offered, {value:.6g} certified)")
        with self._lock:
            if release is not None and value < self.certified[0]:
                self.certified = value, release, origin
            if self._offers[origin] is offer:
                if release is None:
                    del self._offers[origin]
                else:
                    self._offers[origin], self._tried[origin] = evolve(offer, value=value, firm=True), value
        return True

    def _promising(self, offer: Offer[C, P]) -> bool:
        tried = self._tried.get(offer.origin)
        new = tried is None or _promised(offer) < tried
        return new and (self.certified[1] is None or _promised(offer) < self.certified[0])

    def prove(self) -> bool:
        """Evaluate the best bound's multipliers exactly; False where none promises more than is proved."""
        with self._turn:
            return self._prove()

    def _prove(self) -> bool:
        with self._lock:
            able = [(bound, origin) for origin, (bound, _) in self._bounds.items() if bound > self.proved[0]]
            if self.late or not able:
                return False
            bound, origin = max(able)
            given = self._bounds.pop(origin)[1]

        def work() -> tuple[float, Any]:
            try:
                with self._lock:
                    proof = evaluate(given)
                return self.closing.prove(proof, self.certified[0])
            except OutOfTime:
                raise
            except (CertificationError, SolverError, StoppedError, MemoryError, ArithmeticError) as fault:
                self.note(f"{origin} (bound not proved: {str(fault) or type(fault).__name__})")
                return -math.inf, None

        found = self.measured("prove", work)
        if found is None:
            return False
        if found[0] < bound - max(self.gap * abs(bound), self.noise):
            self.note(f"{origin} (bound {bound:.6g} as offered, {found[0]:.6g} proved)")
        if found[0] > self.proved[0]:
            self.proved = *found, origin
        return True

    def confirm(self) -> bool:
        """See :class:`Offers`; what failed costs its origin the claim, so that a ladder goes on."""
        while not self.late and self.reached and not self._confirmed and (self.certify() or self.prove()):
            pass
        return self._confirmed

    @property
    def _confirmed(self) -> bool:
        return near(self.certified[0], self.proved[0], self.asked, self.noise)

    @property
    def needs(self) -> float:
        """Seconds that the end takes, by what it took so far in this run."""
        return MARGIN_WRITING * self.cost["write"] + MARGIN_CLOSING * (self.cost["certify"] + self.cost["prove"])

    def answer(self, *, stopped: bool) -> Answer[R]:
        """Return what is certified and proved."""
        value, release, origin = self.certified
        if release is None:
            tried = "; ".join(self.path)
            if stopped:
                raise StoppedError(
                    f"stopped before anything was certified{f' ({tried})' if tried else ''}; nothing written"
                )
            raise SolverError(f"no method gave a mechanism{f': {tried}' if tried else ''}")
        known = math.isfinite(self.proved[0])
        with self._lock:
            return Answer(
                release=release,
                value=value,
                bound=min(self.proved[0], value) if known else None,
                proof=self.proved[1] if known else None,
                origin=origin,
                offers=self._count.get(origin, 0),
                path=", ".join(self.path),
                stopped=stopped and not self._confirmed,
                trajectory=tuple(self._trajectory),
                details=dict(self.details),
            )
