"""A structured primal-dual interior-point method for the optimal mechanism.

In a connected component with at least two records, the privacy constraints imply ``z >= 0``, so the only inequality
variables are the slacks ``s = A z`` and the multipliers ``f`` of the privacy constraints. These constraints are the
rows of the matrix ``A``. The two rows for a pair at distance d are scaled by ``exp(-eps d / 2)``. Each step requires
one sparse factorisation per output, and uses conjugate gradients for the row sums
(`privopt_metric_dp.solvers.normal_equations`). Its direction consists of Mehrotra's predictor, a weighted corrector
(Colombo and Gondzio 2008), and further centrality correctors (Gondzio 1996).

Every iterate satisfies all privacy constraints strictly. Its row sums are one, or are restored to one whenever the gap
has halved, so that stopping early still gives a mechanism. Any multipliers prove a bound, so inexact steps may slow
down progress but never make a result wrong.
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
"""The weights to try for a corrector. The one that allows the longest step is used."""
MAX_CORRECTORS, MAX_CORRECTORS_IF_LARGE = 2, 4
"""The maximum numbers of centrality correctors in a step, by default and for large instances.

The second applies if the matrix that couples the outputs is formed for at least `LARGE_RECORDS` records. The more
expensive a factorisation is compared with a corrector, the more correctors pay off (Gondzio 1996). For 2,032 records
and outputs, forming the coupling matrix took as long as 73 products with it, and a corrector as long as about ten."""
LARGE_RECORDS = 1_000
"""The number of records from which `MAX_CORRECTORS_IF_LARGE` applies."""
TRIAL_STEP_INCREASE = 0.8
"""The amount by which the trial steps for a centrality corrector exceed the steps that are possible without it.

Trial steps are at most 1. With an increase of 0.3, reaching a gap of 1 % took 27 steps instead of 23 for 800 street
nodes in Rome, and 22 instead of 20 for 900 cells.
"""
LAST_ITERATION = 150
"""The maximum number of steps before the solver gives up."""
MAX_ROW_SUM_ERROR = 1e-7
"""The largest difference between a row sum and 1 at which an iterate still counts as sound.

A larger difference means that the computation has broken down numerically."""
ROW_SUM_TOLERANCE = 1e-9
"""The difference between a row sum and 1 above which row sums are restored after a step."""
RESIDUAL_SHARE = 1e-8
"""The relative residual for systems with the coupling matrix if that matrix is formed."""
LOOSE, STRAIGHTENED = 1e-3, 1e-6
"""The relative residuals if the coupling matrix is not formed.

The first is for a step's predictor and correctors, and the second for restoring row sums. Bounds are valid no matter
how inexact the steps are, and a smaller residual did not save steps (2,032 nodes in Rome, 120 outputs)."""
TIGHTER, FINEST = 0.1, 1e-7
"""The factor by which a step's residual is multiplied if row sums could not be restored, and the residual's minimum."""
LOOSE_STEP = 0.95
"""The fraction of the distance to the boundary covered by a step if the coupling matrix is not formed."""
RESTORING_STEPS = 400
"""The maximum number of conjugate gradient steps for restoring row sums if the coupling matrix is not formed."""
FORMED, TIGHT, TIGHTEST = 4_000, 0.02, 5e-3
"""The limits that determine whether the coupling matrix is formed.

