"""Select which of a solver's multipliers are stored as a proof, and read proofs back."""

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
from privopt_metric_dp.proof.lagrangian_bound import SparseMultipliers
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.proof.proof_file import PROOF, Proof
from privopt_metric_dp.proof.row_proof import Rows, select_multipliers
from privopt_metric_dp.proof.street_proof import Streets
from privopt_metric_dp.proof.tree_proof import Trees

__all__ = ["multipliers_of", "prove", "prove_over_streets", "read_proof"]

SPARE_SHARE: Final = 0.1
"""Share of the requested gap (of 1e-5, if that is smaller) that a bound may lose for a smaller proof."""
LONG_SPARE_SHARE: Final = 0.03
"""Share of the remaining gap that a bound may lose, if that gap exceeds the requested one and the proof is long."""
MANY_MULTIPLIERS: Final = 1_000_000
"""Number of multipliers of a long proof: a file of 10 MB."""
BYTES_PER_MULTIPLIER: Final = 48
"""Memory per multiplier while a proof is made: as found, joined and rounded."""
MAX_UNPACKING_FACTOR: Final = 8
"""The arrays of a file may take this many times its size, in addition to the size of the problem's matrix."""


def read_proof(folder: Path, shape: tuple[int, int]) -> Proof:
    """Read proof.npz, in any of its forms.

    Args:
        folder: The release folder.
        shape: The problem's numbers of records and outputs (N, K).
    """
    path = folder / PROOF
    size = path.stat().st_size if path.is_file() else 0
    forms = (Streets, Rows, Trees)  # rows of priced records have all that other rows have
    names = [("version", "unit", *form.KINDS) for form in forms]
    expectation = " or ".join(", ".join(form) for form in names)
    parts = read_npz(path, expectation, largest=MAX_UNPACKING_FACTOR * (size + math.prod(shape)) + (1 << 16))
    form_number = 2 if "trees" in parts else 0 if "bound_outputs" in parts else 1
    form, own_names = forms[form_number], names[form_number]
    if unknown := parts.keys() - {*own_names}:
        raise InputError(
            [Fault(path.name, name, "an array that nothing reads", ", ".join(own_names)) for name in unknown]
        )
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
    """Turn a solver's multipliers into a proof; return it and the bound that it states.

    All multipliers are used if a smaller proof would miss the requested gap, and fewer if not all fit into memory.
    Multipliers that form trees are stored as trees.

    Args:
        multipliers: Any multipliers.
        data: The problem's data.
        weighted: (N, K) costs, prior included.
        value: The loss that the release states.
        over: Required pairs (S, 2) that the multipliers belong to, and their distances (S,); None for all.
        gap: The requested relative gap.
        memory_limit: Bytes that may be allocated.
        near: About the bound that the multipliers prove, if known.

    Raises:
        OutOfTime: The time limit came before a first proof was made.
    """
    spare = SPARE_SHARE * min(gap, 1e-5) * abs(value)
    capacity = max(MANY_MULTIPLIERS, memory_limit / BYTES_PER_MULTIPLIER)
    if near is not None and multipliers.many > MANY_MULTIPLIERS:
        missing = value - near - gap * abs(value)
        spare = max(spare, LONG_SPARE_SHARE * (value - near) if missing > 0.0 else -missing / 4)
    best: tuple[Proof, float] | None = None
    is_first = True
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
            spare, is_first = max(10.0 * spare, 1e-9 * float(np.abs(weighted).sum())), False
            continue
        missed = value - stated[1] - gap * abs(value)
        if is_first and 0.0 < missed <= 2.0 * spare:
            spare = 0.0
        elif isinstance(form, Trees) or not is_first or missed <= 0.0 or len(selection.values) <= MANY_MULTIPLIERS:
            return stated  # fewer multipliers make no smaller file of trees
        elif LONG_SPARE_SHARE * (value - stated[1]) > 2.0 * spare:
            spare = LONG_SPARE_SHARE * (value - stated[1])
        else:
            return stated
        is_first, best = False, stated
    return best


def _make_trees(
    multipliers: SparseMultipliers, bound: float, data: MetricData, weighted: Floats, spare: float
) -> Trees | None:
    """Return the trees that multipliers form, if they prove as much up to ``spare``; None otherwise."""
    trees = Trees.of(multipliers, weighted) if len(multipliers.values) else None
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
    """Turn multipliers of priced records into a proof over all streets; None if memory is short, or it proves nothing.

    Args:
        multipliers: Multipliers of the pairs in the model, with one output for each priced record.
        priced: (J,) these records, in order.
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
    if not math.isfinite(bound):
        return None
    proof = Streets.round_to_bound(selection, bound, priced_data.weighted, spare, {"bound_outputs": priced})
    return proof.state_bound(data, weighted, value)


def multipliers_of(solution: dsl.Solution, data: MetricData) -> Multipliers | None:
    """Return the duals of a solved model's privacy rows over ``data.needed``; None if the solver gave no duals."""
    if solution.duals is None:
        return None
    shape = (2, len(data.needed[0]), len(data.outputs))
    duals = -np.asarray(solution.dual(PRIVACY_ROWS)) if shape[1] else np.zeros(0)
    if duals.size != math.prod(shape):
        raise ModelError(
            f"family {PRIVACY_ROWS} must have {math.prod(shape)} rows, both directions of the {shape[1]} pairs of "
            f"data.needed for {shape[2]} outputs, got {duals.size}"
        )
    forward, backward = duals.reshape(shape)
    return Multipliers.whole(forward, backward)
