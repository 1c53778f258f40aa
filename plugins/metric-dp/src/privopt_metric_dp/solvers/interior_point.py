"""Structured primal-dual interior point method for the optimal mechanism.

The only inequality variables are the slacks ``s = A z`` of the privacy rows (scaled by ``exp(-eps d / 2)``) and their
multipliers ``f``: in a connected component with at least two records the privacy rows imply ``z >= 0``. A step takes
one sparse factorisation per output, and conjugate gradients for the row sums
(`privopt_metric_dp.solvers.normal_equations`). Directions are Mehrotra's predictor and corrector with weights (Colombo
and Gondzio 2008) and further centrality correctors (Gondzio 1996).

Every iterate is strictly inside the privacy rows. Its rows sum to one, or are restored to one whenever the gap has
halved, so stopping early also gives a mechanism. Any multipliers prove a bound, so inexact steps cost progress but
never correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import methodcaller

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.errors import SolverError
from privopt.execution.resources import allowed_threads
from privopt.search.offers import Later
from privopt_metric_dp.proof.lagrangian_bound import Few, Multipliers
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.interior_point_state import State, begin
from privopt_metric_dp.solvers.normal_equations import MAX_RECYCLED, MAX_STEPS, PARTIAL_SUMS, SchurComplement, couple
from privopt_metric_dp.solvers.solver import Part, PartOffers
from privopt_metric_dp.solvers.symmetry import Symmetry

__all__ = ["InteriorPoint"]

WEIGHTS = np.array([1.0, 0.75, 0.5, 0.3, 0.1])
"""Weights of a corrector that are tried. The one that allows the longest step is used."""
CORRECTOR_STEPS = 2
"""Largest number of centrality correctors in a step."""
LAST_ITERATION = 150
"""Steps after which the solver gives up."""
MAX_ROW_SUM_ERROR = 1e-7
"""If row sums are farther than this from one, the iterate has broken down numerically."""
ROW_SUM_TOLERANCE = 1e-9
"""If a step leaves row sums farther than this from one, they are restored."""
RESIDUAL_SHARE = 1e-8
"""Residual to which the coupling is solved if it is formed, relative to the right-hand side."""
LOOSE, STRAIGHTENED = 1e-3, 1e-6
"""Relative residuals if the coupling is not formed: in a step (predictor and correctors), and when row sums are
restored. Bounds hold whatever the steps were, and a finer residual did not save steps (2,032 nodes of Rome, 120
outputs)."""
TIGHTER, FINEST = 0.1, 1e-7
"""Factor by which LOOSE is reduced if row sums could not be restored, and the smallest tolerance that results."""
LOOSE_STEP = 0.95
"""Share of the way to the boundary that a step goes if the coupling is not formed."""
RESTORING_STEPS = 400
"""Largest number of conjugate gradient steps for restoring row sums if the coupling is not formed."""
FORMED, TIGHT, TIGHTEST = 4_000, 0.02, 5e-3
"""The coupling is formed for at most FORMED records and gaps below TIGHT, or with few outputs, below TIGHTEST. At 2,032
street nodes of Rome with 120 outputs, both ways took 9 s to a gap of 1 %, with 0.45 GB formed and 0.26 GB otherwise.
With all 2,032 outputs it took 285 s formed, and 376 s to 1.3 % otherwise. At 5,400 junctions with 960 outputs, a step
took 90 s formed and 23 s otherwise (all at a load of 7 to 12 on two processors)."""
RECORDS_PER_FEW_OUTPUTS = 8
"""If there are more than this many records per output, the outputs count as few."""


@frozen
class _IterateStatus:
    """Figures of an iterate.

    Attributes:
        loss, bound: Loss and lower bound, both divided by the scale of the costs.
        mu: Complementarity: the mean of ``f s`` (multiplier times slack) over all rows, 0 at the optimum.
        missing: (O,) amount by which the mean row sum of each orbit of records falls short of 1.
    """

    loss: float
    bound: float
    mu: float
    missing: Floats


def _measure_iterate(state: State) -> _IterateStatus:
    """Compute the loss, bound, complementarity and row sums of the current iterate."""
    losses, products, sums, min_reduced = zip(*state.map_groups(lambda group: group.measure()), strict=True)
    # Rows of the matrix sum to one, so the sum over records of their smallest reduced cost bounds the loss from below.
    # Only representative outputs are solved for, and symmetries map all others to them. So the minimum of a record is
    # that over its whole orbit. `state.orbit` follows the solver's order of records, and `symmetry.orbit` the data's.
    by_orbit = np.full(len(state.y), np.inf)
    np.minimum.at(by_orbit, state.orbit, np.minimum.reduce(min_reduced))
    return _IterateStatus(
        loss=sum(losses),
        bound=float(by_orbit[state.symmetry.orbit].sum()),
        mu=sum(products) / state.size,
        missing=1 - np.asarray(state.gather @ sum(sums)),
    )


def _has_sound_sums(status: _IterateStatus) -> bool:
    """Return whether all row sums are one up to `MAX_ROW_SUM_ERROR`."""
    return float(np.abs(status.missing).max()) <= MAX_ROW_SUM_ERROR


def _save_best(state: State, status: _IterateStatus, *, last: bool = False) -> bool:
    """Save the iterate's mechanism if it is the best so far, and its multipliers if their bound is the best so far.

    Args:
        state: The iterate. Its groups of outputs save the mechanism and the multipliers, and it stores their loss
            (``saved_loss``) and bound.
        status: Figures of the iterate.
        last: Whether to save the mechanism even if its loss is larger, because its row sums were restored.

    Returns:
        False if the row sums are invalid although the coupling is formed, so that the iteration must end. While the
        coupling is not formed, steps are inexact and sums are restored only now and then, so invalid sums are no fault.
    """
    is_sound = _has_sound_sums(status)
    # A mechanism whose rows do not sum to one is not saved, whatever its loss. Any multipliers prove a bound.
    saves_mechanism = is_sound and (last or status.loss < state.saved_loss)
    saves_multipliers = status.bound > state.bound
    for group in state.groups:
        group.keep(saves_mechanism, saves_multipliers)
    state.saved_loss = status.loss if saves_mechanism else state.saved_loss
    state.bound = status.bound if saves_multipliers else state.bound
    return is_sound or not state.formed


def _step_lengths(ratios: Floats) -> Floats:
    """Return the longest steps, at most 1, that keep all variables non-negative.

    Args:
        ratios: Smallest relative changes ``ds / s`` or ``df / f`` in a whole step, at most 0, in an array of any shape.
    """
    # A variable x reaches 0 at the step -x / dx.
    return np.asarray(1 / np.maximum(1.0, -ratios))


def _coupling_tolerance(state: State) -> tuple[float, int]:
    """Return the relative residual to which a step solves the coupling, and the largest number of its iterations."""
    if state.formed:
        return RESIDUAL_SHARE, MAX_STEPS
    # A tolerance below the first one is used after row sums could not be restored, and takes more steps.
    return state.rough, MAX_STEPS if state.rough == LOOSE else RESTORING_STEPS


def _predict_step(state: State, coupling: SchurComplement, missing: Floats, mu: float) -> tuple[Floats, float]:
    """Compute the predictor direction (affine scaling, towards complementarity 0) of all groups of outputs.

    Args:
        state: The iterate.
        coupling: Solves for the prices of the orbits.
        missing: (O,) deficits of the row sums, which a whole step removes.
        mu: Complementarity of the iterate.

    Returns:
        (O,) the step of the prices ``y``, and the corrector's target of complementarity.
    """
    prices = state.prices(state.y)
    priced = state.sums(lambda group: group.solve(prices, 1.0))
    # The step of the prices after which a whole step would remove the deficits.
    dy = coupling.solve(missing - priced, *_coupling_tolerance(state))
    ahead = state.prices(state.y + dy)
    parts = np.array(state.map_groups(lambda group: group.predict(ahead)))
    # Longest primal and dual step.
    tp, td = map(float, _step_lengths(parts[:, :2].min(axis=0)))
    # Sums of f s, f ds, df s and df ds over all rows: with the step lengths they give the predicted complementarity.
    fs, fds, dfs, dfds = parts[:, 2:].sum(axis=0)
    # Mehrotra's rule: the better the predictor reduces complementarity, the less centring the corrector needs.
    predicted = max(0.0, float(fs + tp * fds + td * dfs + tp * td * dfds)) / state.size
    return dy, mu * max((predicted / mu) ** 3, 1e-12)


def _extend_direction(
    state: State, coupling: SchurComplement, add: tuple[float, float], target: float, trial_steps: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Compute an extra direction that aims at complementarity targets and does not change the row sums.

    Args:
        state: The iterate with its direction so far.
        coupling: Solves for the prices.
        add: Primal and dual weight with which the previous extra direction is added first.
        target: Complementarity to aim at.
        trial_steps: (0, 0) for Mehrotra's corrector; otherwise the steps at which Gondzio's corrector is evaluated.

    Returns:
        (O,) the step of ``y`` along the extra direction, and (2, W) the longest primal and dual step for each weight.
    """
    state.map_groups(lambda group: group.aim(add, target, trial_steps))
    nothing = state.prices(np.zeros_like(state.y))
    # The prices cancel what the targets alone would do to the row sums.
    dy = coupling.solve(-state.sums(lambda group: group.solve_right(nothing)), *_coupling_tolerance(state))
    prices = state.prices(dy)
    return dy, _step_lengths(np.minimum.reduce(state.map_groups(lambda group: group.extend(prices, WEIGHTS))))


