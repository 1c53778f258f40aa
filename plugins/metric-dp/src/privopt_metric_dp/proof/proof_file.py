"""The base class of proofs: enclose the bound, state it to the last bit, write and read ``proof.npz``.

For every mechanism that keeps ``z_ik <= F_ij z_jk``, and any f >= 0 of these rows (Lagrange; mathematics of
:mod:`privopt_metric_dp.proof.lagrangian_bound`)::

    sum_i min_k (p_i c_ik + sum over rows (i, j) of f_k - sum over rows (j, i) of F_ji f_k)  <=  its loss

Rows may be any that a private mechanism keeps: those of required pairs, and of pairs that these imply, at the shortest
path over them. ``docs/reference/proof.md`` has the forms of the file.
"""

from __future__ import annotations

import math
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.errors import CertificationError, Fault, InputError
from privopt.numbers.exp_log_bounds import exp_bounds
from privopt.numbers.graphs import edge_matrix
from privopt.numbers.stated_rounding import FINEST, choose_unit, stated_below
from privopt_metric_dp.problem.data import MetricData

__all__ = ["OFF", "PROOF", "Proof", "growth_of"]

PROOF: Final = "proof.npz"
MAX_RATIO: Final = 4
"""Half of what `privopt_metric_dp.proof.make_proof.read_proof` reads."""
OFF: Final = 2.0**-46
"""Relative error of weights p_i c_ik: shares, and products of shares and costs (a sum of many shares, pairwise)."""


