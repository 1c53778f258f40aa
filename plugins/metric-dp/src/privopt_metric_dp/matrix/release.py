"""Releases of metric mechanisms: obfuscation matrices of integer weights, and samplers that accept positions.

A released probability is exactly weight / 2**63. The same integers are certified, written, read back and sampled.
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
"""The name of the file that contains a released matrix."""

_ARRAY_FORMS: Final[Mapping[str, tuple[Any, tuple[int | str, ...]]]] = {
    "weights": (np.uint64, ("N", "K")),
    "records": (np.str_, ("N",)),
    "outputs": (np.str_, ("K",)),
    "pairs": (np.int64, ("P", 2)),
    "distances": (np.float64, ("P",)),
}
"""The types and shapes of the arrays in mechanism.npz, apart from the arrays that describe a region."""

_IMPLIED_FORM: Final[Mapping[str, tuple[Any, tuple[int | str, ...]]]] = {"implied": (np.int64, (0,))}
"""The type and shape of the empty array that marks a file without pairs.

The release's pairs are then all required pairs of its problem.
"""

MAX_STORED_PAIRS: Final = 1_000_000
"""The maximum number of pairs stored in mechanism.npz. This many pairs take up 24 MB.

Storing all pairs of 5,000 words took up 300 MB of a 512 MB file, and reading them took 2 s.
"""


class PositionRelease(Release):
    """A release that can draw a report for any position in degrees, without snapping the position to a record.

    Such releases support ``privopt sample --at`` and tables with positions. For these releases, :meth:`Release.sample`
    takes ids of the form ``LAT,LON``.
    """

    @abstractmethod
    def draw(self, latitudes: Floats, longitudes: Floats, *, source: Source | None = None) -> tuple[list[str], Floats]:
        """Draw one report for each position, independently of all other reports.

        Args:
            latitudes, longitudes: (n,) The positions in degrees. Latitudes range from -90 to 90, and longitudes from
                -180 to 180.
            source: The source of random bytes. Defaults to the operating system's.

        Returns:
            The ids of the n reports, and an array of shape (n, 2) with their latitudes and longitudes in degrees.
        """


def matrix_bytes(records: int, outputs: int, pairs: int) -> float:
    """Estimate the memory in bytes needed to solve a matrix problem and to certify, write and read its release.

    The estimate allows for 27 arrays of the matrix's size and 5 copies of the required pairs. It is based on
    measurements at 1,000 and 2,000 records, which include the memory used by numba. Without numba, the exponential
    mechanism took 8 arrays of the matrix's size, or 14 with calibration (tests/run/test_memory.py).

    Args:
        records, outputs: The numbers of rows and columns of the matrix.
        pairs: The number of required pairs.
    """
    # A pair takes 24 bytes: two record indices and a distance of 8 bytes each.
    return 8.0 * 27 * records * outputs + 5 * 24.0 * pairs


def _find_repeated_pair(pairs: Ints, count: int) -> list[int] | None:
    """Return the lexicographically first pair that occurs more than once, or None if all pairs are distinct.

    Two pairs that differ only in the order of their records count as the same pair.

    Args:
        pairs: (P, 2) The record indices of each pair.
        count: The number of records.
    """
    # Each pair is encoded as a number that is the same in both directions. The initial values have no effect, because
    # records are numbered from 0 to count - 1.
    keys = pairs.min(axis=1, initial=count) * count + pairs.max(axis=1, initial=0)
    if (keys[1:] > keys[:-1]).all():  # solve writes pairs in order, so sorting is usually unnecessary
        return None
    keys.sort()
    repeated_keys = keys[1:][keys[1:] == keys[:-1]]
    return None if not repeated_keys.size else [int(repeated_keys[0]) // count, int(repeated_keys[0]) % count]


def _raise_no_problem() -> tuple[Ints, Floats]:
    """Raise an error because mechanism.npz omits the pairs and must be read together with its problem.

    This function is the ``follow`` attribute of a release that was read without its problem.

    Raises:
        InputError: Always.
    """
    expectation = "pairs and distances, or a file that is read together with its problem"
    raise InputError([Fault(ARTEFACT, "implied", "no pairs", expectation)])


def _freeze_array(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view of an array."""
    # The view shares the array's memory, but the array itself stays writable.
    view = np.asarray(array).view()
    view.setflags(write=False)
    return view


