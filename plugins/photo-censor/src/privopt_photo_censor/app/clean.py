"""Clean copies of photos: the scored picture, encoded again, and nothing else of its file.

Nothing that a file carries apart from its pixels (position, time, thumbnail, comments, further pictures, films after
its end) can pass, since none of its bytes are taken: the picture that was scored, flattened, is encoded again. What
encoding changes of it is seen by scoring the copies.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
from attrs import evolve

from privopt.arrays import Bools, Floats
from privopt.errors import CertificationError, Fault, InputError, UsageError
from privopt.interfaces import SolveContext
from privopt_photo_censor.album import Copy
from privopt_photo_censor.app.metadata import FolderContents
from privopt_photo_censor.app.open_photo import HEIF, opened, readable
from privopt_photo_censor.app.picture import flattened
from privopt_photo_censor.problem import PhotoInstance, Photos
from privopt_photo_censor.rank import protected_k

__all__ = ["clean", "clean_copies", "clean_copies_of", "copied", "copies_protected", "shortfall"]

FORMATS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    ".jpg": ("JPEG", {"quality": 95, "subsampling": 0}),
    ".jpeg": ("JPEG", {"quality": 95, "subsampling": 0}),
    ".png": ("PNG", {}),
    ".webp": ("WEBP", {"quality": 95}),
}


def clean(contents: bytes, suffix: str) -> bytes:
    """Return a photo's first picture encoded again, without any metadata.

    Args:
        contents: the photo's file.
        suffix: of the copy, one of :data:`FORMATS`.

    Raises:
        CertificationError: what came out carries more than the picture.
        Exception: of any class, as :func:`privopt_photo_censor.app.open_photo.opened` raises them: it is not a photo.
    """
    kind, options = FORMATS[suffix]
    with opened(contents) as photo:
        plain = flattened(photo)
    out = io.BytesIO()
    plain.save(out, kind, **options)
    with opened(out.getvalue()) as copy:
        more = [name for name, value in copy.info.items() if isinstance(value, (str, bytes, dict))]
    if more:
        raise CertificationError(f"a copy in {kind} still carries {', '.join(more)}; nothing written")
    return out.getvalue()


def clean_copies(root: Path, photos: Sequence[tuple[str, str]], into: Path) -> tuple[Copy, ...]:
    """Write clean copies of photos into a folder, by names that reveal nothing; those of HEIC files are JPEGs.

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
    made = []
    for number, (name, digest) in enumerate(photos, start=1):
        contents = (root / name).read_bytes()
        if hashlib.sha256(contents).hexdigest() != digest:
            raise InputError([Fault(name, "", "a photo that changed while its album was solved", "the photo scored")])
        suffix = PurePosixPath(name).suffix.lower()
        suffix = ".jpg" if suffix in HEIF else suffix
        with readable(name, "copied"):
            copy = clean(contents, suffix)
        into.mkdir(parents=True, exist_ok=True)
        called = f"photo-{number:04d}{suffix}"
        (into / called).write_bytes(copy)
        made.append(Copy(photo=name, name=called, sha256=hashlib.sha256(copy).hexdigest()))
    return tuple(made)


def clean_copies_of(
    photos: Photos, seen: FolderContents, retained: Bools, context: SolveContext
) -> tuple[Copy, ...] | None:
    """Make clean copies of the photos kept, in the folder that the context names; None if it names none.

    Args:
        photos: what the problem says of the folder.
        seen: what it holds.
        retained: (N,) which are kept.
        context: of the run.
    """
    if context.copies is None or photos.folder is None or photos.folder.path is None:
        return None
    chosen = [(seen.names[row], seen.digests[row]) for row in np.flatnonzero(retained).tolist()]
    context.report("clean copies")
    return clean_copies(photos.folder.path, chosen, context.copies)


def copied(
    problem: PhotoInstance, retained: Bools, context: SolveContext
) -> tuple[tuple[Copy, ...], Floats] | tuple[None, None]:
    """Make clean copies of the photos kept and score them (kept photos, locations); None without copies.

    Raises:
        CertificationError: they leave fewer locations at or above the true one than what is promised of the photos.
    """
    if problem.seen is None or problem.model is None:
        return None, None
    copies = clean_copies_of(problem.declared.photos, problem.seen, retained, context)
    if copies is None or context.copies is None:
        return None, None
    from privopt_photo_censor.app.folder import score_files

    if not copies:
        return copies, np.zeros((0, problem.album.locations))
    scores = score_files([context.copies / copy.name for copy in copies], problem.model)
    short = shortfall(problem, retained, copies_protected(problem, retained, scores))
    if short is not None:
        raise CertificationError(f"{short}; nothing written. {_cure(problem)}")
    return copies, scores


def copies_protected(problem: PhotoInstance, retained: Bools, scores: Floats) -> int:
    """Count the locations at or above the true one, when the copies with these scores are posted."""
    if not len(scores):
        return problem.album.locations - 1
    return protected_k(evolve(problem.album, scores=scores, keep=problem.album.keep[retained], keep_at_least=0))


def shortfall(problem: PhotoInstance, retained: Bools, copies: int) -> str | None:
    """Return why the guarantee fails for copies as encoded, whose pixels and so scores differ; None if it does not.

    Args:
        problem: what is promised.
        retained: (N,) the photos that stay.
        copies: locations that the copies leave at or above the true one.
    """
    top_k = problem.declared.task.top_k
    wanted = protected_k(problem.album, retained) if top_k is None else top_k
    if copies >= wanted:
        return None
    return (
        f"the clean copies, scored as they are encoded, leave {copies} locations at or above the true one, where "
        f"{wanted} are promised"
    )


def _cure(problem: PhotoInstance) -> str:
    key = "deletion_budget" if problem.declared.task.top_k is None else "top_k"
    return f"Other deletions may do: another privacy.{key}, a greater privacy.margin, or other photos.keep"
