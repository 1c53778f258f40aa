"""Photo censor on privopt's spine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import evolve

from privopt.errors import CertificationError, Fault, InputError
from privopt.interfaces import Mechanism, Outcome, PrivacyConstraint, Result, SolveContext, UtilityLoss
from privopt.interfaces.report_parts import Layer
from privopt.report import Section
from privopt_photo_censor.copies import copied, copies_protected, shortfall
from privopt_photo_censor.loss import Deleted, ProtectedK
from privopt_photo_censor.naming import revealed
from privopt_photo_censor.optimal import ENGINES, Plan, solve
from privopt_photo_censor.privacy import TopK
from privopt_photo_censor.problem import ROUNDED, PhotoInstance, PhotoProblem
from privopt_photo_censor.proof import Tree, claim, proved_tree
from privopt_photo_censor.rank import protected_k, rank
from privopt_photo_censor.release import Deletions, carriers, read_places, read_scores
from privopt_photo_censor.scores import Album, Task, some

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

__all__ = ["PhotoCensor"]

A_SCORE = (150.0, 300.0)
"""Bytes that a score takes, with the search, its proof and files; and in the whole mixed-integer program."""
PATIENCE = 2.0
"""Seconds that the tree of a bound may take beyond a limit: what was found is worth proving."""


class PhotoCensor(Mechanism[PhotoInstance, Deletions]):
    """Which photos not to post, so that their classifier does not find the place."""

    problem_class = PhotoProblem
    release_class = Deletions
    private_folder = True
    copies = True
    kit = "privopt_photo_censor.kit:PROFILE"
    scope: ClassVar[str] = (
        "the photos kept, seen by the classifier whose scores the problem holds (with privacy.margin also by any whose "
        "score differences are within it), which multiplies the photos' probabilities; of a folder the pictures scored "
        "alone, not films, subfolders and formats that are left out, nor the files' metadata; nothing is hidden from "
        "who knows more than the photos"
    )

    def load(self, declared: PhotoProblem, file: str) -> PhotoInstance:
        """The problem and its photos, scored."""
        return PhotoInstance.of(declared, file)

    def reopen(self, declared: PhotoProblem, file: str, folder: Path) -> tuple[PhotoInstance, Deletions]:
        """Read a release back; for a folder of photos the scores beside the release stand in for the photos."""
        if declared.photos.folder is None:
            return super().reopen(declared, file, folder)
        problem = PhotoInstance.scored(declared, file, *read_scores(folder))
        places = read_places(folder, problem.data.album.locations)
        problem = evolve(problem, data=evolve(problem.data, places=places))
        return problem, Deletions.read(folder, problem)

    def privacy(self, problem: PhotoInstance, method: str) -> PrivacyConstraint[Deletions]:
        """The top-k guarantee, by the same exact rank for every method."""
        return TopK(
            album=problem.data.album,
            task=problem.declared.task,
            listing=problem.data.listing,
            classifiers=1 + len(problem.declared.photos.also),
        )

    def utility(self, problem: PhotoInstance, method: str) -> UtilityLoss[Deletions]:
        """Photos deleted, or under a budget the protected k."""
        return Deleted() if problem.declared.task.top_k is not None else ProtectedK(album=problem.data.album)

    def bytes_needed(self, problem: PhotoInstance, method: str) -> float:
        """Bytes of the scores (tests/test_memory.py, 700,000)."""
        return A_SCORE[method == "milp"] * problem.data.album.scores.size

    def solve(self, problem: PhotoInstance, context: SolveContext) -> Outcome[Deletions]:
        """Choose the photos."""
        album = problem.data.album
        task = problem.declared.task
        if context.method == "top-1" and task.top_k != 1:
            found = f"top_k = {task.top_k}" if task.top_k else f"deletion_budget = {task.budget}"
            raise InputError([Fault(problem.file, "privacy", found, "top_k = 1 with method top-1")])
        if context.copies is not None and problem.declared.photos.folder is None:
            raise InputError([Fault(problem.file, "photos.folder", "nothing", "the folder that --copy-to copies from")])
        with context.timed("solve"):
            plan = self._plan(album, task, context)
        fewer = task.top_k is not None
        from_folder = problem.declared.photos.folder is not None
        copies, copy_scores = copied(problem, plan.kept, context)
        release = Deletions(
            names=problem.data.names,
            kept=plan.kept,
            scores=album.scores if from_folder else None,
            true=album.true if from_folder else -1,
            listing=problem.data.listing,
            thumbnails=problem.data.thumbnails,
            places=problem.data.places,
            copies=copies,
            copy_scores=copy_scores,
        )
        with context.timed("verify"):
            late = None if context.deadline is None else max(context.deadline, time.monotonic() + PATIENCE)
            tree = proved_tree(album, task, album.photos - plan.bound if fewer else plan.bound, deadline=late)
        return Outcome(
            release=release,
            lower_bound=None if tree is None else float(tree[0]),
            proof=None if tree is None else tree[1],
            solver={
                "name": plan.solver or "privopt-photo-censor",
                "version": "" if plan.solver else version("privopt-photo-censor"),
                "iterations": plan.programs,
                "proof": plan.engine,
            },
            stopped=plan.stopped,
        )

    def _plan(self, album: Album, task: Task, context: SolveContext) -> Plan:
        from privopt_photo_censor.greedy import greedy
        from privopt_photo_censor.top1 import top_1

        if context.method == "greedy":
            return greedy(album, task)
        if context.method == "top-1":
            return top_1(album)

        def report(value: int, cap: int) -> None:
            ends = (album.photos - cap, album.photos - value) if task.top_k is not None else (value, cap)
            context.report("search", 0, float(ends[0]), float(ends[1]))

        return solve(
            album,
            task,
            deadline=context.deadline,
            engines=("milp",) if context.method == "milp" else ENGINES,
            solver=context.solver,
            report=report,
        )

    def details(
        self, problem: PhotoInstance, release: Deletions, method: str, told: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Ranks before and after, by exact sums, sizes, and what of a folder was left out."""
        return _details(problem, release)

    def verify(self, problem: PhotoInstance, release: Deletions, result: Result) -> list[str]:
        """The promise of the clean copies, by their scores; methods that try no alternatives delete the same again."""
        if release.copy_scores is not None:
            short = shortfall(problem, release.kept, copies_protected(problem, release.kept, release.copy_scores))
            if short is not None:
                return [f"scores.npz: copies: {short}"]
        if result.method not in ("greedy", "top-1"):
            return []
        again = self._plan(problem.data.album, problem.declared.task, SolveContext(method=result.method))
        same = np.array_equal(again.kept, release.kept)
        return [] if same else [f"deletions.csv: method {result.method} deletes other photos"]

    def proved(self, problem: PhotoInstance, release: Deletions, result: Result, folder: Path) -> float | None:
        """The bound that is stated, where the tree in proof.npz proves it."""
        bound, album = result.objective.lower_bound, problem.data.album
        if bound is None or bound != int(bound):
            return None
        fault = Tree.read(folder).fault(album, *claim(album, problem.declared.task, int(bound)))
        if fault is not None:
            raise CertificationError(f"proof.npz: {fault}")
        return bound

    def warnings(self, problem: PhotoInstance, release: Deletions, result: Result) -> Sequence[str]:
        """Scores above 0; what of the folder was not scored, and which photos kept carry their position."""
        if problem.data.listing is None:
            return _unlikely(problem)
        left_out, carried = problem.data.listing.left_out, carriers(release)
        lines = []
        if left_out:
            what = "1 thing in the folder was" if len(left_out) == 1 else f"{len(left_out)} things in the folder were"
            lines.append(f"{what} not scored, and the guarantee does not cover it: {some(left_out)}")
            if any(name.lower().endswith((".heic", ".heif", ".hif")) for name in left_out):
                lines.append("install privopt-photo-censor[heif] to read HEIC photos")
        if carried:
            kept = int(release.kept.sum())
            cure = "remove it before posting" if release.copies is None else "post the clean copies, not these files"
            lines.append(
                f"{len(carried)} of the {kept} photos kept carry their position in their files' metadata (GPS or the "
                f"name of a place), which tells the place whatever the pictures hide; {cure}: {some(carried)}"
            )
        if release.copies is not None and "position" in problem.declared.photos.copies_keep:
            lines.append(
                "the copies carry the position of their photos, as photos.copies_keep asks, which tells the place"
            )
        if release.copies is None:
            posted = [name for name, stays in zip(release.names, release.kept.tolist(), strict=True) if stays]
            telling = {name: said for name in posted if (said := revealed(name, release.places.names)) is not None}
            if telling:
                what = " and ".join(sorted(set(telling.values())))
                lines.append(
                    f"names of photos kept hold {what}; copies (--copy-to) get names that do not: {some([*telling])}"
                )
        return lines

    def report(self, problem: PhotoInstance, release: Deletions, result: Result) -> Sequence[Section]:
        """The album, ranks before and after, top places."""
        from privopt_photo_censor.report import sections

        return sections(problem, release, result)

    def figures(self, problem: PhotoInstance, release: Deletions, result: Result) -> Mapping[str, Figure]:
        """What the classifier guesses before and after, and deletions beside greedy's."""
        from privopt_photo_censor.report import figures

        return figures(problem, release, result)

    def geo(self, problem: PhotoInstance, release: Deletions, result: Result) -> Layer | None:
        """The places that are known, with the classifier's belief before and after."""
        from privopt_photo_censor.report import map_layer

        return map_layer(problem, release)

    def audit(self, problem: PhotoInstance, release: Deletions, result: Result) -> Mapping[str, Any]:
        """The classifier's posterior from the photos kept (paper, (1)): its entropy, and how often its guess errs."""
        scores = problem.data.album.scores[release.kept].sum(axis=0)
        if np.isneginf(scores).all():
            return {}
        weights = np.exp(scores - scores.max())
        posterior = weights / weights.sum()
        used = posterior[posterior > 0]
        return {
            "bayes_error": float(1.0 - posterior.max()),
            "entropy_bits": float(max(0.0, -(used * np.log2(used)).sum())),
        }


