"""The release of photo-censor: the photos that may be posted, the list of clean copies, and a record of the folder.

The release for a folder contains everything needed to verify it and to write its report without the photos.
"""

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

__all__ = ["Deletions", "find_carriers", "read_folder_contents", "read_scores"]

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
"""The columns of metadata.csv. Each is named after an attribute of :class:`Metadata`."""


@frozen(kw_only=True, eq=False)
class Deletions(Release):
    """A release of photo-censor: which photos of an album may be posted, and the clean copies of these photos.

    Attributes:
        private_folder: Always True. The release folder names the photos, so only its owner may read it.
        problem: The problem. For a folder of photos, the scores and the folder's contents are written with the release,
            so that verification does not need the photos.
        retained: (N,) Whether each of the N photos may be posted.
        copies: The clean copies of the retained photos. None if no copies were made.
        copy_scores: The scores of the encoded clean copies, with one row per retained photo and one column per
            location. None if no copies were scored.
    """

    private_folder: ClassVar[bool] = True

    problem: PhotoInstance = field(repr=False)
    retained: Bools = field(converter=truths)
    copies: tuple[Copy, ...] | None = None
    copy_scores: Floats | None = field(default=None, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the photos, in the album's order."""
        return self.problem.names

    @property
    def thumbnails(self) -> tuple[bytes, ...]:
        """The photos' thumbnails as JPEG files, in the album's order. Empty if the problem names no folder."""
        return () if self.problem.folder_contents is None else self.problem.folder_contents.thumbnails

    def write(self, folder: Path) -> None:
        """Write the release to a folder.

        ``deletions.csv`` records which photos are deleted. If clean copies were made, they are listed in another file.
        If the problem names a folder of photos, additional files record the metadata, the files left out, the
        thumbnails and any scores.
        """
        write_columns(folder / TABLE, {"photo": self.names, "deleted": (~self.retained).astype(np.int64)})
        # If clean copies were made (--copy-to), a list tells which file is the copy of which photo.
        if self.copies is not None:
            copies = ("photo", [c.photo for c in self.copies]), ("copy", [c.name for c in self.copies])
            write_columns(folder / COPIES, {**dict(copies), "sha256": [c.sha256 for c in self.copies]})
        if self.problem.folder_contents is not None:
            folder_contents = self.problem.folder_contents
            columns = {
                column.name: [getattr(photo, column.name) for photo in folder_contents.metadata] for column in COLUMNS
            }
            # The two boolean columns are written as 0 and 1.
            flags = {name: list(map(int, columns[name])) for name in ("place", "thumbnail")}
            write_columns(folder / METADATA, columns | flags)
            write_columns(folder / LEFT_OUT, {"name": list(folder_contents.left_out)})
            if self.problem.declared.is_scored:
                scored_album, places = self.problem.album, np.array(self.problem.places, dtype=np.str_)
                copy_arrays: dict[str, Any] = {} if self.copy_scores is None else {"copies": self.copy_scores}
                np.savez(
                    folder / SCORES,
                    **copy_arrays,
                    scores=scored_album.scores,
                    true=np.int64(scored_album.true),
                    places=places,
                )

        for row, small in enumerate(self.thumbnails):
            (folder / THUMBNAILS).mkdir(exist_ok=True)
            (folder / THUMBNAILS / f"{row}.jpg").write_bytes(small)

    @classmethod
    def read(cls, folder: Path, problem: PhotoInstance) -> Deletions:
        """Read a release from its folder.

        The list of clean copies and their scores are read only if the problem names a folder of photos.

        Raises:
            InputError: A file is missing or malformed, or its photos differ from the problem's photos.
        """
        names, is_retained = _read_deletions(folder)
        if names != problem.names:
            expectation = "the photos of the problem, in order"
            raise InputError([Fault(str(folder / TABLE), "column photo", "other photos", expectation)])
        if problem.folder_contents is None:
            return cls(problem=problem, retained=is_retained)
        copies = _read_copies(folder / COPIES, [name for name, stays in zip(names, is_retained, strict=True) if stays])
        scores = _read_copy_scores(folder, copies, problem.album) if problem.declared.is_scored else None
        return cls(problem=problem, retained=is_retained, copies=copies, copy_scores=scores)


def find_carriers(release: Deletions) -> tuple[str, ...]:
    """Return the names of the retained photos whose files reveal a position in their metadata.

    Posting such a file reveals where the photo was taken, whatever the image itself shows. The result is empty if the
    problem provides a table of scores instead of photos.
    """
    folder_contents = release.problem.folder_contents
    positioned = set(folder_contents.photos_with_position if folder_contents is not None else ())
    return tuple(
        name
        for name, is_retained in zip(release.names, release.retained.tolist(), strict=True)
        if is_retained and name in positioned
    )


def _read_file(path: Path, expectation: str, largest: int = LARGEST) -> bytes:
    """Return the contents of a regular file in a release folder.

    Symbolic links are rejected, because a link could lead to any file accessible to the reader of the release.

    Args:
        path: The path of the file.
        expectation: A description of the expected file, for the error message.
        largest: The largest size to accept, in bytes.

    Raises:
        InputError: The file is missing, too large, or not a regular file.
    """
    try:
        return read_bytes(path, largest=largest, links=False)
    except Unreadable as error:
        raise InputError([Fault(str(path), "", error.actual, expectation)]) from None


def _read_deletions(folder: Path) -> tuple[tuple[str, ...], list[bool]]:
    """Read deletions.csv, and return the names of the photos and whether each photo is retained.

    Raises:
        InputError: The file is missing or malformed.
    """
    table = read_columns(
        folder / TABLE, [Column(name="photo", kind="text"), Column(name="deleted", one_of=("0", "1"), kind="text")]
    )
    return tuple(table["photo"].to_list()), (table["deleted"] == "0").to_list()


def _read_copies(path: Path, retained: Collection[str]) -> tuple[Copy, ...] | None:
    """Read the list of clean copies in copies.csv, or return None if there is no such file.

    Args:
        path: The path of copies.csv.
        retained: The names of the retained photos, in order.

    Raises:
        InputError: The file is malformed, or does not list the retained photos in order.
    """
    # A broken link does not "exist", but it must lead to an error below instead of passing for a missing list.
    if not path.exists() and not path.is_symlink():
        return None
    table = read_columns(path, [Column(name=name, kind="text") for name in ("photo", "copy", "sha256")])
    if table["photo"].to_list() != list(retained):
        raise InputError([Fault(str(path), "column photo", "other photos", "the photos kept, in order")])
    return tuple(Copy(photo=photo, name=name, sha256=digest) for photo, name, digest in table.rows())


def read_scores(folder: Path, photos: int) -> dict[str, NDArray[Any]]:
    """Read the arrays in scores.npz.

    The arrays are ``scores``, of shape (photos, locations); ``true``, the column of the true location; and ``places``,
    the names of the locations. If clean copies were scored, there is also ``copies``, of shape (copies, locations).

    Args:
        folder: The release folder.
        photos: The number of photos.

    Raises:
        InputError: The file is missing or malformed, or a score is NaN or positive infinity.
    """
    path = folder / SCORES
    forms: dict[str, tuple[Any, tuple[int | None, ...]]] = {
        "scores": (np.float64, (photos, None)),
        "true": (np.int64, ()),
        "places": (np.str_, (None,)),
    }
    arrays = read_arrays(path, forms, optional={"copies": (np.float64, (None, None))})
    for name in arrays.keys() & {"scores", "copies"}:
        if np.isnan(arrays[name]).any() or (arrays[name] == np.inf).any():
            raise InputError([Fault(str(path), name, "values that are not scores", "log-probabilities")])
    return arrays


def _read_copy_scores(folder: Path, copies: tuple[Copy, ...] | None, album: Album) -> Floats | None:
    """Read the clean copies' scores from scores.npz, or return None if there are no copies.

    Args:
        folder: The release folder.
        copies: The clean copies. None if no copies were made.
        album: The album, which determines the expected shape of the scores.

    Raises:
        InputError: There are copies without scores or scores without copies, or the scores have the wrong shape.
    """
    scores = read_scores(folder, album.photos).get("copies")
    expected_shape = None if copies is None else (len(copies), album.locations)
    if (None if scores is None else scores.shape) != expected_shape:
        actual = "nothing" if scores is None else f"scores of shape {scores.shape}"
        expectation = (
            "no scores"
            if expected_shape is None
            else f"scores of shape {expected_shape}, of the clean copies that are listed"
        )
        raise InputError([Fault(str(folder / SCORES), "copies", actual, expectation)])
    return scores


def read_folder_contents(folder: Path) -> FolderContents:
    """Read a release's record of a folder of photos.

    The record consists of the photos' metadata, the names of the files left out, and the thumbnails.

    Args:
        folder: The release folder.

    Raises:
        InputError: A file is missing or malformed.
    """
    path = folder / METADATA
    table = read_columns(path, COLUMNS)
    # Empty cells, which are read as NaN, mark a photo without a position.
    if table["latitude"].is_nan().to_list() != table["longitude"].is_nan().to_list():
        raise InputError([Fault(str(path), "columns latitude, longitude", "one without the other", "both or neither")])
    album = tuple(Metadata(**row) for row in table.rows(named=True))
    left_out = read_columns(folder / LEFT_OUT, [Column(name="name", kind="text")])["name"].to_list()
    thumbnail_paths = (folder / THUMBNAILS / f"{row}.jpg" for row in range(len(album)))
    thumbnails = tuple(_read_file(path, "a thumbnail", 2**20) for path in thumbnail_paths)
    return FolderContents(metadata=album, left_out=tuple(left_out), thumbnails=thumbnails)