It is formed if there are at most FORMED records and the requested gap is below TIGHT or, with few outputs, below
TIGHTEST. For 2,032 street nodes in Rome with 120 outputs, reaching a gap of 1 % took 9 s either way, with 0.45 GB if
the matrix was formed and 0.26 GB if not. With all 2,032 outputs, it took 285 s if formed; if not, a gap of 1.3 % took
376 s. For 5,400 junctions with 960 outputs, a step took 90 s if formed and 23 s if not. (All times were measured at a
load of 7 to 12 on two processors.)"""
RECORDS_PER_FEW_OUTPUTS = 8
"""The number of records per output above which there are considered to be few outputs."""


@frozen
class _IterateStatus:
    """The quantities that describe an iterate.

    Attributes:
        loss, bound: The loss and the lower bound, both divided by the scale of the costs.
        mu: The complementarity, i.e. the mean of ``f s`` (multiplier times slack) over all privacy constraints. It is 0
            at the optimum.
        missing: Array of shape (O,) with the amount by which the mean row sum over each orbit falls short of 1. An
            orbit is a set of records that symmetries map to one another.
    """

    loss: float
    bound: float
    mu: float
    missing: Floats


def _measure_iterate(state: State) -> _IterateStatus:
    """Compute the loss, the bound, the complementarity and the row sums of the current iterate."""
    losses, products, sums, min_reduced = zip(*state.map_groups(lambda group: group.measure()), strict=True)
    # The rows of the matrix sum to one, so the sum of the records' smallest reduced costs is a lower bound on the loss.
    # Only representative outputs are solved for, and symmetries map all others to them. A record's minimum over all
    # outputs is therefore the minimum over its whole orbit. `state.orbit` is in elimination order, and `symmetry.orbit`
    # in the order of the instance.
    by_orbit = np.full(len(state.y), np.inf)
    np.minimum.at(by_orbit, state.orbit, np.minimum.reduce(min_reduced))
    return _IterateStatus(
        loss=sum(losses),
        bound=float(by_orbit[state.symmetry.orbit].sum()),
        mu=sum(products) / state.size,
        missing=1 - np.asarray(state.gather @ sum(sums)),
    )


def _has_sound_sums(status: _IterateStatus) -> bool:
    """Return whether every row sum differs from one by at most `MAX_ROW_SUM_ERROR`."""
    return float(np.abs(status.missing).max()) <= MAX_ROW_SUM_ERROR


def _save_best(state: State, status: _IterateStatus, *, last: bool = False) -> bool:
    """Save the iterate's mechanism if it is the best so far, and its multipliers if their bound is the best so far.

    Args:
        state: The iterate. Its groups of outputs save the mechanism and the multipliers, and the state itself stores
            their loss (``saved_loss``) and bound.
        status: The quantities that describe the iterate.
        last: Whether to save the mechanism even if its loss is larger. This is done after row sums have been restored.

    Returns:
        Whether the iteration may continue. If the matrix that couples the outputs has been formed, invalid row sums end
        the iteration. Otherwise, steps are inexact, so invalid sums are accepted until they are restored.
    """
    is_sound = _has_sound_sums(status)
    # A mechanism whose rows do not sum to one is not saved, whatever its loss. Multipliers prove a bound in any case.
    saves_mechanism = is_sound and (last or status.loss < state.saved_loss)
    saves_multipliers = status.bound > state.bound
    for group in state.groups:
        group.keep(saves_mechanism, saves_multipliers)
    state.saved_loss = status.loss if saves_mechanism else state.saved_loss
    state.bound = status.bound if saves_multipliers else state.bound
    return is_sound or not state.formed


def _step_lengths(ratios: Floats) -> Floats:
    """Return the longest step lengths, at most 1, that keep all variables non-negative.

    Args:
        ratios: Array of any shape with the smallest relative changes in a full step, ``ds / s`` for slacks or
            ``df / f`` for multipliers. All are at most 0.

    Returns:
        Array of the same shape with the step lengths.
    """
    # A variable x reaches 0 at the step -x / dx.
    return np.asarray(1 / np.maximum(1.0, -ratios))


def _coupling_tolerance(state: State) -> tuple[float, int]:
    """Return the relative residual and the iteration limit for solving systems with the coupling matrix."""
    if state.formed:
        return RESIDUAL_SHARE, MAX_STEPS
    # Once row sums could not be restored, a smaller residual is used, which takes more iterations.
    return state.rough, MAX_STEPS if state.rough == LOOSE else RESTORING_STEPS


def _predict_step(state: State, coupling: SchurComplement, missing: Floats, mu: float) -> tuple[Floats, float]:
    """Compute the predictor for all outputs, i.e. the affine scaling direction towards complementarity 0.

    Args:
        state: The iterate, whose direction is set.
        coupling: The matrix that couples the outputs, from which the prices of the orbits are computed.
        missing: Array of shape (O,) with the deficits in the row sums, which a full step removes.
        mu: The complementarity of the iterate.

    Returns:
        Array of shape (O,) with the changes in the prices ``y``, and the complementarity that the corrector should aim
        for.
    """
    prices = state.prices(state.y)
    priced = state.sums(lambda group: group.solve(prices, 1.0))
    # With this change of the prices, a full step would remove the deficits.
    dy = coupling.solve(missing - priced, *_coupling_tolerance(state))
    ahead = state.prices(state.y + dy)
    parts = np.array(state.map_groups(lambda group: group.predict(ahead)))
    # The longest primal and the longest dual step.
    tp, td = map(float, _step_lengths(parts[:, :2].min(axis=0)))
    # The sums of f s, f ds, df s and df ds over all rows give the complementarity after these steps.
    fs, fds, dfs, dfds = parts[:, 2:].sum(axis=0)
    # Mehrotra's rule: the better the predictor reduces complementarity, the less centring the corrector needs.
    predicted = max(0.0, float(fs + tp * fds + td * dfs + tp * td * dfds)) / state.size
    return dy, mu * max((predicted / mu) ** 3, 1e-12)


def _extend_direction(
    state: State, coupling: SchurComplement, add: tuple[float, float], target: float, trial_steps: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Compute an extra direction that aims for a given complementarity without changing the row sums.

    Args:
        state: The iterate with its direction so far.
        coupling: The matrix that couples the outputs, from which the prices are computed.
        add: The primal and dual weights of the previous extra direction, which is first added to the direction.
        target: The complementarity to aim for.
        trial_steps: The primal and the dual step length at which Gondzio's corrector is evaluated, or (0, 0) for
            Mehrotra's corrector.

    Returns:
        Array of shape (O,) with the changes in the prices ``y`` along the extra direction, and an array of shape (2, W)
        with the longest primal and dual steps for each of the W weights that are tried for this direction.
    """
    state.map_groups(lambda group: group.aim(add, target, trial_steps))
    nothing = state.prices(np.zeros_like(state.y))
    # The prices cancel the effect that the targets alone would have on the row sums.
    dy = coupling.solve(-state.sums(lambda group: group.solve_right(nothing)), *_coupling_tolerance(state))
    prices = state.prices(dy)
    return dy, _step_lengths(np.minimum.reduce(state.map_groups(lambda group: group.extend(prices, WEIGHTS))))


