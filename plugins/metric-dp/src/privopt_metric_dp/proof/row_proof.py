"""A proof that stores the multipliers of any solver, in single precision if that is accurate enough."""

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
"""The number of values that 7 bits can take.

If the bound allows it, the last 7 bits of each multiplier in single precision are rounded off. The 6.2 million
multipliers for 50,000 places then take up 18.5 MB compressed instead of 22.1 MB, and the bound decreases by 6e-6 of its
value."""


@frozen(kw_only=True, eq=False)
class Rows(Proof):
    """A proof that consists of multipliers for privacy constraints, stored output by output.

    Multipliers may be left out or rounded before they are stored, because the bound is computed from the stored values.

    Attributes:
        pairs: Array of shape (P, 2) and type int64 with the records (i, j) of each constraint
            ``z_ik <= exp(eps d_ij) z_jk``, sorted.
        starts: Array of shape (K + 1,) and type int64 with offsets. The elements ``starts[k]:starts[k + 1]`` of
            ``rows`` and ``values`` belong to output k.
        rows: Array of shape (M,) and type uint32 with indices into ``pairs``, in ascending order within each output.
        values: Array of shape (M,) and type float32 or float64 with the multipliers, which are finite and positive.
    """

    VERSION: ClassVar = 2
    KINDS: ClassVar = {"pairs": ("i8",), "starts": ("i8",), "rows": ("u4",), "values": ("f4", "f8")}
    STORED: ClassVar = ("values",)
    EFFORT: ClassVar = 1  # as small as at level 6 (200 scattered points: 3.47 and 3.49 MB), in a seventh of the time

    pairs: Ints
    starts: Ints
    rows: NDArray[np.uint32]
    values: Floats | Singles

    @classmethod
    def of(
        cls, multipliers: Multipliers, data: MetricData, weighted: Floats, *, over: tuple[Ints, Floats] | None = None
    ) -> Self:
        """Build a proof from a solver's multipliers, keeping only those worth storing (see :func:`select_multipliers`).

        Args:
            multipliers: The solver's multipliers. They may be inaccurate, because any multipliers prove a bound.
            data: The problem's data.
            weighted: Array of shape (N, K) with the costs times the prior.
            over: The pairs that have multipliers, as an array of shape (S, 2), and their distances, as an array of
                shape (S,). If None, all pairs covered by the guarantee have multipliers.
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
        """Round multipliers and return a proof whose bound is at most ``spare`` below the original one.

        Single precision with the last bits rounded off is tried first, followed by full single precision. If neither is
        accurate enough, double precision is used.

        Args:
            multipliers: The multipliers to store.
            bound: The bound proved by the multipliers.
            weighted: Array of shape (N, K) with the costs times the prior.
            spare: The largest amount by which the bound may drop.
            fields: The values of attributes added by a subclass, keyed by name.
        """
        with np.errstate(over="ignore", under="ignore"):
            single = multipliers.values.astype(np.float32)
        # Adding half a unit of the last remaining bit before clearing the others rounds to nearest. Cleared bits
        # compress well.
        short = ((single.view(np.uint32) + np.uint32(DROPPED // 2)) & ~np.uint32(DROPPED - 1)).view(np.float32)
        best = multipliers.only(np.ones(len(multipliers.rows), dtype=np.bool_))
        for rounded in (short, single):
            # Rounding may turn a multiplier into 0 or infinity. Such a multiplier can be left out, because any
            # multipliers prove a bound.
            candidate = evolve(multipliers, values=rounded).only(np.isfinite(rounded) & (rounded > 0))
            if candidate.bound(weighted) >= bound - spare:
                best = candidate
                break
        return cls(pairs=best.pairs, starts=best.starts, rows=best.rows, values=best.values, **(fields or {}))

    def enclose_bound(self, data: MetricData, weighted: Floats) -> tuple[float, float]:
        """Return two doubles that enclose the bound proved by the multipliers (see :meth:`Proof.enclose_bound`)."""
        return self._enclose_over(data, weighted, None)

    def _enclose_over(self, data: MetricData, weighted: Floats, interior: Inside | None) -> tuple[float, float]:
        """Return two doubles that enclose the bound proved by the multipliers, optionally over all streets.

        Args:
            data: The problem's data, with the outputs that the multipliers are for.
            weighted: Array of shape (N, K) with the costs of these outputs times the prior.
            interior: The positions of the records inside street pieces, for a bound over all streets, or None.
        """
        lower, growth = growth_of(self.pairs, data)
        multipliers = SparseMultipliers(
            pairs=self.pairs, growth=growth, starts=self.starts, rows=self.rows, values=self.values
        )
        min_bound, max_bound = multipliers.enclose_bound(weighted, weighted + data.shortfall(), OFF, lower, interior)
        # The costs may exceed those in the files by up to `excess`, which is therefore subtracted from the lower end.
        # Costs that are too low only raise the upper end, by `shortfall`.
        excess = float(data.excess.sum()) * (1.0 + 2.0**-40)
        return (math.nextafter(min_bound - excess, -math.inf) if excess else min_bound), max_bound

    @classmethod
    def shapes(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        """Return the expected shapes of the arrays for a problem with N records and K outputs.

        The numbers of pairs and multipliers are determined by the arrays in the file.
        """
        count, many = (len(parts[name]) if parts[name].ndim else 0 for name in ("pairs", "rows"))
        return {"pairs": (count, 2), "starts": (shape[1] + 1,), "rows": (many,), "values": (many,)}

    @classmethod
    def numbers(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Iterator[tuple[str, bool, str]]:
        """Yield the conditions on the arrays' values under which the bound can be evaluated and is valid.

        Args:
            parts: The arrays, keyed by name.
            shape: The problem's numbers of records and outputs, (N, K).

        Yields:
            The name of an array, whether a condition on it holds, and the condition in words.
        """
        pairs, starts, rows, values = (parts[name] for name in Rows.KINDS)
        count, many, records = len(pairs), len(rows), shape[0]
        are_offsets = bool(starts[0] == 0 and starts[-1] == many and (np.diff(starts) >= 0).all())
        yield "pairs", bool(((pairs >= 0) & (pairs < records)).all()), f"records from 0 to {records - 1}"
        yield "pairs", bool((pairs[:, 0] != pairs[:, 1]).all()), "two different records in each"
        # Each pair is encoded as an integer. The integers increase strictly if and only if the pairs are sorted and
        # distinct.
        yield "pairs", bool((np.diff(pairs @ [records, 1]) > 0).all()), "each pair once, by row"
        yield "starts", are_offsets, f"from 0 up to {many}"
        yield "rows", bool((rows < count).all()), f"places from 0 to {count - 1}"
        yield "values", bool((np.isfinite(values) & (values > 0)).all()), "finite numbers above 0"
        if are_offsets:
            # Indices increase within each output. Only an output's first index may be lower than the one before it.
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
    """Select a solver's multipliers that are worth storing, and return them with the bound they prove, rounded down.

    Args:
        multipliers: The solver's multipliers. They may be inaccurate, because any multipliers prove a bound.
        data: The problem's data.
        weighted: Array of shape (N, K) with the costs times the prior.
        over: The pairs that have multipliers, as an array of shape (S, 2), and their distances, as an array of shape
            (S,). If None, all pairs covered by the guarantee have multipliers.
        spare: The largest amount by which leaving out the smallest multipliers may lower the bound.
        max_multipliers: The maximum number of multipliers to store.

    Returns:
        The multipliers and the bound. If the bound does not exceed the trivial one (the loss if every record reports
        its cheapest output), no multipliers are returned and the bound is minus infinity.

    Raises:
        MemoryError: More than ``max_multipliers`` multipliers would have to be stored.
        OutOfTime: The time limit expired.
    """
    pairs, distances = data.required if over is None else over
    growth = exp_bounds(data.metric.upper_distances(distances), data.epsilon)[1]
    # A pair may be required only because its distance was rounded. At the exact distance, mechanisms need not satisfy
    # its constraints, so these are left out.
    growth = np.where(data.surely_required(pairs, distances), growth, np.inf)
    spare_by_record = np.full(len(weighted), spare / len(weighted))
    selection, bound = SparseMultipliers.of(
        multipliers, pairs, growth, weighted.shape, spare_by_record, max_multipliers=max_multipliers
    ).tame(weighted)
    if not bound > sum_down(weighted.min(axis=1)):  # the trivial bound needs no multipliers
        return selection.only(np.zeros(len(selection.rows), dtype=np.bool_)), -math.inf
    return selection, bound
