"""Convert a solver's multipliers to a proof small enough to store, and read stored proofs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

import numpy as np

from privopt import dsl
from privopt.arrays import Floats, Ints
from privopt.errors import Fault, InputError, ModelError
from privopt.execution.clock import clock
from privopt.files.archive import read_npz
from privopt_metric_dp.matrix.privacy import PRIVACY_ROWS
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof.lagrangian_bound import Multipliers, SparseMultipliers
from privopt_metric_dp.proof.proof_file import PROOF, Proof
from privopt_metric_dp.proof.row_proof import Rows, select_multipliers
from privopt_metric_dp.proof.street_proof import Streets
from privopt_metric_dp.proof.tree_proof import Trees

__all__ = ["multipliers_of", "prove", "prove_over_streets", "read_proof"]

SPARE_SHARE: Final = 0.1
"""The largest reduction of the bound that is accepted to make a proof smaller, as a fraction of a gap.

The gap is the requested gap or 1e-5, whichever is smaller. For a bound over all streets, it is always the requested
gap."""
LONG_SPARE_SHARE: Final = 0.03
"""The largest accepted reduction of the bound of a long proof that misses the requested gap anyway.

It is a fraction of the remaining gap."""
MANY_MULTIPLIERS: Final = 1_000_000
"""The number of multipliers above which a proof counts as long. A file with this many takes up about 10 MB."""
BYTES_PER_MULTIPLIER: Final = 54
"""The number of bytes of memory needed per multiplier while a proof is made.

This includes the original, the joined and the rounded values."""
MAX_UNPACKING_FACTOR: Final = 8
"""The largest allowed ratio of the unpacked size of a proof file's arrays to the size of the file.

One byte per matrix entry is added to the file's size, and 64 KiB are added to the resulting limit."""


def read_proof(folder: Path, shape: tuple[int, int]) -> Proof:
    """Read proof.npz in any of its three forms, :class:`Rows`, :class:`Streets` or :class:`Trees`.

    Args:
        folder: The release folder.
        shape: The problem's numbers of records and outputs, (N, K).

    Raises:
        InputError: The file is missing or malformed.
    """
    path = folder / PROOF
    size = path.stat().st_size if path.is_file() else 0
    forms = (Streets, Rows, Trees)
    names = [("version", "unit", *form.KINDS) for form in forms]
    expectation = " or ".join(", ".join(form) for form in names)
    # The limit protects a verifier from small files that unpack to gigabytes. The extra 64 KiB are for headers.
    parts = read_npz(path, expectation, largest=MAX_UNPACKING_FACTOR * (size + math.prod(shape)) + (1 << 16))
    # Only `Trees` has an array `trees`. `Streets` has all arrays of `Rows` and `bound_outputs`, which tells the two
    # apart.
    form_number = 2 if "trees" in parts else 0 if "bound_outputs" in parts else 1
    form, own_names = forms[form_number], names[form_number]
    if unknown := parts.keys() - {*own_names}:
        raise InputError([Fault(path.name, name, "an unknown array", ", ".join(own_names)) for name in unknown])
    return form.of_parts(path.name, parts, shape)


def prove(
    multipliers: Multipliers,
    data: MetricData,
    weighted: Floats,
    value: float,
    *,
    over: tuple[Ints, Floats] | None,
    gap: float,
    memory_limit: float,
    near: float | None = None,
) -> tuple[Proof, float]:
    """Convert a solver's multipliers to a proof, and return the proof and its stated bound.

    Small multipliers are left out, unless this alone would make the bound miss the requested gap. More are left out if
    the rest do not fit in memory, or if the proof is long and misses the gap anyway. Multipliers that form trees are
    stored as trees.

    Args:
        multipliers: The solver's multipliers. They may be inaccurate, because any multipliers prove a bound.
        data: The problem's data.
        weighted: Array of shape (N, K) with the costs times the prior.
        value: The loss stated by the release.
        over: The pairs that have multipliers, as an array of shape (S, 2), and their distances, as an array of shape
            (S,). If None, all pairs covered by the guarantee have multipliers.
        gap: The requested relative optimality gap.
        memory_limit: The maximum number of bytes to allocate.
        near: An estimate of the bound proved by the multipliers, or None if it is unknown.

    Raises:
        OutOfTime: The time limit expired before a first proof was made.
    """
    spare = SPARE_SHARE * min(gap, 1e-5) * abs(value)
    capacity = max(MANY_MULTIPLIERS, memory_limit / BYTES_PER_MULTIPLIER)
    if near is not None and multipliers.many > MANY_MULTIPLIERS:
        # `missing` is how far the bound will be from the requested gap. If it is positive, the bound of a long proof
        # may be lowered by a fraction of the remaining gap. Otherwise, it may be lowered by a quarter of the surplus.
        missing = value - near - gap * abs(value)
        spare = max(spare, LONG_SPARE_SHARE * (value - near) if missing > 0.0 else -missing / 4)
    best: tuple[Proof, float] | None = None
    is_first = True
    # A first proof is always attempted. Others, with more or fewer multipliers, are made only while time remains.
    while best is None or clock().left > 0.0:
        try:
            selection, bound = select_multipliers(
                multipliers, data, weighted, over=over, spare=spare, max_multipliers=capacity
            )
            form = _make_trees(selection, bound, data, weighted, spare) or Rows.round_to_bound(
                selection, bound, weighted, spare
            )
            stated = form.state_bound(data, weighted, value)
        except MemoryError:
            # A weaker bound is accepted, so that more multipliers are left out, until the rest fit into memory. The
            # second term is needed if `spare` is 0.
            spare, is_first = max(10.0 * spare, 1e-9 * float(np.abs(weighted).sum())), False
            continue
        missed = value - stated[1] - gap * abs(value)
        # Omitting and rounding multipliers may each have lowered the bound by up to `spare`. If this alone may have
        # made it miss the requested gap, the proof is made again with a spare of 0.
        if is_first and 0.0 < missed <= 2.0 * spare:
            spare = 0.0
        elif isinstance(form, Trees) or not is_first or missed <= 0.0 or len(selection.values) <= MANY_MULTIPLIERS:
            return stated  # for trees, omitting more multipliers would not make the file smaller
        # The gap is missed anyway and the proof is long, so a slightly weaker bound is accepted in exchange for a
        # smaller file.
        elif LONG_SPARE_SHARE * (value - stated[1]) > 2.0 * spare:
            spare = LONG_SPARE_SHARE * (value - stated[1])
        else:
            return stated
        is_first, best = False, stated
    return best


