"""Structured primal-dual interior point for the optimal mechanism.

The only inequality variables are the slacks ``s = A z`` of the privacy rows (scaled by ``exp(-eps d / 2)``) and their
multipliers ``f``: in a connected component with two records the rows imply ``z >= 0``. A step takes one sparse
factorisation per output, and conjugate gradients for the row sums (`privopt_metric_dp.solvers.normal_equations`).
Directions are Mehrotra's predictor and corrector with weights (Colombo and Gondzio 2008) and further centrality
correctors (Gondzio 1996). Every iterate is strictly inside the privacy rows. Its rows sum to one, or are restored to
one whenever the gap has halved, so stopping early also gives a mechanism. Any multipliers prove a bound, so inexact
steps cost progress but never correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import methodcaller

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.errors import SolverError
from privopt.execution.limits import allowed_threads
from privopt.search.offers import Later
from privopt_metric_dp.proof.multipliers import Few, Multipliers
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.interior_point_state import State, begin
from privopt_metric_dp.solvers.normal_equations import MAX_RECYCLED, MAX_STEPS, PARTIAL_SUMS, SchurComplement, couple
from privopt_metric_dp.solvers.solver import Part, PartOffers
from privopt_metric_dp.solvers.symmetry import Symmetry

__all__ = ["InteriorPoint"]

WEIGHTS = np.array([1.0, 0.75, 0.5, 0.3, 0.1])
CORRECTOR_STEPS = 2
LAST_ITERATION = 150
MAX_ROW_SUM_ERROR = 1e-7
"""If row sums are farther than this from one, the iterate has broken down numerically."""
ROW_SUM_TOLERANCE = 1e-9
"""If a step leaves row sums farther than this from one, they are restored."""
RESIDUAL_SHARE = 1e-8
"""Residual of the solution of the coupling, relative to its right side."""
LOOSE, STRAIGHTENED = 1e-3, 1e-6
"""The same where the coupling is not formed: in a step, predictor and correctors alike, and where row sums are brought
back. Bounds hold whatever the steps were; a finer one made no fewer of them (2,032 nodes of Rome, 120 outputs)."""
TIGHTER, FINEST = 0.1, 1e-7
"""Factor by which the first tolerance is reduced if row sums could not be restored, and its smallest value."""
LOOSE_STEP = 0.95
"""Part of the way to the boundary that a step takes if the coupling is not formed."""
RESTORING_STEPS = 400
"""Largest number of conjugate gradient steps for restoring row sums if the coupling is not formed."""
FORMED, TIGHT, TIGHTEST = 4_000, 0.02, 5e-3
"""Records up to which, and gaps below which, the coupling is formed; with few outputs, below the second gap. At 2,032
street nodes of Rome with 120 outputs either way took 9 s to 1 %, .45 and .26 GB; with all 2,032 outputs 285 s formed,
and 376 s to 1.3 % otherwise; at 5,400 junctions with 960 outputs a step took 90 s formed and 23 s otherwise (all at a
load of 7 to 12 on two processors)."""
RECORDS_PER_FEW_OUTPUTS = 8
"""If there are more than this many records per output, the outputs count as few."""


@frozen
class _IterateStatus:
    """Loss and lower bound (scaled), mean complementarity, and the deficit of each row sum."""

    loss: float
    bound: float
    mu: float
    missing: Floats


def _measure_iterate(state: State) -> _IterateStatus:
    losses, products, sums, min_reduced = zip(*state.each(lambda group: group.measure()), strict=True)
    by_orbit = np.full(len(state.y), np.inf)
    np.minimum.at(by_orbit, state.orbit, np.minimum.reduce(min_reduced))
    return _IterateStatus(
        loss=sum(losses),
        bound=float(by_orbit[state.symmetry.orbit].sum()),
        mu=sum(products) / state.size,
        missing=1 - np.asarray(state.gather @ sum(sums)),
    )


def _has_sound_sums(status: _IterateStatus) -> bool:
    """Check whether row sums are one up to `MAX_ROW_SUM_ERROR`."""
    return float(np.abs(status.missing).max()) <= MAX_ROW_SUM_ERROR


def _save_best(state: State, status: _IterateStatus, *, last: bool = False) -> bool:
    """Save the mechanism of the smallest loss with valid row sums, and the multipliers of the best bound.

    Returns:
        False if the row sums are invalid although the coupling is formed, so that every step should keep them valid.
    """
    is_sound = _has_sound_sums(status)
    mechanism, proof = is_sound and (last or status.loss < state.saved_loss), status.bound > state.bound
    for group in state.groups:
        group.keep(mechanism, proof)
    state.saved_loss = status.loss if mechanism else state.saved_loss
    state.bound = status.bound if proof else state.bound
    return is_sound or not state.formed


def _step_lengths(ratios: Floats) -> Floats:
    """Return the longest steps, at most 1, that keep all variables non-negative, given the smallest relative change."""
    return np.asarray(1 / np.maximum(1.0, -ratios))


def _coupling_tolerance(state: State) -> tuple[float, int]:
    """Return the relative residual to which the coupling is solved, and the largest number of steps."""
    if state.formed:
        return RESIDUAL_SHARE, MAX_STEPS
    return state.rough, MAX_STEPS if state.rough == LOOSE else RESTORING_STEPS


def _predict_step(state: State, coupling: SchurComplement, missing: Floats, mu: float) -> tuple[Floats, float]:
    """Compute the predictor direction (affine scaling) of all groups.

    Returns:
        The step of ``y`` and the corrector's target of complementarity.
    """
    prices = state.prices(state.y)
    priced = state.sums(lambda group: group.solve(prices, 1.0))
    dy = coupling.solve(missing - priced, *_coupling_tolerance(state))
    ahead = state.prices(state.y + dy)
    parts = np.array(state.each(lambda group: group.predict(ahead)))
    tp, td = map(float, _step_lengths(parts[:, :2].min(axis=0)))
    fs, fds, dfs, dfds = parts[:, 2:].sum(axis=0)
    predicted = max(0.0, float(fs + tp * fds + td * dfs + tp * td * dfds)) / state.size
    return dy, mu * max((predicted / mu) ** 3, 1e-12)


def _extend_direction(
    state: State, coupling: SchurComplement, add: tuple[float, float], target: float, trial_steps: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Compute an extra direction for complementarity targets only; return its step of ``y`` and steps by weight."""
    state.each(lambda group: group.aim(add, target, trial_steps))
    nothing = state.prices(np.zeros_like(state.y))
    dy = coupling.solve(-state.sums(lambda group: group.solve_right(nothing)), *_coupling_tolerance(state))
    prices = state.prices(dy)
    return dy, _step_lengths(np.minimum.reduce(state.each(lambda group: group.extend(prices, WEIGHTS))))


