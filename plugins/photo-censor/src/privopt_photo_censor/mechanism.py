"""The photo-censor mechanism, which decides which photos of an album may be posted.

It follows Yang, Chakrabarti and Vorobeychik, Protecting Geolocation Privacy of Photo Collections, AAAI 2020.
"""

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
from privopt_photo_censor.release import Deletions, read_folder_contents, read_scores
from privopt_photo_censor.solver.baselines import greedy, top_1
from privopt_photo_censor.solver.optimal import Plan, prove_bound, solve
from privopt_photo_censor.solver.proof import Tree, make_claim

__all__ = ["PhotoCensor"]

NAME: Final = "privopt-photo-censor"
POSITIONS: Final = "positions"
"""The method for a folder without a classifier. It deletes no photos and only examines what the files reveal."""
UNSCORED: Final = NoGuarantee(
    reason="no photo was scored, so that what the pictures themselves show may reveal the place; clean copies "
    "(--copy-to) carry no position, time, serial number or thumbnail, and no name that reveals one"
)

BYTES_PER_SCORE: Final = 150.0
"""The measured peak memory of a run in bytes per score of the album. It also covers the steps after the search."""


class PhotoCensor(Mechanism[PhotoInstance, Deletions]):
    """A mechanism that deletes photos so that a classifier cannot infer where the remaining ones were taken."""

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
        """Return the method prescribed by the problem, or None if the user may choose one.

        Only one method is ever prescribed: ``positions``, for a folder of photos without a classifier.
        """
        assert isinstance(declared, PhotoProblem)  # the caller read it as such
        return None if declared.is_scored else POSITIONS

    def reading(self, declared: object) -> str:
        """Return the text shown in progress messages while the problem is loaded, such as "reading photos"."""
        assert isinstance(declared, PhotoProblem)  # the caller read it as such
        if declared.photos.folder is None:
            return "problem"
        return "reading and scoring photos" if declared.is_scored else "reading photos"

    def load(self, declared: PhotoProblem, file: str) -> PhotoInstance:
        """Load the scores or photos named in a problem file.

        Raises:
            InputError: The problem file or the data named in it is invalid.
        """
        return PhotoInstance.of(declared, file)

    def reopen(self, declared: PhotoProblem, file: str, folder: Path) -> tuple[PhotoInstance, Deletions]:
        """Read a problem and its release back from a release folder, for ``verify`` and ``report``.

        If the problem names a folder of photos, the folder's contents are taken from the record in the release, because
        the photos themselves may no longer exist.

        Args:
            declared: The release's problem file.
            file: The name of the problem file, for error messages.
            folder: The release folder.

        Raises:
            InputError: A file in the release folder is missing or malformed.
        """
        if declared.photos.folder is None:
            problem = self.load(declared, file)
            return problem, Deletions.read(folder, problem)
        # The photos and the classifier are not needed, because the release contains the photos' metadata and scores.
        folder_contents = read_folder_contents(folder)
        problem = PhotoInstance(
            declared=declared, file=file, names=folder_contents.names, folder_contents=folder_contents
        )
        if declared.is_scored:
            arrays = read_scores(folder, len(folder_contents.metadata))
            places, true = tuple(arrays["places"].tolist()), int(arrays["true"])
            problem = PhotoInstance.from_scores(
                declared,
                file,
                arrays["scores"],
                folder_contents.names,
                true,
                folder_contents=folder_contents,
                places=places,
            )
        return problem, Deletions.read(folder, problem)

    def check_problem(self, problem: PhotoInstance, method: str) -> None:
        """Check that a method can solve the problem.

        The method ``positions`` is only for problems without scores, and all other methods need scores. The method
        ``top-1`` also requires the task to be ``top_k = 1``.

        Raises:
            InputError: The method cannot solve the problem.
        """
        declared, file = problem.declared, problem.file
        if not declared.is_scored and method != POSITIONS:
            expectation = f"a classifier for method {method} (of a folder alone the method is {POSITIONS})"
            raise InputError([Fault(file, "photos.classifier", "nothing", expectation)])
        if declared.is_scored and method == POSITIONS:
            actual = "scores" if declared.photos.folder is None else "a classifier"
            raise InputError([Fault(file, "photos", actual, f"a folder alone with method {POSITIONS}")])
        # top-1 is a polynomial algorithm that considers one location at a time, so it can only protect one.
        if method == "top-1" and declared.task.top_k != 1:
            task = declared.task
            actual = f"top_k = {task.top_k}" if task.top_k else f"deletion_budget = {task.budget}"
            raise InputError([Fault(file, "privacy", actual, "top_k = 1 with method top-1")])

    def privacy(self, problem: PhotoInstance, method: str) -> PrivacyConstraint[Any]:
        """Return the top-k constraint, or a constraint that guarantees nothing if the problem has no scores."""
        if not problem.declared.is_scored:
            return UNSCORED
        return TopK(problem=problem)

    def utility(self, problem: PhotoInstance, method: str) -> UtilityLoss[Deletions]:
        """Return the utility loss of a release.

        It is the number of protected locations under a deletion budget, and the number of deleted photos otherwise.
        """
        if not problem.declared.is_scored or problem.declared.task.top_k is not None:
            return DeletedPhotos()
        return ProtectedK()

    def bytes_needed(self, problem: PhotoInstance, method: str) -> float | None:
        """Estimate the peak memory usage of a run in bytes, or return None if the problem has no scores."""
        return BYTES_PER_SCORE * problem.album.scores.size if problem.declared.is_scored else None

    def solve(self, problem: PhotoInstance, context: SolveContext) -> Outcome[Deletions]:
        """Choose the photos to keep, prove a bound on the loss, and make clean copies if requested.

        The method ``optimal`` proves the bound during its search. For the baselines ``greedy`` and ``top-1``, it is
        proved by a separate search. If the problem has no scores, all photos are kept.

        Raises:
            InputError: Clean copies are requested but the problem names no folder, or a photo has changed since it was
                read or cannot be decoded.
            UsageError: The folder for the clean copies is inside the folder of photos.
            InfeasibleError: No set of photos satisfies the task.
            StoppedError: No set of photos was found within the time limit, or greedy deletion got stuck.
            CertificationError: The clean copies do not meet the guarantee.
        """
        if not problem.declared.is_scored:
            # Without scores, there is no reason to delete one photo rather than another.
            is_retained = np.ones(len(problem.names), dtype=np.bool_)
            with context.time_phase("solve"):
                copies = copy_retained(problem, is_retained, context)
            release = Deletions(problem=problem, retained=is_retained, copies=copies)
            return Outcome(release=release, solver={"name": NAME, "version": "", "iterations": 0})
        album, task = problem.album, problem.declared.task
        if context.copies is not None and problem.declared.photos.folder is None:
            raise InputError([Fault(problem.file, "photos.folder", "nothing", "the folder that --copy-to copies from")])
        # The copies are made and scored after the search and outside its time limit, because there is no release
        # without them.
        with context.time_phase("solve"), limit(context.remaining):
            # A plan without a tree of cases, such as a baseline's, gives a bound but no proof, so the bound is proved
            # here.
            plan = self._make_plan(album, task, context)
            bound_and_proof = prove_bound(album, task, plan.bound) if plan.tree is None else (plan.bound, plan.tree)
        copies = copy_retained(problem, plan.retained, context)
        # `context.copies` is the folder to which the copies have been written.
        scores = None
        if copies is not None and context.copies is not None:
            scores = score_copies(problem, plan.retained, [context.copies / copy.name for copy in copies])
        release = Deletions(problem=problem, retained=plan.retained, copies=copies, copy_scores=scores)
        return Outcome(
            release=release,
            lower_bound=None if bound_and_proof is None else float(_convert_bound(album, task, bound_and_proof[0])),
            proof=None if bound_and_proof is None else bound_and_proof[1],
            solver={"name": NAME, "version": version(NAME), "iterations": plan.programs, "proof": plan.proved},
            stopped=plan.stopped,
        )

    def _make_plan(self, album: Album, task: Task, context: SolveContext) -> Plan:
        """Run the method named by ``context``, and return its plan, which gives the photos to keep and a bound.

        Args:
            album: The scores, and the photos that must be kept.
            task: A top-k or budget task.
            context: The method (``greedy``, ``top-1`` or ``optimal``), and the function that reports progress.
        """
        if context.method == "greedy":
            return greedy(album, task)
        if context.method == "top-1":
            return top_1(album)

        def report(*value_and_cap: int) -> None:
            """Report the best value so far and its bound, in the same units as the loss and in ascending order."""
            # A top-k search counts retained photos. Converting these to deleted photos reverses the order, hence the
            # sort.
            context.report("search", 0, *sorted(float(_convert_bound(album, task, count)) for count in value_and_cap))

        return solve(album, task, report=report)

    def details(
        self, problem: PhotoInstance, release: Deletions, method: str, recorded: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return details for result.json, computed from the problem and the release.

        The details include counts of photos and locations, and the true location's exact rank before and after the
        deletions. The ranks are null if there are no scores. For a folder, the details also include the photos whose
        files reveal a position or contain text. ``method`` and ``recorded`` are not used.
        """
        # Without scores there are no ranks, and these three entries stay None.
        details: dict[str, Any] = {"deleted": int((~release.retained).sum()), "photos": len(problem.names)}
        details |= {"rank_before": None, "rank_after": None, "protected_k": None}
        if problem.declared.is_scored:
            album, protected_count = problem.album, protected_k(problem.album, release.retained)
            details |= {"rank_before": rank(album), "rank_after": protected_count + 1, "protected_k": protected_count}
            details |= {"locations": album.locations, "true_location": album.true}
        if problem.folder_contents is not None:
            details["left_out"] = list(problem.folder_contents.left_out)
            details["with_position"] = list(problem.folder_contents.photos_with_position)
            details["with_text"] = list(problem.folder_contents.photos_with_texts)
            if not problem.declared.is_scored:
                details["with_time"] = [photo.photo for photo in problem.folder_contents.metadata if photo.taken]
                details["guessed"] = list(guesses(problem.folder_contents.metadata))
        if release.copies is not None:
            details["copies"] = {copy.name: copy.sha256 for copy in release.copies}
        if release.copy_scores is not None:
            details["copies_protected_k"] = copies_protected(problem, release.retained, release.copy_scores)
        return details

    def verify(self, problem: PhotoInstance, release: Deletions, result: Result) -> list[str]:
        """Check that the clean copies meet the guarantee and, for a baseline, that a rerun deletes the same photos.

        If there are no scores, check instead that no photo is deleted.

        Args:
            problem: The problem, with its scores if it has any.
            release: The release as read from its folder.
            result: The stated result, which names the method.

        Returns:
            One sentence per error found, or an empty list if there are none.
        """
        if not problem.declared.is_scored:
            return [] if release.retained.all() else [f"deletions.csv: method {POSITIONS} deletes no photo"]
        if release.copy_scores is not None:
            reason = shortfall(problem, release.retained, release.copy_scores)
            if reason is not None:
                return [f"scores.npz: copies: {reason}"]
        if result.method not in ("greedy", "top-1"):
            return []
        # Baselines are deterministic, so a rerun must delete the same photos. The method ``optimal`` is checked by its
        # proof instead.
        recomputed_plan = self._make_plan(problem.album, problem.declared.task, SolveContext(method=result.method))
        is_equal = np.array_equal(recomputed_plan.retained, release.retained)
        return [] if is_equal else [f"deletions.csv: method {result.method} deletes other photos"]

    def proved_bound(self, problem: PhotoInstance, release: Deletions, result: Result, folder: Path) -> float | None:
        """Check that the tree of cases in proof.npz proves the stated bound, and return the bound.

        Args:
            problem: The problem, with its scores if it has any.
            release: Not used, because the bound does not depend on the release.
            result: The stated result, which includes the bound.
            folder: The release folder, which contains proof.npz.

        Returns:
            The bound, or None if it cannot be checked because no bound is stated, the bound is not a whole number, or
            the problem has no scores.

        Raises:
            CertificationError: The tree does not prove the bound.
        """
        bound = result.objective.lower_bound
        # Both losses are counts, so a valid bound is a whole number.
        if bound is None or bound != int(bound) or not problem.declared.is_scored:
            return None
        album, task = problem.album, problem.declared.task
        fault = Tree.read(folder).fault(album, *make_claim(album, task, _convert_bound(album, task, int(bound))))
        if fault is not None:
            raise CertificationError(f"proof.npz: {fault}")
        return bound

    def warnings(self, problem: PhotoInstance, release: Deletions, result: Result) -> Sequence[str]:
        """Return warnings about what the deletions do not hide, such as positions in files and unscored photos."""
        return warnings_of(problem, release)

    def audit(self, problem: PhotoInstance, release: Deletions, result: Result) -> Mapping[str, Any]:
        """Measure how uncertain the classifier's posterior is, given the retained photos (AAAI 2020, Equation (1)).

        Returns:
            The posterior's entropy in bits as ``entropy_bits``, and the probability that the best guess is wrong as
            ``bayes_error``. The mapping is empty if there are no scores, or if the photos rule out every place.
        """
        if not problem.declared.is_scored or np.isneginf(problem.album.scores[release.retained].sum(axis=0)).all():
            return {}  # if the photos rule out every place, there is no posterior
        # The margin is set to 0, because it covers other classifiers and the audit's attacker uses this one.
        posterior = belief(evolve(problem.album, margin=0.0), release.retained)
        return {"bayes_error": float(1.0 - posterior.max()), "entropy_bits": entropy_bits(posterior[None], np.ones(1))}


def _convert_bound(album: Album, task: Task, bound: int) -> int:
    """Convert a bound on the number of retained photos to a bound on the number of deleted photos, or vice versa.

    Under a budget, the bound is on the number of protected locations and is returned unchanged.
    """
    return album.photos - bound if task.top_k is not None else bound
