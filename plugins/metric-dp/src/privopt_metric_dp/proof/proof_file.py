"""The base class of proofs, which evaluates the proved bound and reads and writes ``proof.npz``.

The stated bound is the same on every machine, down to the last bit. Let f >= 0 be any multipliers for the constraints
``z_ik <= F_ij z_jk``, where F_ij = exp(eps d_ij). For every mechanism that satisfies these constraints, Lagrangian
duality gives (see :mod:`privopt_metric_dp.proof.lagrangian_bound`)::

    sum_i min_k (p_i c_ik + sum over rows (i, j) of f_k - sum over rows (j, i) of F_ji f_k)  <=  its loss

Here p_i is the prior of record i, and c_ik is the cost of output k for record i. A row is a constraint between two
records i and j that every private mechanism satisfies, and f_k is its multiplier for output k. The pair (i, j) is
either required or implied by required pairs. If it is implied, d_ij is the length of the shortest path between the two
records along required pairs. ``docs/reference/proof.md`` describes the forms of the file.
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
"""The name of the file that contains the proof."""
MAX_RATIO: Final = 4
"""The largest ratio of the arrays' size to the file's size at which all arrays are written compressed.

It is half the ratio accepted by `privopt_metric_dp.proof.make_proof.read_proof`."""
OFF: Final = 2.0**-46
"""A bound on the relative error of the weighted costs p_i c_ik.

