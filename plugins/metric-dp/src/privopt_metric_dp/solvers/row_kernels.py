"""Compiled kernels that compute the interior-point method's directions, step lengths and moves.

The kernels process eight outputs at a time. They take all batches of a group (:class:`Arrays`), release Python's global
interpreter lock, and return sums and smallest ratios over the group's outputs.

Let ``z`` be a column of the mechanism. Each pair p of records i and j at distance d has two privacy constraints. With
``a = exp(eps d / 2)``, row ``2p`` is ``a z_j - z_i / a`` and row ``2p + 1`` is ``a z_i - z_j / a``. The values of these
rows are the slacks ``s``. ``load``, ``store`` and ``spread`` read, write and fill vectors of eight doubles. ``least``
and ``greatest`` compare two vectors lane by lane. ``lowest`` and ``total`` return the smallest lane and the sum of the
lanes (:mod:`privopt_metric_dp.matrix.simd`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from privopt.arrays import Floats, Indices
from privopt.execution.compiled import jit
from privopt_metric_dp.matrix.simd import greatest, least, load, lowest, spread, store, total

__all__ = ["Arrays", "advance", "aim", "extend", "measure", "move", "predict"]

_compiled = jit(error_model="numpy")  # a division by 0 gives infinity or NaN instead of an error


class Arrays(NamedTuple):
    """The arrays read and written by the kernels for a group of outputs, in G batches of eight outputs.

    The arrays of a batch are flat and consist of vectors of eight doubles: one vector for each record (in elimination
    order), two for each required pair, or one for each entry of the factor. A pair ``p`` of records ``i`` and ``j`` at
    distance ``d`` has two privacy constraints, which are the rows ``2p`` and ``2p + 1`` of the matrix ``A``. The values
    of these rows, ``a z_j - z_i / a`` and ``a z_i - z_j / a`` with ``a = exp(eps d / 2)``, must not be negative.

    Attributes:
        ends: Array of shape (P, 2) with the positions of each pair's records in the elimination order.
        root: Array of shape (P,) with ``exp(eps d / 2)`` for each pair.
        mask: Array of shape (G, 8) that is 1 for outputs, and 0 for unused lanes, which repeat the last output.
        cost, z: Arrays of shape (G, 8 N) with the costs and the mechanism.
        s, f: Arrays of shape (G, 16 P) with the slacks ``A z`` and the multipliers.
        dz, df: The directions for ``z`` and ``f``, in arrays of the same shapes. The direction for ``s`` is ``A dz``,
            which is not stored.
        ez, ef: An extra direction for ``z`` and ``f``, which is added with a primal and a dual weight.
        right: Array of shape (G, 8 N) with the right-hand side of the linear system for the extra direction.
        factor: Array of shape (G, 8 E) with the entries of ``L``, where ``H = A' diag(f / s) A = L D L'`` is an
            output's matrix.
        inverse, unit: Arrays of shape (G, 8 N) with ``1 / D`` and the reciprocal square root of each diagonal entry of
            ``H``, respectively.
    """

    ends: Indices
    root: Floats
    mask: Floats
    cost: Floats
    z: Floats
    s: Floats
    f: Floats
    dz: Floats
    df: Floats
    ez: Floats
    ef: Floats
    right: Floats
    factor: Floats
    inverse: Floats
    unit: Floats


@_compiled
def predict(a: Arrays) -> Floats:
    """Set the affine scaling direction ``df = -f - (f / s) ds`` of the multipliers, given the mechanism's ``dz``.

    The formula follows from ``(f + df) (s + ds) = 0`` to first order, where ``s`` are the slacks in the privacy
    constraints and ``ds = A dz``.

    Args:
        a: The arrays. ``dz`` is read and ``df`` is set.

    Returns:
        Array of shape (6,) with the smallest ``ds / s`` and ``df / f`` (at most 0), and the sums of ``f s``, ``f ds``,
        ``df s`` and ``df ds``.
    """
    pair_ends, root, s, f, dz, df = a.ends, a.root, a.s, a.f, a.dz, a.df
    zero = spread(0.0)
    primal, dual = zero, zero
    sums = np.zeros(6)
    for g in range(len(s)):
        sg, fg, x, counted = s[g], f[g], dz[g], load(a.mask[g], 0)
        fs, fds, dfs, dfds = zero, zero, zero, zero
        for p in range(len(pair_ends)):
            grow, shrink = spread(root[p]), spread(1.0 / root[p])
            zi, zj = load(x, pair_ends[p, 0]), load(x, pair_ends[p, 1])
            for direction in range(2):
                q = 2 * p + direction
                ds = grow * zj - shrink * zi if direction == 0 else grow * zi - shrink * zj
                slack, multiplier = load(sg, q), load(fg, q)
                ratio = ds / slack
                step = zero - multiplier - multiplier * ratio
                store(df[g], q, step)
                primal, dual = least(primal, ratio), least(dual, step / multiplier)
                fs, fds = fs + multiplier * slack, fds + multiplier * ds
                dfs, dfds = dfs + step * slack, dfds + step * ds
        # The mask excludes lanes that repeat the last output. Minima need no mask because a repetition does not change
        # them.
        sums[2] += total(fs * counted)
        sums[3] += total(fds * counted)
        sums[4] += total(dfs * counted)
        sums[5] += total(dfds * counted)
    sums[0], sums[1] = lowest(primal), lowest(dual)
    return sums


@_compiled
def aim(a: Arrays, add: tuple[float, float], target: float, trial_steps: tuple[float, float]) -> None:
    """Add the weighted extra direction to the main direction, and set the targets for the next extra direction.

    For each privacy constraint, ``ef`` is set to the desired change in the product ``f s`` (multiplier times slack),
    divided by ``s``. ``right`` is set to ``A' ef``. If ``trial_steps`` is (0, 0), the change is ``target - ds df``
    (Mehrotra). Otherwise, the change is chosen so that the product at these steps lies between a tenth of ``target``
    and ten times ``target``, but it never lowers the product by more than ten times ``target`` (Gondzio 1996).

    Args:
        a: The arrays. ``dz`` and ``df`` are modified in place, and ``ef`` and ``right`` are set.
        add: The primal and dual weights for the extra direction ``ez``, ``ef``.
        target: The complementarity to aim for.
        trial_steps: The primal and dual step lengths at which the product is evaluated, or (0, 0).
    """
    pair_ends, root, s, f, dz, df, ez, ef = a.ends, a.root, a.s, a.f, a.dz, a.df, a.ez, a.ef
    zero, goal = spread(0.0), spread(target)
    lower, upper, floor = spread(0.1 * target), spread(10 * target), spread(-10 * target)
    # Weights and trial steps, primal (p) and dual (d).
    wp, wd, tp, td = spread(add[0]), spread(add[1]), spread(trial_steps[0]), spread(trial_steps[1])
    is_mehrotra = trial_steps[0] == 0.0
    for g in range(len(s)):
        sg, fg, x, right = s[g], f[g], dz[g], a.right[g]
        for k in range(len(x) // 8):
            store(right, k, zero)
            if add[0] != 0.0:
                store(x, k, load(x, k) + wp * load(ez[g], k))
        for p in range(len(pair_ends)):
            i, j = pair_ends[p, 0], pair_ends[p, 1]
            grow, shrink = spread(root[p]), spread(1.0 / root[p])
            for direction in range(2):
                q = 2 * p + direction
                # With a = `grow`, row 2 p is a z_j - z_i / a, and row 2 p + 1 is a z_i - z_j / a.
                numerator, denominator = (j, i) if direction == 0 else (i, j)
                ds, step, slack = grow * load(x, numerator) - shrink * load(x, denominator), load(df[g], q), load(sg, q)
                if add[1] != 0.0:
                    step = step + wd * load(ef[g], q)
                    store(df[g], q, step)
                # The desired change of the product f s.
                if is_mehrotra:
                    change = goal - ds * step
                else:
                    product = (load(fg, q) + td * step) * (slack + tp * ds)
                    # A product is lowered by at most ten times the target because a larger correction would spoil the
                    # direction.
                    change = greatest(least(greatest(product, lower), upper) - product, floor)
                change = change / slack
                store(ef[g], q, change)
                store(right, numerator, load(right, numerator) + grow * change)
                store(right, denominator, load(right, denominator) - shrink * change)


@_compiled
def extend(a: Arrays, weights: Floats) -> Floats:
    """Replace the targets in ``ef`` with the multipliers' extra direction, ``ef - (f / s) A ez``.

    Here, ``f`` are the multipliers, ``s`` are the slacks in the privacy constraints, and ``ez`` is the mechanism's
    extra direction.

    Args:
        a: The arrays. ``ef`` is modified in place.
        weights: Array of shape (W,) with the weights to try for the extra direction.

    Returns:
        Array of shape (2, W) with the smallest ratios (at most 0) of (direction + weight times extra direction) to the
        iterate. The first row is for the primal side and the second for the dual side. Each column is for one weight.
    """
    pair_ends, root, s, f, dz, df, ez, ef = a.ends, a.root, a.s, a.f, a.dz, a.df, a.ez, a.ef
    ratios = np.zeros((2, len(weights)))
    worst = np.zeros(2 * len(weights) * 8)
    ones = spread(1.0)
    for g in range(len(s)):
        x, y = dz[g], ez[g]
        for p in range(len(pair_ends)):
            i, j = pair_ends[p, 0], pair_ends[p, 1]
            grow, shrink = spread(root[p]), spread(1.0 / root[p])
            for direction in range(2):
                q = 2 * p + direction
                # The row is `grow` z_numerator - `shrink` z_denominator.
                numerator, denominator = (j, i) if direction == 0 else (i, j)
                # Reciprocals are used so that one division serves all weights.
                inverse_slack, multiplier = ones / load(s[g], q), load(f[g], q)
                ds, es = (
                    grow * load(x, numerator) - shrink * load(x, denominator),
                    grow * load(y, numerator) - shrink * load(y, denominator),
                )
                extra = load(ef[g], q) - multiplier * inverse_slack * es
                store(ef[g], q, extra)
                inverse_multiplier, step = ones / multiplier, load(df[g], q)
                for w in range(len(weights)):
                    weight = spread(weights[w])
                    # Vectors 2 w and 2 w + 1 of `worst` contain the smallest primal and dual ratios for this weight.
                    store(worst, 2 * w, least(load(worst, 2 * w), (ds + weight * es) * inverse_slack))
                    dual_ratio = (step + weight * extra) * inverse_multiplier
                    store(worst, 2 * w + 1, least(load(worst, 2 * w + 1), dual_ratio))
    for w in range(len(weights)):
        ratios[0, w], ratios[1, w] = lowest(load(worst, 2 * w)), lowest(load(worst, 2 * w + 1))
    return ratios


@_compiled
def move(a: Arrays, add: tuple[float, float], step: tuple[float, float], new_z: Floats, new_f: Floats) -> None:
    """Add the weighted extra direction to the main direction, and take the step to the next iterate.

    The slacks ``s`` are updated in place. The new values of ``z`` and ``f`` are written to ``new_z`` and ``new_f``,
    which may be ``z`` and ``f`` themselves.

    Args:
        a: The arrays.
        add: The primal and dual weights for the extra direction ``ez``, ``ef``. A weight of 0 leaves it out.
        step: The primal and dual step lengths.
        new_z, new_f: Arrays with the shapes of ``z`` and ``f`` that receive the next mechanism and its multipliers.
    """
    pair_ends, root, z, s, f, dz, df, ez, ef = a.ends, a.root, a.z, a.s, a.f, a.dz, a.df, a.ez, a.ef
    wp, wd, tp, td = spread(add[0]), spread(add[1]), spread(step[0]), spread(step[1])
    for g in range(len(s)):
        x = dz[g]
        for k in range(len(x) // 8):
            if add[0] != 0.0:
                store(x, k, load(x, k) + wp * load(ez[g], k))
            store(new_z[g], k, load(z[g], k) + tp * load(x, k))
        for p in range(len(pair_ends)):
            i, j = pair_ends[p, 0], pair_ends[p, 1]
            grow, shrink = spread(root[p]), spread(1.0 / root[p])
            for direction in range(2):
                q = 2 * p + direction
                # The row is `grow` z_numerator - `shrink` z_denominator.
                numerator, denominator = (j, i) if direction == 0 else (i, j)
                change = load(df[g], q)
                if add[1] != 0.0:
                    change = change + wd * load(ef[g], q)
                store(s[g], q, load(s[g], q) + tp * (grow * load(x, numerator) - shrink * load(x, denominator)))
                store(new_f[g], q, load(f[g], q) + td * change)


@_compiled
def measure(a: Arrays) -> tuple[float, float, Floats, Floats]:
    """Compute the quantities that describe the current iterate.

    Args:
        a: The arrays, which are only read.

    Returns:
        The loss, the sum of ``f s``, an array of shape (N,) with the sums of ``z`` over the outputs, and an array of
        shape (N,) with the smallest reduced cost of each record.
    """
    pair_ends, root, mask, cost, z, s, f = a.ends, a.root, a.mask, a.cost, a.z, a.s, a.f
    n = cost.shape[1] // 8
    reduced, min_reduced, sums = np.empty(n * 8), np.full(n, np.inf), np.zeros(n)
    loss, products = 0.0, 0.0
    for g in range(len(s)):
        counted = load(mask[g], 0)
        product = spread(0.0)
        for k in range(n):
            store(reduced, k, load(cost[g], k))
        for p in range(len(pair_ends)):
            i, j = pair_ends[p, 0], pair_ends[p, 1]
            grow, shrink = spread(root[p]), spread(1.0 / root[p])
            forward, backward = load(f[g], 2 * p), load(f[g], 2 * p + 1)
            product = product + forward * load(s[g], 2 * p) + backward * load(s[g], 2 * p + 1)
            # The reduced costs are the costs minus A' f, where row 2 p is a z_j - z_i / a, and row 2 p + 1 is
            # a z_i - z_j / a.
            store(reduced, j, load(reduced, j) - grow * forward + shrink * backward)
            store(reduced, i, load(reduced, i) - grow * backward + shrink * forward)
        for k in range(n):
            mass = load(z[g], k) * counted
            sums[k] += total(mass)
            loss += total(mass * load(cost[g], k))
            # No mask is needed, because unused lanes repeat the last output and therefore do not change a minimum.
            min_reduced[k] = min(min_reduced[k], lowest(load(reduced, k)))
        products += total(product * counted)
    return loss, products, sums, min_reduced


@_compiled
def advance(a: Arrays, step: float) -> float:
    """Move the mechanism by ``step`` times ``dz`` and update its slacks, without changing the multipliers.

    Args:
        a: The arrays.
        step: The step length. If it is 0, nothing changes.

    Returns:
        The smallest ratio ``r = ds / s`` before the step, which is at most 0. Slacks stay non-negative if the step
        length is at most ``-1 / r``.
    """
    pair_ends, root, z, s, dz = a.ends, a.root, a.z, a.s, a.dz
    min_ratio, steps = spread(0.0), spread(step)
    for g in range(len(s)):
        x = dz[g]
        for p in range(len(pair_ends)):
            grow, shrink = spread(root[p]), spread(1.0 / root[p])
            zi, zj = load(x, pair_ends[p, 0]), load(x, pair_ends[p, 1])
            for direction in range(2):
                q = 2 * p + direction
                ds = grow * zj - shrink * zi if direction == 0 else grow * zi - shrink * zj
                slack = load(s[g], q)
                min_ratio = least(min_ratio, ds / slack)
                if step != 0.0:
                    store(s[g], q, slack + steps * ds)
        if step != 0.0:
            for k in range(len(x) // 8):
                store(z[g], k, load(z[g], k) + steps * load(x, k))
    return lowest(min_ratio)
