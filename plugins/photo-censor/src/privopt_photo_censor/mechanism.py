"""Photo censor as a mechanism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from attrs import evolve

from privopt.errors import CertificationError, Fault, InputError
from privopt.execution.clock import limit
from privopt.interfaces import Mechanism, Outcome, PrivacyConstraint, Result, SolveContext, UtilityLoss
from privopt.interfaces.notions import NoGuarantee
from privopt.run.attack_channel import entropy_bits
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.app.clean import copies_protected, copy_retained, score_copies, shortfall
from privopt_photo_censor.app.guesses import guesses
from privopt_photo_censor.app.warnings import warnings_of
from privopt_photo_censor.loss import DeletedPhotos, ProtectedK
from privopt_photo_censor.privacy import TopK
from privopt_photo_censor.problem import PhotoInstance, PhotoProblem
from privopt_photo_censor.rank import belief, protected_k, rank
from privopt_photo_censor.release import Deletions, read_scores, read_seen
from privopt_photo_censor.solver.baselines import greedy, top_1
from privopt_photo_censor.solver.optimal import Plan, prove, solve
from privopt_photo_censor.solver.proof import Tree, claim

__all__ = ["PhotoCensor"]

NAME: Final = "privopt-photo-censor"
POSITIONS: Final = "positions"
"""The method of a folder without a classifier."""
UNSCORED: Final = NoGuarantee(
    reason="no photo was scored, so that what the pictures themselves show may reveal the place; clean copies "
    "(--copy-to) carry no position, time, serial number or thumbnail, and no name that reveals one"
)

BYTES_PER_SCORE: Final = 150.0
"""Measured, with all that follows: of each score under the search."""


class PhotoCensor(Mechanism[PhotoInstance, Deletions]):
    """Which photos not to post, so that their classifier does not find the place."""

    problem_class = PhotoProblem
    release_class = Deletions
    copies = True
    kit = "privopt_photo_censor.kit:PROFILE"
    reporting = "privopt_photo_censor.report:AlbumReport"
    scope: ClassVar[str] = (
        "the photos kept, seen by the classifier whose scores the problem holds (with privacy.margin also by any whose "
        "score differences are within it), which multiplies the photos' probabilities; of a folder the pictures scored "
        "alone, not films, subfolders and formats that are left out, nor the files' metadata; nothing is hidden from "
        "who knows more than the photos"
    )

    def own_method(self, declared: object) -> str | None:
        """Return ``positions`` for a folder without a classifier."""
        assert isinstance(declared, PhotoProblem)  # the caller read it as such
        return None if declared.scored else POSITIONS

    def reading(self, declared: object) -> str:
        """Return that photos are looked at, and scored."""
        assert isinstance(declared, PhotoProblem)  # the caller read it as such
        if declared.photos.folder is None:
            return "problem"
        return "reading and scoring photos" if declared.scored else "reading photos"

    def load(self, declared: PhotoProblem, file: str) -> PhotoInstance:
        """Return the problem and its photos: scored, or of a folder alone looked at."""
        return PhotoInstance.of(declared, file)

    def reopen(self, declared: PhotoProblem, file: str, folder: Path) -> tuple[PhotoInstance, Deletions]:
        """Read a release back; for a folder of photos what is next to the release is in for the photos."""
        if declared.photos.folder is None:
            problem = self.load(declared, file)
            return problem, Deletions.read(folder, problem)
        seen = read_seen(folder)
        problem = PhotoInstance(declared=declared, file=file, names=seen.names, seen=seen)
        if declared.scored:
            found = read_scores(folder, len(seen.metadata))
            places, true = tuple(found["places"].tolist()), int(found["true"])
            problem = PhotoInstance.scored(declared, file, found["scores"], seen.names, true, seen=seen, places=places)
        return problem, Deletions.read(folder, problem)

    def check_problem(self, problem: PhotoInstance, method: str) -> None:
        """Refuse a method that cannot take the problem."""
        declared, file = problem.declared, problem.file
        if not declared.scored and method != POSITIONS:
            wanted = f"a classifier for method {method} (of a folder alone the method is {POSITIONS})"
            raise InputError([Fault(file, "photos.classifier", "nothing", wanted)])
        if declared.scored and method == POSITIONS:
            found = "scores" if declared.photos.folder is None else "a classifier"
            raise InputError([Fault(file, "photos", found, f"a folder alone with method {POSITIONS}")])
        if method == "top-1" and declared.task.top_k != 1:
            task = declared.task
            found = f"top_k = {task.top_k}" if task.top_k else f"deletion_budget = {task.budget}"
            raise InputError([Fault(file, "privacy", found, "top_k = 1 with method top-1")])

    def privacy(self, problem: PhotoInstance, method: str) -> PrivacyConstraint[Any]:
        """Return the top-k guarantee, by the same exact rank for every method; none of photos that no one scored."""
        if not problem.declared.scored:
            return UNSCORED
        return TopK(problem=problem)

    def utility(self, problem: PhotoInstance, method: str) -> UtilityLoss[Deletions]:
        """Return the number of photos deleted as the loss, or under a budget the protected k."""
        if not problem.declared.scored or problem.declared.task.top_k is not None:
            return DeletedPhotos()
        return ProtectedK()

    def bytes_needed(self, problem: PhotoInstance, method: str) -> float | None:
        """Estimate the bytes of the scores of all photos and locations."""
        return BYTES_PER_SCORE * problem.album.scores.size if problem.declared.scored else None

    def solve(self, problem: PhotoInstance, context: SolveContext) -> Outcome[Deletions]:
        """Choose the photos; of a folder alone keep all. Make clean copies of those kept if they are asked for."""
        if not problem.declared.scored:
            kept = np.ones(len(problem.names), dtype=np.bool_)
            with context.timed("solve"):
                copies = copy_retained(problem, kept, context)
            release = Deletions(problem=problem, kept=kept, copies=copies)
            return Outcome(release=release, solver={"name": NAME, "version": "", "iterations": 0})
        album, task = problem.album, problem.declared.task
        if context.copies is not None and problem.declared.photos.folder is None:
            raise InputError([Fault(problem.file, "photos.folder", "nothing", "the folder that --copy-to copies from")])
        with context.timed("solve"), limit(context.remaining):
            plan = self._plan(album, task, context)
            proved = prove(album, task, plan.bound) if plan.tree is None else (plan.bound, plan.tree)
        copies = copy_retained(problem, plan.kept, context)
        scores = None
        if copies is not None and context.copies is not None:
            scores = score_copies(problem, plan.kept, [context.copies / copy.name for copy in copies])
        release = Deletions(problem=problem, kept=plan.kept, copies=copies, copy_scores=scores)
        return Outcome(
            release=release,
            lower_bound=None if proved is None else float(_stated(album, task, proved[0])),
            proof=None if proved is None else proved[1],
            solver={"name": NAME, "version": version(NAME), "iterations": plan.programs, "proof": plan.proved},
            stopped=plan.stopped,
        )

    def _plan(self, album: Album, task: Task, context: SolveContext) -> Plan:
        if context.method == "greedy":
            return greedy(album, task)
        if context.method == "top-1":
            return top_1(album)

        def report(*value_and_cap: int) -> None:
            context.report("search", 0, *sorted(float(_stated(album, task, each)) for each in value_and_cap))

        return solve(album, task, report=report)

    def details(
        self, problem: PhotoInstance, release: Deletions, method: str, recorded: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return ranks before and after, by exact sums, sizes, and what a folder's files reveal or were omitted."""
        details: dict[str, Any] = {"deleted": int((~release.kept).sum()), "photos": len(problem.names)}
        details |= {"rank_before": None, "rank_after": None, "protected_k": None}
        if problem.declared.scored:
            album, above = problem.album, protected_k(problem.album, release.kept)
            details |= {"rank_before": rank(album), "rank_after": above + 1, "protected_k": above}
            details |= {"locations": album.locations, "true_location": album.true}
        if problem.seen is not None:
            details["left_out"] = list(problem.seen.left_out)
            details["with_position"] = list(problem.seen.positioned)
            details["with_text"] = list(problem.seen.captioned)
            if not problem.declared.scored:
                details["with_time"] = [photo.photo for photo in problem.seen.metadata if photo.taken]
                details["guessed"] = list(guesses(problem.seen.metadata))
        if release.copies is not None:
            details["copies"] = {copy.name: copy.sha256 for copy in release.copies}
        if release.copy_scores is not None:
            details["copies_protected_k"] = copies_protected(problem, release.kept, release.copy_scores)
        return details

    def verify(self, problem: PhotoInstance, release: Deletions, result: Result) -> list[str]:
        """Check the clean copies' guarantee by their scores; methods that try no alternatives delete the same again."""
        if not problem.declared.scored:
            return [] if release.kept.all() else [f"deletions.csv: method {POSITIONS} deletes no photo"]
        if release.copy_scores is not None:
            short = shortfall(problem, release.kept, release.copy_scores)
            if short is not None:
                return [f"scores.npz: copies: {short}"]
        if result.method not in ("greedy", "top-1"):
            return []
        again = self._plan(problem.album, problem.declared.task, SolveContext(method=result.method))
        same = np.array_equal(again.kept, release.kept)
        return [] if same else [f"deletions.csv: method {result.method} deletes other photos"]

    def proved(self, problem: PhotoInstance, release: Deletions, result: Result, folder: Path) -> float | None:
        """Return the bound that is stated, where the tree in proof.npz proves it."""
        bound = result.objective.lower_bound
        if bound is None or bound != int(bound) or not problem.declared.scored:
            return None
        album, task = problem.album, problem.declared.task
        fault = Tree.read(folder).fault(album, *claim(album, task, _stated(album, task, int(bound))))
        if fault is not None:
            raise CertificationError(f"proof.npz: {fault}")
        return bound

    def warnings(self, problem: PhotoInstance, release: Deletions, result: Result) -> Sequence[str]:
        """Warn of scores above 0, photos not scored, and kept photos whose files or names reveal their position."""
        return warnings_of(problem, release)

    def audit(self, problem: PhotoInstance, release: Deletions, result: Result) -> Mapping[str, Any]:
        """Return the classifier's posterior from kept photos (paper, (1)): entropy, and how often its guess errs."""
        if not problem.declared.scored or np.isneginf(problem.album.scores[release.kept].sum(axis=0)).all():
            return {}  # photos that rule out every place leave no posterior
        posterior = belief(evolve(problem.album, margin=0.0), release.kept)
        return {"bayes_error": float(1.0 - posterior.max()), "entropy_bits": entropy_bits(posterior[None], np.ones(1))}


def _stated(album: Album, task: Task, bound: int) -> int:
    """Return a bound on the photos that stay as one on those that go, and back; of a budget as it is."""
    return album.photos - bound if task.top_k is not None else bound
