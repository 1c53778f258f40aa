"""Clean copies of photos: the scored picture, encoded again, and nothing else of its file.

Nothing that a file carries apart from its pixels (position, time, thumbnail, comments, further pictures, films after
its end) can pass, since none of its bytes are taken: the picture that was scored, flattened, is encoded again. What
encoding changes of it is seen by scoring the copies.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
from attrs import evolve

from privopt.arrays import Bools, Floats
from privopt.errors import CertificationError, Fault, InputError, UsageError
from privopt.interfaces import SolveContext
from privopt_photo_censor.album import Copy
from privopt_photo_censor.app.folder import score_files
from privopt_photo_censor.app.open_photo import HEIF, opened, readable
from privopt_photo_censor.app.picture import flatten_photo
from privopt_photo_censor.problem import PhotoInstance
from privopt_photo_censor.rank import protected_k

__all__ = ["clean", "clean_copies", "copies_protected", "copy_retained", "score_copies", "shortfall"]

FORMATS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    ".jpg": ("JPEG", {"quality": 95, "subsampling": 0}),
    ".jpeg": ("JPEG", {"quality": 95, "subsampling": 0}),
    ".png": ("PNG", {}),
    ".webp": ("WEBP", {"quality": 95}),
}


def clean(contents: bytes, suffix: str) -> bytes:
    """Return a photo's first picture encoded again, without any metadata.

    The photo has been read before, under the limit of ``photos.max_megapixels``.

    Args:
        contents: the photo's file.
        suffix: of the copy, one of :data:`FORMATS`.

    Raises:
        CertificationError: what came out carries more than the picture.
        Exception: of any class, as :func:`privopt_photo_censor.app.open_photo.opened` raises them: it is not a photo.
    """
    image_format, options = FORMATS[suffix]
    with opened(contents, math.inf) as photo:
        picture = flatten_photo(photo)
    buffer = io.BytesIO()
    picture.save(buffer, image_format, **options)
    # The copy is read back, so that metadata that an encoder adds by itself is noticed.
    with opened(buffer.getvalue(), math.inf) as copy:
        extra_fields = [name for name, value in copy.info.items() if isinstance(value, (str, bytes, dict))]
    if extra_fields:
        raise CertificationError(f"a copy in {image_format} still carries {', '.join(extra_fields)}; nothing written")
    return buffer.getvalue()


def clean_copies(root: Path, photos: Sequence[tuple[str, str]], into: Path) -> tuple[Copy, ...]:
    """Write clean copies of photos into a folder, by names that reveal nothing.

    Copies of HEIC, .jpe and .jfif files end in .jpg.

    Args:
        root: folder of the photos.
        photos: their names, and the SHA-256 that their files had when they were scored.
        into: an empty folder.

    Raises:
        InputError: a photo changed since it was scored.
        UsageError: the copies would lie among the photos.
    """
    if root.resolve() in into.resolve().parents:
        raise UsageError(f"--copy-to: lies in the folder of the photos, {root}; name a folder elsewhere")
    copies = []
    for number, (name, digest) in enumerate(photos, start=1):
        contents = (root / name).read_bytes()
        if hashlib.sha256(contents).hexdigest() != digest:
            raise InputError([Fault(name, "", "a photo that changed while its album was solved", "the photo scored")])
        suffix = PurePosixPath(name).suffix.lower()
        suffix = ".jpg" if suffix in (*HEIF, ".jpe", ".jfif") else suffix
        with readable(name, "copied"):
            copy = clean(contents, suffix)
        into.mkdir(parents=True, exist_ok=True)
        copy_name = f"photo-{number:04d}{suffix}"
        (into / copy_name).write_bytes(copy)
        copies.append(Copy(photo=name, name=copy_name, sha256=hashlib.sha256(copy).hexdigest()))
    return tuple(copies)


def copy_retained(problem: PhotoInstance, retained: Bools, context: SolveContext) -> tuple[Copy, ...] | None:
    """Make clean copies of the photos kept (N,), in the folder that the context names; None if it names none."""
    folder = problem.declared.photos.folder
    if context.copies is None or folder is None or folder.path is None:
        return None
    contents = problem.folder
    context.report("clean copies")
    photos = [(contents.names[row], contents.digests[row]) for row in np.flatnonzero(retained).tolist()]
    return clean_copies(folder.path, photos, context.copies)


def score_copies(problem: PhotoInstance, retained: Bools, files: Sequence[Path]) -> Floats:
    """Score (kept photos, locations) clean copies of the photos kept, by the classifier that scored these.

    Raises:
        CertificationError: they leave fewer locations at or above the true one than what is promised of the photos.
    """
    assert problem.model is not None  # a folder that is scored has been scored by one
    scores = score_files(files, problem.model) if files else np.zeros((0, problem.album.locations))
    reason = shortfall(problem, retained, scores)
    if reason is not None:
        key = "deletion_budget" if problem.declared.task.top_k is None else "top_k"
        remedy = f"Other deletions may do: another privacy.{key}, a greater privacy.margin, or other photos.keep"
        raise CertificationError(f"{reason}; nothing written. {remedy}")
    return scores


def copies_protected(problem: PhotoInstance, retained: Bools, scores: Floats) -> int:
    """Count the locations at or above the true one, when the copies with these scores are posted."""
    if not len(scores):
        return problem.album.locations - 1
    return protected_k(evolve(problem.album, scores=scores, keep=problem.album.keep[retained], keep_at_least=0))


def shortfall(problem: PhotoInstance, retained: Bools, scores: Floats) -> str | None:
    """Return why the guarantee fails for copies as encoded, whose pixels and so scores differ; None if it does not.

    Args:
        problem: what is promised.
        retained: (N,) the photos that stay.
        scores: (kept photos, locations) of their copies.
    """
    top_k, protected_count = problem.declared.task.top_k, copies_protected(problem, retained, scores)
    promised_count = protected_k(problem.album, retained) if top_k is None else top_k
    if protected_count >= promised_count:
        return None
    return (
        f"the clean copies, scored as they are encoded, leave {protected_count} locations at or above the true one, "
        f"where {promised_count} are promised"
    )
