"""Clean copies of an album: made, scored as encoded, and counted again from copies and models."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from attrs import evolve

from privopt.arrays import Bools, Floats
from privopt.errors import CertificationError, DoesNotHoldError, UsageError
from privopt.files import Unreadable, read_bytes
from privopt.interfaces import SolveContext
from privopt_photo_censor.album import Copy, some
from privopt_photo_censor.problem import PhotoInstance, Photos
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.release import Deletions

__all__ = ["clean_copies_of", "copied", "copies_protected", "recount", "shortfall"]

SCORES_WITHIN: Final = 1e-3
"""By how much runtimes may differ over a score before ``recount`` speaks of another model."""


def clean_copies_of(
    photos: Photos, names: Sequence[str], digests: Sequence[str], kept: Bools, context: SolveContext
) -> tuple[Copy, ...] | None:
    """Make clean copies of the photos kept, in the folder that the context names; None if it names none.

    Args:
        photos: what the problem says of the folder and of what copies keep.
        names: of all its photos.
        digests: SHA-256 that their files had when they were read.
        kept: (N,) which are kept.
        context: of the run.
    """
    if context.copies is None or photos.folder is None or photos.folder.path is None:
        return None
    from privopt_photo_censor.app.clean import clean_copies

    chosen = [(names[row], digests[row]) for row in np.flatnonzero(kept).tolist()]
    context.report("clean copies")
    return clean_copies(photos.folder.path, chosen, context.copies, photos.copies_keep, album=names)


def copied(
    problem: PhotoInstance, kept: Bools, context: SolveContext
) -> tuple[tuple[Copy, ...], Floats] | tuple[None, None]:
    """Make clean copies of the photos kept and score them (kept photos, locations); None without copies.

    Raises:
        CertificationError: they leave fewer locations at or above the true one than what is promised of the photos.
    """
    data = problem.data
    copies = clean_copies_of(problem.declared.photos, data.names, data.digests, kept, context)
    if copies is None or context.copies is None:
        return None, None
    from privopt_photo_censor.app.folder import score_files

    if not copies:
        return copies, np.zeros((0, data.album.locations))
    scores = score_files([context.copies / copy.name for copy in copies], data.models, data.album.true)
    short = shortfall(problem, kept, copies_protected(problem, kept, scores))
    if short is not None:
        raise CertificationError(f"{short}; nothing written. {_cure(problem)}")
    return copies, scores


def copies_protected(problem: PhotoInstance, kept: Bools, scores: Floats) -> int:
    """Count the locations at or above the true one, when the copies with these scores are posted."""
    if not len(scores):
        return problem.data.album.locations - 1
    return protected_k(evolve(problem.data.album, scores=scores, keep=problem.data.album.keep[kept], keep_at_least=0))


def shortfall(problem: PhotoInstance, kept: Bools, copies: int) -> str | None:
    """Return why the guarantee fails for copies as encoded, whose pixels and so scores differ; None if it does not.

    Args:
        problem: what is promised.
        kept: (N,) the photos that stay.
        copies: locations that the copies leave at or above the true one.
    """
    top_k = problem.declared.task.top_k
    wanted = protected_k(problem.data.album, kept) if top_k is None else top_k
    if copies >= wanted:
        return None
    return (
        f"the clean copies, scored as they are encoded, leave {copies} locations at or above the true one, where "
        f"{wanted} are promised"
    )


def _cure(problem: PhotoInstance) -> str:
    key = "deletion_budget" if problem.declared.task.top_k is None else "top_k"
    return f"Other deletions may do: another privacy.{key}, a greater privacy.margin, or other photos.keep"


def recount(folder: Path, copies: Path, classifiers: Sequence[Path]) -> str:
    """Score clean copies again, and count their rank.

    Args:
        folder: DIR; it is checked first.
        copies: the folder of copies.
        classifiers: TOMLs of the models, as many as the problem has, in its order.

    Returns:
        What was found, in a sentence; it says so where the scores are not those that DIR keeps of the copies.

    Raises:
        DoesNotHoldError: DIR does not hold; a copy is missing or another file; or the promise does not hold of them.
        InputError: a model will not do.
        UsageError: DIR lists no copies, or the models are not as many as the problem's.
    """
    from privopt.run.verify import open_verified
    from privopt_photo_censor.app.classifier import load_classifier
    from privopt_photo_censor.app.folder import score_files

    opened = open_verified(folder)
    release, problem = opened.release, opened.problem
    if not isinstance(release, Deletions) or not isinstance(problem, PhotoInstance) or release.copies is None:
        raise UsageError(f"{folder}: lists no clean copies; solve photo-censor with --copy-to makes them")
    wanted = 1 + len(problem.declared.photos.also)
    if len(classifiers) != wanted:
        raise UsageError(f"classifiers must be the problem's {wanted}, in its order, got {len(classifiers)}")
    models = [load_classifier(path) for path in classifiers]
    for path, model in zip(classifiers, models, strict=True):
        if len(model.cells) != problem.data.album.locations:
            found = f"{len(model.cells)} cells, wanted the {problem.data.album.locations} of {folder}"
            raise UsageError(f"{path}: found {found}")
    off = [copy.name for copy in release.copies if _digest(copies / copy.name) != copy.sha256]
    if off:
        raise DoesNotHoldError(f"{copies}: not the copies that were made: {some(off)}")
    paths = [copies / copy.name for copy in release.copies]
    scores = (
        score_files(paths, models, problem.data.album.true) if paths else np.zeros((0, problem.data.album.locations))
    )
    above = copies_protected(problem, release.kept, scores)
    short = shortfall(problem, release.kept, above)
    if short is not None:
        raise DoesNotHoldError(f"{copies}: {short}")
    listed = {copy.name for copy in release.copies}
    there = sorted(path.relative_to(copies).as_posix() for path in copies.rglob("*") if not path.is_dir())
    more = [name for name in there if name not in listed]
    beside = f"; not among them, and not looked at: {some(more)}" if more else ""
    kept = release.copy_scores
    alike = kept is None or np.allclose(scores, kept, rtol=SCORES_WITHIN, atol=SCORES_WITHIN, equal_nan=True)
    other = "" if alike else f"; by scores that are not those of {folder}: another model, or another temperature"
    return f"{len(paths)} copies as they were made; {above} locations at or above the true one{other}{beside}"


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except Unreadable:
        return None