def _find_direction(
    state: State, coupling: SchurComplement, missing: Floats, mu: float
) -> tuple[Floats, tuple[float, float], tuple[float, float]]:
    """Compute a step's direction: the predictor, the weighted corrector and centrality correctors.

    Args:
        state: The iterate, whose direction is set.
        coupling: Solves for the prices.
        missing: (O,) deficits of the row sums.
        mu: Complementarity of the iterate.

    Returns:
        ``dy``, the primal and dual weight with which the last extra direction must still be added, and the primal and
        dual step length.
    """
    dy, target = _predict_step(state, coupling, missing, mu)
    change, steps = _extend_direction(state, coupling, (0.0, 0.0), target, (0.0, 0.0))
    # Of the corrector, each of the primal and the dual side uses the weight that allows it the longest step.
    best = steps.argmax(axis=1)
    (wp, wd), (tp, td) = WEIGHTS[best], steps.max(axis=1)
    dy = dy + wd * change
    for _ in range(CORRECTOR_STEPS):
        # Steps that are nearly whole gain too little from another corrector.
        if min(tp, td) > 0.95:
            break
        # Gondzio's corrector is evaluated at steps that are longer than the present ones allow.
        ahead = min(1.0, tp + 0.3), min(1.0, td + 0.3)
        change, steps = _extend_direction(state, coupling, (float(wp), float(wd)), target, ahead)
        (wp, wd), (tp2, td2) = WEIGHTS[steps.argmax(axis=1)], steps.max(axis=1)
        # A corrector that lengthens neither step by 1 % is dropped, and no further one is tried.
        if tp2 < tp + 0.01 and td2 < td + 0.01:
            wp = wd = 0.0
            break
        # Each side takes the corrector only if it lengthens this side's step.
        wp, wd = wp if tp2 > tp else 0.0, wd if td2 > td else 0.0
        dy = dy + wd * change
        tp, td = max(tp, tp2), max(td, td2)
    return dy, (float(wp), float(wd)), (float(tp), float(td))