def _find_direction(
    state: State, coupling: SchurComplement, missing: Floats, mu: float
) -> tuple[Floats, tuple[float, float], tuple[float, float]]:
    """Compute the predictor, the weighted corrector and centrality correctors.

    Returns:
        ``dy``, the weights with which the last extra direction must still be added, and both step lengths.
    """
    dy, target = _predict_step(state, coupling, missing, mu)
    change, steps = _extend_direction(state, coupling, (0.0, 0.0), target, (0.0, 0.0))
    best = steps.argmax(axis=1)
    (wp, wd), (tp, td) = WEIGHTS[best], steps.max(axis=1)
    dy = dy + wd * change
    for _ in range(CORRECTOR_STEPS):
        if min(tp, td) > 0.95:
            break
        ahead = min(1.0, tp + 0.3), min(1.0, td + 0.3)
        change, steps = _extend_direction(state, coupling, (float(wp), float(wd)), target, ahead)
        (wp, wd), (tp2, td2) = WEIGHTS[steps.argmax(axis=1)], steps.max(axis=1)
        if tp2 < tp + 0.01 and td2 < td + 0.01:
            wp = wd = 0.0
            break
        wp, wd = wp if tp2 > tp else 0.0, wd if td2 > td else 0.0
        dy = dy + wd * change
        tp, td = max(tp, tp2), max(td, td2)
    return dy, (float(wp), float(wd)), (float(tp), float(td))


