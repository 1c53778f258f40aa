"""Turn a solver's multipliers into a proof that is worth storing, and read stored proofs."""

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
"""Share of the requested gap (or of 1e-5 if that is smaller) that the bound may lose to make the proof smaller."""
LONG_SPARE_SHARE: Final = 0.03
"""Share of the remaining gap that the bound may lose if this gap exceeds the requested one and the proof is long."""
MANY_MULTIPLIERS: Final = 1_000_000
"""Number of multipliers above which a proof counts as long. So many take a file of about 10 MB."""
BYTES_PER_MULTIPLIER: Final = 48
"""Bytes of memory per multiplier while a proof is made, for the original, the joined and the rounded multipliers."""
MAX_UNPACKING_FACTOR: Final = 8
"""The arrays in a file may take this many times the file's size, plus this many bytes for each entry of the matrix."""


def read_proof(folder: Path, shape: tuple[int, int]) -> Proof:
    """Read proof.npz in any of its three forms: rows, rows over streets, or trees.

    Args:
        folder: The release folder.
        shape: The problem's number of records and number of outputs, (N, K).

    Raises:
        InputError: The file is missing or malformed.
    """
    path = folder / PROOF
    size = path.stat().st_size if path.is_file() else 0
    forms = (Streets, Rows, Trees)
    names = [("version", "unit", *form.KINDS) for form in forms]
    expectation = " or ".join(", ".join(form) for form in names)
    # The limit protects a verifier from a small file that unpacks to gigabytes. The 64 KiB leave room for headers.
    parts = read_npz(path, expectation, largest=MAX_UNPACKING_FACTOR * (size + math.prod(shape)) + (1 << 16))
    # Only `Trees` has the array `trees`. `Streets` has all arrays of `Rows`, so `bound_outputs` decides between these.
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
    """Turn a solver's multipliers into a proof, and return it with the bound that it states.

    Small multipliers are omitted, unless the proof would then miss the requested gap. More are omitted if not all fit
    into memory. Multipliers that form trees are stored as trees.

    Args:
        multipliers: Any multipliers.
        data: The problem's data.
        weighted: (N, K) costs, prior included.
        value: The loss that the release states.
        over: The required pairs (S, 2) to which the multipliers belong, and their distances (S,), or None if they
            belong to all required pairs.
        gap: The requested relative gap.
        memory_limit: Number of bytes that may be allocated.
        near: Approximate bound that the multipliers prove, if it is known.

    Raises:
        OutOfTime: The time limit expired before a first proof was made.
    """
    spare = SPARE_SHARE * min(gap, 1e-5) * abs(value)
    capacity = max(MANY_MULTIPLIERS, memory_limit / BYTES_PER_MULTIPLIER)
    if near is not None and multipliers.many > MANY_MULTIPLIERS:
        # `missing` is the amount by which the bound will miss the requested gap. If it is positive, a long proof may
        # lose a share of the remaining gap; otherwise, it may lose a quarter of the surplus.
        missing = value - near - gap * abs(value)
        spare = max(spare, LONG_SPARE_SHARE * (value - near) if missing > 0.0 else -missing / 4)
    best: tuple[Proof, float] | None = None
    is_first = True
    # A first proof is always attempted. Further ones, with more or fewer multipliers, are made only while time is left.
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
            # If the bound may lose more, more multipliers are omitted, until the rest fits. The second term is needed
            # if `spare` is 0.
            spare, is_first = max(10.0 * spare, 1e-9 * float(np.abs(weighted).sum())), False
            continue
        missed = value - stated[1] - gap * abs(value)
        # Omitting multipliers and rounding them may each have cost up to `spare`. If the requested gap may have been
        # missed only for that reason, try again without these losses.
        if is_first and 0.0 < missed <= 2.0 * spare:
            spare = 0.0
        elif isinstance(form, Trees) or not is_first or missed <= 0.0 or len(selection.values) <= MANY_MULTIPLIERS:
            return stated  # for trees, omitting more multipliers would not make the file smaller
        # The gap is missed anyway and the proof is long, so the bound gives up a little more for a smaller file.
        elif LONG_SPARE_SHARE * (value - stated[1]) > 2.0 * spare:
            spare = LONG_SPARE_SHARE * (value - stated[1])
        else:
            return stated
        is_first, best = False, stated
    return best


def _make_trees(
    multipliers: SparseMultipliers, bound: float, data: MetricData, weighted: Floats, spare: float
) -> Trees | None:
    """Return a proof with the trees that multipliers form, or None if there are none or they prove too low a bound.

    Args:
        multipliers: The selected multipliers.
        bound: The bound that the multipliers prove.
        data: The problem's data.
        weighted: (N, K) costs, prior included.
        spare: Amount by which the trees' bound may be lower than ``bound``.
    """
    trees = Trees.of(multipliers, weighted) if len(multipliers.values) else None
    # The trees' bound is lowered by `excess`, the amount by which costs may exceed those in the files. `bound` is not,
    # so it is lowered here before the two are compared.
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
    """Turn multipliers for priced records into a proof over all streets, and return it with the bound that it states.

    In the bound, the priced records take the place of the release's outputs.

    Args:
        multipliers: Multipliers for the pairs in the model, with one output for each priced record.
        priced: (J,) indices of the priced records, ascending.
        data: The problem's data, with chosen outputs.
        weighted: (N, K) costs for the chosen outputs, prior included.
        value: The loss that the release states.
        gap: The requested relative gap.
        memory_limit: Number of bytes that may be allocated.

    Returns:
        The proof and its bound, or None if memory is short or if the multipliers prove no more than the trivial bound.
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
    """Return the duals of a model's privacy rows as multipliers, or None if the solver gave no duals.

    Args:
        solution: The solution of the model. Its privacy rows must cover the pairs in ``data.needed``, first in order
            and then reversed.
        data: The problem's data.

    Raises:
        ModelError: The model has a different number of privacy rows.
    """
    if solution.duals is None:
        return None
    shape = (2, len(data.needed[0]), len(data.outputs))
    # In a minimisation, the duals of "<=" rows are at most 0, whereas multipliers are non-negative.
    duals = -np.asarray(solution.dual(PRIVACY_ROWS)) if shape[1] else np.zeros(0)
    if duals.size != math.prod(shape):
        raise ModelError(
            f"family {PRIVACY_ROWS} must have {math.prod(shape)} rows, both directions of the {shape[1]} pairs of "
            f"data.needed for {shape[2]} outputs, got {duals.size}"
        )
    forward, backward = duals.reshape(shape)
    return Multipliers.from_arrays(forward, backward)
