"""Make clean copies of photos, which contain the scored pictures but nothing else from the photos' files.

A copy is encoded from the flattened picture that was scored. No bytes are copied from the photo's file, so its
position, time, thumbnail, comments, additional pictures and appended videos cannot end up in the copy. Because encoding
changes pixels slightly, the copies are scored as well.
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
from privopt.errors import CertificationError, Fault, InputError, UsageError, number_of
from privopt.interfaces import SolveContext
from privopt_photo_censor.album import Copy
from privopt_photo_censor.app.folder import score_files
from privopt_photo_censor.app.open_photo import HEIF, TooLongSideError, open_photo, readable
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
"""Pillow's format and options for encoding a copy, keyed by suffix. The quality is high, so that scores change
little."""
LONGEST_SIDES: Final = {"JPEG": 65_500, "WEBP": 16_383}
"""The largest width or height that an encoder accepts, in pixels, keyed by format. A photo can exceed it if its file
has another format than its copy, such as HEIF."""


def clean(contents: bytes, suffix: str) -> bytes:
    """Re-encode a photo's first picture without any metadata, and return the resulting file contents.

    The size of the picture is not limited, because the photo has already been read within the limit
    ``photos.max_megapixels``.

    Args:
        contents: The contents of the photo's file.
        suffix: The file extension of the copy, which must be a key of :data:`FORMATS`.

    Raises:
        CertificationError: The copy contains metadata.
        TooLongSideError: The picture is wider or higher than the format of the copy allows.
        Exception: The photo cannot be decoded. The exception can be of any class (see
            :func:`privopt_photo_censor.app.open_photo.open_photo`).
    """
    image_format, options = FORMATS[suffix]
    with open_photo(contents, math.inf) as photo:
        picture = flatten_photo(photo)
    longest_side = LONGEST_SIDES.get(image_format, math.inf)
    if max(picture.size) > longest_side:
        raise TooLongSideError(
            f"{max(picture.size):,} pixels wide or high, more than {longest_side:,} in {image_format}"
        )
    buffer = io.BytesIO()
    picture.save(buffer, image_format, **options)
    # The copy is read back in case the encoder added metadata by itself.
    with open_photo(buffer.getvalue(), math.inf) as copy:
        # Encoders write numbers such as a version or a resolution, which are allowed. Texts and bytes would be
        # metadata.
        extra_fields = [name for name, value in copy.info.items() if isinstance(value, (str, bytes, dict))]
    if extra_fields:
        raise CertificationError(f"a copy in {image_format} still carries {', '.join(extra_fields)}; nothing written")
    return buffer.getvalue()


def clean_copies(root: Path, photos: Sequence[tuple[str, str]], into: Path) -> tuple[Copy, ...]:
    """Write clean copies of photos to a folder, under neutral names such as ``photo-0001.jpg``.

    A clean copy contains the picture without metadata. HEIC, .jpe and .jfif files are copied as JPEG files with the
    suffix .jpg.

    Args:
        root: The folder with the photos.
        photos: Pairs of a photo's name and the SHA-256 checksum of its file at the time of scoring.
        into: The folder for the copies. It is created unless ``photos`` is empty.

    Raises:
        InputError: A photo has changed since it was scored, or cannot be decoded.
        UsageError: ``into`` is inside the folder with the photos.
    """
    if root.resolve() in into.resolve().parents:
        raise UsageError(f"--copy-to: lies in the folder of the photos, {root}; name a folder elsewhere")
    copies = []
    for number, (name, digest) in enumerate(photos, start=1):
        contents = (root / name).read_bytes()
        # The deletions were chosen for the pictures that were scored. A changed picture may reveal more.
        if hashlib.sha256(contents).hexdigest() != digest:
            raise InputError([Fault(name, "", "a photo that changed while its album was solved", "the photo scored")])
        suffix = PurePosixPath(name).suffix.lower()
        suffix = ".jpg" if suffix in (*HEIF, ".jpe", ".jfif") else suffix
        with readable(name, "copied"):
            copy = clean(contents, suffix)
        # The folder is created only when there is a copy to write.
        into.mkdir(parents=True, exist_ok=True)
        copy_name = f"photo-{number:04d}{suffix}"
        (into / copy_name).write_bytes(copy)
        copies.append(Copy(photo=name, name=copy_name, sha256=hashlib.sha256(copy).hexdigest()))
    return tuple(copies)


def copy_retained(problem: PhotoInstance, retained: Bools, context: SolveContext) -> tuple[Copy, ...] | None:
    """Write clean copies of the retained photos to the folder given by the --copy-to option.

    Args:
        problem: The problem, with its folder of photos.
        retained: Boolean array of shape (N,) indicating whether each photo is retained.
        context: The context of the run, which contains the value of the option.

    Returns:
        The copies, or None if the option is not set or the problem has no folder of photos.

    Raises:
        InputError: A photo has changed since it was scored, or cannot be decoded.
        UsageError: The folder for the copies is inside the folder with the photos.
    """
    folder = problem.declared.photos.folder
    if context.copies is None or folder is None or folder.path is None:
        return None
    contents = problem.folder
    context.report("clean copies")
    photos = [(contents.names[row], contents.digests[row]) for row in np.flatnonzero(retained).tolist()]
    return clean_copies(folder.path, photos, context.copies)


def score_copies(problem: PhotoInstance, retained: Bools, files: Sequence[Path]) -> Floats:
    """Score the clean copies with the classifier that scored the photos, and check that they meet the guarantee.

    This is necessary because re-encoding changes pixels slightly, so a copy's scores differ from the original photo's
    scores.

    Args:
        problem: The problem, with the photos' scores, the task and the classifier.
        retained: Boolean array of shape (N,) indicating whether each photo is retained.
        files: The files of the copies, in the order of the photos.

    Returns:
        The scores of the copies, as an array of shape (retained photos, locations).

    Raises:
        CertificationError: The copies protect fewer locations than the guarantee requires.
        InputError: A copy cannot be read, or the classifier does not accept it.
    """
    assert problem.model is not None  # the photos of a scored folder were scored by a model
    scores = score_files(files, problem.model) if files else np.zeros((0, problem.album.locations))
    reason = shortfall(problem, retained, scores)
    if reason is not None:
        key = "deletion_budget" if problem.declared.task.top_k is None else "top_k"
        remedy = (
            f"Other deletions may work: a different privacy.{key}, a larger privacy.margin, or a different photos.keep"
        )
        raise CertificationError(f"{reason}; nothing written. {remedy}")
    return scores


def copies_protected(problem: PhotoInstance, retained: Bools, scores: Floats) -> int:
    """Return the number of locations that rank at or above the true one when the clean copies are posted.

    Args:
        problem: The problem, with its margin and true location.
        retained: Boolean array of shape (N,) indicating whether each photo is retained.
        scores: The scores of the copies, as an array of shape (retained photos, locations).
    """
    # If there are no photos, all locations are equally likely.
    if not len(scores):
        return problem.album.locations - 1
    return protected_k(evolve(problem.album, scores=scores, keep=problem.album.keep[retained], keep_at_least=0))


def shortfall(problem: PhotoInstance, retained: Bools, scores: Floats) -> str | None:
    """Explain why the clean copies do not meet the guarantee, or return None if they do.

    In a top-k task, the copies must protect k locations. In a budget task, they must protect at least as many locations
    as the retained photos do.

    Args:
        problem: The problem, with its scores and task.
        retained: Boolean array of shape (N,) indicating whether each photo is retained.
        scores: The scores of the copies, as an array of shape (retained photos, locations).
    """
    top_k, protected_count = problem.declared.task.top_k, copies_protected(problem, retained, scores)
    # Under a budget, the copies must protect as many locations as the photos themselves.
    promised_count = protected_k(problem.album, retained) if top_k is None else top_k
    if protected_count >= promised_count:
        return None
    return (
        f"the clean copies, scored as they are encoded, leave {number_of(protected_count, 'location')} at or above the "
        f"true one, where {promised_count} {'is' if promised_count == 1 else 'are'} promised"
    )
