"""The base class of proofs: it encloses and states the proved bound, and reads and writes ``proof.npz``.

The bound is stated so that every machine computes the same number, down to the last bit. For every mechanism with
``z_ik <= F_ij z_jk``, F_ij = exp(eps d_ij), and any multipliers f >= 0 of these rows (Lagrangian duality, see
:mod:`privopt_metric_dp.proof.lagrangian_bound`)::

    sum_i min_k (p_i c_ik + sum over rows (i, j) of f_k - sum over rows (j, i) of F_ji f_k)  <=  its loss

The rows may be any that a private mechanism satisfies: those of required pairs, and those of pairs that required pairs
imply, at the length of the shortest path. ``docs/reference/proof.md`` describes the forms of the file.
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
"""Largest factor by which a file that is written unpacks. It is half of the factor that
`privopt_metric_dp.proof.make_proof.read_proof` accepts."""
OFF: Final = 2.0**-46
"""Relative error of the weighted costs p_i c_ik. It covers the rounding of prior shares and of their products with
costs, also if many shares are summed (pairwise)."""


@frozen(kw_only=True, eq=False)
class Proof(ABC):
    """Stored multipliers, from which anyone can recompute the bound.

    Attributes:
        VERSION: Version of the file.
        KINDS: Allowed types of each array in the file, by name, without ``version`` and ``unit``. Each name is also an
            attribute of the proof.
        STORED: Names of the arrays that are stored uncompressed if the file would otherwise unpack to more than
            `MAX_RATIO` times its size.
        EFFORT: Compression level of the other arrays, 1 to 9.
        unit: Unit of which the stated bound is an odd multiple of half.
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
            The two numbers; both are infinite if a sum overflows.

        Raises:
            CertificationError: A row belongs to a pair that is neither required nor implied, or the trees have a cycle.
        """

    def bound(self, data: MetricData, weighted: Floats) -> float:
        """Return the proved lower bound on the loss of every mechanism that satisfies the exact distances.

        The bound is minus infinity if a sum overflows.
        """
        return self.enclose_bound(data, weighted)[0]

    def state_bound(self, data: MetricData, weighted: Floats, value: float) -> tuple[Self, float]:
        """Choose the unit of the proof, and return the proof with this unit and the bound that it states.

        Every evaluation states the same bound at this unit.

        Args:
            data: The problem's data.
            weighted: (N, K) costs, prior included.
            value: The loss that was reached. If the enclosed bound exceeds it only by rounding errors, the unit is
                chosen so that the stated bound does not exceed it.
        """
        lower, upper = self.enclose_bound(data, weighted)
        if not math.isfinite(upper - lower):
            return self, lower
        # No bound exceeds the loss of a mechanism. A small excess is rounding and is removed by the choice of the unit;
        # a larger one is left, so that solve refuses it.
        is_rounding = 0.0 <= lower - value <= 1e-9 * max(1.0, abs(value))
        # The limit of the stated bound is a few rounding errors below the loss.
        unit = choose_unit(lower, upper, value - 2.0**-51 * abs(value) if is_rounding else math.inf)
        return evolve(self, unit=unit), _state_bound(lower, unit, weighted)

    def stated_bound(self, data: MetricData, weighted: Floats) -> float:
        """Return the bound that a release with this proof states: the enclosed bound, rounded down to the unit.

        Args:
            data: The problem's data.
            weighted: (N, K) costs, prior included.

        Raises:
            CertificationError: The unit is too fine, so that evaluations on other machines could state another number.
        """
        lower, upper = self.enclose_bound(data, weighted)
        bound = _state_bound(lower, self.unit, weighted)
        if math.isfinite(upper - lower) and (
            self.unit < FINEST * abs(lower) or bound != _state_bound(upper, self.unit, weighted)
        ):
            raise CertificationError(
                f"{PROOF}: the unit of a proved bound between {lower!r} and {upper!r} must be such that both ends are "
                f"rounded to the same value, as solve writes it, got {self.unit!r}"
            )
        return bound

    def write(self, folder: Path) -> None:
        """Write proof.npz, with arrays uncompressed if a reader would refuse the file because it unpacks too far."""
        header = {"version": np.array([self.VERSION], dtype=np.int64), "unit": np.array([self.unit])}
        arrays = header | {name: getattr(self, name) for name in self.KINDS}
        self._write_archive(folder / PROOF, arrays, ())
        # A reader refuses files that unpack to many times their size, and multipliers that repeat may compress that
        # well.
        if self.STORED and sum(array.nbytes for array in arrays.values()) > MAX_RATIO * (folder / PROOF).stat().st_size:
            self._write_archive(folder / PROOF, arrays, self.STORED)

    def _write_archive(self, path: Path, arrays: Mapping[str, NDArray[Any]], stored: Collection[str]) -> None:
        """Write arrays as a zip archive of .npy files. Those named in ``stored`` are not compressed."""
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=self.EFFORT) as archive:
            for name, array in arrays.items():
                file = f"{name}.npy"
                # A ZipInfo is stored without compression; a name is compressed. Either has the earliest date that zip
                # supports, so that equal proofs have equal bytes.
                member = zipfile.ZipInfo(file) if name in stored else file
                with archive.open(member, "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, array, allow_pickle=False)

    @classmethod
    def of_parts(cls, file: str, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Self:
        """Build a proof from the arrays in a file, after checking their types, shapes and numbers.

        Args:
            file: The name of the file, for error messages.
            parts: The arrays in the file.
            shape: The problem's numbers of records and outputs (N, K).

        Raises:
            InputError: An array is missing or malformed.
        """
        # Types as NumPy writes them, without the "<" for little-endian that all must have.
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
            # Numbers are only checked in arrays of the right shapes and types, which the conditions rely on.
            conditions = [
                ("version", parts["version"][0] == cls.VERSION, f"version {cls.VERSION}"),
                ("unit", 0.0 < parts["unit"][0] < math.inf, "a finite number above 0"),
                *cls.numbers(parts, shape),
            ]
            faults = [
                Fault(file, name, "invalid numbers", expectation)
                for name, holds, expectation in conditions
                if not holds
            ]
        if faults:
            raise InputError(faults)
        return cls(unit=float(parts["unit"][0]), **{name: parts[name] for name in cls.KINDS})

    @classmethod
    @abstractmethod
    def shapes(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        """Return the expected shape of each array, for a problem of shape (N, K)."""

    @classmethod
    @abstractmethod
    def numbers(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Iterator[tuple[str, bool, str]]:
        """Yield the conditions on the numbers in the arrays: array name, whether the condition holds, and its text."""


def _state_bound(proved: float, unit: float, weighted: Floats) -> float:
    """Return the number that states a proved bound: rounded down to the unit, but at least 0 if no cost is negative.

    Args:
        proved: The proved bound; an infinite bound is returned unchanged.
        unit: The unit to which the bound is rounded.
        weighted: (N, K) costs, prior included.
    """
    if not math.isfinite(proved):
        return proved
    stated = stated_below(proved, unit)
    return max(0.0, stated) if weighted.min() >= 0.0 else stated


def growth_of(rows: Ints, data: MetricData) -> tuple[Floats, Floats]:
    """Return lower and upper bounds (P,) on exp(eps d) at the exact distances of rows.

    The distance of a row is that of its required pair, or otherwise the length of the shortest path over required
    pairs.

    Args:
        rows: (P, 2) pairs of records, in any direction.
        data: The problem's data.

    Raises:
        CertificationError: A row is neither required nor implied by required pairs.
    """
    if not len(rows):
        return np.empty(0), np.empty(0)
    # Along roads and without a limit on distances, paths over the few needed pairs have exactly the distances of all
    # other pairs, so not all pairs of a city have to be computed.
    has_implying_pairs = data.within is None and data.metric.implying() is not None
    pairs, distances = data.needed if has_implying_pairs else data.required
    # A pair may be required by its rounded distance only. No mechanism has to satisfy it then, and no bound may use it.
    is_sure = data.surely_required(pairs, distances)
    pairs, distances = pairs[is_sure], distances[is_sure]
    n = len(data.records)
    # Pairs as single numbers. Required pairs are in order, so a binary search finds a row among them. The cap keeps the
    # position in range for a row that is not there.
    numbers, row_numbers = pairs @ [n, 1], np.sort(rows, axis=1) @ [n, 1]
    positions = np.minimum(np.searchsorted(numbers, row_numbers), max(0, len(numbers) - 1))
    required = numbers[positions] == row_numbers if len(numbers) else np.zeros(len(rows), dtype=np.bool_)
    missing = np.flatnonzero(~required)
    bounds = []
    # Once with distances rounded down and once rounded up. A path has at most n additions, whose rounding is covered in
    # the same direction.
    for lengths, error in ((distances, -1.0), (data.metric.upper_distances(distances), 1.0)):
        row_lengths = np.where(required, lengths[positions] if len(lengths) else 0.0, np.inf)
        if len(missing):
            row_lengths[missing] = _path_lengths(rows[missing], pairs, lengths, n) * (
                1.0 + error * (n + 2.0) * 2.0**-52
            )
        bounds.append(row_lengths)
    unreachable = np.flatnonzero(~np.isfinite(bounds[1]))
    if len(unreachable):
        raise CertificationError(f"{PROOF}: pairs: {rows[unreachable[0]].tolist()} is neither required nor implied")
    return exp_bounds(bounds[0], data.epsilon)[0], exp_bounds(bounds[1], data.epsilon)[1]


def _path_lengths(rows: Ints, pairs: Ints, lengths: Floats, records: int) -> Floats:
    """Return the lengths (P,) of shortest paths over pairs, with a relative error of at most 2^-53 for each addition.

    Args:
        rows: (P, 2) the two ends of each path.
        pairs, lengths: (Q, 2) pairs and their lengths (Q,).
        records: N, the number of records.
    """
    from scipy.sparse.csgraph import dijkstra

    graph = edge_matrix(records, pairs, lengths, both=True)
    distances = np.empty(len(rows))
    # Rows with the same first record share one search.
    order = np.argsort(rows[:, 0], kind="stable")
    sources, offsets = np.unique(rows[order, 0], return_index=True)
    for source, part in zip(sources, np.split(order, offsets[1:]), strict=True):
        distances[part] = dijkstra(graph, directed=True, indices=source)[rows[part, 1]]
    return distances
