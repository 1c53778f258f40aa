"""What of a solver's multipliers is stored, and how it is read back."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Floats
from privopt.errors import Fault, InputError, ModelError
from privopt.exact.bound import Kept, Multipliers
from privopt.exact.forest import Forest
from privopt.files.archive import read_npz
from privopt.metric.proof.base import PROOF, Proof
from privopt.metric.proof.rows import Rows, kept_of
from privopt.metric.proof.trees import Trees

if TYPE_CHECKING:
    from privopt.dsl import Solution
    from privopt.metric.data import MetricData

__all__ = ["multipliers_of", "prove", "read_proof"]

SPARE: Final = 0.1
"""Share of the gap asked for (of 1e-5, where more is asked) by which a bound may fall for a smaller proof."""
LOOSE: Final = 0.03
"""Share of the gap that is left by which it may, where that is more than was asked for and the proof is long."""
LONG: Final = 1_000_000
"""Multipliers of a long proof: a file of 10 MB."""
BYTES: Final = 48
"""That a multiplier takes while a proof is made: as it is found, joined, rounded."""
LARGEST: Final = 8
"""Times the size of a file that its arrays may have, beside as many bytes as a matrix of the problem has."""


def read_proof(folder: Path, shape: tuple[int, int]) -> Proof:
    """Read proof.npz, of either form.

    Args:
        folder: DIR.
        shape: (N, K) of the problem.

    Raises:
        InputError: it is missing or of neither form.
    """
    path = folder / PROOF
    size = path.stat().st_size if path.is_file() else 0
    names = ("version", "unit", *Rows.KINDS), ("version", "unit", *Trees.KINDS)
    wanted = " or ".join(", ".join(form) for form in names)
    parts = read_npz(path, wanted, largest=LARGEST * (size + math.prod(shape)) + (1 << 16))
    form, own = (Trees, names[1]) if "trees" in parts else (Rows, names[0])
    if unknown := parts.keys() - {*own}:
        raise InputError([Fault(path.name, name, "an array that nothing reads", ", ".join(own)) for name in unknown])
    return form.of_parts(path.name, parts, shape)


def prove(
    multipliers: Multipliers,
    data: MetricData,
    weighted: Floats,
    value: float,
    *,
    over: NDArray[np.bool_] | None,
    gap: float,
    room: float,
) -> tuple[Proof, float]:
    """What is stored of multipliers, and what is stated of the bound that it gives.

    All of them where a smaller proof would miss the gap asked for; fewer where they do not fit. Trees where they make
    trees.

    Args:
        multipliers: any.
        data: the problem's.
        weighted: (N, K) costs, prior included.
        value: the loss that is stated.
        over: (P,) the required pairs that the multipliers belong to; all where None.
        gap: relative gap asked for.
        room: bytes.
    """
    spare = SPARE * min(gap, 1e-5) * abs(value)
    first = True
    while True:
        try:
            kept, bound = kept_of(multipliers, data, weighted, over=over, spare=spare, most=max(LONG, room / BYTES))
        except MemoryError:
            spare, first = max(10.0 * spare, 1e-9 * float(np.abs(weighted).sum())), False
            continue
        made = _trees(kept, bound, data, weighted, spare) or Rows.least(kept, bound, weighted, spare)
        proof, bound = made.stating(data, weighted, value)
        missed = value - bound - gap * abs(value)
        if first and 0.0 < missed <= 2.0 * spare:
            spare = 0.0
        elif first and missed > 0.0 and len(kept.values) > LONG and LOOSE * (value - bound) > spare:
            spare = LOOSE * (value - bound)
        else:
            return proof, bound
        first = False


def _trees(kept: Kept, bound: float, data: MetricData, weighted: Floats, spare: float) -> Trees | None:
    """The trees that multipliers make, where they prove as much, to ``spare``; None where they make none."""
    forest = Forest.of(kept, weighted) if len(kept.values) else None
    made = None if forest is None else Trees(prices=forest.prices, trees=forest.codes)
    return made if made is not None and made.bound(data, weighted) >= bound - float(data.excess.sum()) - spare else None


def multipliers_of(solution: Solution, data: MetricData, family: str = "geo-ind") -> Multipliers | None:
    """The duals of a solved model's privacy rows over ``data.needed``, as the exact bound takes them; None without.

    Raises:
        ModelError: the family's rows are not those of ``data.needed``, both ways, for every output.
    """
    if solution.duals is None:
        return None
    shape = (2, int(data.needed.sum()), len(data.outputs))
    duals = -np.asarray(solution.dual(family)) if shape[1] else np.zeros(0)
    if duals.size != math.prod(shape):
        raise ModelError(
            f"family {family} has {duals.size} rows, wanted {math.prod(shape)}: both ways of the {shape[1]} pairs of "
            f"data.needed, for {shape[2]} outputs"
        )
    forward, backward = duals.reshape(shape)
    return Multipliers.whole(forward, backward)