def _restore_sums(state: State, coupling: SchurComplement, within: float) -> None:
    """Restore the row sums to one by the smallest change in the norm of the matrices ``H`` of the last step.

    Args:
        state: The iterate.
        coupling: The coupling of the last step.
        within: Largest error of a row sum that is not corrected.
    """
    # The coupling is solved approximately, so one correction may leave an error that the next one removes.
    for _ in range(3):
        missing = 1 - state.sums(lambda group: group.row_sums())
        if np.abs(missing).max() < within:
            return
        # A coupling that is not formed (`loose`) is solved less accurately and in more steps.
        prices = state.prices(
            coupling.solve(missing, *((STRAIGHTENED, RESTORING_STEPS) if coupling.loose else (RESIDUAL_SHARE,)))
        )
        # The correction would reduce a slack to 0 or below. The sums are left as they are; later steps repair them.
        if min(state.map_groups(methodcaller("set_sum_correction", prices))) <= -1:
            return
        state.map_groups(lambda group: group.apply_sum_correction())


def _lift_mechanism(symmetry: Symmetry, parts: Sequence[Callable[[], Floats]]) -> Floats:
    """Return the mechanism ``(N, K)`` from the columns that the groups saved, with rows divided by their sums.

    Args:
        symmetry: The symmetries, which give the columns of all outputs from those of the representatives.
        parts: For each group a function that returns its columns (N, R).
    """
    z = np.maximum(symmetry.lift(np.concatenate([columns() for columns in parts], axis=1)), 0)
    return np.asarray(z / z.sum(axis=1, keepdims=True))


