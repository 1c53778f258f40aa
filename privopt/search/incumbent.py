"""The incumbent of a search, which collects untrusted offers from solvers and turns them into certified releases.

While a solver works, it offers candidates and bounds. A mechanism's :class:`Certifier` turns a candidate into a
certified release, and multipliers into a proof of a bound. An :class:`Incumbent` stores each method's best offer, the
best certified release and the best proved bound. A wrong offer can waste time, but cannot make the result wrong.

A promised value or bound is one that has been reported by a solver but not checked yet. An offer is firm if its
candidate keeps its value when repaired. A candidate from a relaxation is not firm, because repairing it raises its
value.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from attrs import evolve, frozen

from privopt.errors import CertificationError, InputError, SolverError, StoppedError
from privopt.execution.clock import Clock, OutOfTime, clock, within
from privopt.execution.compiled import compilations
from privopt.interfaces.solving import Progress
from privopt.search.offers import Later, Offer, Offers, evaluate, is_within_gap

T = TypeVar("T")
C = TypeVar("C")
P = TypeVar("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
C_contra = TypeVar("C_contra", contravariant=True)
P_contra = TypeVar("P_contra", contravariant=True)

CLOSING_TIME_FACTOR: Final = 1.5
"""The time reserved by a search for certifying, proving and writing, as a multiple of their expected duration.

The expected duration is based on the longest duration of each step so far (:attr:`Incumbent.closing_seconds`).
"""
STEP_PHASES: Final = {"certify": "repairing and certifying", "prove": "proving the bound"}
"""The text shown by the progress display during each closing step, i.e. while certifying or proving."""
MIN_NOTED_EXCESS: Final = 0.01
"""The smallest relative excess of a certified value over the promised one that is recorded in the answer's ``path``."""


class CertifiedEntry(NamedTuple):
    """The best certified release: its exact value, the release itself, and the method that offered it."""

    value: float
    release: Any
    origin: str


class ProvedBound(NamedTuple):
    """The best proved lower bound: the bound, its proof, and the method that offered its multipliers."""

    bound: float
    proof: Any
    origin: str


class Certifier(Protocol[C_contra, P_contra, R_co]):
    """A mechanism's trusted code, which certifies candidate solutions and evaluates proofs exactly.

    Every value, release and bound reported by a run comes from a certifier, never from a solver.
    """

    def certify(self, candidate: C_contra) -> tuple[float, R_co]:
        """Repair and certify a candidate, and return its exact value and the release.

        If this is not possible, implementations raise a CertificationError, an InputError, a SolverError, a
        StoppedError, an ArithmeticError or a MemoryError.
        """

    def prove(self, proof: P_contra, value: float) -> tuple[float, Any]:
        """Evaluate multipliers exactly, and return the lower bound they prove, together with its proof.

        Args:
            proof: The multipliers that, according to the solver, prove its bound.
            value: The value of the best certified release.
        """


def _promised_value(offer: Offer[Any, Any]) -> float:
    """Return the value reported by a solver for its candidate, or infinity if it reports none."""
    return math.inf if offer.value is None else offer.value


