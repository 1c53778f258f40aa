"""Warn about what deletions do not hide: unscored pictures, positions in files, and names that reveal a place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from privopt.errors import number_of
from privopt_photo_censor.album import conjugate_carry, shorten_list
from privopt_photo_censor.app.guesses import guesses
from privopt_photo_censor.app.naming import find_revealing_names
from privopt_photo_censor.app.open_photo import HEIF
from privopt_photo_censor.problem import PhotoInstance
from privopt_photo_censor.rank import belief, rank
from privopt_photo_censor.release import Deletions, find_carriers
from privopt_photo_censor.score_table import LOG_TOLERANCE

__all__ = ["warnings_of"]

LIKELY: Final = 0.1
"""The smallest probability of the true place that triggers a warning that the place is still a likely guess."""

_ORDINALS: Final = {2: "second", 3: "third", 4: "fourth", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth", 9: "ninth"}


def warnings_of(problem: PhotoInstance, release: Deletions) -> list[str]:
    """Return the warnings to print about a release, one sentence each."""
    if not problem.declared.is_scored:
        return _warn_of_unscored(problem, release)
    lines = _warn_of_scores(problem) if problem.folder_contents is None else _warn_of_scored(problem, release)
    return [*_warn_of_likely_place(release), *lines]


def _warn_of_likely_place(release: Deletions) -> list[str]:
    """Return a warning if the true place is still among the classifier's likely guesses.

    The guarantee does not rule this out. For example, if the true place is the second guess with a probability of 46 %,
    anyone who tries the most likely places one by one will soon find it.
    """
    album = release.problem.album
    chances = belief(album, release.retained)
    chance = float(chances[album.true])
    # Places that tie with the true one rank before it, so its rank may be 2 although no place is more likely.
    true_rank = rank(album, release.retained)
    if chance < LIKELY:
        return []
    guess = "best guess" if true_rank == 1 else f"{_ORDINALS.get(true_rank, f'{true_rank}th')} guess"
    best = "" if true_rank == 1 else f", where its best guess has {100 * float(chances.max()):.0f} %"
    return [
        f"the place is now the classifier's {guess}, at {100 * chance:.0f} %{best}: whoever tries its guesses one by "
        "one soon finds the place; a larger privacy.top_k or privacy.margin leaves more photos out and hides it better"
    ]


def _warn_of_scores(problem: PhotoInstance) -> list[str]:
    """Return a warning if a table of scores contains positive numbers, which cannot be log-probabilities."""
    max_score = problem.album.scores.max()
    if max_score <= LOG_TOLERANCE:
        return []
    return [
        f"scores go up to {max_score:.6g}, and log-probabilities to 0: they are taken for log-probabilities up to a "
        "constant for each photo, such as a classifier's logits; for similarities and the like, ranks mean nothing"
    ]


def _warn_of_scored(problem: PhotoInstance, release: Deletions) -> list[str]:
    """Return warnings for a folder of photos that were scored by a classifier.

    The warnings name pictures that were not scored, and retained photos whose files, texts or names may reveal the
    place.

    Args:
        problem: The problem, with the scores and the contents of the folder.
        release: The release, which lists the retained photos and any copies without metadata.
    """
    # `left_out` lists what was not scored, and `positioned` the retained photos whose files reveal a position.
    left_out, positioned, lines = problem.folder.left_out, find_carriers(release), []
    retained_names = [name for name, is_kept in zip(release.names, release.retained.tolist(), strict=True) if is_kept]
    if left_out:
        were, them = ("was", "it") if len(left_out) == 1 else ("were", "them")
        count = number_of(len(left_out), "thing")
        lines.append(
            f"{count} in the folder {were} not scored, and the guarantee does not cover {them}: "
            f"{shorten_list(left_out)}"
        )
        lines += _warn_of_unreadable(problem)
        if any(name.lower().endswith(HEIF) for name in left_out):
            lines.append("install privopt-photo-censor[heif] to read HEIC photos")
    if positioned:
        carried = (
            "carry their position in their files'" if len(positioned) > 1 else "carries its position in its file's"
        )
        remedy = "remove it before posting" if release.copies is None else "post the clean copies, not these files"
        lines.append(
            f"{len(positioned)} of the {len(retained_names)} photos kept {carried} metadata "
            f"(GPS or the name of a place), which reveals the place whatever the pictures hide; {remedy}: "
            f"{shorten_list(positioned)}"
        )
    captioned = set(problem.folder.photos_with_texts)
    lines += _warn_of_texts([name for name in retained_names if name in captioned], release)
    # This warning is only about the original files, because clean copies are given names that reveal nothing.
    reasons_by_name = find_revealing_names(retained_names, problem.places)
    if reasons_by_name and release.copies is None:
        reasons = " and ".join(sorted(set(reasons_by_name.values())))
        names = shorten_list([*reasons_by_name])
        lines.append(f"names of photos kept contain {reasons}; copies (--copy-to) get names that do not: {names}")
    return lines


def _warn_of_unscored(problem: PhotoInstance, release: Deletions) -> list[str]:
    """Return the warnings for a folder without a classifier.

    The warnings state that no photo was scored, and list what was left out. Unless clean copies were made, they also
    say which files may reveal a place, and advise posting clean copies instead of these files.

    Args:
        problem: The problem, with the contents of the folder.
        release: The release, which lists any clean copies.
    """
    album, left_out = problem.folder.metadata, problem.folder.left_out
    lines = ["no photo was scored: no one looked at whether the pictures themselves reveal the place"]
    if left_out:
        lines.append(f"not looked at, and not copied: {shorten_list(left_out)}")
        lines += _warn_of_unreadable(problem)
    # The other warnings are about things that clean copies do not contain.
    if release.copies is not None:
        return lines
    positioned, guessed = problem.folder.photos_with_position, guesses(album)
    reasons_by_name = find_revealing_names(release.names)
    lines += _warn_of_texts(problem.folder.photos_with_texts, release)
    if positioned:
        verbs = "carry a position or name" if len(positioned) > 1 else "carries a position or names"
        lines.append(
            f"{len(positioned)} of {number_of(len(album), 'photo')} {verbs} a place: {shorten_list(positioned)}"
        )
    if guessed:
        lines.append(
            f"of {number_of(len(guessed), 'photo')} without a position it can be guessed: {shorten_list([*guessed])}"
        )
    if reasons_by_name:
        reasons = " and ".join(sorted(set(reasons_by_name.values())))
        lines.append(f"names of photos contain {reasons}: {shorten_list([*reasons_by_name])}")
    return [*lines, "post clean copies, not these files: solve with --copy-to FOLDER makes them"]


def _warn_of_unreadable(problem: PhotoInstance) -> list[str]:
    """Return a warning that names any photos that cannot be read.

    The general warning about files that were left out covers these photos too, but its list may be shortened and omit
    some of them.
    """
    names = set(problem.folder.names)
    # An entry has the form "name: reason" for a photo that cannot be read, or for a readable photo's further pictures.
    entries = [entry for entry in problem.folder.left_out if ": " in entry]
    unreadable = [entry for entry in entries if entry.rpartition(": ")[0] not in names]
    if not unreadable:
        return []
    return [f"{number_of(len(unreadable), 'photo')} could not be read: {shorten_list(unreadable)}"]


def _warn_of_texts(names: Sequence[str], release: Deletions) -> list[str]:
    """Return a warning about retained photos whose files contain text.

    The warning does not quote the text. If clean copies were made, there is no warning, because copies contain no text.

    Args:
        names: The names of the retained photos whose files contain text.
        release: The release, which identifies the retained photos and lists any clean copies.
    """
    if not names or release.copies is not None:
        return []
    return [
        f"{len(names)} of the {int(release.retained.sum())} photos kept {conjugate_carry(len(names))} texts "
        f"(captions, comments, names), which may name a place; metadata.csv lists them: {shorten_list(names)}"
    ]
