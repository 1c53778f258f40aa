"""The release: photos to post or not, clean copies, and the scores and thumbnails of a folder."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from privopt.arrays import Bools, Floats, truths
from privopt.declare.columns import read_columns, write_columns
from privopt.declare.tables import Column
from privopt.errors import Fault, InputError
from privopt.files.archive import read_arrays
from privopt.files.regular import LARGEST, Unreadable, read_bytes
from privopt.interfaces import Release
from privopt_photo_censor.album import Album, Copy
from privopt_photo_censor.app.metadata import FolderContents, Metadata
from privopt_photo_censor.problem import PhotoInstance

__all__ = ["Deletions", "carriers", "read_scores", "read_seen"]

TABLE: Final = "deletions.csv"
COPIES: Final = "copies.csv"
METADATA: Final = "metadata.csv"
LEFT_OUT: Final = "left-out.csv"
SCORES: Final = "scores.npz"
THUMBNAILS: Final = "thumbnails"
COLUMNS: Final = (
    Column(name="photo", kind="text"),
    Column(name="latitude", least=-90.0, most=90.0, unit="degrees", blank=np.nan),
    Column(name="longitude", least=-180.0, most=180.0, unit="degrees", blank=np.nan),
    Column(name="place", whole=True, least=0, most=1),
    Column(name="taken", kind="text"),
    Column(name="camera", kind="text"),
    Column(name="serial", kind="text"),
    Column(name="thumbnail", whole=True, least=0, most=1),
    Column(name="texts", kind="text"),
    Column(name="unread", kind="text"),
)
"""Of metadata.csv: attributes of :class:`Metadata`."""


@frozen(kw_only=True, eq=False)
class Deletions(Release):
    """Which photos are posted.

    Attributes:
        problem: the photos, and what a folder of them holds, so that DIR needs no other file.
        kept: (N,) True where the photo may be posted.
        copies: clean copies that were made of the photos kept; None where none were.
        copy_scores: (kept, M) scores of the copies, as they are encoded; None without copies.
    """

    private_folder: ClassVar[bool] = True

    problem: PhotoInstance = field(repr=False)
    kept: Bools = field(converter=truths)
    copies: tuple[Copy, ...] | None = None
    copy_scores: Floats | None = field(default=None, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the photos, in the album's order."""
        return self.problem.names

    @property
    def thumbnails(self) -> tuple[bytes, ...]:
        """Small JPEGs of the photos, in their order; none without a folder."""
        return () if self.problem.seen is None else self.problem.seen.thumbnails

    def write(self, folder: Path) -> None:
        """Write ``deletions.csv``; for photos from a folder thumbnails, the list of copies, and what was seen too."""
        write_columns(folder / TABLE, {"photo": self.names, "deleted": (~self.kept).astype(np.int64)})
        if self.copies is not None:
            copies = ("photo", [c.photo for c in self.copies]), ("copy", [c.name for c in self.copies])
            write_columns(folder / COPIES, {**dict(copies), "sha256": [c.sha256 for c in self.copies]})
        if self.problem.seen is not None:
            seen = self.problem.seen
            album = {each.name: [getattr(photo, each.name) for photo in seen.metadata] for each in COLUMNS}
            flags = {name: list(map(int, album[name])) for name in ("place", "thumbnail")}
            write_columns(folder / METADATA, album | flags)
            write_columns(folder / LEFT_OUT, {"name": list(seen.left_out)})
            if self.problem.declared.scored:
                found, places = self.problem.album, np.array(self.problem.places, dtype=np.str_)
                more: dict[str, Any] = {} if self.copy_scores is None else {"copies": self.copy_scores}
                np.savez(folder / SCORES, **more, scores=found.scores, true=np.int64(found.true), places=places)
        for row, small in enumerate(self.thumbnails):
            (folder / THUMBNAILS).mkdir(exist_ok=True)
            (folder / THUMBNAILS / f"{row}.jpg").write_bytes(small)

    @classmethod
    def read(cls, folder: Path, problem: PhotoInstance) -> Deletions:
        """Read the table back, and what was made of a folder's photos.

        Raises:
            InputError: a file is missing or not of its form, or lists other photos than the problem.
        """
        names, kept = _deletions(folder)
        if names != problem.names:
            wanted = "the photos of the problem, in order"
            raise InputError([Fault(str(folder / TABLE), "column photo", "other photos", wanted)])
        if problem.seen is None:
            return cls(problem=problem, kept=kept)
        copies = _copies(folder / COPIES, [name for name, stays in zip(names, kept, strict=True) if stays])
        scores = _copy_scores(folder, copies, problem.album) if problem.declared.scored else None
        return cls(problem=problem, kept=kept, copies=copies, copy_scores=scores)


