"""What metric mechanisms release: an obfuscation matrix of integer weights, or a way to draw reports for positions.

A released probability is exactly weight / 2**63: the same integers are certified, written, read back and sampled.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from attrs import evolve, field, fields, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.errors import DoesNotHoldError, Fault, Faults, InputError, UnknownNameError, UsageError
from privopt.files.archive import read_arrays
from privopt.interfaces import Channel, Release, SolveContext
from privopt.numbers.sampling import TOTAL, CumulatedRows, Source
from privopt_metric_dp.matrix.repair import RepairedWeights, repair
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.metric_data import MetricData
from privopt_metric_dp.region.region import ARRAYS, Region, region_of
from privopt_metric_dp.space.road_metric import RoadMetric
from privopt_metric_dp.traces.draw_trace import Walker

if TYPE_CHECKING:
    from privopt.run.verify import OpenedFolder
else:
    OpenedFolder = Any

__all__ = ["ARTEFACT", "MatrixRelease", "PositionRelease", "matrix_bytes", "matrix_of"]

ARTEFACT: Final = "mechanism.npz"
"""Name of the file that holds a released matrix."""

_ARRAY_FORMS: Final[Mapping[str, tuple[Any, tuple[int | str, ...]]]] = {
    "weights": (np.uint64, ("N", "K")),
    "records": (np.str_, ("N",)),
    "outputs": (np.str_, ("K",)),
    "pairs": (np.int64, ("P", 2)),
    "distances": (np.float64, ("P",)),
}
"""Types and shapes of the arrays in mechanism.npz, except those of a region."""

_IMPLIED_FORM: Final[Mapping[str, tuple[Any, tuple[int | str, ...]]]] = {"implied": (np.int64, (0,))}
"""Type and shape of an empty array that marks a file without pairs. Such a file uses all pairs that the problem
requires."""

MAX_STORED_PAIRS: Final = 1_000_000
"""Largest number of pairs that are written to the file, where they take 24 MB. The pairs for 5,000 words took 300 MB of
a file of 512 MB, and 2 s to read."""


class PositionRelease(Release):
    """A release that can draw a report for any position in degrees. It has no records to which positions are snapped.

    ``privopt sample --at`` and tables with positions use it. The ids that :meth:`Release.sample` takes have the form
    ``LAT,LON``.
    """

    @abstractmethod
    def draw(self, latitudes: Floats, longitudes: Floats, *, source: Source | None = None) -> tuple[list[str], Floats]:
        """Draw one report for each position, independently.

        Args:
            latitudes, longitudes: (n,) positions in degrees, from -90 to 90 and from -180 to 180.
            source: Source of random bytes; by default, the operating system.

        Returns:
            The ids of the n reports, and their latitudes and longitudes (n, 2) in degrees.
        """


def matrix_bytes(records: int, outputs: int, pairs: int) -> float:
    """Estimate the bytes needed for a problem's arrays and its release while that is certified, written and read.

    The estimate counts 27 arrays of the matrix's size and 5 copies of the required pairs. It was measured at 1,000 and
    2,000 records, including the loading of numba. Without numba, the exponential mechanism took 8 arrays of the
    matrix's size, and 14 if calibrated (tests/run/test_memory.py).

    Args:
        records, outputs: Number of rows and of columns of the matrix.
        pairs: Number of required pairs.
    """
    # A pair takes 24 bytes: two record indices of 8 bytes each, and a distance.
    return 8.0 * 27 * records * outputs + 5 * 24.0 * pairs


def _find_repeated_pair(pairs: Ints, count: int) -> list[int] | None:
    """Return the smallest pair that occurs more than once, in either direction, or None if there is none.

    Args:
        pairs: (P, 2) pairs of records.
        count: Number of records.
    """
    # Each pair is encoded as one number, the same for both directions. The initial values do not affect the result,
    # because records are numbered from 0 to count - 1.
    keys = pairs.min(axis=1, initial=count) * count + pairs.max(axis=1, initial=0)
    if (keys[1:] > keys[:-1]).all():  # solve writes pairs in order, so sorting is usually unnecessary
        return None
    keys.sort()
    repeated_keys = keys[1:][keys[1:] == keys[:-1]]
    return None if not repeated_keys.size else [int(repeated_keys[0]) // count, int(repeated_keys[0]) % count]


def _raise_no_problem() -> tuple[Ints, Floats]:
    """Raise an InputError: the file omits its pairs and distances, and the problem that determines them was not read.

    This is the ``follow`` of a release that was read without its problem.
    """
    expectation = "pairs and distances, or a file that is read together with its problem"
    raise InputError([Fault(ARTEFACT, "implied", "no pairs", expectation)])


def _freeze_array(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view of an array."""
    # The view shares the array's memory, but only the view becomes read-only.
    view = np.asarray(array).view()
    view.setflags(write=False)
    return view


