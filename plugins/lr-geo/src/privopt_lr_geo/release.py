"""LR-Geo's release: the users' rows, with either their private matrices or the exact method's public numbers."""

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
"""The maximum length in bytes of an encoded id in a file name. File systems allow 255 bytes including the extension."""


def private_file_name(user: str) -> str:
    """Return the name of the file in which a user's matrix is stored.

    The name is the user's id followed by ``.npz``, with all characters of the id except letters, digits and ``_.-~``
    percent-encoded. If the id consists only of dots, these are encoded as well. If the encoded id is too long, it is
    replaced by its first 100 characters, ``=`` and the SHA-256 of the id. Names of shorter ids never contain ``=``.
    """
    name = quote(user, safe="")
    if len(name) > LONGEST_NAME:
        return f"{name[:100]}={sha256(user.encode()).hexdigest()}.npz"
    # A name that consists of dots is escaped as well, because "." and ".." are folders.
    return (name if name.strip(".") else name.replace(".", "%2E")) + ".npz"


@frozen(kw_only=True, eq=False, slots=False)
class PublicNumbers:
    """The numbers published by the exact method, which are either column weights or a whole matrix.

    Each user computes a row from them.

    Attributes:
        columns: The column weights, or None if the whole matrix is published.
        data: The map with N records and K outputs.
        stored_rows: (N, K) The whole matrix, or None if column weights are published and the matrix has not been
            computed from them.
    """

    columns: ColumnWeights | None
    data: MetricData
    stored_rows: Unsigned | None = None

    @cached_property
    def all_rows(self) -> Unsigned:
        """The (N, K) integer weights of the rows for all records, computed from the column weights if necessary."""
        if self.stored_rows is not None:
            return self.stored_rows
        assert self.columns is not None  # without stored rows, there are column weights
        return whole_matrix(self.columns, PathDistances(self.data).rows)

    def row(self, record: int) -> Unsigned:
        """Return the row for one record, computed as a user would.

        Returns:
            An array of shape (K,). It equals the row in ``all_rows``.
        """
        if self.columns is None:
            return np.asarray(self.all_rows[record])
        return np.asarray(self.columns.rows(PathDistances(self.data).rows(np.array([record])))[0])

    def write(self, folder: Path) -> None:
        """Write ``public.npz``, which contains the whole matrix, or the column weights with their rate and cap."""
        columns = self.columns
        if columns is None:
            np.savez(folder / PUBLIC, weights=self.all_rows)
        else:
            rate, cap = np.float64(columns.rate), np.float64(columns.cap)
            np.savez(folder / PUBLIC, column_weights=columns.weights, serves=columns.serves, rate=rate, cap=cap)

    @classmethod
    def read(cls, path: Path, data: MetricData) -> PublicNumbers:
        """Read ``public.npz``, which contains either the column weights with their rate and cap, or the whole matrix.

        Args:
            path: The file to read.
            data: The map, whose numbers of records and outputs must match the arrays.

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
        # `steady_exp`, which computes rows, is accurate down to exponents of -700, and rows have exponents down to
        # -cap.
        if not (rate > 0 and 0 < cap <= MAX_EXPONENT):
            faults.add(
                str(path), "rate", f"{rate} and cap {cap}", f"a rate above 0, a cap between 0 and {MAX_EXPONENT:g}"
            )
        faults.check()
        weights = ColumnWeights(weights=x, serves=serves, outputs=outputs, rate=float(rate), cap=float(cap))
        return cls(columns=weights, data=data)


@frozen(kw_only=True, eq=False)
class MatricesOnDemand(Mapping[str, MatrixRelease]):
    """A mapping from user ids to the users' matrices, each of which is taken from a common matrix on access.

    The matrices are not stored, because they might not all fit in memory at once.

    Attributes:
        data: The map, which provides the ids of records and outputs.
        records: (U,) The indices of the records for which the common matrix has rows, in ascending order.
        weights: (U, K) The common matrix, as uint64 weights that sum to 2**63 in each row.
        sets: The users' LR sets by user id. A user's matrix has one row for each record in the LR set.
    """

    data: MetricData
    records: Ints
    weights: Unsigned
    sets: Mapping[str, LRSet] = field(repr=False)

    def __getitem__(self, user: str) -> MatrixRelease:
        """Return a user's matrix, which consists of the common matrix's rows for the records in the user's LR set."""
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
    """The rows from which users draw their reports.

    They come with the matrices or public numbers for which the guarantee is certified.

    Attributes:
        matrices: The users' matrices by user id, for the ``benders`` and ``full`` methods. None for the ``exact``
            method, or if the private folder is missing.
        published: The public numbers of the ``exact`` method, or None for other methods.
    """

    matrices: Mapping[str, MatrixRelease] | None = field(default=None, repr=False)
    published: PublicNumbers | None = field(default=None, repr=False)

    @classmethod
    def of_users(cls, problem: LRGeoInstance, rows: Unsigned, matrices: Mapping[str, MatrixRelease]) -> LRGeoRelease:
        """Create a release of the ``benders`` or ``full`` method.

        Args:
            problem: The problem with its M users.
            rows: (M, K) For each user, the row for the user's record in the user's matrix.
            matrices: The users' matrices by user id.
        """
        # There are no pairs, because nothing is guaranteed between rows of different users.
        return cls(
            weights=rows,
            records=np.asarray(problem.data.records.ids, dtype=np.str_)[problem.users],
            outputs=np.asarray(problem.data.outputs.ids, dtype=np.str_),
            pairs=np.zeros((0, 2), dtype=np.int64),
            distances=np.zeros(0),
            matrices=matrices,
        )

    def write(self, folder: Path) -> None:
        """Write the users' rows to mechanism.npz and the public numbers, if any, to public.npz."""
        super().write(folder)
        if self.published is not None:
            self.published.write(folder)

    def for_every_record(self, data: MetricData) -> MatrixRelease:
        """Return the matrix for all records, computed from the public numbers.

        A release without public numbers is returned unchanged.
        """
        return self if self.published is None else MatrixRelease.over(data, self.published.all_rows, along_paths=True)

    def write_private(self, folder: Path) -> None:
        """Write the users' matrices, if any, to a new subfolder "matrices" with one file per user.

        A matrix may be shown only to its user and to those who verify the release.
        """
        if self.matrices is None:
            return
        (folder / MATRICES).mkdir()
        for user, matrix in self.matrices.items():
            # write() always uses the same file name, so each file is renamed before the next one is written.
            matrix.write(folder / MATRICES)
            (folder / MATRICES / ARTEFACT).rename(folder / MATRICES / private_file_name(user))

    @classmethod
    def read(cls, folder: Path, problem: LRGeoInstance) -> LRGeoRelease:
        """Read a release from mechanism.npz and, if they exist, public.npz and private/matrices.

        Args:
            folder: The release folder.
            problem: The problem, whose numbers of records and outputs must match public.npz.

        Raises:
            InputError: A file is missing or malformed.
        """
        matrix = MatrixRelease.load(folder / ARTEFACT)
        published = None
        if (folder / PUBLIC).is_file():
            published = PublicNumbers.read(folder / PUBLIC, problem.data)
        matrices = None
        private = folder / "private" / MATRICES
        # The exact method has no private matrices. Those of other methods may be missing, because recipients need not
        # get them.
        if published is None and private.is_dir():
            matrices = {
                str(user): MatrixRelease.load(private / private_file_name(str(user))) for user in matrix.records
            }
        return cls.of(matrix, matrices=matrices, published=published)
