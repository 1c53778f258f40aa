"""From a folder of photos to scores: log-probabilities out of a classifier, positions out of metadata, thumbnails."""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from attrs import field, frozen
from PIL import Image

from privopt.arrays import Floats
from privopt.errors import Fault, InputError
from privopt_photo_censor.album import Listing, Places
from privopt_photo_censor.app.classifier import Classifier, load_classifier
from privopt_photo_censor.app.metadata import Metadata, Point, read_metadata
from privopt_photo_censor.app.opening import HEIF, MODERN, SUFFIXES, heif, opened, readable
from privopt_photo_censor.app.picture import flattened
from privopt_photo_censor.app.positions import texts_of
from privopt_photo_censor.classifier_ensemble import jointly

__all__ = ["ScoredFolder", "SeenFolder", "entries", "look_at_folder", "score_files", "score_folder"]

FILM_MARKS: Final = (b"MotionPhoto", b"MicroVideo")
"""Words in the files of photos that have a film appended: in XMP, or before the film."""
FILM: Final = re.compile(rb"\0\0[\0-\x03][\x08-\xff]ftyp[ -~]{4}")
"""How a film of the MP4 family begins."""


@frozen(kw_only=True, eq=False)
class SeenFolder:
    """Photos of a folder, by name.

    Attributes:
        metadata: what each photo reveals apart from its picture; its name is its file's, in subfolders a path.
        listing: what else the folder holds, and whose metadata reveal a position.
        thumbnails: small upright JPEGs of the photos without any of their metadata, about 2 MB in all at most.
        digests: SHA-256 of the files, as they were read.
    """

    metadata: tuple[Metadata, ...]
    listing: Listing
    thumbnails: tuple[bytes, ...]
    digests: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the photos."""
        return tuple(photo.photo for photo in self.metadata)

    @property
    def points(self) -> tuple[Point | None, ...]:
        """Latitude and longitude of each photo, None without GPS."""
        return tuple(photo.point for photo in self.metadata)


@frozen(kw_only=True, eq=False)
class ScoredFolder(SeenFolder):
    """Photos of a folder, scored.

    Attributes:
        scores: (N, M) log-probabilities.
        cells: column of each photo's cell, None without GPS or outside all cells.
        true_location: as given, else the cell of most photos with GPS; None where none has any.
        places: the classifier's cells, in words and on a map.
        models: the classifiers that scored them, to score their copies too.
    """

    scores: Floats
    cells: tuple[int | None, ...]
    true_location: int | None
    places: Places
    models: tuple[Classifier, ...] = field(repr=False)


@frozen(kw_only=True, eq=False)
class _Photo:
    """All that is taken from one photo, in one reading of its file."""

    tensors: tuple[Any, ...]
    metadata: Metadata
    more: str
    thumbnail: bytes
    digest: str


def entries(folder: Path, *, subfolders: bool = False) -> tuple[list[tuple[str, Path]], list[str]]:
    """Return the photos of a folder, named by their paths in it, case aside; and the names of everything else in it.

    Args:
        folder: where to look.
        subfolders: whether to look into its folders too; links to folders are never followed.

    Raises:
        InputError: the folder has no photos, or the name of one is not UTF-8.
    """
    inside = _inside(folder, folder, subfolders)
    taken = (*SUFFIXES, *MODERN) if heif() else (*SUFFIXES, *(s for s in MODERN if s not in HEIF))
    photos = [(name, path) for name, path in inside if path.suffix.lower() in taken and path.is_file()]
    if not photos:
        raise InputError([Fault(folder.name, "", "no photos", "files ending in " + ", ".join(taken))])
    odd = [_shown(name) for name, _ in photos if _shown(name) != name]
    if odd:
        raise InputError([Fault(folder.name, "", f"a photo called {name}", "names in UTF-8") for name in odd[:20]])
    chosen = {path for _, path in photos}
    return photos, [_shown(name) for name, path in inside if path not in chosen]


def _inside(folder: Path, root: Path, subfolders: bool) -> list[tuple[str, Path]]:
    """Return what a folder contains, by name; folders that are not entered end in a slash."""
    found: list[tuple[str, Path]] = []
    for path in sorted(folder.iterdir(), key=lambda path: (path.name.lower(), path.name)):
        name = path.relative_to(root).as_posix()
        if subfolders and path.is_dir() and not path.is_symlink():
            found += _inside(path, root, subfolders)
        else:
            found.append((name + "/" if path.is_dir() else name, path))
    return found


def _shown(name: str) -> str:
    """Return a file's name as text; bytes that are not UTF-8 as escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _more(photo: Image.Image, contents: bytes) -> str:
    """Return what a photo's file shows besides the one picture that is scored; empty if nothing."""
    found = []
    pictures = int(getattr(photo, "n_frames", 1))
    if pictures > 1:
        found.append(f"picture 2 of {pictures}" if pictures == 2 else f"pictures 2 to {pictures}")
    marked = any(mark in text for text in (contents, *texts_of(photo)) for mark in FILM_MARKS)
    if marked or FILM.search(contents, 12):  # a HEIC itself begins so
        found.append("the film inside")
    return " and ".join(found)


def _read(name: str, path: Path, models: Sequence[Classifier], edge: int) -> _Photo:
    with readable(name):
        contents = path.read_bytes()
        with opened(contents) as photo:
            upright = flattened(photo)
            metadata, more = read_metadata(name, photo, contents), _more(photo, contents)
    return _Photo(
        tensors=tuple(model.tensor(upright) for model in models),
        metadata=metadata,
        more=more,
        thumbnail=_thumbnail(upright, edge),
        digest=hashlib.sha256(contents).hexdigest(),
    )


