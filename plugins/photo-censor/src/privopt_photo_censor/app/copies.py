"""Clean copies of an album: made, and scored as they are encoded."""

from __future__ import annotations

import numpy as np
from attrs import evolve

from privopt.arrays import Bools, Floats
from privopt.errors import CertificationError
from privopt.interfaces import SolveContext
from privopt_photo_censor.album import Copy
from privopt_photo_censor.app.metadata import Seen
from privopt_photo_censor.problem import PhotoInstance, Photos
from privopt_photo_censor.rank import protected_k

__all__ = ["clean_copies_of", "copied", "copies_protected", "shortfall"]


def clean_copies_of(photos: Photos, seen: Seen, kept: Bools, context: SolveContext) -> tuple[Copy, ...] | None:
    """Make clean copies of the photos kept, in the folder that the context names; None if it names none.

    Args:
        photos: what the problem says of the folder.
        seen: what it holds.
        kept: (N,) which are kept.
        context: of the run.
    """
    if context.copies is None or photos.folder is None or photos.folder.path is None:
        return None
    from privopt_photo_censor.app.clean import clean_copies

    chosen = [(seen.names[row], seen.digests[row]) for row in np.flatnonzero(kept).tolist()]
    context.report("clean copies")
    return clean_copies(photos.folder.path, chosen, context.copies)


def copied(
    problem: PhotoInstance, kept: Bools, context: SolveContext
) -> tuple[tuple[Copy, ...], Floats] | tuple[None, None]:
    """Make clean copies of the photos kept and score them (kept photos, locations); None without copies.

    Raises:
        CertificationError: they leave fewer locations at or above the true one than what is promised of the photos.
    """
    if problem.seen is None or problem.model is None:
        return None, None
    copies = clean_copies_of(problem.declared.photos, problem.seen, kept, context)
    if copies is None or context.copies is None:
        return None, None
    from privopt_photo_censor.app.folder import score_files

    if not copies:
        return copies, np.zeros((0, problem.album.locations))
    scores = score_files([context.copies / copy.name for copy in copies], problem.model)
    short = shortfall(problem, kept, copies_protected(problem, kept, scores))
    if short is not None:
        raise CertificationError(f"{short}; nothing written. {_cure(problem)}")
    return copies, scores


def copies_protected(problem: PhotoInstance, kept: Bools, scores: Floats) -> int:
    """Count the locations at or above the true one, when the copies with these scores are posted."""
    if not len(scores):
        return problem.album.locations - 1
    return protected_k(evolve(problem.album, scores=scores, keep=problem.album.keep[kept], keep_at_least=0))


def shortfall(problem: PhotoInstance, kept: Bools, copies: int) -> str | None:
    """Return why the guarantee fails for copies as encoded, whose pixels and so scores differ; None if it does not.

    Args:
        problem: what is promised.
        kept: (N,) the photos that stay.
        copies: locations that the copies leave at or above the true one.
    """
    top_k = problem.declared.task.top_k
    wanted = protected_k(problem.album, kept) if top_k is None else top_k
    if copies >= wanted:
        return None
    return (
        f"the clean copies, scored as they are encoded, leave {copies} locations at or above the true one, where "
        f"{wanted} are promised"
    )


def _cure(problem: PhotoInstance) -> str:
    key = "deletion_budget" if problem.declared.task.top_k is None else "top_k"
    return f"Other deletions may do: another privacy.{key}, a greater privacy.margin, or other photos.keep"