def _find_direction(
    state: State, coupling: SchurComplement, missing: Floats, mu: float
) -> tuple[Floats, tuple[float, float], tuple[float, float]]:
    """Compute the direction of a step, which consists of the predictor, a weighted corrector and centrality correctors.

    Args:
        state: The iterate, whose direction is set.
        coupling: The matrix that couples the outputs, from which the prices are computed.
        missing: Array of shape (O,) with the deficits in the row sums.
        mu: The complementarity of the iterate.

    Returns:
        Array of shape (O,) with the changes in the prices, the primal and dual weights of the last extra direction,
        which has yet to be added, and the primal and dual step lengths.
    """
    dy, target = _predict_step(state, coupling, missing, mu)
    change, steps = _extend_direction(state, coupling, (0.0, 0.0), target, (0.0, 0.0))
    # The primal and the dual side each use the weight for the corrector that allows them the longest step.
    best = steps.argmax(axis=1)
    (wp, wd), (tp, td) = WEIGHTS[best], steps.max(axis=1)
    dy = dy + wd * change
    is_large = state.formed and state.instance.records >= LARGE_RECORDS
    for _ in range(MAX_CORRECTORS_IF_LARGE if is_large else MAX_CORRECTORS):
        # If both steps are nearly full, another corrector gains too little.
        if min(tp, td) > 0.95:
            break
        # Gondzio's corrector is evaluated at steps that are longer than those possible now.
        ahead = min(1.0, tp + TRIAL_STEP_INCREASE), min(1.0, td + TRIAL_STEP_INCREASE)
        change, steps = _extend_direction(state, coupling, (float(wp), float(wd)), target, ahead)
        (wp, wd), (tp2, td2) = WEIGHTS[steps.argmax(axis=1)], steps.max(axis=1)
        # A corrector that lengthens neither step by 1 % is dropped, and no other is tried.
        if tp2 < tp + 0.01 and td2 < td + 0.01:
            wp = wd = 0.0
            break
        # Each side uses the corrector only if it lengthens that side's step.
        wp, wd = wp if tp2 > tp else 0.0, wd if td2 > td else 0.0
        dy = dy + wd * change
        tp, td = max(tp, tp2), max(td, td2)
    return dy, (float(wp), float(wd)), (float(tp), float(td))