def _thumbnail(upright: Image.Image, edge: int) -> bytes:
    small = upright.copy()
    small.thumbnail((edge, edge))
    out = io.BytesIO()
    small.save(out, "JPEG", quality=72)
    return out.getvalue()


def score_folder(
    folder: Path,
    classifier: Path,
    true_location: int | None = None,
    *,
    also: Sequence[Path] = (),
    subfolders: bool = False,
) -> ScoredFolder:
    """Score the photos of a folder.

    Args:
        folder: photos of one album.
        classifier: TOML next to an ONNX model (:mod:`privopt_photo_censor.app.classifier`).
        true_location: where the photos were taken; None: in the cell that most photos with GPS lie in.
        also: TOMLs of further classifiers, of the same cells: scores are those that protect against each
            (:func:`privopt_photo_censor.classifier_ensemble.jointly`).
        subfolders: whether the photos of its folders belong to the album.

    Raises:
        InputError: a photo cannot be read, the model will not do, or no true location is given and the photos' GPS
            lies in several cells with none holding more than half of them.
        UsageError: onnxruntime is not installed.
    """
    models = [load_classifier(path) for path in (classifier, *also)]
    model = models[0]
    for path, other in zip(also, models[1:], strict=True):
        if other.cells.rows() != model.cells.rows():
            raise InputError([Fault(path.name, "cells", "other cells", f"those of {classifier.name}, in order")])
    seen, tensors = _look(folder, models, subfolders)
    cells = [None if point is None else model.cells.locate(*point) for point in seen.points]
    true = _place(cells, folder) if true_location is None else true_location
    return ScoredFolder(
        metadata=seen.metadata,
        listing=seen.listing,
        thumbnails=seen.thumbnails,
        digests=seen.digests,
        scores=_table(models, tensors, true),
        cells=tuple(cells),
        true_location=true,
        places=Places(names=model.cells.names, points=model.cells.centres()),
        models=tuple(models),
    )


def look_at_folder(folder: Path, *, subfolders: bool = False) -> SeenFolder:
    """Look at the photos of a folder without scoring them.

    Raises:
        InputError: every fault found: the folder has no photos, or one cannot be read.
    """
    return _look(folder, (), subfolders)[0]


def _look(folder: Path, models: Sequence[Classifier], subfolders: bool) -> tuple[SeenFolder, list[tuple[Any, ...]]]:
    """Return the photos of a folder, and each as the models take it."""
    photos, left_out = _photos(folder, models, subfolders)
    metadata = tuple(photo.metadata for photo in photos.values())
    listing = Listing(
        left_out=(*left_out, *(f"{name}: {photo.more}" for name, photo in photos.items() if photo.more)),
        positioned=tuple(each.photo for each in metadata if each.place),
    )
    seen = SeenFolder(
        metadata=metadata,
        listing=listing,
        thumbnails=tuple(photo.thumbnail for photo in photos.values()),
        digests=tuple(photo.digest for photo in photos.values()),
    )
    return seen, [photo.tensors for photo in photos.values()]


def _photos(folder: Path, models: Sequence[Classifier], subfolders: bool) -> tuple[dict[str, _Photo], list[str]]:
    """Return the photos that can be read, and the names of all else."""
    files, left_out = entries(folder, subfolders=subfolders)
    edge = 192 if len(files) <= 120 else 112 if len(files) <= 500 else 64
    photos: dict[str, _Photo] = {}
    faults: list[Fault] = []
    for name, path in files:
        try:
            photos[name] = _read(name, path, models, edge)
        except InputError as error:
            if path.suffix.lower() in MODERN:  # HEIC is read here, so that this one is broken; of AVIF it is not known
                left_out.append(f"{name}: broken" if path.suffix.lower() in HEIF else name)
            else:
                faults.extend(error.faults)
    if faults:
        raise InputError(faults[:20])
    if not photos:
        raise InputError([Fault(folder.name, "", "no photos that can be read", "photos")])
    return photos, sorted(left_out, key=lambda name: (name.lower(), name))


def score_files(paths: Sequence[Path], models: Sequence[Classifier], true: int) -> Floats:
    """Score (N, M) further photos by the models that scored a folder, for its true location.

    Raises:
        InputError: one cannot be read, or a model will not do.
    """
    tensors = []
    for path in paths:
        contents = path.read_bytes()
        with readable(path.name), opened(contents) as photo:
            upright = flattened(photo)
        tensors.append(tuple(model.tensor(upright) for model in models))
    return _table(models, tensors, true)


def _table(models: Sequence[Classifier], tensors: Sequence[tuple[Any, ...]], true: int | None) -> Floats:
    """(N, M) scores of photos, as each model takes them; of several models those that protect against each."""
    tables = [model.scores([each[n] for each in tensors]) for n, model in enumerate(models)]
    if len(tables) > 1 and true is not None and true < len(models[0].cells):
        return jointly(tables, true)
    return tables[0]


def _place(cells: Sequence[int | None], folder: Path) -> int | None:
    """Return the cell that more than half of the photos with GPS lie in; None where none has any."""
    counted = Counter(cell for cell in cells if cell is not None)
    if not counted:
        return None
    true, most = counted.most_common(1)[0]
    if 2 * most <= sum(counted.values()):
        found = f"photos in {len(counted)} cells, none with more than half of them"
        raise InputError([Fault(folder.name, "GPS", found, "photos of one place, or photos.true_location")])
    return true