def _restore_sums(state: State, coupling: SchurComplement, within: float) -> None:
    """Restore the row sums to one by the smallest change in the metric of the last step."""
    for _ in range(3):
        missing = 1 - state.sums(lambda group: group.row_sums())
        if np.abs(missing).max() < within:
            return
        prices = state.prices(
            coupling.solve(missing, *((STRAIGHTENED, RESTORING_STEPS) if coupling.loose else (RESIDUAL_SHARE,)))
        )
        if min(state.each(methodcaller("straighten", prices))) <= -1:
            return
        state.each(lambda group: group.take())


def _lift_mechanism(symmetry: Symmetry, parts: Sequence[Callable[[], Floats]]) -> Floats:
    """Return the mechanism ``(N, K)`` from the columns that the groups saved."""
    z = np.maximum(symmetry.lift(np.concatenate([columns() for columns in parts], axis=1)), 0)
    return np.asarray(z / z.sum(axis=1, keepdims=True))


def _lift_multipliers(
    instance: Instance, symmetry: Symmetry, scale: float, columns: Sequence[Callable[[], Floats]]
) -> Multipliers:
    """Return the multipliers of all pairs from those that the groups saved, without references to the groups."""
    shrink, all_pairs = np.exp(-instance.lengths / 2) * scale, np.arange(len(instance.pairs))

    def rows() -> Iterator[Few]:
        outputs = (values for proof in columns for values in proof())
        return ((k, all_pairs, values * shrink) for k, values in enumerate(outputs))

    many = 2 * len(all_pairs) * len(symmetry.representatives)
    return symmetry.lift_multipliers(instance, Multipliers(rows=rows, many=many))


def _offer_best(state: State, offers: PartOffers) -> None:
    """Offer the saved mechanism of the smallest loss and the multipliers of the best bound."""
    instance, symmetry, scale = state.instance, state.symmetry, state.scale
    has_mechanism = np.isfinite(state.saved_loss)
    offers.offer(
        InteriorPoint.name,
        candidate=Later(_lift_mechanism, symmetry, [group.mechanism() for group in state.groups])
        if has_mechanism
        else None,
        value=state.saved_loss * scale,
        bound=state.bound * scale,
        proof=Later(_lift_multipliers, instance, symmetry, scale, [group.proof() for group in state.groups]),
    )


def _iterate(state: State, offers: PartOffers, between: Callable[[State], None] | None = None) -> None:
    """Iterate until the gap is reached.

    Raises:
        SolverError: The iteration broke down numerically before.
        numpy.linalg.LinAlgError: A factorisation broke down before.
        OutOfTime: The time limit came before.
    """
    gap, coupling = offers.gap, None
    for iteration in range(LAST_ITERATION):
        status = _measure_iterate(state)
        if not (np.isfinite(status.loss + status.mu) and _save_best(state, status)):
            raise SolverError("its numbers broke down before the gap")
        if coupling is not None and _must_restore(state, status, gap):
            _restore_sums(state, coupling, 1e-14)
            status = _measure_iterate(state)
            _save_best(state, status, last=True)
            if not _has_sound_sums(
                status
            ):  # the steps were too inexact: solve the coupling more accurately from now on
                state.rough = max(FINEST, TIGHTER * state.rough)
        _offer_best(state, offers)
        if _has_sound_sums(status) and state.instance.reached(
            status.loss * state.scale, state.bound * state.scale, gap
        ):
            return
        if between is not None:
            between(state)
        coupling = couple(state)
        dy, add, (tp, td) = _find_direction(state, coupling, status.missing, status.mu)
        keep = LOOSE_STEP if coupling.loose else 0.9 if iteration < 2 else 0.995
        step = 1.0 if tp >= 1 else keep * tp, 1.0 if td >= 1 else keep * td
        state.each(methodcaller("move", add, step))
        state.y = state.y + step[1] * dy
        if not coupling.loose:
            _restore_sums(state, coupling, ROW_SUM_TOLERANCE)
        if max(step) < 1e-4:
            raise SolverError("its steps came to nothing before the gap")
    raise SolverError(f"the gap was not reached in {LAST_ITERATION} steps")