@frozen(kw_only=True, eq=False)
class MatrixRelease(Release):
    """An obfuscation matrix, whose row i is the distribution of the output that is released for record i.

    Attributes:
        weights: (N, K) uint64, every row summing to 2**63.
        records: (N,) ids of the records, which are the secrets.
        outputs: (K,) ids of the values that may be released.
        pairs: (P, 2) int64, i < j, in order: the pairs that the certificate checks. They are the required pairs or, for
            a notion in which paths imply pairs, those that imply all others. With a region, there are none.
        distances: (P,) float64, the distances between the records of each pair; the doubles are taken as exact.
        follow: Function that returns the problem's required pairs and their distances, for a file that does not store
            them because all of them are checked. None if they are stored.
        region: The region, if the guarantee holds between any two of its points; its vertices are the records.
        repaired: What the repair did, or None if the release was not repaired.
    """

    artefact: ClassVar[str] = ARTEFACT

    weights: NDArray[np.uint64] = field(converter=_freeze_array)
    records: NDArray[np.str_] = field(converter=_freeze_array)
    outputs: NDArray[np.str_] = field(converter=_freeze_array)
    _pairs: NDArray[np.int64] = field(converter=_freeze_array)
    _distances: NDArray[np.float64] = field(converter=_freeze_array)
    follow: Callable[[], tuple[Ints, Floats]] | None = field(default=None, repr=False)
    region: Region | None = None
    repaired: RepairedWeights | None = None

    @classmethod
    def from_matrix(cls, z: NDArray[np.float64], data: MetricData, context: SolveContext) -> MatrixRelease:
        """Repair a nearly feasible matrix of probabilities into a release.

        Args:
            z: (N, K) probabilities, which may violate the constraints slightly.
            data: The problem's data.
            context: The solve's context. It gives the requested gap, and measures the time that the repair takes.

        Raises:
            CertificationError: No repaired matrix could be certified.
        """
        with context.time_phase("repair"):
            # Only these pairs are passed, because they imply all other required pairs.
            pairs, distances = data.standing
            repaired = repair(
                z,
                pairs,
                distances,
                data.epsilon,
                loss=data.weighted,
                gap=context.gap,
            )
        return evolve(cls.over(data, repaired.weights, along_paths=True), repaired=repaired)

    @classmethod
    def over(cls, data: MetricData, weights: NDArray[np.uint64], *, along_paths: bool = False) -> MatrixRelease:
        """Make a release from weights over a problem's records and outputs, without certifying it.

        Args:
            data: The problem's data.
            weights: (N, K) uint64, every row summing to 2**63.
            along_paths: Whether to store only the required pairs that imply the others, for notions in which paths
                imply pairs (:attr:`privopt_metric_dp.matrix.privacy.MatrixConstraint.along_paths`).
        """
        pairs, distances = data.standing if along_paths else data.required
        # With a region, the certificate checks simplices rather than pairs, so the edges are not stored.
        if data.region is not None:
            pairs, distances = pairs[:0], distances[:0]
        # Pairs may be omitted from the file only if a reader can recompute them as the problem's required pairs.
        all_required = not along_paths or data.metric.implying(data.within) is None
        follow = all_required and len(pairs) > MAX_STORED_PAIRS
        return cls(
            weights=weights,
            records=np.asarray(data.records.ids, dtype=np.str_),
            outputs=np.asarray(data.outputs.ids, dtype=np.str_),
            pairs=pairs,
            distances=distances,
            region=data.region,
            follow=(lambda: data.required) if follow else None,
        )

    @classmethod
    def of(cls, matrix: MatrixRelease, **more: object) -> Self:
        """Return another release's matrix as an instance of this class, with its pairs stored.

        Args:
            matrix: The other release.
            more: Values for fields that this class adds, or that replace those of the other release.
        """
        names = [part.name.lstrip("_") for part in fields(MatrixRelease)]
        parts: dict[str, Any] = {name: getattr(matrix, name) for name in names}
        # `pairs` and `distances` were read through the properties, so the new release stores them and needs no problem.
        return cls(**{**parts, "follow": None, **more})

    @property
    def pairs(self) -> NDArray[np.int64]:
        """(P, 2) int64, i < j, in order: the pairs that the certificate checks.

        Raises:
            InputError: The file does not store the pairs, and the problem that determines them was not read.
        """
        return self._pairs if self.follow is None else self.follow()[0]

    @property
    def distances(self) -> NDArray[np.float64]:
        """(P,) float64, the distances between the records of each of the :attr:`pairs`.

        Raises:
            InputError: The file does not store the pairs, and the problem that determines them was not read.
        """
        return self._distances if self.follow is None else self.follow()[1]

    def following(self, data: MetricData) -> Self:
        """Return the release with a problem's required pairs, if its file does not store any."""
        return self if self.follow is None else evolve(self, follow=lambda: data.required)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """(N, K) doubles nearest to weight / 2**63. They are meant for figures and must not be used for sampling."""
        probabilities_array = self.weights.astype(np.float64)
        probabilities_array /= float(TOTAL)
        return probabilities_array

    @cached_property
    def sampler(self) -> CumulatedRows:
        """The sampler, which draws indices of outputs from rows of weights. It holds the running sums of each row."""
        return CumulatedRows(self.weights)

    @cached_property
    def _output_ids(self) -> NDArray[np.object_]:
        """(K,) ids of the outputs as Python strings, which draws share instead of making a copy for each report."""
        return self.outputs.astype(np.object_)

    @property
    def walker(self) -> Walker | None:
        """The object that draws reports along traces, or None if each report is drawn independently of earlier ones."""
        return None

    def for_every_record(self, data: MetricData) -> MatrixRelease:
        """Return the release with one row for each record of the problem. Subclasses may store fewer rows."""
        return self

    def along_edges(self, data: MetricData) -> Self:
        """Return the release with the region's edges as its pairs, at their actual distances, for figures and attacks.

        A release without a region is returned as it is.
        """
        if self.region is None:
            return self
        pairs = self.region.edges
        return evolve(self, pairs=pairs, distances=data.distance.between(pairs[:, 0], pairs[:, 1]))

    def write(self, folder: Path) -> None:
        """Write mechanism.npz: weights, ids, pairs and distances, and the arrays of a region."""
        arrays: dict[str, Any] = {} if self.region is None else dict(self.region.arrays())
        # The stored arrays are used rather than the properties, which would take the pairs from the problem.
        pairs, distances = self._pairs, self._distances
        if self.follow is not None:
            # The empty array `implied` marks a file whose pairs follow from the problem.
            pairs, distances, arrays = pairs[:0], distances[:0], {"implied": np.zeros(0, dtype=np.int64)}
        np.savez(
            folder / ARTEFACT,
            weights=self.weights,
            records=self.records,
            outputs=self.outputs,
            pairs=pairs,
            distances=distances,
            **arrays,
        )

    @classmethod
    def read(cls, folder: Path, problem: Any) -> MatrixRelease:
        """Read mechanism.npz. If it leaves its pairs to the problem, the problem's required pairs are used.

        Args:
            folder: The release folder.
            problem: The problem, an instance of :class:`MetricInstance`.

        Raises:
            InputError: The file is missing or malformed.
        """
        release = cls.load(folder / ARTEFACT)
        return release if release.follow is None else release.following(problem.data)

    @classmethod
    def read_without_problem(cls, folder: Path) -> MatrixRelease:
        """Read only mechanism.npz, which is enough to draw single reports.

        Even if the release draws reports along traces, these reports are drawn independently of earlier ones.
        """
        return MatrixRelease.load(folder / ARTEFACT)

    @classmethod
    def load(cls, path: Path) -> MatrixRelease:
        """Read a matrix from a file in the format of mechanism.npz, without the problem.

        Args:
            path: The file.

        Raises:
            InputError: The file is missing or malformed.
        """
        arrays = read_arrays(path, _ARRAY_FORMS, optional={**ARRAYS, **_IMPLIED_FORM})
        parts: dict[str, Any] = {name: arrays[name] for name in _ARRAY_FORMS}
        pairs, distances, count = parts["pairs"], parts["distances"], len(parts["records"])
        faults = Faults()
        if pairs.size and (pairs.min() < 0 or pairs.max() >= count):
            faults.add(path.name, "pairs", "a record number out of range", f"rows from 0 to {count - 1}")
        elif (repeated_pair := _find_repeated_pair(pairs, count)) is not None:
            faults.add(path.name, "pairs", f"{repeated_pair} more than once", "each pair once")
        if not (np.isfinite(distances) & (distances >= 0)).all():
            faults.add(path.name, "distances", "a negative or infinite distance", "distances of at least 0")
        # A region is optional. `region_of` checks that the arrays present fit together.
        region_arrays = {name: arrays[name] for name in ARRAYS if name in arrays}
        is_implied = "implied" in arrays
        if is_implied and (pairs.size or distances.size or region_arrays):
            faults.add(path.name, "implied", "pairs or a region with it", "no pairs and no region")
        faults.check()
        region = region_of(region_arrays, count, path.name) if region_arrays else None
        return cls(**parts, region=region, follow=_raise_no_problem if is_implied else None)

    def sample(self, input_id: str, count: int) -> list[str]:
        """Draw outputs for one record, with exactly the certified probabilities.

        Args:
            input_id: Id of the record.
            count: Number of outputs to draw.

        Returns:
            The ids of the outputs.

        Raises:
            UnknownNameError: No record has this id.
        """
        row = np.flatnonzero(self.records == input_id)
        if row.size != 1:
            # The id is the secret, so the message must not repeat it or suggest ids near it.
            raise UnknownNameError("record", input_id, self.records.tolist(), is_secret=True)
        samples: list[str] = self._output_ids.take(self.sampler.draw(int(row[0]), count)).tolist()
        return samples

    def channel(self) -> Channel:
        """Return the matrix as a channel, with the ids of the records and the outputs."""
        z = self.probabilities
        return Channel(inputs=self.records.tolist(), outputs=self.outputs.tolist(), probabilities=z)

    def channel_over(self, data: MetricData) -> Channel:
        """Return the matrix as a channel, with what the problem's data say about its records.

        If there is one row for each record of the problem, the channel also has the prior, distances and coordinates.

        Args:
            data: The problem's data.
        """
        channel = self.channel()
        # The prior and the distances belong to the problem's records, so they fit only these records in this order.
        if list(data.records.ids) != list(channel.inputs):
            return channel
        return evolve(
            channel,
            prior=data.prior,
            distances=data.metric.rows,
            unit=data.unit,
            coordinates=data.records.on_map,
            coordinate_unit=data.records.unit,
            geographic=data.records.kind == "geographic",
            streets=data.metric.road_pairs if isinstance(data.metric, RoadMetric) else None,
        )

    def rows_of_outputs(self, whole: MetricData) -> Ints:
        """Return which records are the release's outputs, for a problem whose outputs are chosen among the records.

        Args:
            whole: The problem's data before the choice, in which every declared record may be an output.

        Returns:
            (K,) indices of the records, in ascending order.

        Raises:
            DoesNotHoldError: The outputs are not the declared number of distinct records, in the order of the records.
        """
        # Only the first records can be outputs; with a region, the rest are vertices that no file declares.
        row_by_id = {name: row for row, name in enumerate(whole.records.ids[: len(whole.outputs)])}
        rows = np.array([row_by_id.get(name, -1) for name in self.outputs.tolist()], dtype=np.int64)
        if len(rows) != whole.choose or rows.min(initial=0) < 0 or (np.diff(rows) <= 0).any():
            raise DoesNotHoldError(f"{ARTEFACT}: outputs: expected {whole.choose} of the records, in their order")
        return rows


def matrix_of(opened: OpenedFolder, *, traces: bool = True) -> tuple[MatrixRelease, MetricInstance[Any]]:
    """Return the matrix in an opened folder, and its problem.

    Args:
        opened: The folder.
        traces: Whether to accept a release that draws reports along traces, where a report depends on earlier ones.

    Raises:
        UsageError: The mechanism writes no matrix, or the release draws reports along traces and ``traces`` is False.
    """
    if not isinstance(opened.release, MatrixRelease) or not isinstance(opened.problem, MetricInstance):
        name = opened.registered.spec.name
        raise UsageError(f"{opened.folder}: {name} writes no {ARTEFACT} to draw from: its release is one result")
    if opened.release.walker is not None and not traces:
        raise UsageError("release must draw each row independently, got one of traces: use apply")
    return opened.release, opened.problem
