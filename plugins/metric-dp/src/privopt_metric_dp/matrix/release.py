"""The release of metric mechanisms: an obfuscation matrix in integers.

The released probability IS weight / 2**63: what is certified, written, read back and sampled are the
same integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from attrs import evolve, field, fields, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.errors import DoesNotHoldError, Fault, Faults, InputError, UnknownNameError, UsageError
from privopt.files.archive import read_arrays
from privopt.interfaces import Channel, Release, SolveContext
from privopt.numbers.sampling import TOTAL, draw
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

__all__ = ["ARTEFACT", "MatrixRelease", "matrix_bytes", "matrix_of"]

ARTEFACT: Final = "mechanism.npz"

_ARRAY_FORMS: Final[Mapping[str, tuple[Any, tuple[int | str, ...]]]] = {
    "weights": (np.uint64, ("N", "K")),
    "records": (np.str_, ("N",)),
    "outputs": (np.str_, ("K",)),
    "pairs": (np.int64, ("P", 2)),
    "distances": (np.float64, ("P",)),
}
"""Arrays of mechanism.npz, next to those of a region."""

_IMPLIED_FORM: Final[Mapping[str, tuple[Any, tuple[int | str, ...]]]] = {"implied": (np.int64, (0,))}
"""An array without values, in place of pairs that are all that the problem requires."""

MAX_STORED_PAIRS: Final = 1_000_000
"""Required pairs up to which they are written, 24 MB: those of 5,000 words were 300 MB of 512, and reading them 2 s."""


def matrix_bytes(records: int, outputs: int, pairs: int) -> float:
    """Estimate the bytes of a problem's arrays and its release, and to certify, write and read it back.

    27 arrays of the matrix's size, and 5 of the required pairs: measured at 1,000 and 2,000 records with what loading
    numba takes. Without it the exponential mechanism held 8 such arrays, calibrated 14 (tests/run/test_memory.py).
    """
    return 8.0 * 27 * records * outputs + 5 * 24.0 * pairs


def _find_repeated_pair(pairs: Ints, count: int) -> list[int] | None:
    """Return the least pair of ``count`` records that is there twice, either way round, or None."""
    keys = pairs.min(axis=1, initial=count) * count + pairs.max(axis=1, initial=0)
    if (keys[1:] > keys[:-1]).all():  # as solve writes them
        return None
    keys.sort()
    repeated_keys = keys[1:][keys[1:] == keys[:-1]]
    return None if not repeated_keys.size else [int(repeated_keys[0]) // count, int(repeated_keys[0]) % count]


def _raise_no_problem() -> tuple[Ints, Floats]:
    expectation = "pairs and distances, or to be read with the problem that they follow from"
    raise InputError([Fault(ARTEFACT, "implied", "no pairs", expectation)])


def _freeze_array(array: NDArray[Any]) -> NDArray[Any]:
    view = np.asarray(array).view()
    view.setflags(write=False)
    return view


@frozen(kw_only=True, eq=False)
class MatrixRelease(Release):
    """An obfuscation matrix: row i is the distribution of what record i releases.

    Attributes:
        weights: (N, K) uint64, every row summing to 2**63.
        records: (N,) ids of the secrets.
        outputs: (K,) ids of what may be released.
        pairs: (P, 2) int64, i < j, by row: the pairs that the certificate checks. They are the required pairs, or under
            a notion along paths those that imply all others; none with a region.
        distances: (P,) float64, their distances; each double means the rational that it is.
        follow: gives both from the problem, where they are all that it requires and the file holds none.
        region: what the certificate checks if it holds between any two points; its vertices are the records.
        repaired: what the repair did, where this release came from one.
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
        """Repair any near-feasible matrix of probabilities (N, K) into a release.

        Raises:
            CertificationError: no repair was found that certifies.
        """
        with context.timed("repair"):
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
        """Return weights (N, K) over a problem's records and outputs as a release that is not certified.

        Args:
            data: the problem's.
            weights: (N, K) uint64, every row summing to 2**63.
            along_paths: store only the required pairs that imply the others, for notions whose pairs along a path imply
                the pair of its ends (:attr:`privopt_metric_dp.matrix.privacy.MatrixConstraint.along_paths`); else all
                of them.
        """
        pairs, distances = data.standing if along_paths else data.required
        if data.region is not None:  # its edges are held to more than the simplices ask for
            pairs, distances = pairs[:0], distances[:0]
        all_required = not along_paths or data.metric.implying(data.within) is None  # else pairs that imply the others
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
        """Return another release's matrix as a release of this class, with its pairs and this class's fields."""
        names = [part.name.lstrip("_") for part in fields(MatrixRelease)]
        parts: dict[str, Any] = {name: getattr(matrix, name) for name in names}
        return cls(**{**parts, "follow": None, **more})

    @property
    def pairs(self) -> NDArray[np.int64]:
        """(P, 2) int64, i < j, by row: the pairs that the certificate checks.

        Raises:
            InputError: they follow from a problem, and none was read.
        """
        return self._pairs if self.follow is None else self.follow()[0]

    @property
    def distances(self) -> NDArray[np.float64]:
        """(P,) float64, their distances; raises as ``pairs``."""
        return self._distances if self.follow is None else self.follow()[1]

    def following(self, data: MetricData) -> Self:
        """Return the release with the pairs that the problem requires, where its file leaves them to it."""
        return self if self.follow is None else evolve(self, follow=lambda: data.required)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """(N, K) doubles nearest to weight / 2**63, for figures; never for sampling."""
        probabilities_array = self.weights.astype(np.float64)
        probabilities_array /= float(TOTAL)
        return probabilities_array

    @property
    def walker(self) -> Walker | None:
        """What draws reports along traces, where a row's report depends on earlier ones; None: all are fresh."""
        return None

    def for_every_record(self, data: MetricData) -> MatrixRelease:
        """Return the release with a row for each record of the problem, where more than its own rows are published."""
        return self

    def along_edges(self, data: MetricData) -> Self:
        """Return the release over a region's edges as pairs, at their real distances, for figures and attacks."""
        if self.region is None:
            return self
        pairs = self.region.edges
        return evolve(self, pairs=pairs, distances=data.distance.between(pairs[:, 0], pairs[:, 1]))

    def write(self, folder: Path) -> None:
        """Write mechanism.npz."""
        arrays: dict[str, Any] = {} if self.region is None else dict(self.region.arrays())
        pairs, distances = self._pairs, self._distances
        if self.follow is not None:
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
        """Read mechanism.npz.

        Raises:
            InputError: it is missing or not of its form.
        """
        release = cls.load(folder / ARTEFACT)
        return release if release.follow is None else release.following(problem.data)

    @classmethod
    def alone(cls, folder: Path) -> MatrixRelease:
        """Read mechanism.npz: it has all that single draws take, which are fresh reports where there are traces."""
        return MatrixRelease.load(folder / ARTEFACT)

    @classmethod
    def load(cls, path: Path) -> MatrixRelease:
        """Read a matrix from a file of mechanism.npz's form.

        Raises:
            InputError: it is missing or not of its form.
        """
        arrays = read_arrays(path, _ARRAY_FORMS, optional={**ARRAYS, **_IMPLIED_FORM})
        parts: dict[str, Any] = {name: arrays[name] for name in _ARRAY_FORMS}
        pairs, distances, count = parts["pairs"], parts["distances"], len(parts["records"])
        faults = Faults()
        if pairs.size and (pairs.min() < 0 or pairs.max() >= count):
            faults.add(path.name, "pairs", "a record that is not there", f"rows from 0 to {count - 1}")
        elif (repeated_pair := _find_repeated_pair(pairs, count)) is not None:
            faults.add(path.name, "pairs", f"{repeated_pair} more than once", "each pair once")
        if not (np.isfinite(distances) & (distances >= 0)).all():
            faults.add(path.name, "distances", "a negative or infinite distance", "distances of at least 0")
        region_arrays = {name: arrays[name] for name in ARRAYS if name in arrays}
        is_implied = "implied" in arrays
        if is_implied and (pairs.size or distances.size or region_arrays):
            faults.add(path.name, "implied", "pairs or a region with it", "no pairs and no region")
        faults.check()
        region = region_of(region_arrays, count, path.name) if region_arrays else None
        return cls(**parts, region=region, follow=_raise_no_problem if is_implied else None)

    def sample(self, input_id: str, count: int) -> list[str]:
        """Draw ``count`` outputs for one record, exactly as certified.

        Raises:
            UnknownNameError: no record has that id.
        """
        row = np.flatnonzero(self.records == input_id)
        if row.size != 1:
            raise UnknownNameError("record", input_id, self.records.tolist(), is_secret=True)
        samples: list[str] = self.outputs[draw(self.weights[row[0]], count)].tolist()
        return samples

    def channel(self) -> Channel:
        """Return the rows as a channel."""
        z = self.probabilities
        return Channel(inputs=self.records.tolist(), outputs=self.outputs.tolist(), probabilities=z)

    def channel_over(self, data: MetricData) -> Channel:
        """Return its rows with prior, distances and places, where it has a row for each record."""
        channel = self.channel()
        if list(data.records.ids) != list(channel.inputs):
            return channel
        return evolve(
            channel,
            prior=data.prior,
            distances=data.metric.rows,
            unit=data.unit,
            coordinates=data.records.on_map,
            geographic=data.records.kind == "geographic",
            streets=data.metric.joined if isinstance(data.metric, RoadMetric) else None,
        )

    def rows_of_outputs(self, whole: MetricData) -> Ints:
        """Return the records (K,) that are its outputs, of a problem whose outputs are chosen.

        Raises:
            DoesNotHoldError: its outputs are not as many records as the problem asks for, in the records' order.
        """
        row_by_id = {name: row for row, name in enumerate(whole.records.ids[: len(whole.outputs)])}
        rows = np.array([row_by_id.get(name, -1) for name in self.outputs.tolist()], dtype=np.int64)
        if len(rows) != whole.choose or rows.min(initial=0) < 0 or (np.diff(rows) <= 0).any():
            raise DoesNotHoldError(f"{ARTEFACT}: outputs: not {whole.choose} of the records, in their order")
        return rows


def matrix_of(opened: OpenedFolder, *, traces: bool = True) -> tuple[MatrixRelease, MetricInstance[Any]]:
    """Return the matrix in a folder, and its problem.

    Args:
        opened: the release.
        traces: whether it may be one that reports traces, whose rows depend on one another.

    Raises:
        UsageError: the folder's mechanism has none, or it reports traces.
    """
    if not isinstance(opened.release, MatrixRelease) or not isinstance(opened.problem, MetricInstance):
        name = opened.registered.spec.name
        raise UsageError(f"{opened.folder}: {name} writes no {ARTEFACT} to draw from: its release is one result")
    if opened.release.walker is not None and not traces:
        raise UsageError("release must draw rows one by one, got one of traces: use apply")
    return opened.release, opened.problem