It covers the rounding errors of the prior and of the products, even if each prior probability is a pairwise sum of many
terms."""


@frozen(kw_only=True, eq=False)
class Proof(ABC):
    """A proof of a lower bound on the loss. It stores multipliers from which anyone can recompute the bound.

    Attributes:
        VERSION: The version of the file format.
        KINDS: A mapping from the name of each array in the file, except ``version`` and ``unit``, to its allowed types.
            Each name is also an attribute of the proof.
        STORED: The names of arrays that are written uncompressed if the compressed file would unpack to more than
            `MAX_RATIO` times its size.
        EFFORT: The compression level for all other arrays, from 1 to 9.
        unit: The unit to which the stated bound is rounded. The stated bound is an odd multiple of half the unit.
    """

    VERSION: ClassVar[int]
    KINDS: ClassVar[Mapping[str, tuple[str, ...]]]
    STORED: ClassVar[Collection[str]] = ()
    EFFORT: ClassVar[int] = 6

    unit: float = 2.0**-60

    @abstractmethod
    def enclose_bound(self, data: MetricData, weighted: Floats) -> tuple[float, float]:
        """Return two doubles that enclose the proved bound for the exact distances and costs in the problem's files.

        Args:
            data: The problem's data.
            weighted: Array of shape (N, K) with the costs times the prior.

        Returns:
            The lower and upper ends of the enclosure. They are minus and plus infinity if a sum overflows.

        Raises:
            CertificationError: A constraint belongs to a pair that the guarantee neither covers nor implies, or a tree
                contains a cycle.
        """

    def bound(self, data: MetricData, weighted: Floats) -> float:
        """Return a proved lower bound on the loss of every mechanism that is private for the exact distances.

        If a sum overflows, the bound is minus infinity.

        Args:
            data: The problem's data.
            weighted: Array of shape (N, K) with the costs times the prior.
        """
        return self.enclose_bound(data, weighted)[0]

    def state_bound(self, data: MetricData, weighted: Floats, value: float) -> tuple[Self, float]:
        """Choose a rounding unit, and return the proof with this unit and its stated bound.

        The unit is chosen so that every machine that evaluates the proof states the same bound.

        Args:
            data: The problem's data.
            weighted: Array of shape (N, K) with the costs times the prior.
            value: The loss of the release. If the proved bound exceeds this loss only because of rounding errors, the
                unit is chosen so that the stated bound does not exceed it.
        """
        lower, upper = self.enclose_bound(data, weighted)
        if not math.isfinite(upper - lower):
            return self, lower
        # No valid bound exceeds the loss of a mechanism. A small excess is due to rounding, and the choice of the unit
        # removes it. A larger excess is kept, so that `solve` rejects the proof.
        is_rounding = 0.0 <= lower - value <= 1e-9 * max(1.0, abs(value))
        # The stated bound must stay a few rounding errors below the loss.
        unit = choose_unit(lower, upper, value - 2.0**-51 * abs(value) if is_rounding else math.inf)
        return evolve(self, unit=unit), _state_bound(lower, unit, weighted)

    def stated_bound(self, data: MetricData, weighted: Floats) -> float:
        """Return the bound that a release with this proof must state: the proved bound, rounded down to the unit.

        Args:
            data: The problem's data.
            weighted: Array of shape (N, K) with the costs times the prior.

        Raises:
            CertificationError: The unit is so fine that another machine could state a different bound.
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
        """Write proof.npz.

        All arrays are compressed, unless the ratio of unpacked to compressed size would be so high that `read_proof`
        might reject the file. In that case, the arrays listed in ``STORED`` are written uncompressed.

        Args:
            folder: The release folder.
        """
        header = {"version": np.array([self.VERSION], dtype=np.int64), "unit": np.array([self.unit])}
        arrays = header | {name: getattr(self, name) for name in self.KINDS}
        self._write_archive(folder / PROOF, arrays, ())
        # `read_proof` rejects files that unpack to many times their size, as compressed files do if many multipliers
        # are equal.
        if self.STORED and sum(array.nbytes for array in arrays.values()) > MAX_RATIO * (folder / PROOF).stat().st_size:
            self._write_archive(folder / PROOF, arrays, self.STORED)

    def _write_archive(self, path: Path, arrays: Mapping[str, NDArray[Any]], stored: Collection[str]) -> None:
        """Write arrays, keyed by name, to a zip archive of .npy files. Arrays named in ``stored`` are uncompressed."""
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=self.EFFORT) as archive:
            for name, array in arrays.items():
                file = f"{name}.npy"
                # `open` writes a member given as a ZipInfo without compression, and compresses one given by name. In
                # both cases, the member has the earliest date that zip supports, so equal proofs have equal bytes.
                member = zipfile.ZipInfo(file) if name in stored else file
                with archive.open(member, "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, array, allow_pickle=False)

    @classmethod
    def of_parts(cls, file: str, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Self:
        """Build a proof from the arrays in a file after checking their types, shapes and values.

        Args:
            file: The name of the file, for error messages.
            parts: The arrays in the file, keyed by name.
            shape: The number of records N and the number of outputs K of the problem.

        Raises:
            InputError: An array is missing or malformed.
        """
        # NumPy's type names without the prefix "<" (little-endian), which the type of every array must have.
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
            # Values are checked only if all arrays have the right types and shapes, which the conditions take for
            # granted.
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
        """Return the expected shape of each array in the file.

        Args:
            parts: The arrays in the file, keyed by name.
            shape: The problem's numbers of records and outputs, (N, K).
        """

    @classmethod
    @abstractmethod
    def numbers(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Iterator[tuple[str, bool, str]]:
        """Yield the conditions that the values in the file's arrays must satisfy.

        Args:
            parts: The arrays in the file, keyed by name. Their types and shapes have already been checked.
            shape: The problem's numbers of records and outputs, (N, K).

        Yields:
            The name of an array, whether a condition on it holds, and the condition in words.
        """


def _state_bound(proved: float, unit: float, weighted: Floats) -> float:
    """Round a proved bound down to the stated unit. If no cost is negative, the result is at least 0.

    Args:
        proved: The proved bound. If it is infinite, it is returned unchanged.
        unit: The unit to which the bound is rounded.
        weighted: Array of shape (N, K) with the costs times the prior.
    """
    if not math.isfinite(proved):
        return proved
    stated = stated_below(proved, unit)
    return max(0.0, stated) if weighted.min() >= 0.0 else stated


def growth_of(rows: Ints, data: MetricData) -> tuple[Floats, Floats]:
    """Return lower and upper bounds on exp(eps d) for pairs of records.

    If the guarantee covers a pair, d is the exact distance between its records. Otherwise, d is the exact length of the
    shortest path between them along covered pairs.

    Args:
        rows: Array of shape (P, 2) with the two records of each pair, in either order.
        data: The problem's data.

    Returns:
        Two arrays of shape (P,), the first with the lower bounds and the second with the upper bounds.

    Raises:
        CertificationError: The guarantee neither covers a pair nor implies a constraint for it.
    """
    if not len(rows):
        return np.empty(0), np.empty(0)
    # If all pairs are required and the metric knows a few pairs that imply them, as it does along roads, the shortest
    # paths over these give exactly the distances between all records. This avoids computing all pairs in a city.
    has_implying_pairs = data.within is None and data.metric.implying() is not None
    pairs, distances = data.needed if has_implying_pairs else data.required
    # A pair may be required only because its distance was rounded. At the exact distance, mechanisms need not satisfy
    # its constraints, so no bound may use them.
    is_sure = data.surely_required(pairs, distances)
    pairs, distances = pairs[is_sure], distances[is_sure]
    n = len(data.records)
    # Each pair is encoded as an integer. Required pairs are sorted, so binary search finds a given pair among them. The
    # cap keeps the position in range for pairs that are not required.
    numbers, row_numbers = pairs @ [n, 1], np.sort(rows, axis=1) @ [n, 1]
    positions = np.minimum(np.searchsorted(numbers, row_numbers), max(0, len(numbers) - 1))
    required = numbers[positions] == row_numbers if len(numbers) else np.zeros(len(rows), dtype=np.bool_)
    missing = np.flatnonzero(~required)
    bounds = []
    # Path lengths are computed twice, from distances rounded down and from distances rounded up. A path has at most n
    # additions, whose rounding errors are covered in the same direction.
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
    """Return the lengths of shortest paths along given pairs, with a relative error of at most 2^-53 per addition.

    Args:
        rows: Array of shape (P, 2) with the records at the two ends of each path.
        pairs: Array of shape (Q, 2) with the pairs that paths may use.
        lengths: Array of shape (Q,) with the length of each of these pairs.
        records: The number of records, N.

    Returns:
        Array of shape (P,) with the path lengths. If there is no path, the length is infinite.
    """
    from scipy.sparse.csgraph import dijkstra

    graph = edge_matrix(records, pairs, lengths, both=True)
    distances = np.empty(len(rows))
    # Paths with the same first record share one search.
    order = np.argsort(rows[:, 0], kind="stable")
    sources, offsets = np.unique(rows[order, 0], return_index=True)
    for source, part in zip(sources, np.split(order, offsets[1:]), strict=True):
        distances[part] = dijkstra(graph, directed=True, indices=source)[rows[part, 1]]
    return distances
