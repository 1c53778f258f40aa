"""The release of metric mechanisms: an obfuscation matrix of integer weights, or a way to draw reports for positions.

The released probability is exactly weight / 2**63: the integers that are certified are the ones that are written, read
back and sampled.
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

_ARRAY_FORMS: Final[Mapping[str, tuple[Any, tuple[int | str, ...]]]] = {
    "weights": (np.uint64, ("N", "K")),
    "records": (np.str_, ("N",)),
    "outputs": (np.str_, ("K",)),
    "pairs": (np.int64, ("P", 2)),
    "distances": (np.float64, ("P",)),
}
"""Types and shapes of the arrays in mechanism.npz, apart from those of a region."""

_IMPLIED_FORM: Final[Mapping[str, tuple[Any, tuple[int | str, ...]]]] = {"implied": (np.int64, (0,))}
"""An empty array that marks a file without pairs, because all pairs that the problem requires are checked."""

MAX_STORED_PAIRS: Final = 1_000_000
"""Largest number of required pairs that are written to the file (24 MB). Those of 5,000 words took 300 MB of a file's
512 MB, and 2 s to read."""


class PositionRelease(Release):
    """A release that draws a report for any position in degrees: it has no records, and so nothing to snap to.

    ``privopt sample --at`` and tables with positions use it. :meth:`Release.sample` takes ids ``LAT,LON``.
    """

    @abstractmethod
    def draw(self, latitudes: Floats, longitudes: Floats, *, source: Source | None = None) -> tuple[list[str], Floats]:
        """Draw one report for each position, independently.

        Args:
            latitudes, longitudes: (n,) positions in degrees, from -90 to 90 and from -180 to 180.
            source: Source of random bytes; the operating system's by default.

        Returns:
            The ids of the reports, and their latitudes and longitudes (n, 2) in degrees.
        """


def matrix_bytes(records: int, outputs: int, pairs: int) -> float:
    """Estimate the bytes that a problem's arrays and its release take while it is certified, written and read.

    These are 27 arrays of the matrix's size and 5 of the required pairs, measured at 1,000 and 2,000 records including
    the loading of numba. Without numba, the exponential mechanism took 8 arrays of the matrix's size, and 14 if
    calibrated (tests/run/test_memory.py).
    """
    # A pair takes 24 bytes: two record numbers of 8 bytes, and its distance.
    return 8.0 * 27 * records * outputs + 5 * 24.0 * pairs


def _find_repeated_pair(pairs: Ints, count: int) -> list[int] | None:
    """Return the smallest pair that occurs twice, in either direction, or None.

    Args:
        pairs: (P, 2) pairs of records.
        count: Number of records.
    """
    # A pair as one number, the same in both directions. The initial values change nothing: records are 0 to count - 1.
    keys = pairs.min(axis=1, initial=count) * count + pairs.max(axis=1, initial=0)
    if (keys[1:] > keys[:-1]).all():  # solve writes pairs in order, so they need not be sorted
        return None
    keys.sort()
    repeated_keys = keys[1:][keys[1:] == keys[:-1]]
    return None if not repeated_keys.size else [int(repeated_keys[0]) // count, int(repeated_keys[0]) % count]


def _raise_no_problem() -> tuple[Ints, Floats]:
    """Raise an error: the file omits its pairs and distances, and no problem was read that determines them."""
    expectation = "pairs and distances, or a file that is read together with its problem"
    raise InputError([Fault(ARTEFACT, "implied", "no pairs", expectation)])


def _freeze_array(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view of an array."""
    view = np.asarray(array).view()
    view.setflags(write=False)
    return view


