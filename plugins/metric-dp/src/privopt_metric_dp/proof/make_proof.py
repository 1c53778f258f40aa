"""Select the multipliers of a solver that are stored as a proof, and read proofs back."""

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
"""Share of the requested gap (or of 1e-5 if that is smaller) that a bound may lose for a smaller proof."""
LONG_SPARE_SHARE: Final = 0.03
"""Share of the remaining gap that a bound may lose, if that gap exceeds the requested one and the proof is long."""
MANY_MULTIPLIERS: Final = 1_000_000
"""Number of multipliers above which a proof counts as long. It corresponds to a file of 10 MB."""
BYTES_PER_MULTIPLIER: Final = 48
"""Memory per multiplier while a proof is made, for the original, the joined and the rounded multipliers."""
MAX_UNPACKING_FACTOR: Final = 8
"""The arrays of a file may take this many times the file's size, plus this many bytes for each entry of the matrix."""


def read_proof(folder: Path, shape: tuple[int, int]) -> Proof:
    """Read proof.npz in any of its three forms: rows, rows over streets, or trees.

    Args:
        folder: The release folder.
        shape: The problem's numbers of records and outputs (N, K).

    Raises:
        InputError: The file is missing or malformed.
    """
    path = folder / PROOF
    size = path.stat().st_size if path.is_file() else 0
    forms = (Streets, Rows, Trees)  # the arrays of Streets include those of Rows, so `bound_outputs` decides
    names = [("version", "unit", *form.KINDS) for form in forms]
    expectation = " or ".join(", ".join(form) for form in names)
    # The limit protects a verifier from a small file that unpacks to gigabytes. The 64 KiB leave room for headers.
    parts = read_npz(path, expectation, largest=MAX_UNPACKING_FACTOR * (size + math.prod(shape)) + (1 << 16))
    # Only trees have the array `trees`, and only streets have `bound_outputs`.
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

    All multipliers are used if a smaller proof would miss the requested gap. Fewer are used if not all fit into memory.
    Multipliers that form trees are stored as trees.

    Args:
        multipliers: Any multipliers.
        data: The problem's data.
        weighted: (N, K) costs, prior included.
        value: The loss that the release states.
        over: Required pairs (S, 2) to which the multipliers belong, and their distances (S,), or None for all.
        gap: The requested relative gap.
        memory_limit: Bytes that may be allocated.
        near: Approximate bound that the multipliers prove, if known.

    Raises:
        OutOfTime: The time limit expired before a first proof was made.
    """
    spare = SPARE_SHARE * min(gap, 1e-5) * abs(value)
    capacity = max(MANY_MULTIPLIERS, memory_limit / BYTES_PER_MULTIPLIER)
    if near is not None and multipliers.many > MANY_MULTIPLIERS:
        # The amount by which the bound will miss the requested gap. If it is positive, a long proof may lose a share of
        # the remaining gap; otherwise it may lose a quarter of the surplus.
        missing = value - near - gap * abs(value)
        spare = max(spare, LONG_SPARE_SHARE * (value - near) if missing > 0.0 else -missing / 4)
    best: tuple[Proof, float] | None = None
    is_first = True
    # A first proof is made whatever the time; further ones, with more or fewer multipliers, only while time is left.
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
            # Giving up more of the bound omits more multipliers, until the rest fits. The second term replaces a
            # `spare` of 0.
            spare, is_first = max(10.0 * spare, 1e-9 * float(np.abs(weighted).sum())), False
            continue
        missed = value - stated[1] - gap * abs(value)
        # The requested gap may be missed only because multipliers were omitted and then rounded, each at a loss of up
        # to `spare`: try again without a loss.
        if is_first and 0.0 < missed <= 2.0 * spare:
            spare = 0.0
        elif isinstance(form, Trees) or not is_first or missed <= 0.0 or len(selection.values) <= MANY_MULTIPLIERS:
            return stated  # fewer multipliers make no smaller file of trees
        # The gap is missed anyway and the proof is long: giving up a little more of the bound makes the file smaller.
        elif LONG_SPARE_SHARE * (value - stated[1]) > 2.0 * spare:
            spare = LONG_SPARE_SHARE * (value - stated[1])
        else:
            return stated
        is_first, best = False, stated
    return best


def _make_trees(
    multipliers: SparseMultipliers, bound: float, data: MetricData, weighted: Floats, spare: float
) -> Trees | None:
    """Return the trees that multipliers form if they prove the same bound up to ``spare``, or None.

    Args:
        multipliers: The selected multipliers.
        bound: The bound that the multipliers prove.
        data: The problem's data.
        weighted: (N, K) costs, prior included.
        spare: Amount that the bound may lose.
    """
    trees = Trees.of(multipliers, weighted) if len(multipliers.values) else None
    # The bound of the trees is lowered by `excess`, the amount by which costs may exceed those of the files; `bound` is
    # not.
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
    """Turn multipliers of priced records into a proof over all streets, and return it with the bound that it states.

    Priced records serve as outputs of the bound, in place of the release's outputs. Return None if memory is short, or
    if the multipliers prove no more than the trivial bound.

    Args:
        multipliers: Multipliers of the pairs in the model, with one output for each priced record.
        priced: (J,) the priced records, in order.
        data: The problem's data, with chosen outputs.
        weighted: (N, K) costs of the chosen outputs.
        value: The loss that the release states.
        gap: The requested relative gap.
        memory_limit: Bytes that may be allocated.
    """
    assert data.over is not None  # records are only priced if outputs are chosen
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
    """Return the duals of a solved model's privacy rows as multipliers, or None if the solver gave no duals.

    Args:
        solution: The solved model. Its rows are over ``data.needed``: the pairs in order, then the same pairs reversed.
        data: The problem's data.

    Raises:
        ModelError: The model has another number of privacy rows.
    """
    if solution.duals is None:
        return None
    shape = (2, len(data.needed[0]), len(data.outputs))
    # Duals of "<=" rows of a minimisation are at most 0, and multipliers are at least 0.
    duals = -np.asarray(solution.dual(PRIVACY_ROWS)) if shape[1] else np.zeros(0)
    if duals.size != math.prod(shape):
        raise ModelError(
            f"family {PRIVACY_ROWS} must have {math.prod(shape)} rows, both directions of the {shape[1]} pairs of "
            f"data.needed for {shape[2]} outputs, got {duals.size}"
        )
    forward, backward = duals.reshape(shape)
    return Multipliers.from_arrays(forward, backward)