def _lift_multipliers(
    instance: Instance, symmetry: Symmetry, scale: float, columns: Sequence[Callable[[], Floats]]
) -> Multipliers:
    """Return the multipliers of all pairs from those that the groups saved.

    The result keeps no reference to the groups.

    Args:
        instance, symmetry: The problem and its symmetries.
        scale: Number by which the costs were divided.
        columns: For each group a function that returns its multipliers (R, P).
    """
    # The rows were scaled by exp(-eps d / 2) and the costs divided by `scale`; multipliers of the original rows undo
    # both.
    shrink, all_pairs = np.exp(-instance.lengths / 2) * scale, np.arange(len(instance.pairs))

    def rows() -> Iterator[Few]:
        """Yield the multipliers of each output: a number for every pair."""
        outputs = (values for proof in columns for values in proof())
        return ((k, all_pairs, values * shrink) for k, values in enumerate(outputs))

    # Every row of every pair and output has a positive multiplier.
    many = 2 * len(all_pairs) * len(symmetry.representatives)
    return symmetry.lift_multipliers(instance, Multipliers(rows=rows, many=many))


def _offer_best(state: State, offers: PartOffers) -> None:
    """Offer the saved mechanism of the smallest loss and the multipliers of the best bound, computed on request.

    Args:
        state: The iterate, with what its groups of outputs saved.
        offers: Receives the offer.
    """
    # The costs were divided by `scale`. The arguments of `Later` are what the groups saved, which later steps leave
    # alone.
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
    """Take interior-point steps, and offer the best mechanism and bound after each, until the gap is reached.

    Args:
        state: The first iterate, which is changed.
        offers: Receives mechanisms, bounds and proofs.
        between: Called between steps; it may change costs.

    Raises:
        SolverError: The iteration broke down numerically, or the gap was not reached in `LAST_ITERATION` steps.
        numpy.linalg.LinAlgError: A factorisation broke down.
        OutOfTime: The time limit expired.
    """
    gap, coupling = offers.gap, None
    for iteration in range(LAST_ITERATION):
        status = _measure_iterate(state)
        if not (np.isfinite(status.loss + status.mu) and _save_best(state, status)):
            raise SolverError("it broke down numerically before the gap was reached")
        if coupling is not None and _must_restore(state, status, gap):
            # As accurately as doubles allow: this iterate may become the answer.
            _restore_sums(state, coupling, 1e-14)
            status = _measure_iterate(state)
            _save_best(state, status, last=True)
            if not _has_sound_sums(status):
                # The steps were too inexact. Solve the coupling more accurately from now on.
                state.rough = max(FINEST, TIGHTER * state.rough)
        _offer_best(state, offers)
        if _has_sound_sums(status) and state.instance.is_gap_reached(
            status.loss * state.scale, state.bound * state.scale, gap
        ):
            return
        if between is not None:
            between(state)
        coupling = couple(state)
        dy, add, (tp, td) = _find_direction(state, coupling, status.missing, status.mu)
        # Steps stop short of the boundary, because slacks near 0 would make the next matrices badly conditioned. The
        # first two steps and inexact ones stop earlier.
        step_share = LOOSE_STEP if coupling.loose else 0.9 if iteration < 2 else 0.995
        # The primal and the dual step. A step of 1 does not reach the boundary and is taken in full.
        step = 1.0 if tp >= 1 else step_share * tp, 1.0 if td >= 1 else step_share * td
        state.map_groups(methodcaller("move", add, step))
        state.y = state.y + step[1] * dy
        if not coupling.loose:
            _restore_sums(state, coupling, ROW_SUM_TOLERANCE)
        # Steps as short as this would not reach the gap in the number of steps that is left.
        if max(step) < 1e-4:
            raise SolverError("its steps became too short before the gap was reached")
    raise SolverError(f"the gap was not reached in {LAST_ITERATION} steps")


def _must_restore(state: State, status: _IterateStatus, gap: float) -> bool:
    """Return whether row sums must be restored: the gap is reached, or is at most half of the saved mechanism's.

    Only if the coupling is not formed does a halved gap count, because row sums are otherwise restored after each step.

    Args:
        state: The iterate, with the loss of the saved mechanism and the best bound.
        status: Figures of the iterate.
        gap: Requested relative gap.
    """
    is_halved = not state.formed and status.loss - state.bound <= (state.saved_loss - state.bound) / 2
    return is_halved or state.instance.is_gap_reached(status.loss * state.scale, state.bound * state.scale, gap)