def _make_trees(
    multipliers: SparseMultipliers, bound: float, data: MetricData, weighted: Floats, spare: float
) -> Trees | None:
    """Return a proof that stores multipliers as trees, unless this is impossible or would lower the bound too much.

    Args:
        multipliers: The multipliers that are worth storing.
        bound: The bound proved by these multipliers.
        data: The problem's data.
        weighted: Array of shape (N, K) with the costs times the prior.
        spare: The largest acceptable difference between ``bound`` and the bound proved by the trees.

    Returns:
        The proof, or None if the multipliers do not form trees or the bound is too low.
    """
    trees = Trees.of(multipliers, weighted) if len(multipliers.values) else None
    # `excess`, the amount by which costs may exceed those in the files, has already been subtracted from the bound that
    # the trees prove. It has not been subtracted from `bound`, so that is done here.
    return (
        trees if trees is not None and trees.bound(data, weighted) >= bound - float(data.excess.sum()) - spare else None
    )


def prove_over_streets(
    multipliers: Multipliers,
    priced: Ints,
    data: MetricData,
    weighted: Floats,
    value: float,
    *,
    gap: float,
    memory_limit: float,
) -> tuple[Proof, float] | None:
    """Prove a lower bound on the loss of mechanisms that may report any point on the streets.

    The multipliers come from an LP whose outputs are the priced records, i.e. the records with dual multipliers. The
    bound is computed with these outputs rather than the release's outputs.

    Args:
        multipliers: The multipliers for the pairs in ``data.needed``, with the priced records as outputs.
        priced: Array of shape (J,) with the indices of the priced records in ascending order.
        data: The problem's data, with chosen outputs.
        weighted: Array of shape (N, K) with the costs of the chosen outputs times the prior.
        value: The loss stated by the release.
        gap: The requested relative optimality gap.
        memory_limit: The maximum number of bytes to allocate.

    Returns:
        The proof and its stated bound, or None if there is not enough memory or if the multipliers prove no more than
        the trivial bound.
    """
    assert data.over is not None  # records are priced only if outputs are chosen
    priced_data = data.with_outputs(priced)
    spare, capacity = SPARE_SHARE * gap * abs(value), max(MANY_MULTIPLIERS, memory_limit / BYTES_PER_MULTIPLIER)
    try:
        selection, bound = select_multipliers(
            multipliers,
            priced_data,
            priced_data.weighted,
            over=priced_data.needed,
            spare=spare,
            max_multipliers=capacity,
        )
    except MemoryError:
        return None
    # `select_multipliers` returns minus infinity if the multipliers prove no more than the trivial bound.
    if not math.isfinite(bound):
        return None
    proof = Streets.round_to_bound(selection, bound, priced_data.weighted, spare, {"bound_outputs": priced})
    return proof.state_bound(data, weighted, value)


def multipliers_of(solution: dsl.Solution, data: MetricData) -> Multipliers | None:
    """Return the dual values of a model's privacy constraints as multipliers, or None if the solver returned no duals.

    Args:
        solution: The solution of the model. Its privacy constraints must cover the pairs in ``data.needed``, first in
            the given direction and then in reverse.
        data: The problem's data.

    Raises:
        ModelError: The model has a different number of privacy constraints.
    """
    if solution.duals is None:
        return None
    shape = (2, len(data.needed[0]), len(data.outputs))
    # In a minimisation problem, the duals of "<=" constraints are at most 0, whereas multipliers are non-negative.
    duals = -np.asarray(solution.dual(PRIVACY_ROWS)) if shape[1] else np.zeros(0)
    if duals.size != math.prod(shape):
        raise ModelError(
            f"family {PRIVACY_ROWS} must have {math.prod(shape)} rows, both directions of the {shape[1]} pairs of "
            f"data.needed for {shape[2]} outputs, got {duals.size}"
        )
    forward, backward = duals.reshape(shape)
    return Multipliers.from_arrays(forward, backward)
