"""LR-Geo's release: the users' rows, and each user's private matrix or, for the exact method, the public numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import quote

import numpy as np
from attrs import field, frozen

from privopt.arrays import Ints, Unsigned
from privopt.errors import Faults
from privopt.files.archive import read_arrays
from privopt_lr_geo.lr_sets import LRSet, PathDistances
from privopt_lr_geo.problem import LRGeoInstance
from privopt_lr_geo.rows import MAX_EXPONENT, ColumnWeights, whole_matrix
from privopt_metric_dp.matrix.release import ARTEFACT, MatrixRelease
from privopt_metric_dp.problem.data import MetricData

__all__ = ["PUBLIC", "LRGeoRelease", "MatricesOnDemand", "PublicNumbers"]

PUBLIC: Final = "public.npz"
MATRICES: Final = "matrices"
LONGEST_NAME: Final = 240
"""The largest number of bytes that an escaped id can have in a file name. File systems allow 255 with the ending."""


def private_file_name(user: str) -> str:
    """Return the name of the file with a user's matrix: the id, percent-encoded except letters, digits and ``_.-~``.

    If the encoded id is too long, the name consists of its beginning, ``=`` and the id's SHA-256. No other name
    contains ``=``.
    """
    name = quote(user, safe="")
    if len(name) > LONGEST_NAME:
        return f"{name[:100]}={sha256(user.encode()).hexdigest()}.npz"
    # A name that only has dots is escaped as well, so that no file's stem reads as the folder "." or "..".
    return (name if name.strip(".") else name.replace(".", "%2E")) + ".npz"


@frozen(kw_only=True, eq=False, slots=False)
class PublicNumbers:
    """The public numbers that the exact method publishes, and from which all users compute their rows.

    Attributes:
        columns: The column weights; None if the whole matrix is published.
        data: The map.
        stored_rows: (N, K) The whole matrix: the published one, or the one that was already computed from the column
            weights. None if it is yet to be computed.
    """

    columns: ColumnWeights | None
    data: MetricData
    stored_rows: Unsigned | None = None

    @cached_property
    def all_rows(self) -> Unsigned:
        """(N, K) The rows for all records, computed from the column weights if these are published."""
        if self.stored_rows is not None:
            return self.stored_rows
        assert self.columns is not None  # one of the two is there
        return whole_matrix(self.columns, PathDistances(self.data).rows)

    def row(self, record: int) -> Unsigned:
        """Return one record's (K,) row as its user computes it, with the same integers as in :attr:`all_rows`."""
        if self.columns is None:
            return np.asarray(self.all_rows[record])
        return np.asarray(self.columns.rows(PathDistances(self.data).rows(np.array([record])))[0])

    def write(self, folder: Path) -> None:
        """Write to public.npz: the column weights with their rate and cap or, if there are none, the whole matrix."""
        columns = self.columns
        if columns is None:
            np.savez(folder / PUBLIC, weights=self.all_rows)
        else:
            rate, cap = np.float64(columns.rate), np.float64(columns.cap)
            np.savez(folder / PUBLIC, column_weights=columns.weights, serves=columns.serves, rate=rate, cap=cap)

    @classmethod
    def read(cls, path: Path, data: MetricData) -> PublicNumbers:
        """Read the column weights with their rate and cap, or else the whole matrix, from public.npz.

        Args:
            path: The file.
            data: The map. The arrays must match its size.

        Raises:
            InputError: The file is malformed.
        """
        count, outputs = data.shape
        columns = {"column_weights": (np.float64, (count,)), "serves": (np.int64, (count,))}
        forms = {**columns, "rate": (np.float64, ()), "cap": (np.float64, ())}
        parts = read_arrays(path, {}, optional={"weights": (np.uint64, data.shape), **forms})
        if parts.keys() == {"weights"}:
            return cls(columns=None, data=data, stored_rows=parts["weights"])
        faults = Faults()
        if parts.keys() != forms.keys():
            faults.add(str(path), "", f"arrays {', '.join(parts)}", f"{', '.join(forms)}, or weights alone")
            faults.check()
        x, serves, rate, cap = (parts[name] for name in forms)
        if not (np.isfinite(x).all() and (x >= 0).all() and x.any()):
            faults.add(str(path), "column_weights", "invalid numbers", "finite, at least 0, not all 0")
        if serves.min() < 0 or serves.max() >= outputs:
            faults.add(str(path), "serves", "an output number out of range", f"numbers from 0 to {outputs - 1}")
        # Rows are computed by `steady_exp`, which is accurate down to exponents of -700. In rows they go down to -cap.
        if not (rate > 0 and 0 < cap <= MAX_EXPONENT):
            faults.add(
                str(path), "rate", f"{rate} and cap {cap}", f"a rate above 0, a cap between 0 and {MAX_EXPONENT:g}"
            )
        faults.check()
        weights = ColumnWeights(weights=x, serves=serves, outputs=outputs, rate=float(rate), cap=float(cap))
        return cls(columns=weights, data=data)