@frozen(kw_only=True, eq=False)
class MatrixRelease(Release):
    """An obfuscation matrix, in which row i is the distribution of the output released for record i.

    Attributes:
        weights: (N, K) The weights as uint64. Each row sums to 2**63.
        records: (N,) The ids of the records, which are the secrets.
        outputs: (K,) The ids of the values that may be released.
        pairs: (P, 2) The pairs (i, j) with i < j that the certificate checks, sorted, as int64. They are the required
            pairs or, for a notion in which paths imply pairs, a subset that implies all other required pairs. A release
            with a region has no pairs.
        distances: (P,) The distance between the two records of each pair. The doubles are treated as exact.
        follow: A function that returns the problem's required pairs and their distances. None if mechanism.npz stores
            the pairs and distances. The file may only omit them if the certificate checks all required pairs.
        region: The region whose vertices are the records, if the guarantee covers any two points in it. None otherwise.
        repaired: Details of the repair. None if the release was not repaired.
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
        """Create a release by repairing a nearly feasible matrix of probabilities.

        Args:
            z: (N, K) The probabilities, which may violate the constraints slightly.
            data: The problem's data.
            context: The context of the run, which provides the requested gap and records how long the repair takes.

        Raises:
            CertificationError: No repaired matrix could be certified.
        """
        with context.time_phase("repair"):
            # `standing` has the pairs that the certificate checks, which imply all other required pairs.
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
        """Create a release from weights over a problem's records and outputs, without certifying it.

        Args:
            data: The problem's data.
            weights: (N, K) The weights as uint64. Each row sums to 2**63.
            along_paths: Whether to store only a subset of the required pairs that implies the rest, for notions in
                which paths imply pairs (see :attr:`privopt_metric_dp.matrix.privacy.MatrixConstraint.along_paths`).
        """
        pairs, distances = data.standing if along_paths else data.required
        # For a region, the certificate checks simplices rather than pairs, so no pairs are stored.
        if data.region is not None:
            pairs, distances = pairs[:0], distances[:0]
        # The file may only omit pairs that a reader can recompute, which are the required pairs. If the metric has no
        # implying pairs, `standing` may still be a subset, but one that is small enough to be stored.
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
        """Return a copy of another release as an instance of this class. The copy always stores its own pairs.

        Args:
            matrix: The other release.
            more: Values for the fields added by this class, and replacements for values of the other release.
        """
        names = [part.name.lstrip("_") for part in fields(MatrixRelease)]
        parts: dict[str, Any] = {name: getattr(matrix, name) for name in names}
        # `pairs` and `distances` were read through the properties, so the copy stores them and needs no problem.
        return cls(**{**parts, "follow": None, **more})

    @property
    def pairs(self) -> NDArray[np.int64]:
        """The pairs that the certificate checks, as an int64 array of shape (P, 2).

        They are sorted, and i < j in each pair.

        Raises:
            InputError: The file does not store the pairs, and it was read without the problem that determines them.
        """
        return self._pairs if self.follow is None else self.follow()[0]

    @property
    def distances(self) -> NDArray[np.float64]:
        """The distance between the two records of each of the :attr:`pairs`, as a float64 array of shape (P,).

        Raises:
            InputError: The file does not store the pairs, and it was read without the problem that determines them.
        """
        return self._distances if self.follow is None else self.follow()[1]

    def following(self, data: MetricData) -> Self:
        """Return a copy that takes its pairs from a problem, or the release itself if it stores its own pairs."""
        return self if self.follow is None else evolve(self, follow=lambda: data.required)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The matrix of probabilities, as an array of shape (N, K) with the doubles nearest to weight / 2**63.

        Use the matrix for plots and statistics, but never to draw reports.
        """
        probabilities_array = self.weights.astype(np.float64)
        probabilities_array /= float(TOTAL)
        return probabilities_array

    @cached_property
    def sampler(self) -> CumulatedRows:
        """The sampler that draws output indices from the rows of weights. It stores the cumulative sums of the rows."""
        return CumulatedRows(self.weights)

    @cached_property
    def _output_ids(self) -> NDArray[np.object_]:
        """The output ids as Python strings, in an array of shape (K,).

        All reports of the same output share one string.
        """
        return self.outputs.astype(np.object_)

    @property
    def walker(self) -> Walker | None:
        """The object that draws reports along traces, or None if each report is drawn independently of earlier ones."""
        return None

    def for_every_record(self, data: MetricData) -> MatrixRelease:
        """Return a version of the release with one row for each record of the problem.

        The base implementation returns the release itself. Subclasses that store fewer rows override it.
        """
        return self

    def along_edges(self, data: MetricData) -> Self:
        """Return a copy of the release whose pairs are the edges of its region, for plots and attacks.

        The distance of an edge is the distance between its two ends in the problem. If the release has no region, it is
        returned unchanged.
        """
        if self.region is None:
            return self
        pairs = self.region.edges
        return evolve(self, pairs=pairs, distances=data.distance.between(pairs[:, 0], pairs[:, 1]))

    def write(self, folder: Path) -> None:
        """Write mechanism.npz: the weights, ids, pairs and distances, and the arrays that describe a region."""
        arrays: dict[str, Any] = {} if self.region is None else dict(self.region.arrays())
        # The attributes are read directly, because the properties would compute omitted pairs from the problem.
        pairs, distances = self._pairs, self._distances
        if self.follow is not None:
            # The empty array `implied` marks a file whose pairs are those of the problem.
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
        """Read a release from its folder.

        If mechanism.npz omits the pairs, the problem's required pairs are used.

        Args:
            folder: The release folder.
            problem: The problem, which must be a :class:`MetricInstance`.

        Raises:
            InputError: The file is missing or malformed.
        """
        release = cls.load(folder / ARTEFACT)
        return release if release.follow is None else release.following(problem.data)

    @classmethod
    def read_without_problem(cls, folder: Path) -> MatrixRelease:
        """Read a release from mechanism.npz alone, which is enough to draw single reports.

        The result draws each report independently, even if the mechanism draws reports along traces.

        Raises:
            InputError: The file is missing or malformed.
        """
        return MatrixRelease.load(folder / ARTEFACT)

    @classmethod
    def load(cls, path: Path) -> MatrixRelease:
        """Read a matrix release from a file in the format of mechanism.npz, without its problem.

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
        # A region is optional. If there are some of its arrays, `region_of` checks that they are complete and
        # consistent.
        region_arrays = {name: arrays[name] for name in ARRAYS if name in arrays}
        is_implied = "implied" in arrays
        if is_implied and (pairs.size or distances.size or region_arrays):
            faults.add(path.name, "implied", "pairs or a region with it", "no pairs and no region")
        faults.check()
        region = region_of(region_arrays, count, path.name) if region_arrays else None
        return cls(**parts, region=region, follow=_raise_no_problem if is_implied else None)

    def sample(self, input_id: str, count: int) -> list[str]:
        """Draw outputs for one record, with exactly the released probabilities.

        Args:
            input_id: The id of the record.
            count: The number of outputs to draw.

        Returns:
            The ids of the outputs drawn.

        Raises:
            UnknownNameError: No record has this id. The message does not contain the id, because it is secret.
        """
        row = np.flatnonzero(self.records == input_id)
        if row.size != 1:
            # The id is the secret, so the message must not repeat it or suggest similar ids.
            raise UnknownNameError("record", input_id, self.records.tolist(), is_secret=True)
        samples: list[str] = self._output_ids.take(self.sampler.draw(int(row[0]), count)).tolist()
        return samples

    def channel(self) -> Channel:
        """Return the matrix as a channel whose inputs are the records' ids."""
        z = self.probabilities
        return Channel(inputs=self.records.tolist(), outputs=self.outputs.tolist(), probabilities=z)

    def channel_over(self, data: MetricData) -> Channel:
        """Return the matrix as a channel with the problem's prior, distances and coordinates.

        These three are omitted if the rows of the release are not the problem's records in the problem's order.

        Args:
            data: The problem's data.
        """
        channel = self.channel()
        # The prior and the distances are arrays over the problem's records, so they only apply to these records in this
        # order.
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
        """Return the record index of each output, for a problem whose outputs are chosen from its records.

        Args:
            whole: The problem's data before the outputs are chosen, when any declared record may still become an
                output.

        Returns:
            (K,) The record indices in ascending order.

        Raises:
            DoesNotHoldError: The number of outputs differs from the declared number, or the outputs are not distinct
                records in the order of the records.
        """
        # Only the declared records can be outputs. They come first, before any further vertices of a region.
        row_by_id = {name: row for row, name in enumerate(whole.records.ids[: len(whole.outputs)])}
        rows = np.array([row_by_id.get(name, -1) for name in self.outputs.tolist()], dtype=np.int64)
        if len(rows) != whole.choose or rows.min(initial=0) < 0 or (np.diff(rows) <= 0).any():
            raise DoesNotHoldError(f"{ARTEFACT}: outputs: expected {whole.choose} of the records, in their order")
        return rows


def matrix_of(opened: OpenedFolder, *, traces: bool = True) -> tuple[MatrixRelease, MetricInstance[Any]]:
    """Return the matrix release in an opened folder, together with the folder's problem.

    Args:
        opened: The folder.
        traces: Whether to accept a release that draws reports along traces, where each report depends on earlier ones.

    Raises:
        UsageError: The release is not a matrix, or it draws reports along traces and ``traces`` is False.
    """
    if not isinstance(opened.release, MatrixRelease) or not isinstance(opened.problem, MetricInstance):
        name = opened.registered.spec.name
        raise UsageError(f"{opened.folder}: {name} writes no {ARTEFACT} to draw from: its release is one result")
    if opened.release.walker is not None and not traces:
        raise UsageError("release must draw each row independently, got one of traces: use apply")
    return opened.release, opened.problem