@frozen(eq=False, kw_only=True)
class Answer(Generic[R]):
    """The outcome of a search: the best certified release and the best proved bound.

    Attributes:
        release: The certified release.
        value: The release's exact value.
        bound: The proved lower bound, or None if no bound was proved.
        proof: The proof of the bound, or None if no bound was proved.
        origin: The name of the method that offered the release.
        offers: The number of offers made by this method.
        path: The steps of the search, in words.
        stopped: Whether a time limit or an interrupt ended the search early.
        trajectory: The best bound and value known after each improvement, as tuples (seconds, bound, value). These may
            be unchecked values reported by solvers.
        details: Statistics reported by the methods, by name.
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
    """The best offer from each method, the best certified release and the best proved bound.

    The methods of this class can be called from any thread. Certifying and proving run in the caller's thread, one at a
    time. The lock on the stored offers is never held while solvers' code (in a :class:`~privopt.search.offers.Later`)
    or the certifier runs, so offers and queries do not wait for them. Privacy does not depend on the locks: if a solver
    modifies a matrix in the meantime, the modified matrix is repaired and certified like any other.

    A promised value or bound is one that has been reported by a solver but not checked yet.

    Attributes:
        certifier: The object that certifies candidates and proves bounds.
        final_gap: The relative gap that the certified value and the proved bound must reach.
        scope: The time scope in which the incumbent was created. Certification is not interrupted before this scope
            ends.
        closing_time: The time scope for proofs, inside ``scope``. :meth:`begin_closing` sets its end.
        step_seconds: The longest duration of each of the steps "certify" and "prove" so far. A duration that includes
            compilation may be a few seconds too long, so it is replaced once the step has run without compilation.
        cold_steps: The steps that have included compilation every time they have run so far.
        ended_steps: The steps that were interrupted because their time scope ended. They are not started again.
        changed: An event that is set by every offer.
        best_certified: The best certified release. Its value is infinite until a release has been certified.
        best_proved: The best proved bound. It is minus infinity until a bound has been proved.
        path: The steps of the search so far, in words.
        details: Statistics reported by the methods so far, by name.
        _best_offers: The best offer from each method.
        _best_bounds: The highest bound promised by each method, and the multipliers that should prove it.
        _tried_values: For each method, the promised or certified value of the last offer that was tried.
        _offer_counts: The number of offers from each method.
    """

    def __init__(
        self,
        certifier: Certifier[C, P, R],
        gap: float,
        *,
        final_gap: float | None = None,
        noise: float = 0.0,
        progress: Progress | None = None,
    ) -> None:
        """Create an empty incumbent.

        Args:
            certifier: The object that certifies candidates and proves bounds.
            gap: The relative gap that solvers aim for.
            final_gap: The relative gap that the certified value and the proved bound must reach. The default is
                ``gap``. A larger gap allows for candidates whose value increases when they are repaired.
            noise: The largest difference attributed to rounding.
            progress: Called with each offer.
        """
        super().__init__(gap, progress=progress)
        self.certifier, self.noise = certifier, noise
        self.final_gap = gap if final_gap is None else final_gap
        self.scope = clock()
        self.closing_time = Clock(None, self.scope)
        self.step_seconds = {"certify": 0.0, "prove": 0.0}
        self.cold_steps: set[str] = set()
        self.ended_steps: set[str] = set()
        self.changed = threading.Event()
        self.best_certified = CertifiedEntry(math.inf, None, "")
        self.best_proved = ProvedBound(-math.inf, None, "")
        self.path: list[str] = []
        self.details: dict[str, Any] = {}
        # _lock protects the dictionaries below, and is never held while code of solvers or mechanisms runs.
        # _closing_lock admits one thread at a time to certify() and prove(), which run such code for as long as it
        # takes.
        self._lock, self._closing_lock = threading.RLock(), threading.Lock()
        self._best_offers: dict[str, Offer[C, P]] = {}
        self._best_bounds: dict[str, tuple[float, P | Later[P]]] = {}
        self._tried_values: dict[str, float] = {}
        self._offer_counts: dict[str, int] = {}
        self._start_time = self.scope.now()
        # The contents of the progress display: a method, the number of its offers, and the closing step that is
        # running.
        self._last_offer, self._running_step = ("", 0), ""
        self._trajectory: list[tuple[float, float, float]] = []

    # --- called by solvers --------------------------------------------------------------------------

    def _take(self, offer: Offer[C, P]) -> None:
        """Store an offer if it is better than the same method's earlier offers, and report progress."""
        origin = offer.origin
        with self._lock:
            self._offer_counts[origin] = self._offer_counts.get(origin, 0) + 1
            if offer.candidate is not None and self._replaces(offer, self._best_offers.get(origin)):
                self._best_offers[origin] = offer
            bound, proof = offer.bound, offer.proof
            previous_bound = self._best_bounds.get(origin, (-math.inf,))[0]
            if proof is not None and bound is not None and bound > previous_bound:
                self._best_bounds[origin] = bound, proof
            # Only promises of firm offers enter the trajectory, because repairing a relaxation raises its value.
            improved = self.best.take(offer.firm_part)
            promised_bound, promised_value = self.promised_bound, self.promised_value
            # The sum is finite only if there are both a bound and a value.
            if improved and math.isfinite(promised_bound + promised_value):
                elapsed = self.scope.now() - self._start_time
                self._trajectory.append((elapsed, promised_bound, promised_value))
            offer_count = self._offer_counts[origin]
        # The lock has been released, because the display is not part of this module and may take long.
        self.changed.set()
        self._last_offer = origin, offer_count
        self._show_progress()

    def _show_progress(self) -> None:
        """Report the method that made the last offer, the best bound and value, and any closing step in progress."""
        if self._progress is not None:
            origin, offer_count = self._last_offer
            phase = ", ".join(filter(None, [origin, self._running_step]))
            best_ends = (self.promised_bound, self.promised_value)
            finite_ends = (end if math.isfinite(end) else None for end in best_ends)
            # Leave out the number of offers during a closing step, so that the line fits into 80 columns.
            self._progress(phase, 0 if self._running_step else offer_count, *finite_ends)

    def _replaces(self, offer: Offer[C, P], previous: Offer[C, P] | None) -> bool:
        """Return whether an offer replaces the previous offer from the same method.

        A firm offer is one whose candidate keeps its value when repaired. It always replaces an offer that is not firm,
        and is never replaced by one.
        """
        # Repairing a relaxation raises its value, so the values of firm and other offers cannot be compared.
        if previous is None or offer.firm != previous.firm:
            return previous is None or offer.firm
        return _promised_value(offer) < _promised_value(previous)

    @property
    def promised_value(self) -> float:
        """The lowest value that has been certified or is promised by a solver for a firm offer.

        An offer is firm if repairing its candidate does not change the value.
        """
        with self._lock:
            firm_values = [_promised_value(offer) for offer in self._best_offers.values() if offer.firm]
            return min([self.best_certified.value, *firm_values])

    @property
    def promised_bound(self) -> float:
        """The highest lower bound that has been proved or is promised by a solver."""
        with self._lock:
            return max([self.best_proved.bound, *(bound for bound, _ in self._best_bounds.values())])

    @property
    def has_reached_gap(self) -> bool:
        """Whether the best value and the best bound are within the gap.

        Values and bounds reported by solvers count even if they have not been certified or proved yet.
        """
        return is_within_gap(self.promised_value, self.promised_bound, self.gap, self.noise)

    def note(self, step: str, **figures: object) -> None:
        """Append a step of the search to the answer's path, and record named statistics in the answer's details.

        If ``step`` is an empty string, only the statistics are recorded.
        """
        with self._lock:
            if step:
                self.path.append(step)
            self.details.update(figures)

    # --- closing: certify, prove and answer ---------------------------------------------------------

    def run_step(self, step: str, work: Callable[[], T]) -> T | None:
        """Run a closing step (certifying or proving) in the caller's thread, and measure its duration.

        Args:
            step: "certify" or "prove". Certifying runs in the time scope :attr:`scope`, and proving in
                :attr:`closing_time`. Both can end later than the search that calls this method.
            work: A function that performs the step.

        Returns:
            The result of ``work``, or None if the step's scope ended before the step was finished, in this or an
            earlier call.
        """
        if step in self.ended_steps:
            return None
        self._running_step = STEP_PHASES[step]
        self._show_progress()
        compilations_before, previous_seconds = compilations(), self.step_seconds[step]
        start_time = self.scope.now()
        try:
            with within(self.scope if step == "certify" else self.closing_time):
                result = work()
        except OutOfTime:
            self.ended_steps.add(step)
            return None
        finally:
            self._running_step = ""
            self._show_progress()
        seconds = self.scope.now() - start_time
        if compilations() == compilations_before:
            # The first duration without compilation replaces those with compilation, even if it is shorter.
            self.step_seconds[step] = seconds if step in self.cold_steps else max(previous_seconds, seconds)
            self.cold_steps.discard(step)
        elif previous_seconds == 0.0 or step in self.cold_steps:
            self.step_seconds[step] = max(previous_seconds, seconds)
            self.cold_steps.add(step)
        return result

    def _try_step(self, step: str, origin: str, work: Callable[[], T], failure: T) -> T | None:
        """Run a closing step. If the offer is faulty, note the fault in the path and return ``failure``.

        Args:
            step: "certify" or "prove".
            origin: The name of the method that made the offer.
            work: A function that performs the step.
            failure: The value to return if the offer is faulty.

        Returns:
            The result of ``work``, ``failure`` if the offer is faulty, or None if there was no time for the step.
        """

        def work_or_failure() -> T:
            """Run the step, or return ``failure`` if the offer is faulty. OutOfTime is re-raised."""
            try:
                return work()
            except OutOfTime:
                raise
            except (CertificationError, InputError, SolverError, StoppedError, MemoryError, ArithmeticError) as fault:
                self.note(f"{origin} (cannot {step}: {str(fault) or type(fault).__name__})")
                return failure

        return self.run_step(step, work_or_failure)

    @contextmanager
    def _closing_turn(self) -> Iterator[bool]:
        """Wait until no other thread is certifying or proving, and yield whether it is this thread's turn.

        If a release has already been certified, the thread waits no longer than :attr:`closing_time` allows, because
        the other thread's result is not needed.
        """
        has_release = self.best_certified.release is not None
        seconds = min(self.closing_time.left, threading.TIMEOUT_MAX) if has_release else threading.TIMEOUT_MAX
        has_turn = self._closing_lock.acquire(timeout=seconds)
        try:
            yield has_turn
        finally:
            if has_turn:
                self._closing_lock.release()

    def certify(self) -> bool:
        """Certify the most promising offer that has not been tried: repair its candidate and compute its exact value.

        The certified value may be higher than promised, because the promise was wrong or because repair increased the
        value. The certified value then replaces the promised one. If certification fails, the offer is dropped. In
        either case, the next call tries the best remaining offer.

        Returns:
            True if an offer was tried, or False if no offer promises an improvement or no time is left.
        """
        with self._closing_turn() as has_turn:
            offer = self._most_promising_offer() if has_turn else None
            if offer is None:
                return False
            origin, promised_value, candidate = offer.origin, _promised_value(offer), offer.candidate
            assert candidate is not None  # _take stores only offers with a candidate
            failure: tuple[float, R | None] = (math.inf, None)

            # Called without holding the lock, because evaluating and certifying may take long, and offers keep
            # arriving.
            def work() -> tuple[float, R | None]:
                """Compute the candidate if necessary, and certify it."""
                return self.certifier.certify(evaluate(candidate))

            certified = self._try_step("certify", origin, work, failure)
            if certified is None:
                return False
            value, release = certified
            tolerance = max(MIN_NOTED_EXCESS * abs(promised_value), self.noise)
            if release is not None and value > promised_value + tolerance and offer.firm:
                self.note(f"{origin} ({promised_value:.6g} as offered, {value:.6g} certified)")
            with self._lock:
                # Record this only now, so that an offer whose certification was interrupted is tried again at the end.
                self._tried_values[origin] = promised_value
                if release is not None and value < self.best_certified.value:
                    self.best_certified = CertifiedEntry(value, release, origin)
                # The solver may have made a better offer in the meantime. Correct only the offer that was tried.
                if self._best_offers[origin] is offer:
                    if release is None:
                        del self._best_offers[origin]
                    else:
                        self._best_offers[origin] = evolve(offer, value=value, firm=True)
                        self._tried_values[origin] = value
            return True

    def _most_promising_offer(self) -> Offer[C, P] | None:
        """Return the offer to certify next: the untried one with the lowest promised value.

        Returns None if no untried offer promises an improvement on the best certified value.
        """
        with self._lock:
            promising = [
                (_promised_value(offer), origin)
                for origin, offer in self._best_offers.items()
                if self._is_promising(offer)
            ]
            # Among equal values, the method whose name comes first wins, so that the order of the offers does not
            # matter.
            return self._best_offers[min(promising)[1]] if promising else None

    def _is_promising(self, offer: Offer[C, P]) -> bool:
        """Return whether an offer has not been tried yet and promises a lower value than the best certified one.

        Until a release has been certified, any untried offer is promising.
        """
        # An offer that failed, or was certified at this value, is not tried again. A later offer from the same method
        # counts as new if it promises a lower value.
        tried_value = self._tried_values.get(offer.origin)
        is_new = tried_value is None or _promised_value(offer) < tried_value
        # As long as nothing is certified, even an offer of infinite value is tried, because it may be the only one.
        improves = self.best_certified.release is None or _promised_value(offer) < self.best_certified.value
        return is_new and improves

    def prove(self) -> bool:
        """Compute the exact bound proved by the most promising multipliers, and store it if it is the best so far.

        Returns:
            True if multipliers were tried, or False if none promise an improvement or no time is left.
        """
        with self._closing_turn() as has_turn:
            with self._lock:
                promising = [
                    (bound, origin)
                    for origin, (bound, _) in self._best_bounds.items()
                    if bound > self.best_proved.bound
                ]
                if not promising or not has_turn:
                    return False
                promised_bound, origin = max(promising)
                entry = self._best_bounds[origin]

            # Called without holding the lock, because evaluating and proving may take long, and offers keep arriving.
            def work() -> tuple[float, Any]:
                """Compute the multipliers if necessary, and the bound they prove."""
                return self.certifier.prove(evaluate(entry[1]), self.best_certified.value)

            proved = self._try_step("prove", origin, work, (-math.inf, None))
            if proved is None:
                return False
            bound, proof = proved
            if bound < promised_bound - max(self.gap * abs(promised_bound), self.noise):
                self.note(f"{origin} (bound {promised_bound:.6g} as offered, {bound:.6g} proved)")
            with self._lock:
                # A better bound may have been offered in the meantime. Remove only the bound that was tried.
                if self._best_bounds.get(origin) is entry:
                    del self._best_bounds[origin]
                if bound > self.best_proved.bound:
                    self.best_proved = ProvedBound(bound, proof, origin)
            return True

    def has_unproved_bound(self, min_gain: float) -> bool:
        """Return whether proving the highest promised bound would narrow the remaining gap sufficiently.

        If no bound has been proved yet, any promised bound qualifies. The result is False until a release has been
        certified and a bound has been promised.

        Args:
            min_gain: The fraction of the remaining gap that the bound must close. The gap is the difference between the
                best certified value and the best proved bound.
        """
        with self._lock:
            value, proved, promised = self.best_certified.value, self.best_proved.bound, self.promised_bound
        if not math.isfinite(promised) or not math.isfinite(value):
            return False
        return proved == -math.inf or promised > proved + min_gain * max(0.0, value - proved)

    def prove_late(self, seconds: float) -> bool:
        """Call :meth:`prove` with a new time limit of ``seconds``, even if the limit for proofs has already expired."""
        self.begin_closing(seconds)
        self.ended_steps.discard("prove")
        return self.prove()

    def confirm(self) -> bool:
        """Certify and prove offers until the final gap is reached, or until no offer promises to reach it.

        An offer that fails no longer counts towards :attr:`has_reached_gap`, so other methods can continue the search.

        Returns:
            Whether the certified value and the proved bound are within the final gap.
        """
        # Certify values before proving bounds, because a proof may use the value of the certified release.
        while self.has_reached_gap and not self._is_confirmed and (self.certify() or self.prove()):
            pass
        return self._is_confirmed

    @property
    def _is_confirmed(self) -> bool:
        """Whether the certified value and the proved bound are within the final gap."""
        return is_within_gap(self.best_certified.value, self.best_proved.bound, self.final_gap, self.noise)

    @property
    def closing_seconds(self) -> float:
        """The number of seconds to reserve for certifying, proving and writing, based on their durations so far.

        Writing includes reading the release back, and certifying and proving it again. It is therefore expected to take
        as long as both steps together.
        """
        certify_seconds, prove_seconds = self.step_seconds["certify"], self.step_seconds["prove"]
        # Code is compiled only once, so durations that include compilation say nothing about writing.
        write_seconds = sum(self.step_seconds[step] for step in self.step_seconds.keys() - self.cold_steps)
        return CLOSING_TIME_FACTOR * (certify_seconds + prove_seconds + write_seconds)

    def begin_closing(self, seconds: float) -> None:
        """Set a deadline for all proofs, including any in progress: the given number of seconds from now."""
        self.closing_time.end = self.closing_time.now() + seconds

    def answer(self, *, stopped: bool) -> Answer[R]:
        """Return the best certified release and the best proved bound.

        Args:
            stopped: Whether the search was stopped early.

        Raises:
            StoppedError: Nothing was certified, and the search was stopped early.
            SolverError: Nothing was certified, although the search ran to completion.
        """
        with self._lock:
            value, release, origin = self.best_certified
            if release is None:
                steps = "; ".join(self.path)
                if stopped:
                    suffix = f" ({steps})" if steps else ""
                    raise StoppedError(f"stopped before anything was certified{suffix}; nothing written")
                raise SolverError(f"no method gave a mechanism{f': {steps}' if steps else ''}")
            has_bound = math.isfinite(self.best_proved.bound)
            return Answer(
                release=release,
                value=value,
                # If the release is optimal, rounding can put the proved bound slightly above its value.
                bound=min(self.best_proved.bound, value) if has_bound else None,
                proof=self.best_proved.proof if has_bound else None,
                origin=origin,
                offers=self._offer_counts.get(origin, 0),
                path=", ".join(self.path),
                stopped=stopped and not self._is_confirmed,
                trajectory=tuple(self._trajectory),
                details=dict(self.details),
            )