@frozen(kw_only=True, eq=False)
class MatricesOnDemand(Mapping[str, MatrixRelease]):
    """Each user's matrix, cut from a common matrix on demand, as all matrices together may not fit into memory.

    Attributes:
        data: The map.
        records: (U,) The records for which the common matrix has rows, ascending.
        weights: (U, K) The rows for these records: uint64 weights that sum to 2**63.
        sets: The users' LR sets, by user id.
    """

    data: MetricData
    records: Ints
    weights: Unsigned
    sets: Mapping[str, LRSet] = field(repr=False)

    def __getitem__(self, user: str) -> MatrixRelease:
        """Return a user's matrix, which has the rows for its LR set, the records near the user."""
        around = self.sets[user]
        return around.matrix(self.weights[np.searchsorted(self.records, around.records)], self.data)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the users' ids, in the order of ``sets``."""
        return iter(self.sets)

    def __len__(self) -> int:
        """Return the number of users."""
        return len(self.sets)


@frozen(kw_only=True, eq=False)
class LRGeoRelease(MatrixRelease):
    """The rows from which users report, and the matrices or public numbers that prove their guarantee.

    Attributes:
        matrices: The users' whole matrices by user id, for the ``benders`` and ``full`` methods. None if private/ is
            missing.
        published: The public numbers, for the ``exact`` method. None for other methods.
    """

    matrices: Mapping[str, MatrixRelease] | None = field(default=None, repr=False)
    published: PublicNumbers | None = field(default=None, repr=False)

    @classmethod
    def of_users(cls, problem: LRGeoInstance, rows: Unsigned, matrices: Mapping[str, MatrixRelease]) -> LRGeoRelease:
        """Return a release of the users' rows, whose guarantee is proved by the users' own matrices.

        Args:
            problem: The problem with its M users.
            rows: (M, K) Each user's row in its own matrix.
            matrices: The users' matrices by user id.
        """
        # There are no pairs, because nothing is promised between rows of different users.
        return cls(
            weights=rows,
            records=np.asarray(problem.data.records.ids, dtype=np.str_)[problem.users],
            outputs=np.asarray(problem.data.outputs.ids, dtype=np.str_),
            pairs=np.zeros((0, 2), dtype=np.int64),
            distances=np.zeros(0),
            matrices=matrices,
        )

    def write(self, folder: Path) -> None:
        """Write the users' rows to mechanism.npz and, for the exact method, the public numbers to public.npz."""
        super().write(folder)
        if self.published is not None:
            self.published.write(folder)

    def for_every_record(self, data: MetricData) -> MatrixRelease:
        """Return the rows for all records, computed from the public numbers, or else the release itself."""
        return self if self.published is None else MatrixRelease.over(data, self.published.all_rows, along_paths=True)

    def write_private(self, folder: Path) -> None:
        """Write each user's matrix, which only its user and verifiers may see, to a file in ``folder``/matrices."""
        if self.matrices is None:
            return
        (folder / MATRICES).mkdir()
        for user, matrix in self.matrices.items():
            # Every matrix is written under the same file name, so the file is then renamed.
            matrix.write(folder / MATRICES)
            (folder / MATRICES / ARTEFACT).rename(folder / MATRICES / private_file_name(user))

    @classmethod
    def read(cls, folder: Path, problem: LRGeoInstance) -> LRGeoRelease:
        """Read mechanism.npz and, if they exist, public.npz and private/matrices.

        Args:
            folder: The folder of the release.
            problem: The problem, whose map the public numbers must match.

        Raises:
            InputError: A file is missing or malformed.
        """
        matrix = MatrixRelease.load(folder / ARTEFACT)
        published = None
        if (folder / PUBLIC).is_file():
            published = PublicNumbers.read(folder / PUBLIC, problem.data)
        matrices = None
        private = folder / "private" / MATRICES
        # The exact method has no private matrices, and whoever receives another method's release may not have them.
        if published is None and private.is_dir():
            matrices = {
                str(user): MatrixRelease.load(private / private_file_name(str(user))) for user in matrix.records
            }
        return cls.of(matrix, matrices=matrices, published=published)
