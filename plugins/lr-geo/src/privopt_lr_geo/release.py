"""LR-Geo's release: the users' rows; in private each user's whole matrix; in public what rows are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from privopt.errors import Fault, InputError
from privopt.files.archive import read_npz
from privopt_lr_geo.lr_sets import PathDistances
from privopt_lr_geo.rows import ColumnWeights, whole_matrix
from privopt_metric_dp.matrix.release import ARTEFACT, MatrixRelease
from privopt_metric_dp.problem.data import MetricData

__all__ = ["PUBLIC", "LRGeoRelease", "Published"]

PUBLIC: Final = "public.npz"
MATRICES: Final = "matrices"
LONGEST_NAME: Final = 240
"""Bytes of an escaped id that names a file: with the ending, file systems take 255."""


def file_of(user: str) -> str:
    """Name of a user's file: its id, with everything but letters, digits and ``_.-~`` escaped as in a URL.

    Of an id too long for that: the beginning, ``=``, which no other name has, and the SHA-256 of the id.
    """
    name = quote(user, safe="")
    if len(name) > LONGEST_NAME:
        return f"{name[:100]}={sha256(user.encode()).hexdigest()}.npz"
    return (name if name.strip(".") else name.replace(".", "%2E")) + ".npz"


@frozen(kw_only=True, eq=False, slots=False)
class Published:
    """What the server publishes in the exact method.

    Attributes:
        columns: column weights; None where the whole matrix is published.
        data: the map, from which rows are computed.
        given: (N, K) the whole matrix: published, or as the solver computed it from the column weights.
    """

    columns: ColumnWeights | None
    data: MetricData
    given: NDArray[np.uint64] | None = None

    @cached_property
    def whole(self) -> NDArray[np.uint64]:
        """(N, K) every record's row; computed from the column weights where those were published."""
        if self.given is not None:
            return self.given
        assert self.columns is not None  # one of the two is there
        return whole_matrix(self.columns, PathDistances(self.data).rows)

    def write(self, folder: Path) -> None:
        """Write public.npz."""
        if self.columns is None:
            np.savez(folder / PUBLIC, weights=self.whole)
            return
        np.savez(
            folder / PUBLIC,
            column_weights=self.columns.weights,
            serves=self.columns.serves,
            rate=np.float64(self.columns.rate),
            cap=np.float64(self.columns.cap),
        )

    @classmethod
    def read(cls, path: Path, data: MetricData) -> Published:
        """Read public.npz.

        Raises:
            InputError: not of its form.
        """
        count, outputs = data.shape

        def wrong(where: str, found: str, wanted: str) -> InputError:
            return InputError([Fault(path.name, where, found, wanted)])

        shapes = {"column_weights": (count,), "serves": (count,), "rate": (), "cap": ()}
        parts = read_npz(path, "column_weights, serves, rate, cap; or weights alone", only={"weights", *shapes})
        if "weights" in parts:
            if len(parts) > 1:
                raise wrong("weights", "other arrays beside it", "weights alone")
            weights = parts["weights"]
            if weights.dtype.str[1:] != "u8" or weights.shape != (count, outputs):
                raise wrong("weights", f"{weights.dtype} of shape {weights.shape}", f"uint64 of {(count, outputs)}")
            return cls(columns=None, data=data, given=weights)
        for name, shape in shapes.items():
            if name not in parts or parts[name].shape != shape:
                found = f"shape {parts[name].shape}" if name in parts else "nothing"
                raise wrong(name, found, f"shape {shape}")
        x, serves = parts["column_weights"], parts["serves"]
        if x.dtype != np.float64 or not (np.isfinite(x).all() and (x >= 0).all() and x.any()):
            raise wrong("column_weights", "numbers that will not do", "doubles of at least 0, not all 0")
        if serves.dtype != np.int64 or serves.min() < 0 or serves.max() >= outputs:
            raise wrong("serves", "an output that is not there", f"numbers from 0 to {outputs - 1}")
        rate, cap = float(parts["rate"]), float(parts["cap"])
        if not (rate > 0 and 0 < cap <= 700):
            raise wrong("rate", f"{rate!r} and cap {cap!r}", "a rate above 0, a cap between 0 and 700")
        return cls(columns=ColumnWeights(weights=x, serves=serves, outputs=outputs, rate=rate, cap=cap), data=data)


@frozen(kw_only=True, eq=False)
class LRGeoRelease(MatrixRelease):
    """The users' rows.

    Attributes:
        matrices: each user's whole matrix by its id (methods benders and full); None where private/ is gone.
        published: what rows are computed from (method exact), or None.
        own: rows that users with weights of their own draw from; None where there are none, or private/ is gone.
    """

    matrices: Mapping[str, MatrixRelease] | None = field(default=None, repr=False)
    published: Published | None = field(default=None, repr=False)
    own: MatrixRelease | None = field(default=None, repr=False)

    def write(self, folder: Path) -> None:
        """Write mechanism.npz, and public.npz in the exact method."""
        super().write(folder)
        if self.published is not None:
            self.published.write(folder)

    def write_private(self, folder: Path) -> None:
        """Write each user's matrix into matrices/, or its own row into mechanism.npz."""
        if self.own is not None:
            self.own.write(folder)
        if self.matrices is None:
            return
        (folder / MATRICES).mkdir()
        for user, matrix in self.matrices.items():
            matrix.write(folder / MATRICES)
            (folder / MATRICES / ARTEFACT).rename(folder / MATRICES / file_of(user))

    @classmethod
    def read(cls, folder: Path, problem: Any) -> LRGeoRelease:
        """Read mechanism.npz, and public.npz and private/matrices where they are.

        Raises:
            InputError: missing or not of their form.
        """
        own = MatrixRelease.load(folder / ARTEFACT)
        published = None
        if (folder / PUBLIC).is_file():
            published = Published.read(folder / PUBLIC, problem.data)
        matrices = None
        private = folder / "private" / MATRICES
        if published is None and private.is_dir():
            matrices = {str(user): MatrixRelease.load(private / file_of(str(user))) for user in own.records}
        return cls.of(own, matrices=matrices, published=published, own=_own(folder))

    @classmethod
    def alone(cls, folder: Path) -> MatrixRelease:
        """What one user draws from: its own row where private/ has it, else the published one."""
        own = _own(folder)
        return super().alone(folder) if own is None else own

    def sample(self, input_id: str, count: int) -> list[str]:
        """Draw for one user, from its own row where that is here.

        Raises:
            UnknownNameError: no user has that id.
        """
        return super().sample(input_id, count) if self.own is None else self.own.sample(input_id, count)


def _own(folder: Path) -> MatrixRelease | None:
    path = folder / "private" / ARTEFACT
    return MatrixRelease.load(path) if path.is_file() else None