@frozen(kw_only=True, eq=False)
class Proof(ABC):
    """Multipliers as they are stored.

    Attributes:
        VERSION: of the file.
        KINDS: its arrays next to ``version`` and ``unit``, attributes all, and the types that they may have.
        STORED: the arrays that are not deflated where the file unpacks to more than `MAX_RATIO` times its size.
        EFFORT: of deflating the others, 1 to 9.
        unit: to odd multiples of half of it a bound is rounded down before it is stated.
    """

    VERSION: ClassVar[int]
    KINDS: ClassVar[Mapping[str, tuple[str, ...]]]
    STORED: ClassVar[Collection[str]] = ()
    EFFORT: ClassVar[int] = 6

    unit: float = 2.0**-60

    @abstractmethod
    def enclosed(self, data: MetricData, weighted: Floats) -> tuple[float, float]:
        """Return two numbers that enclose what the file proves, with the distances and costs that the files mean.

        Args:
            data: the problem's.
            weighted: (N, K) costs, prior included.

        Returns:
            Both infinite where a sum is not a double.

        Raises:
            CertificationError: a row of a pair that is neither required nor implied, or trees that are none.
        """

    def bound(self, data: MetricData, weighted: Floats) -> float:
        """Return the proved bound on the loss of every mechanism that satisfies the exact distances.

        Returns:
            A number that no such loss is below; minus infinity where a sum is not a double.
        """
        return self.enclosed(data, weighted)[0]

    def stating(self, data: MetricData, weighted: Floats, value: float) -> tuple[Self, float]:
        """Return the proof with a unit at which all evaluations state one number, and that number, at most the loss.

        Args:
            data: the problem's.
            weighted: (N, K) costs, prior included.
            value: the loss that was reached.
        """
        low, high = self.enclosed(data, weighted)
        if not math.isfinite(high - low):
            return self, low
        near = 0.0 <= low - value <= 1e-9 * max(1.0, abs(value))  # more is not a rounding: solve refuses it
        unit = choose_unit(low, high, value - 2.0**-51 * abs(value) if near else math.inf)
        return evolve(self, unit=unit), _rounded(low, unit, weighted)

    def stated(self, data: MetricData, weighted: Floats) -> float:
        """Return the bound as a release states it."""
        low, high = self.enclosed(data, weighted)
        found = _rounded(low, self.unit, weighted)
        if math.isfinite(high - low) and (
            self.unit < FINEST * abs(low) or found != _rounded(high, self.unit, weighted)
        ):
            raise CertificationError(
                f"{PROOF}: the unit of a proved bound between {low!r} and {high!r} must be "
                f"one at which both ends are rounded to the same, as solve writes it, got {self.unit!r}"
            )
        return found

    def write(self, folder: Path) -> None:
        """Write proof.npz."""
        own = {"version": np.array([self.VERSION], dtype=np.int64), "unit": np.array([self.unit])}
        arrays = own | {name: getattr(self, name) for name in self.KINDS}
        self._pack(folder / PROOF, arrays, ())
        if self.STORED and sum(array.nbytes for array in arrays.values()) > MAX_RATIO * (folder / PROOF).stat().st_size:
            self._pack(folder / PROOF, arrays, self.STORED)

    def _pack(self, path: Path, arrays: Mapping[str, NDArray[Any]], stored: Collection[str]) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=self.EFFORT) as archive:
            for name, array in arrays.items():
                file = f"{name}.npy"  # its date is the first that zip knows: same bytes every time
                member = zipfile.ZipInfo(file) if name in stored else file  # an info is stored as it is
                with archive.open(member, "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, array, allow_pickle=False)

    @classmethod
    def of_parts(cls, file: str, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Self:
        """Return a proof from the arrays of a file.

        Args:
            file: its name, for faults.
            parts: its arrays.
            shape: (N, K) of the problem.
        """
        kinds: Mapping[str, tuple[str, ...]] = {"version": ("i8",), "unit": ("f8",), **cls.KINDS}
        faults = [Fault(file, name, "no such array", ", ".join(kinds)) for name in kinds if name not in parts]
        faults = faults or [
            Fault(file, name, f"{found.dtype} of shape {found.shape}", f"{' or '.join(kinds[name])} of shape {wanted}")
            for name, wanted in ({"version": (1,), "unit": (1,)} | cls.shapes(parts, shape)).items()
            if (found := parts[name]).shape != wanted or found.dtype.str not in {f"<{kind}" for kind in kinds[name]}
        ]
        if not faults:
            right = [
                ("version", parts["version"][0] == cls.VERSION, f"version {cls.VERSION}"),
                ("unit", 0.0 < parts["unit"][0] < math.inf, "a finite number above 0"),
                *cls.numbers(parts, shape),
            ]
            faults = [
                Fault(file, name, "numbers that will not do", wanted) for name, holds, wanted in right if not holds
            ]
        if faults:
            raise InputError(faults)
        return cls(unit=float(parts["unit"][0]), **{name: parts[name] for name in cls.KINDS})

    @classmethod
    @abstractmethod
    def shapes(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        """Return the shape that each array shall have, of a problem of (N, K) ``shape``."""

    @classmethod
    @abstractmethod
    def numbers(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Iterator[tuple[str, bool, str]]:
        """Yield what arrays of these shapes must satisfy: name, whether it does, in words."""


def _rounded(proved: float, unit: float, weighted: Floats) -> float:
    """Return the stated value of a bound: at least 0 if no cost is below 0."""
    if not math.isfinite(proved):
        return proved
    found = stated_below(proved, unit)
    return max(0.0, found) if weighted.min() >= 0.0 else found


def growth_of(rows: Ints, data: MetricData) -> tuple[Floats, Floats]:
    """Return (P,) at most, and at least, exp(eps d) at the exact distances of rows: of required pairs, or of paths."""
    if not len(rows):
        return np.empty(0), np.empty(0)
    alone = data.within is None and data.metric.implying() is not None  # ways over these are all others, exactly
    pairs, known = data.needed if alone else data.required
    sure = data.surely_required(pairs, known)
    pairs, known = pairs[sure], known[sure]
    n = len(data.records)
    numbers, wanted = pairs @ [n, 1], np.sort(rows, axis=1) @ [n, 1]  # required pairs are in order
    place = np.minimum(np.searchsorted(numbers, wanted), max(0, len(numbers) - 1))
    required = numbers[place] == wanted if len(numbers) else np.zeros(len(rows), dtype=np.bool_)
    left = np.flatnonzero(~required)
    ends = []
    for lengths, error in ((known, -1.0), (data.metric.upper_distances(known), 1.0)):
        found = np.where(required, lengths[place] if len(lengths) else 0.0, np.inf)
        if len(left):
            found[left] = _along_paths(rows[left], pairs, lengths, n) * (1.0 + error * (n + 2.0) * 2.0**-52)
        ends.append(found)
    lost = np.flatnonzero(~np.isfinite(ends[1]))
    if len(lost):
        raise CertificationError(f"{PROOF}: pairs: {rows[lost[0]].tolist()} is neither required nor implied")
    return exp_bounds(ends[0], data.epsilon)[0], exp_bounds(ends[1], data.epsilon)[1]


def _along_paths(rows: Ints, pairs: Ints, lengths: Floats, records: int) -> Floats:
    """(P,) shortest paths over pairs: each sum is off by 2^-53 of itself at most for each pair of the path."""
    from scipy.sparse.csgraph import dijkstra

    graph = edge_matrix(records, pairs, lengths, both=True)
    found = np.empty(len(rows))
    order = np.argsort(rows[:, 0], kind="stable")
    sources, first = np.unique(rows[order, 0], return_index=True)
    for source, part in zip(sources, np.split(order, first[1:]), strict=True):
        found[part] = dijkstra(graph, directed=True, indices=source)[rows[part, 1]]
    return found