def _must_restore(state: State, status: _IterateStatus, gap: float) -> bool:
    """Check whether row sums must be restored: the gap is reached, or has halved since the last time."""
    is_halved = not state.formed and status.loss - state.bound <= (state.saved_loss - state.bound) / 2
    return is_halved or state.instance.reached(status.loss * state.scale, state.bound * state.scale, gap)


def _forms_coupling(part: Part, gap: float) -> bool:
    """Check whether to form the coupling: it is small enough, or its chordal completion would take longer."""
    instance, pattern = part.instance, part.elimination
    has_few_outputs = RECORDS_PER_FEW_OUTPUTS * instance.outputs < instance.records
    if instance.records <= FORMED and gap < (TIGHTEST if has_few_outputs else TIGHT):
        return True
    columns = np.diff(pattern.start).astype(np.float64)
    return bool((columns**3).sum() > 3.0 * instance.records * pattern.entries)


class InteriorPoint:
    """The structured interior point.

    Attributes:
        symmetry: whether symmetries are looked for and used.
        threads: workers; as many as ``--jobs`` allows where None. Answers do not depend on it.
        between: called between steps, and may change costs (`State.recost`); without symmetries.
    """

    name = "interior-point"

    def __init__(
        self, *, symmetry: bool = True, threads: int | None = None, between: Callable[[State], None] | None = None
    ) -> None:
        self.symmetry, self.threads, self.between = symmetry and between is None, threads, between

    def peak_bytes(self, part: Part) -> float:
        """Return the memory that it takes on the processor beyond the part; symmetry not counted.

        Doubles an output: one an entry of the factor, nine a record (costs, mechanism and the one kept, direction,
        extra one and its right side, pivots, scales, the answer), ten a pair (slacks, multipliers and those kept,
        direction, extra one). Of a coupling that is formed, singles: `PARTIAL_SUMS` matrices, and five more while they
        are put together and factored; of another, doubles: entries of the pattern for each of as many parts, eight
        outputs' at work, and directions.
        """
        n, k, pairs = part.instance.records, part.instance.outputs, len(part.instance.pairs)
        lanes, pair_count = -(-k // 8) * 8, n * (n - 1) // 2
        full = 2 * pairs > pair_count  # half of all pairs fill all of a factor
        entries = pair_count if full else part.elimination.entries
        formed = n <= FORMED or full or _forms_coupling(part, TIGHT)
        rough = 8.0 * ((n + entries) * (PARTIAL_SUMS + 8 * allowed_threads()) + 2 * MAX_RECYCLED * n)
        coupling = 4.0 * n**2 * (PARTIAL_SUMS + 5) if formed else rough
        return 8.0 * lanes * (entries + 9 * n + 10 * pairs) + coupling

    def solve(self, part: Part, offers: PartOffers) -> None:
        """See :class:`privopt_metric_dp.solvers.solver.Solver`."""
        import scipy.linalg  # noqa: F401  (so that the limit below reaches its BLAS too, whatever was loaded before)
        from threadpoolctl import threadpool_limits

        instance, pattern = part.instance, part.elimination
        with np.errstate(all="ignore"):
            uses_symmetry = self.symmetry and instance.records <= FORMED
            group = part.symmetry if uses_symmetry else Symmetry.trivial(instance)
            formed = group.order > 1 or _forms_coupling(part, offers.gap)
            state = begin(instance, group, pattern, formed=formed, threads=self.threads or allowed_threads())
            offers.note("", symmetries=group.order, factor_entries=pattern.entries)
            try:
                # the outputs keep all processors busy already: threads of BLAS's own would only wait for each other
                with threadpool_limits(limits=1, user_api="blas"):
                    _iterate(state, offers, self.between)
            finally:
                if state.pool is not None:
                    state.pool.close()
