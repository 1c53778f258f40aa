"""A proof made of any solver's multipliers, stored row by row, in single precision if that is accurate enough."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Self

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints, Singles
from privopt.numbers.exp_log_bounds import exp_bounds
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof.lagrangian_bound import Multipliers, SparseMultipliers, sum_down
from privopt_metric_dp.proof.proof_file import OFF, Proof, growth_of
from privopt_metric_dp.space.street_pieces import Inside

__all__ = ["Rows", "select_multipliers"]

DROPPED: Final = 2**7
"""2**7, because the last 7 bits of a single's fraction are rounded off if the bound allows it. The 6.2 million
multipliers for 50,000 places then take 18.5 MB compressed instead of 22.1 MB, and the bound is lower by a relative
6e-6."""


@frozen(kw_only=True, eq=False)
class Rows(Proof):
    """A proof made of multipliers, stored output by output.

    Multipliers may be omitted and rounded before they are stored, because the bound is evaluated from the stored ones.

    Attributes:
        pairs: (P, 2) int64 records (i, j) of each row ``z_ik <= exp(eps d_ij) z_jk``, sorted.
        starts: (K + 1,) int64 offsets: ``starts[k]:starts[k + 1]`` is output k's part of the following arrays.
        rows: (M,) uint32 indices into ``pairs``, in ascending order within an output.
        values: (M,) multipliers as float32 or float64, finite and above 0.
    """

    VERSION: ClassVar = 2
    KINDS: ClassVar = {"pairs": ("i8",), "starts": ("i8",), "rows": ("u4",), "values": ("f4", "f8")}
    STORED: ClassVar = ("values",)
    EFFORT: ClassVar = 1  # as small as with 6 (200 scattered points: 3.47 and 3.49 MB), in a seventh of the time

    pairs: Ints
    starts: Ints
    rows: NDArray[np.uint32]
    values: Floats | Singles

    @classmethod
    def of(
        cls, multipliers: Multipliers, data: MetricData, weighted: Floats, *, over: tuple[Ints, Floats] | None = None
    ) -> Self:
        """Return a proof with those of a solver's multipliers that are worth storing (:func:`select_multipliers`).

        Args:
            multipliers: Any multipliers.
            data: The problem's data.
            weighted: (N, K) costs, prior included.
            over: The required pairs (S, 2) to which the multipliers belong, and their distances (S,), or None if they
                belong to all required pairs.
        """
        return cls.round_to_bound(*select_multipliers(multipliers, data, weighted, over=over), weighted, 0.0)

    @classmethod
    def round_to_bound(
        cls,
        multipliers: SparseMultipliers,
        bound: float,
        weighted: Floats,
        spare: float,
        fields: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return a proof whose multipliers are rounded as far as the bound loses no more than ``spare``.

        Single precision with the last bits rounded off is tried first, then full single precision. If neither is
        accurate enough, the doubles are stored.

        Args:
            multipliers: The multipliers to store.
            bound: The bound that the multipliers prove.
            weighted: (N, K) costs, prior included.
            spare: Amount that the bound may lose.
            fields: Values for the attributes that a subclass adds.
        """
        with np.errstate(over="ignore", under="ignore"):
            single = multipliers.values.astype(np.float32)
        # Adding half of the dropped part before its bits are cleared rounds to nearest. The cleared bits compress well.
        short = ((single.view(np.uint32) + np.uint32(DROPPED // 2)) & ~np.uint32(DROPPED - 1)).view(np.float32)
        best = multipliers.only(np.ones(len(multipliers.rows), dtype=np.bool_))
        for rounded in (short, single):
            # Rounding may turn a multiplier into 0 or infinity. Any multipliers prove a bound, so these can be omitted.
            candidate = evolve(multipliers, values=rounded).only(np.isfinite(rounded) & (rounded > 0))
            if candidate.bound(weighted) >= bound - spare:
                best = candidate
                break
        return cls(pairs=best.pairs, starts=best.starts, rows=best.rows, values=best.values, **(fields or {}))

    def enclose_bound(self, data: MetricData, weighted: Floats) -> tuple[float, float]:
        """Return two numbers that enclose the bound that the multipliers prove (see :meth:`Proof.enclose_bound`)."""
        return self._enclose_over(data, weighted, None)

    def _enclose_over(self, data: MetricData, weighted: Floats, interior: Inside | None) -> tuple[float, float]:
        """Return two numbers that enclose the bound, like `enclose_bound`.

        Args:
            data: The problem's data, with the outputs to which the multipliers belong.
            weighted: (N, K) costs for these outputs, prior included.
            interior: Positions of the records inside pieces of streets, for a bound over all streets, or None.
        """
        lower, growth = growth_of(self.pairs, data)
        multipliers = SparseMultipliers(
            pairs=self.pairs, growth=growth, starts=self.starts, rows=self.rows, values=self.values
        )
        min_bound, max_bound = multipliers.enclose_bound(weighted, weighted + data.shortfall(), OFF, lower, interior)
        # The costs may exceed those in the files by up to `excess`, so the bound is lowered by it. Costs that are too
        # low only raise the upper end of the enclosure.
        excess = float(data.excess.sum()) * (1.0 + 2.0**-40)
        return (math.nextafter(min_bound - excess, -math.inf) if excess else min_bound), max_bound

    @classmethod
    def shapes(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        """Return the shapes for a problem (N, K), with as many pairs and multipliers as the file contains."""
        count, many = (len(parts[name]) if parts[name].ndim else 0 for name in ("pairs", "rows"))
        return {"pairs": (count, 2), "starts": (shape[1] + 1,), "rows": (many,), "values": (many,)}

    @classmethod
    def numbers(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Iterator[tuple[str, bool, str]]:
        """Yield the conditions that the numbers in the arrays must meet for the bound and its evaluation to be valid.

        Args:
            parts: The arrays, by name.
            shape: The problem's number of records and number of outputs, (N, K).

        Yields:
            The name of an array, whether a condition on it holds, and the condition in words.
        """
        pairs, starts, rows, values = (parts[name] for name in Rows.KINDS)
        count, many, records = len(pairs), len(rows), shape[0]
        are_offsets = bool(starts[0] == 0 and starts[-1] == many and (np.diff(starts) >= 0).all())
        yield "pairs", bool(((pairs >= 0) & (pairs < records)).all()), f"records from 0 to {records - 1}"
        yield "pairs", bool((pairs[:, 0] != pairs[:, 1]).all()), "two different records in each"
        # Each pair is encoded as one number. These rise strictly if the pairs are sorted and distinct.
        yield "pairs", bool((np.diff(pairs @ [records, 1]) > 0).all()), "each pair once, by row"
        yield "starts", are_offsets, f"from 0 up to {many}"
        yield "rows", bool((rows < count).all()), f"places from 0 to {count - 1}"
        yield "values", bool((np.isfinite(values) & (values > 0)).all()), "finite numbers above 0"
        if are_offsets:
            # Indices rise within an output. Only the first index of an output may be lower than the one before it.
            rising = np.diff(rows.astype(np.int64), prepend=-1) > 0
            rising[starts[:-1][starts[:-1] < many]] = True
            yield "rows", bool(rising.all()), "each row of an output once, in order"


def select_multipliers(
    multipliers: Multipliers,
    data: MetricData,
    weighted: Floats,
    *,
    over: tuple[Ints, Floats] | None = None,
    spare: float = 0.0,
    max_multipliers: float = math.inf,
) -> tuple[SparseMultipliers, float]:
    """Return those of a solver's multipliers that are worth storing, and the bound that they prove, rounded down.

    Args:
        multipliers: Any multipliers.
        data: The problem's data.
        weighted: (N, K) costs, prior included.
        over: The required pairs (S, 2) to which the multipliers belong, and their distances (S,), or None if they
            belong to all required pairs.
        spare: Amount that the bound may lose when the smallest multipliers are omitted for a smaller file.
        max_multipliers: Number of multipliers that fit into memory.

    Returns:
        The multipliers and the bound. If they prove no more than the trivial bound (every record at its cheapest
        output), no multipliers are returned, with minus infinity as the bound.

    Raises:
        MemoryError: More multipliers would have to be stored.
        OutOfTime: The time limit has expired.
    """
    pairs, distances = data.required if over is None else over
    growth = exp_bounds(data.metric.upper_distances(distances), data.epsilon)[1]
    # A pair may be required only because its distance was rounded. A mechanism need not satisfy its row at the exact
    # distance, so such rows are omitted.
    growth = np.where(data.surely_required(pairs, distances), growth, np.inf)
    spare_by_record = np.full(len(weighted), spare / len(weighted))
    selection, bound = SparseMultipliers.of(
        multipliers, pairs, growth, weighted.shape, spare_by_record, max_multipliers=max_multipliers
    ).tame(weighted)
    if not bound > sum_down(weighted.min(axis=1)):  # every record at its cheapest output needs no multipliers
        return selection.only(np.zeros(len(selection.rows), dtype=np.bool_)), -math.inf
    return selection, bound
