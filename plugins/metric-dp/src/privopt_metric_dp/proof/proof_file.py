"""The base class of proofs: enclose the bound, state it reproducibly to the last bit, read and write ``proof.npz``.

For every mechanism with ``z_ik <= F_ij z_jk``, and any f >= 0 of these rows (Lagrangian duality, see
:mod:`privopt_metric_dp.proof.lagrangian_bound`)::

    sum_i min_k (p_i c_ik + sum over rows (i, j) of f_k - sum over rows (j, i) of F_ji f_k)  <=  its loss

Rows may be any that a private mechanism satisfies: those of required pairs, and of pairs that these imply, at the
length of the shortest path. ``docs/reference/proof.md`` describes the forms of the file.
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
    """Stored multipliers, from which anyone can evaluate the bound.

    Attributes:
        VERSION: Version of the file.
        KINDS: Its arrays besides ``version`` and ``unit``, which are attributes, and the types that they may have.
        STORED: Arrays that are stored uncompressed if the file would unpack to more than `MAX_RATIO` times its size.
        EFFORT: Compression level of the others, 1 to 9.
        unit: The stated bound is an odd multiple of half of this unit.
    """

    VERSION: ClassVar[int]
    KINDS: ClassVar[Mapping[str, tuple[str, ...]]]
    STORED: ClassVar[Collection[str]] = ()
    EFFORT: ClassVar[int] = 6

    unit: float = 2.0**-60

    @abstractmethod
    def enclose_bound(self, data: MetricData, weighted: Floats) -> tuple[float, float]:
        """Return two numbers that enclose the proved bound at the exact distances and costs of the files.

        Args:
            data: The problem's data.
            weighted: (N, K) costs, prior included.

        Returns:
            The two numbers; both are infinite if a sum is not a double.

        Raises:
            CertificationError: A row belongs to a pair that is neither required nor implied, or the trees have a cycle.
        """

    def bound(self, data: MetricData, weighted: Floats) -> float:
        """Return the proved bound on the loss of every mechanism that satisfies the exact distances.

        Returns:
            A lower bound of all such losses; minus infinity if a sum is not a double.
        """
        return self.enclose_bound(data, weighted)[0]

    def state_bound(self, data: MetricData, weighted: Floats, value: float) -> tuple[Self, float]:
        """Return the proof with a unit at which every evaluation states the same number, and that number.

        Args:
            data: The problem's data.
            weighted: (N, K) costs, prior included.
            value: The loss that was reached, which the number does not exceed.
        """
        lower, upper = self.enclose_bound(data, weighted)
        if not math.isfinite(upper - lower):
            return self, lower
        is_rounding = 0.0 <= lower - value <= 1e-9 * max(1.0, abs(value))  # more is not a rounding: solve refuses it
        unit = choose_unit(lower, upper, value - 2.0**-51 * abs(value) if is_rounding else math.inf)
        return evolve(self, unit=unit), _state_bound(lower, unit, weighted)

    def stated_bound(self, data: MetricData, weighted: Floats) -> float:
        """Return the bound as a release states it."""
        lower, upper = self.enclose_bound(data, weighted)
        bound = _state_bound(lower, self.unit, weighted)
        if math.isfinite(upper - lower) and (
            self.unit < FINEST * abs(lower) or bound != _state_bound(upper, self.unit, weighted)
        ):
            raise CertificationError(
                f"{PROOF}: the unit of a proved bound between {lower!r} and {upper!r} must be "
                f"one at which both ends are rounded to the same, as solve writes it, got {self.unit!r}"
            )
        return bound

    def write(self, folder: Path) -> None:
        """Write proof.npz."""
        header = {"version": np.array([self.VERSION], dtype=np.int64), "unit": np.array([self.unit])}
        arrays = header | {name: getattr(self, name) for name in self.KINDS}
        self._write_archive(folder / PROOF, arrays, ())
        if self.STORED and sum(array.nbytes for array in arrays.values()) > MAX_RATIO * (folder / PROOF).stat().st_size:
            self._write_archive(folder / PROOF, arrays, self.STORED)

    def _write_archive(self, path: Path, arrays: Mapping[str, NDArray[Any]], stored: Collection[str]) -> None:
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
            Fault(
                file,
                name,
                f"{array.dtype} of shape {array.shape}",
                f"{' or '.join(kinds[name])} of shape {expectation}",
            )
            for name, expectation in ({"version": (1,), "unit": (1,)} | cls.shapes(parts, shape)).items()
            if (array := parts[name]).shape != expectation
            or array.dtype.str not in {f"<{kind}" for kind in kinds[name]}
        ]
        if not faults:
            conditions = [
                ("version", parts["version"][0] == cls.VERSION, f"version {cls.VERSION}"),
                ("unit", 0.0 < parts["unit"][0] < math.inf, "a finite number above 0"),
                *cls.numbers(parts, shape),
            ]
            faults = [
                Fault(file, name, "numbers that will not do", expectation)
                for name, holds, expectation in conditions
                if not holds
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


def _state_bound(proved: float, unit: float, weighted: Floats) -> float:
    """Return the stated value of a bound: at least 0 if no cost is below 0."""
    if not math.isfinite(proved):
        return proved
    stated = stated_below(proved, unit)
    return max(0.0, stated) if weighted.min() >= 0.0 else stated


def growth_of(rows: Ints, data: MetricData) -> tuple[Floats, Floats]:
    """Return (P,) at most, and at least, exp(eps d) at the exact distances of rows: of required pairs, or of paths."""
    if not len(rows):
        return np.empty(0), np.empty(0)
    has_implying_pairs = (
        data.within is None and data.metric.implying() is not None
    )  # ways over these are all others, exactly
    pairs, distances = data.needed if has_implying_pairs else data.required
    is_sure = data.surely_required(pairs, distances)
    pairs, distances = pairs[is_sure], distances[is_sure]
    n = len(data.records)
    numbers, row_numbers = pairs @ [n, 1], np.sort(rows, axis=1) @ [n, 1]  # required pairs are in order
    positions = np.minimum(np.searchsorted(numbers, row_numbers), max(0, len(numbers) - 1))
    required = numbers[positions] == row_numbers if len(numbers) else np.zeros(len(rows), dtype=np.bool_)
    missing = np.flatnonzero(~required)
    bounds = []
    for lengths, error in ((distances, -1.0), (data.metric.upper_distances(distances), 1.0)):
        row_lengths = np.where(required, lengths[positions] if len(lengths) else 0.0, np.inf)
        if len(missing):
            row_lengths[missing] = _path_lengths(rows[missing], pairs, lengths, n) * (
                1.0 + error * (n + 2.0) * 2.0**-52
            )
        bounds.append(row_lengths)
    lost = np.flatnonzero(~np.isfinite(bounds[1]))
    if len(lost):
        raise CertificationError(f"{PROOF}: pairs: {rows[lost[0]].tolist()} is neither required nor implied")
    return exp_bounds(bounds[0], data.epsilon)[0], exp_bounds(bounds[1], data.epsilon)[1]


def _path_lengths(rows: Ints, pairs: Ints, lengths: Floats, records: int) -> Floats:
    """(P,) shortest paths over pairs: each sum is off by 2^-53 of itself at most for each pair of the path."""
    from scipy.sparse.csgraph import dijkstra

    graph = edge_matrix(records, pairs, lengths, both=True)
    distances = np.empty(len(rows))
    order = np.argsort(rows[:, 0], kind="stable")
    sources, offsets = np.unique(rows[order, 0], return_index=True)
    for source, part in zip(sources, np.split(order, offsets[1:]), strict=True):
        distances[part] = dijkstra(graph, directed=True, indices=source)[rows[part, 1]]
    return distances
