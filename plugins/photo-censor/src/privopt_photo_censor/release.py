"""What is written: the list of the photos not to post."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
from attrs import field, frozen

from privopt.arrays import Bools, Floats, read_only, truths
from privopt.errors import Fault, InputError
from privopt.files import LARGEST, Unreadable, read_bytes
from privopt.files.archive import read_npz
from privopt.interfaces import Release
from privopt_photo_censor.problem import PhotoInstance
from privopt_photo_censor.scores import Copy, Listing, Places

__all__ = ["Deletions", "carriers", "read_places", "read_scores"]

TABLE: Final = "deletions.csv"
HEADER: Final = ("photo", "deleted")
PLACES: Final = "places.csv"
PLACES_HEADER: Final = ("place", "name", "lat", "lon")
COPIES: Final = "copies.csv"
COPIES_HEADER: Final = ("photo", "copy", "sha256")
SCORES: Final = "scores.npz"
THUMBNAILS: Final = "thumbnails"


@frozen(kw_only=True, eq=False)
class Deletions(Release):
    """Which photos are posted.

    Attributes:
        names: of the photos, in the album's order.
        kept: (N,) True where the photo may be posted.
        scores: (N, M) where they were computed from a folder, so that DIR stands alone; else None.
        true: column of the true location, with `scores`.
        listing: what the folder holds beside the pictures scored, with `scores`.
        thumbnails: small JPEGs of the photos, in their order, for the report; none without a folder.
        places: names and positions of the places, with `scores`.
        copies: clean copies that were made of the photos kept; None where none were.
        copy_scores: (kept, M) scores of the copies, as they are encoded; None without copies.
    """

    names: tuple[str, ...]
    kept: Bools = field(converter=truths)
    scores: Floats | None = None
    true: int = -1
    listing: Listing | None = None
    thumbnails: tuple[bytes, ...] = field(default=(), repr=False)
    places: Places = field(factory=Places, repr=False)
    copies: tuple[Copy, ...] | None = None
    copy_scores: Floats | None = field(default=None, repr=False)

    def write(self, folder: Path) -> None:
        """Write ``deletions.csv``; for photos from a folder ``scores.npz``, thumbnails and the list of copies too."""
        _write_table(folder / TABLE, HEADER, zip(self.names, (~self.kept).astype(int).tolist(), strict=True))
        if self.copies is not None:
            _write_table(folder / COPIES, COPIES_HEADER, ((c.photo, c.name, c.sha256) for c in self.copies))
        if self.scores is not None:
            listing = self.listing or Listing()
            _write_table(folder / PLACES, PLACES_HEADER, _place_rows(self.places, self.scores.shape[1]))
            more: dict[str, Any] = {} if self.copy_scores is None else {"copies": self.copy_scores}
            np.savez(
                folder / SCORES,
                **more,
                scores=self.scores,
                true=np.int64(self.true),
                left_out=np.array(listing.left_out, dtype=np.str_),
                positioned=np.array([name in listing.positioned for name in self.names], dtype=np.bool_),
            )
        for row, small in enumerate(self.thumbnails):
            (folder / THUMBNAILS).mkdir(exist_ok=True)
            (folder / THUMBNAILS / f"{row}.jpg").write_bytes(small)

    def facts(self) -> Mapping[str, Any]:
        """How many photos stay, and which go."""
        gone = [name for name, kept in zip(self.names, self.kept.tolist(), strict=True) if not kept]
        shown = gone[:20] + (["..."] if len(gone) > 20 else [])
        return {"photos": len(self.names), "kept": len(self.names) - len(gone), "deleted": shown or "none"}

    @classmethod
    def read(cls, folder: Path, problem: PhotoInstance) -> Deletions:
        """Read the table back, and the thumbnails of a folder's photos.

        Raises:
            InputError: a file is missing or not of its form, or lists other photos than the problem.
        """
        names, kept = _table(folder / TABLE)
        if tuple(names) != problem.data.names:
            wanted = "the photos of the problem, in order"
            raise InputError([Fault(str(folder / TABLE), "column photo", "other photos", wanted)])
        if problem.declared.photos.folder is None:
            return cls(names=tuple(names), kept=kept)
        copies = _copies(folder / COPIES, [name for name, stays in zip(names, kept, strict=True) if stays])
        small = [folder / THUMBNAILS / f"{row}.jpg" for row in range(len(names))]
        return cls(
            names=tuple(names),
            kept=kept,
            scores=problem.data.album.scores,
            true=problem.data.album.true,
            listing=problem.data.listing,
            places=problem.data.places,
            thumbnails=tuple(_bytes(path, "a thumbnail", 2**20) for path in small),
            copies=copies,
            copy_scores=_copy_scores(folder / SCORES, copies, problem.data.album.locations),
        )


def carriers(release: Deletions) -> tuple[str, ...]:
    """The photos kept whose files carry a position in their metadata."""
    positioned = set(release.listing.positioned if release.listing is not None else ())
    return tuple(n for n, kept in zip(release.names, release.kept.tolist(), strict=True) if kept and n in positioned)


def _bytes(path: Path, wanted: str, largest: int = LARGEST) -> bytes:
    """A file of DIR: a regular one, no link to anywhere else."""
    try:
        return read_bytes(path, largest=largest, links=False)
    except Unreadable as error:
        raise InputError([Fault(str(path), "", error.found, wanted)]) from None


def _write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    path.write_text(text.getvalue(), "utf-8")


def _rows(path: Path, header: Sequence[str]) -> list[list[str]]:
    wanted = f"a table {','.join(header)}"
    try:
        rows = list(csv.reader(io.StringIO(_bytes(path, wanted).decode(), newline="")))
    except (UnicodeDecodeError, csv.Error):
        raise InputError([Fault(str(path), "", "no table in UTF-8", wanted)]) from None
    if not rows or rows[0] != list(header):
        raise InputError([Fault(str(path), "header", ",".join(rows[0]) if rows else "nothing", ",".join(header))])
    faults = [
        Fault(str(path), f"row {number}", ",".join(row) or "nothing", f"{len(header)} fields")
        for number, row in enumerate(rows[1:], start=2)
        if len(row) != len(header)
    ]
    if faults:
        raise InputError(faults[:20])
    return rows[1:]


def _table(path: Path) -> tuple[list[str], list[bool]]:
    rows = _rows(path, HEADER)
    faults = [
        Fault(str(path), f"row {number}", ",".join(row), "a photo, and 0 or 1")
        for number, row in enumerate(rows, start=2)
        if row[1] not in ("0", "1")
    ]
    if faults:
        raise InputError(faults[:20])
    return [row[0] for row in rows], [row[1] == "0" for row in rows]


def _place_rows(places: Places, count: int) -> Iterator[Sequence[object]]:
    points = [("", "")] * count if places.points is None else [(repr(a), repr(b)) for a, b in places.points.tolist()]
    for column, (lat, lon) in enumerate(points):
        yield column, places.names[column] if places.names else "", lat, lon


def read_places(folder: Path, count: int) -> Places:
    """The places of an album that was scored from a folder, as its DIR lists them.

    Raises:
        InputError: there is no such table, or it is of another form.
    """
    path = folder / PLACES
    rows = _rows(path, PLACES_HEADER)
    if [row[0] for row in rows] != [str(column) for column in range(count)]:
        raise InputError([Fault(str(path), "column place", "other places", f"0 to {count - 1}, in order")])
    names = tuple(row[1] for row in rows)
    try:
        points = np.array([[float(row[2]), float(row[3])] for row in rows]) if rows and rows[0][2] else None
    except ValueError:
        points = np.full((1, 2), np.nan)
    if points is not None and not (np.abs(points) <= 180.0).all():
        raise InputError([Fault(str(path), "columns lat, lon", "what are no degrees", "degrees")])
    return Places(names=names if any(names) else (), points=points)


def _copies(path: Path, kept: Collection[str]) -> tuple[Copy, ...] | None:
    """The list of clean copies, one of each photo kept; None where none were made."""
    if not path.exists() and not path.is_symlink():
        return None
    copies = tuple(Copy(photo=p, name=n, sha256=s) for p, n, s in _rows(path, COPIES_HEADER))
    if [copy.photo for copy in copies] != list(kept):
        raise InputError([Fault(str(path), "column photo", "other photos", "the photos kept, in order")])
    return copies


def _copy_scores(path: Path, copies: tuple[Copy, ...] | None, locations: int) -> Floats | None:
    """The scores of clean copies, as they are encoded; None without copies."""
    scores = read_npz(path, "the scores of copies").get("copies")
    if scores is None and copies is None:
        return None
    if scores is None:
        raise InputError([Fault(str(path), "copies", "nothing", "the scores of the clean copies that are listed")])
    shape = (len(copies or ()), locations)
    good = copies is not None and scores.shape == shape and scores.dtype == np.float64
    if not good or np.isnan(scores).any() or (scores == np.inf).any():
        raise InputError([Fault(str(path), "copies", "values that are no scores", f"{shape[0]} x {shape[1]} scores")])
    return read_only(scores)


def read_scores(folder: Path) -> tuple[Floats, list[str], int, Listing]:
    """The scores that were computed from a folder of photos, their names, the true location, what else there was.

    Raises:
        InputError: a file is missing or not of its form.
    """
    names, _ = _table(folder / TABLE)
    path, wanted = folder / SCORES, "the scores that the deletions were computed from"

    def refuse(found: str) -> NoReturn:
        raise InputError([Fault(str(path), "", found, wanted)])

    stored = read_npz(path, wanted, only=("scores", "true", "left_out", "positioned", "copies"))
    try:
        scores, true = np.asarray(stored["scores"], dtype=np.float64), int(stored["true"])
        left_out, positioned = stored["left_out"], stored["positioned"]
    except (ValueError, KeyError, TypeError):
        refuse("no readable file")
    if scores.ndim != 2 or np.isnan(scores).any() or (scores == np.inf).any():
        refuse("values that are no scores")
    if left_out.ndim != 1 or left_out.dtype.kind != "U" or positioned.dtype != np.bool_:
        refuse("no list of what was left out, or of the photos with a position")
    if len(scores) != len(names) or positioned.shape != (len(names),):
        refuse(f"scores of {len(scores)} photos where {len(names)} are listed")
    listing = Listing(
        left_out=tuple(left_out.tolist()),
        positioned=tuple(name for name, found in zip(names, positioned.tolist(), strict=True) if found),
    )
    return scores, names, true, listing