@frozen(kw_only=True, eq=False)
class MatrixRelease(Release):
    """An obfuscation matrix: row i is the distribution of the outputs that record i releases.

    Attributes:
        weights: (N, K) uint64, every row summing to 2**63.
        records: (N,) ids of the secrets.
        outputs: (K,) ids of the values that may be released.
        pairs: (P, 2) int64, i < j, in order: the pairs that the certificate checks. They are the required pairs or, for
            a notion in which paths imply pairs, those that imply all others. With a region there are none.
        distances: (P,) float64, distances of the pairs; the doubles are taken as exact.
        follow: Returns pairs and distances of the problem, if the file does not store them because all required pairs
            are checked, or None if they are stored.
        region: The region, if the guarantee holds between any two of its points; its vertices are the records.
        repaired: The record of the repair, if the release was repaired.
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
            z: (N, K) probabilities, which may violate the constraints a little.
            data: The problem's data.
            context: Has the requested gap, and times the repair.

        Raises:
            CertificationError: No repaired matrix could be certified.
        """
        with context.time_phase("repair"):
            # The required pairs that imply all others: a matrix that satisfies these satisfies every required pair.
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
        """Return weights (N, K) over a problem's records and outputs as a release, without certifying it.

        Args:
            data: The problem's data.
            weights: (N, K) uint64, every row summing to 2**63.
            along_paths: Whether to store only the required pairs that imply the others, for notions in which paths
                imply pairs (:attr:`privopt_metric_dp.matrix.privacy.MatrixConstraint.along_paths`).
        """
        pairs, distances = data.standing if along_paths else data.required
        # The certificate of a region checks its simplices. Its edges satisfy stricter inequalities and are not stored.
        if data.region is not None:
            pairs, distances = pairs[:0], distances[:0]
        # Pairs may only be omitted from the file if a reader can recompute them as the required pairs of the problem.
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
        """Return another release's matrix as a release of this class, with its pairs stored.

        Args:
            matrix: The other release.
            more: Values of further fields, which replace those of the other release.
        """
        names = [part.name.lstrip("_") for part in fields(MatrixRelease)]
        parts: dict[str, Any] = {name: getattr(matrix, name) for name in names}
        # `pairs` and `distances` were read above, so they are stored and need no problem any more.
        return cls(**{**parts, "follow": None, **more})

    @property
    def pairs(self) -> NDArray[np.int64]:
        """(P, 2) int64, i < j, by row: the pairs that the certificate checks.

        Raises:
            InputError: The file leaves the pairs to the problem, and no problem was read.
        """
        return self._pairs if self.follow is None else self.follow()[0]

    @property
    def distances(self) -> NDArray[np.float64]:
        """(P,) float64, the distances of :attr:`pairs`.

        Raises:
            InputError: The file leaves the pairs to the problem, and no problem was read.
        """
        return self._distances if self.follow is None else self.follow()[1]

    def following(self, data: MetricData) -> Self:
        """Return the release with the pairs of a problem, if its file does not store them."""
        return self if self.follow is None else evolve(self, follow=lambda: data.required)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """(N, K) doubles nearest to weight / 2**63. They are meant for figures, never for sampling."""
        probabilities_array = self.weights.astype(np.float64)
        probabilities_array /= float(TOTAL)
        return probabilities_array

    @cached_property
    def sampler(self) -> CumulatedRows:
        """The sampler, which draws output numbers from rows of weights. It keeps the rows' running sums."""
        return CumulatedRows(self.weights)

    @cached_property
    def _output_ids(self) -> NDArray[np.object_]:
        """(K,) ids of the outputs as Python strings, so that draws share these instead of making a copy each."""
        return self.outputs.astype(np.object_)

    @property
    def walker(self) -> Walker | None:
        """The object that draws reports along traces, or None if each report is drawn independently of earlier ones."""
        return None

    def for_every_record(self, data: MetricData) -> MatrixRelease:
        """Return the release with a row for each record of the problem. Subclasses may store fewer rows."""
        return self

    def along_edges(self, data: MetricData) -> Self:
        """Return the release with a region's edges as pairs, at their actual distances, for figures and attacks."""
        if self.region is None:
            return self
        pairs = self.region.edges
        return evolve(self, pairs=pairs, distances=data.distance.between(pairs[:, 0], pairs[:, 1]))

    def write(self, folder: Path) -> None:
        """Write mechanism.npz: weights, ids, pairs and distances, and the arrays of a region."""
        arrays: dict[str, Any] = {} if self.region is None else dict(self.region.arrays())
        # The stored arrays, not the properties, which would read the pairs from the problem.
        pairs, distances = self._pairs, self._distances
        if self.follow is not None:
            # An empty array `implied` marks a file whose pairs follow from the problem.
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
        """Read mechanism.npz. If it stores no pairs, the problem's pairs are used.

        Raises:
            InputError: The file is missing or malformed.
        """
        release = cls.load(folder / ARTEFACT)
        return release if release.follow is None else release.following(problem.data)

    @classmethod
    def read_without_problem(cls, folder: Path) -> MatrixRelease:
        """Read only mechanism.npz, which is enough for drawing single reports.

        For a release of traces, these reports are drawn independently of earlier ones.
        """
        return MatrixRelease.load(folder / ARTEFACT)

    @classmethod
    def load(cls, path: Path) -> MatrixRelease:
        """Read a matrix from a file in the format of mechanism.npz.

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
        # A region is optional: its arrays are there or not, and `region_of` checks that they fit together.
        region_arrays = {name: arrays[name] for name in ARRAYS if name in arrays}
        is_implied = "implied" in arrays
        if is_implied and (pairs.size or distances.size or region_arrays):
            faults.add(path.name, "implied", "pairs or a region with it", "no pairs and no region")
        faults.check()
        region = region_of(region_arrays, count, path.name) if region_arrays else None
        return cls(**parts, region=region, follow=_raise_no_problem if is_implied else None)

    def sample(self, input_id: str, count: int) -> list[str]:
        """Draw ``count`` outputs for one record, with exactly the certified probabilities.

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
        """Return the matrix as a channel with the ids of records and outputs."""
        z = self.probabilities
        return Channel(inputs=self.records.tolist(), outputs=self.outputs.tolist(), probabilities=z)

    def channel_over(self, data: MetricData) -> Channel:
        """Return the rows as a channel.

        If there is a row for each record of the problem, the channel also has the prior, distances and places.

        Args:
            data: The problem's data.
        """
        channel = self.channel()
        # The prior and the distances are of the problem's records, so they only fit the same records in the same order.
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
        """Return the records (K,) that are the outputs of the release, for a problem whose outputs are chosen.

        Args:
            whole: The problem's data before the choice, in which every record may be an output.

        Raises:
            DoesNotHoldError: The outputs are not the declared number of records, in the order of the records.
        """
        # Only the first records can be outputs; with a region the further ones are vertices.
        row_by_id = {name: row for row, name in enumerate(whole.records.ids[: len(whole.outputs)])}
        rows = np.array([row_by_id.get(name, -1) for name in self.outputs.tolist()], dtype=np.int64)
        if len(rows) != whole.choose or rows.min(initial=0) < 0 or (np.diff(rows) <= 0).any():
            raise DoesNotHoldError(f"{ARTEFACT}: outputs: expected {whole.choose} of the records, in their order")
        return rows


def matrix_of(opened: OpenedFolder, *, traces: bool = True) -> tuple[MatrixRelease, MetricInstance[Any]]:
    """Return the matrix of an opened folder, and its problem.

    Args:
        opened: The folder.
        traces: Whether a release of traces, whose reports depend on earlier ones, is accepted.

    Raises:
        UsageError: The mechanism writes no matrix, or the release is one of traces and ``traces`` is False.
    """
    if not isinstance(opened.release, MatrixRelease) or not isinstance(opened.problem, MetricInstance):
        name = opened.registered.spec.name
        raise UsageError(f"{opened.folder}: {name} writes no {ARTEFACT} to draw from: its release is one result")
    if opened.release.walker is not None and not traces:
        raise UsageError("release must draw each row independently, got one of traces: use apply")
    return opened.release, opened.problem