def _forms_coupling(part: Part, gap: float) -> bool:
    """Return whether to form the matrix that couples the outputs, instead of completing some of its entries.

    The matrix is formed if it is small enough for the gap, or if its chordal completion would take longer.

    Args:
        part: The part to solve.
        gap: Requested relative gap.
    """
    instance, pattern = part.instance, part.elimination
    has_few_outputs = RECORDS_PER_FEW_OUTPUTS * instance.outputs < instance.records
    if instance.records <= FORMED and gap < (TIGHTEST if has_few_outputs else TIGHT):
        return True
    # The completion takes a dense solve for each column, about the cube of its entries. Beyond three times records
    # times entries that counts as longer than forming the matrix.
    columns = np.diff(pattern.start).astype(np.float64)
    return bool((columns**3).sum() > 3.0 * instance.records * pattern.entries)


class InteriorPoint:
    """Solves the optimal mechanism's program by a structured primal-dual interior point method.

    Attributes:
        symmetry: Whether symmetries are searched for and used.
        threads: Number of threads, or None for as many as ``--jobs`` allows. Answers do not depend on the number.
        between: Called between steps; it may change costs (`State.recost`). Symmetries are not used with it.
    """

    name = "interior-point"

    def __init__(
        self, *, symmetry: bool = True, threads: int | None = None, between: Callable[[State], None] | None = None
    ) -> None:
        """Create the solver with the attributes that the class explains."""
        self.symmetry, self.threads, self.between = symmetry and between is None, threads, between

    def _uses_symmetry(self, part: Part) -> bool:
        """Return whether symmetries of a part are searched for."""
        return self.symmetry and part.instance.records <= FORMED

    def peak_bytes(self, part: Part) -> float:
        """Estimate the peak memory in bytes beyond the part. With symmetries, only some of the outputs are solved for.

        Each output takes doubles: one for each entry of the factor, nine for each record (costs, mechanism and the
        saved one, direction, extra direction and its right-hand side, pivots, scales, the answer), and ten for each
        pair (slacks, multipliers and the saved ones, direction, extra direction). A coupling that is formed takes
        single precision numbers: `PARTIAL_SUMS` matrices, and five more while they are joined and factored. A coupling
        that is completed takes doubles: the entries of the pattern for each partial sum and for eight outputs in each
        thread, and the stored directions.
        """
        n, pairs = part.instance.records, len(part.instance.pairs)
        k = len(part.symmetry.representatives) if self._uses_symmetry(part) else part.instance.outputs
        lanes, pair_count = -(-k // 8) * 8, n * (n - 1) // 2
        full = 2 * pairs > pair_count  # half of all pairs fill all of a factor
        entries = pair_count if full else part.elimination.entries
        formed = n <= FORMED or full or _forms_coupling(part, TIGHT)
        rough = 8.0 * ((n + entries) * (PARTIAL_SUMS + 8 * allowed_threads()) + 2 * MAX_RECYCLED * n)
        coupling = 4.0 * n**2 * (PARTIAL_SUMS + 5) if formed else rough
        return 8.0 * lanes * (entries + 9 * n + 10 * pairs) + coupling

    def solve(self, part: Part, offers: PartOffers) -> None:
        """Solve a part, and offer a mechanism and a bound after each step.

        Symmetries are only used for parts of at most `FORMED` records.

        Args:
            part: A connected instance.
            offers: Receives mechanisms (N, K), bounds and multipliers, and has the gap at which to stop.
        """
        import scipy.linalg  # noqa: F401  (so that the limit below reaches its BLAS too, whatever was loaded before)
        from threadpoolctl import threadpool_limits

        instance, pattern = part.instance, part.elimination
        with np.errstate(all="ignore"):
            symmetry = part.symmetry if self._uses_symmetry(part) else Symmetry.trivial(instance)
            # With symmetries the coupling is always formed, because its completion needs each record as an orbit of its
            # own.
            formed = symmetry.order > 1 or _forms_coupling(part, offers.gap)
            state = begin(instance, symmetry, pattern, formed=formed, threads=self.threads or allowed_threads())
            offers.note("", symmetries=symmetry.order, factor_entries=pattern.entries)
            try:
                # The groups of outputs keep all processors busy already. Threads of BLAS would compete with them.
                with threadpool_limits(limits=1, user_api="blas"):
                    _iterate(state, offers, self.between)
            finally:
                if state.pool is not None:
                    state.pool.close()