def carriers(release: Deletions) -> tuple[str, ...]:
    """Return the photos kept whose files carry a position in their metadata."""
    seen = release.problem.seen
    positioned = set(seen.positioned if seen is not None else ())
    return tuple(n for n, kept in zip(release.names, release.kept.tolist(), strict=True) if kept and n in positioned)


def _bytes(path: Path, wanted: str, largest: int = LARGEST) -> bytes:
    """Return a file of DIR: a regular one, no link to anywhere else."""
    try:
        return read_bytes(path, largest=largest, links=False)
    except Unreadable as error:
        raise InputError([Fault(str(path), "", error.found, wanted)]) from None


def _deletions(folder: Path) -> tuple[tuple[str, ...], list[bool]]:
    """Names of the photos, and which are kept."""
    table = read_columns(
        folder / TABLE, [Column(name="photo", kind="text"), Column(name="deleted", one_of=("0", "1"), kind="text")]
    )
    return tuple(table["photo"].to_list()), (table["deleted"] == "0").to_list()


def _copies(path: Path, retained: Collection[str]) -> tuple[Copy, ...] | None:
    """Return the list of clean copies, one of each photo kept; None where none were made."""
    if not path.exists() and not path.is_symlink():
        return None
    table = read_columns(path, [Column(name=name, kind="text") for name in ("photo", "copy", "sha256")])
    if table["photo"].to_list() != list(retained):
        raise InputError([Fault(str(path), "column photo", "other photos", "the photos kept, in order")])
    return tuple(Copy(photo=photo, name=name, sha256=digest) for photo, name, digest in table.rows())


def read_scores(folder: Path, photos: int) -> dict[str, NDArray[Any]]:
    """Read the arrays of scores.npz: ``scores`` (photos, locations), ``true``, ``places``, and ``copies`` if there are.

    Raises:
        InputError: the file is missing or not of its form, or scores are neither finite nor -inf.
    """
    path = folder / SCORES
    wanted: dict[str, tuple[Any, tuple[int | None, ...]]] = {
        "scores": (np.float64, (photos, None)),
        "true": (np.int64, ()),
        "places": (np.str_, (None,)),
    }
    found = read_arrays(path, wanted, optional={"copies": (np.float64, (None, None))})
    for name in found.keys() & {"scores", "copies"}:
        if np.isnan(found[name]).any() or (found[name] == np.inf).any():
            raise InputError([Fault(str(path), name, "values that are not scores", "log-probabilities")])
    return found


def _copy_scores(folder: Path, copies: tuple[Copy, ...] | None, album: Album) -> Floats | None:
    """Return the scores of clean copies, as they are encoded; None without copies."""
    scores = read_scores(folder, album.photos).get("copies")
    wanted = None if copies is None else (len(copies), album.locations)
    if (None if scores is None else scores.shape) != wanted:
        found = "nothing" if scores is None else f"scores of shape {scores.shape}"
        said = "no scores" if wanted is None else f"scores of shape {wanted}, of the clean copies that are listed"
        raise InputError([Fault(str(folder / SCORES), "copies", found, said)])
    return scores


def read_seen(folder: Path) -> FolderContents:
    """Read what was seen in a folder of photos.

    Raises:
        InputError: a file is missing or not of its form.
    """
    path = folder / METADATA
    table = read_columns(path, COLUMNS)
    if table["latitude"].is_nan().to_list() != table["longitude"].is_nan().to_list():
        raise InputError([Fault(str(path), "columns latitude, longitude", "one without the other", "both or neither")])
    album = tuple(Metadata(**row) for row in table.rows(named=True))
    left_out = read_columns(folder / LEFT_OUT, [Column(name="name", kind="text")])["name"].to_list()
    small = (folder / THUMBNAILS / f"{row}.jpg" for row in range(len(album)))
    thumbnails = tuple(_bytes(path, "a thumbnail", 2**20) for path in small)
    return FolderContents(metadata=album, left_out=tuple(left_out), thumbnails=thumbnails)