def _unlikely(problem: PhotoInstance) -> list[str]:
    """A word where a score is above 0, which no log-probability is."""
    largest = problem.data.album.scores.max()
    if largest <= ROUNDED:
        return []
    return [
        f"scores go up to {largest:.6g}, and log-probabilities to 0: they are taken for log-probabilities but for a "
        "constant of each photo, as a classifier's logits are; of similarities or the like the ranks mean nothing"
    ]


def _details(problem: PhotoInstance, release: Deletions) -> dict[str, Any]:
    """The mechanism's part of result.json; all of it follows from problem and release."""
    album = problem.data.album
    above = protected_k(album, release.kept)
    details: dict[str, Any] = {
        "deleted": int((~release.kept).sum()),
        "rank_before": rank(album),
        "rank_after": above + 1,
        "protected_k": above,
        "photos": album.photos,
        "locations": album.locations,
        "true_location": album.true,
    }
    if problem.data.listing is not None:
        details["left_out"] = list(problem.data.listing.left_out)
        details["with_position"] = list(problem.data.listing.positioned)
    if release.copies is not None:
        details["copies"] = {copy.name: copy.sha256 for copy in release.copies}
    if release.copy_scores is not None:
        details["copies_protected_k"] = copies_protected(problem, release.kept, release.copy_scores)
    return details
