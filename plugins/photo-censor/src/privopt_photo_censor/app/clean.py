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

from privopt.errors import CertificationError, Fault, InputError, UsageError
from privopt_photo_censor.album import Copy
from privopt_photo_censor.app.open_photo import HEIF, opened, readable
from privopt_photo_censor.app.picture import flattened

__all__ = ["clean", "clean_copies"]

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