def _restore_sums(state: State, coupling: SchurComplement, within: float) -> None:
    """Restore the row sums to one with the smallest possible change to the mechanism.

    The change is measured in the norm defined by the matrices ``H`` of the last step.

    Args:
        state: The iterate, whose mechanism is modified in place.
        coupling: The matrix that couples the outputs, from the last step.
        within: The tolerance. Nothing is changed if every row sum differs from one by less than this tolerance.
    """
    # Systems with the coupling are solved approximately, so one correction may leave an error for the next one to
    # remove.
    for _ in range(3):
        missing = 1 - state.sums(lambda group: group.row_sums())
        if np.abs(missing).max() < within:
            return
        # If the coupling is not formed (`loose`), the system is solved less accurately and takes more steps.
        prices = state.prices(
            coupling.solve(missing, *((STRAIGHTENED, RESTORING_STEPS) if coupling.loose else (RESIDUAL_SHARE,)))
        )
        # If the correction would reduce a slack to 0 or below, the row sums are left to later steps.
        if min(state.map_groups(methodcaller("set_sum_correction", prices))) <= -1:
            return
        state.map_groups(lambda group: group.apply_sum_correction())


def _lift_mechanism(symmetry: Symmetry, parts: Sequence[Callable[[], Floats]]) -> Floats:
    """Combine the columns saved by all groups into a mechanism, and divide its rows by their sums.

    Args:
        symmetry: The symmetries, used to turn the columns for representative outputs into columns for all outputs.
        parts: One function per group that returns the group's columns, of shape (N, R).

    Returns:
        Array of shape (N, K) with the mechanism over all outputs.
    """
    z = np.maximum(symmetry.lift(np.concatenate([columns() for columns in parts], axis=1)), 0)
    return np.asarray(z / z.sum(axis=1, keepdims=True))


def _lift_multipliers(
    instance: Instance, symmetry: Symmetry, scale: float, columns: Sequence[Callable[[], Floats]]
) -> Multipliers:
    """Convert the multipliers saved by all groups to multipliers for all outputs.

    The result does not hold any references to the groups.

    Args:
        instance, symmetry: The problem and its symmetries.
        scale: The divisor applied to the costs.
        columns: One function per group that returns the group's multipliers, of shape (R, P).
    """
    # The rows were scaled by exp(-eps d / 2) and the costs were divided by `scale`. The multipliers of the original
    # rows must undo both.
    shrink, all_pairs = np.exp(-instance.lengths / 2) * scale, np.arange(len(instance.pairs))

    def rows() -> Iterator[Few]:
        """Return an iterator over tuples of an output's index, the indices of all pairs, and their multipliers."""
        outputs = (values for proof in columns for values in proof())
        return ((k, all_pairs, values * shrink) for k, values in enumerate(outputs))

    # `many` counts two rows for each pair and each representative output: every row has a positive multiplier here.
    many = 2 * len(all_pairs) * len(symmetry.representatives)
    return symmetry.lift_multipliers(instance, Multipliers(rows=rows, many=many))


def _offer_best(state: State, offers: PartOffers) -> None:
    """Offer the saved mechanism with the smallest loss and the saved multipliers with the best bound.

    The mechanism and the multipliers are only assembled from the groups of outputs when they are needed.

    Args:
        state: The iterate, whose groups of outputs have saved the mechanism and the multipliers.
        offers: The search that receives the offers.
    """
    # The arguments of `Later` are what the groups saved, which later steps do not change.
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
    """Take interior-point steps, offering the best mechanism and bound after each one, until the gap is reached.

    Args:
        state: The first iterate, which is updated in place.
        offers: The search that receives mechanisms, bounds and multipliers.
        between: A function that is called with the state between steps and may change costs.

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
            # The sums are restored as accurately as doubles allow, because this iterate may become the answer.
            _restore_sums(state, coupling, 1e-14)
            status = _measure_iterate(state)
            _save_best(state, status, last=True)
            if not _has_sound_sums(status):
                # The steps were too inexact, so systems with the coupling are solved more accurately from now on.
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
        # first two steps stop even earlier, and so do inexact ones.
        step_share = LOOSE_STEP if coupling.loose else 0.9 if iteration < 2 else 0.995
        # The primal and the dual step length. A full step does not cross the boundary, so it is taken as it is.
        step = 1.0 if tp >= 1 else step_share * tp, 1.0 if td >= 1 else step_share * td
        state.map_groups(methodcaller("move", add, step))
        state.y = state.y + step[1] * dy
        if not coupling.loose:
            _restore_sums(state, coupling, ROW_SUM_TOLERANCE)
        # With steps as short as this, the gap would not be reached in the steps that are left.
        if max(step) < 1e-4:
            raise SolverError("its steps became too short before the gap was reached")
    raise SolverError(f"the gap was not reached in {LAST_ITERATION} steps")


def _must_restore(state: State, status: _IterateStatus, gap: float) -> bool:
    """Return whether row sums must be restored to one.

    This is the case if the gap has been reached, or if the matrix that couples the outputs is not formed and the gap
    has halved since a mechanism was last saved. If that matrix is formed, row sums are restored after each step anyway.

    Args:
        state: The iterate, with the loss of the saved mechanism and the best bound.
        status: The quantities that describe the iterate.
        gap: The requested relative gap.
    """
    is_halved = not state.formed and status.loss - state.bound <= (state.saved_loss - state.bound) / 2
    return is_halved or state.instance.is_gap_reached(status.loss * state.scale, state.bound * state.scale, gap)


def _forms_coupling(part: Part, gap: float) -> bool:
    """Return whether to form the whole matrix that couples the outputs.

    The alternative is to compute only some of its entries and use their chordal completion as a preconditioner. The
    whole matrix is formed if there are few records and the requested gap is small, or if the completion would take
    longer.

    Args:
        part: The part to solve.
        gap: The requested relative gap.
    """
    instance, pattern = part.instance, part.elimination
    has_few_outputs = RECORDS_PER_FEW_OUTPUTS * instance.outputs < instance.records
    if instance.records <= FORMED and gap < (TIGHTEST if has_few_outputs else TIGHT):
        return True
    # For the completion, each column takes a dense solve, whose work is about the cube of the column's number of
    # entries. If the sum of these cubes exceeds three times the records times the entries, forming the matrix is
    # assumed to be faster.
    columns = np.diff(pattern.start).astype(np.float64)
    return bool((columns**3).sum() > 3.0 * instance.records * pattern.entries)


class InteriorPoint:
    """A solver that uses a structured primal-dual interior-point method to solve the LP for the optimal mechanism.

    Attributes:
        symmetry: Whether to search for symmetries and use them.
        threads: The number of threads, or None for the number allowed by ``--jobs``. Results do not depend on it.
        between: A function that is called with the state between steps and may change costs (`State.recost`), or None.
            If there is such a function, no symmetries are used.
    """

    name = "interior-point"

    def __init__(
        self, *, symmetry: bool = True, threads: int | None = None, between: Callable[[State], None] | None = None
    ) -> None:
        """Create the solver.

        Args:
            symmetry: Whether to search for symmetries and use them.
            threads: The number of threads, or None for the number allowed by ``--jobs``.
            between: A function to call with the state between steps, or None.
        """
        self.symmetry, self.threads, self.between = symmetry and between is None, threads, between

    def _uses_symmetry(self, part: Part) -> bool:
        """Return whether to search for symmetries of a part."""
        return self.symmetry and part.instance.records <= FORMED

    def peak_bytes(self, part: Part) -> float:
        """Estimate the peak memory in bytes beyond the part itself.

        If symmetries are used, only the representative outputs count. Each output needs one double per entry of the
        factor, nine per record and ten per pair. The nine doubles per record are for the costs, the current and the
        saved mechanism, the direction, the extra direction and its right-hand side, the pivots, the scales and the
        solution. A pair has two privacy constraints, each of which needs five doubles for the slack, the current and
        the saved multiplier, and the two directions.

        If the matrix that couples the outputs is formed, it needs `PARTIAL_SUMS` matrices in single precision, and five
        more while these are summed and factored. Otherwise, its chordal completion needs one double per entry of the
        pattern for each partial sum and eight for each thread, plus the stored directions.
        """
        n, pairs = part.instance.records, len(part.instance.pairs)
        k = len(part.symmetry.representatives) if self._uses_symmetry(part) else part.instance.outputs
        lanes, pair_count = -(-k // 8) * 8, n * (n - 1) // 2
        full = 2 * pairs > pair_count  # with more than half of all pairs, the factor is treated as full
        entries = pair_count if full else part.elimination.entries
        formed = n <= FORMED or full or _forms_coupling(part, TIGHT)
        rough = 8.0 * ((n + entries) * (PARTIAL_SUMS + 8 * allowed_threads()) + 2 * MAX_RECYCLED * n)
        coupling = 4.0 * n**2 * (PARTIAL_SUMS + 5) if formed else rough
        return 8.0 * lanes * (entries + 9 * n + 10 * pairs) + coupling

    def solve(self, part: Part, offers: PartOffers) -> None:
        """Solve a part, offering a mechanism and a bound after each step.

        Symmetries are only used for parts with at most `FORMED` records.

        Args:
            part: A connected instance.
            offers: The search that receives mechanisms of shape (N, K), bounds and multipliers. It determines the gap
                at which to stop.

        Raises:
            SolverError: The iteration broke down numerically, or the gap was not reached in `LAST_ITERATION` steps.
            numpy.linalg.LinAlgError: A factorisation broke down.
            OutOfTime: The time limit expired.
        """
        import scipy.linalg  # noqa: F401  (SciPy's BLAS must be loaded before the limit below, to be covered by it)
        from threadpoolctl import threadpool_limits

        instance, pattern = part.instance, part.elimination
        with np.errstate(all="ignore"):
            symmetry = part.symmetry if self._uses_symmetry(part) else Symmetry.trivial(instance)
            # With symmetries, the coupling is always formed, because its completion requires that each record is an
            # orbit of its own.
            formed = symmetry.order > 1 or _forms_coupling(part, offers.gap)
            state = begin(instance, symmetry, pattern, formed=formed, threads=self.threads or allowed_threads())
            offers.note("", symmetries=symmetry.order, factor_entries=pattern.entries)
            try:
                # The threads for the groups of outputs already keep all processors busy. BLAS threads would compete
                # with them.
                with threadpool_limits(limits=1, user_api="blas"):
                    _iterate(state, offers, self.between)
            finally:
                if state.pool is not None:
                    state.pool.close()
