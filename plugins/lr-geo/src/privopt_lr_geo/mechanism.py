"""The LR-Geo mechanism. Here, users and server run in one process, but they communicate only through messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from privopt.errors import DoesNotHoldError, Fault, InputError, number_of
from privopt.interfaces import Channel, Mechanism, Outcome, PrivacyConstraint, Result, SolveContext, UtilityLoss
from privopt_lr_geo.central import CentralSearch, clients_of
from privopt_lr_geo.exact import ExactSearch, population_loss
from privopt_lr_geo.loss import MeanOfUsers
from privopt_lr_geo.lr_sets import lr_sets, pairs_inside
from privopt_lr_geo.measures import across_users
from privopt_lr_geo.privacy import EveryRow, OwnMatrices, meaning
from privopt_lr_geo.problem import LRGeoInstance, LRGeoProblem
from privopt_lr_geo.release import LRGeoRelease
from privopt_metric_dp.attacks.meaning import interpret_guarantee
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.privacy import DISTANCE_TOLERANCE
from privopt_metric_dp.matrix.release import ARTEFACT, MatrixRelease, matrix_bytes
from privopt_metric_dp.region.region import compare_regions
from privopt_metric_dp.solvers.exponential import exponential_loss
from privopt_metric_dp.space.places import places_at_most

__all__ = ["LRGeo"]

ATTACKED_USERS: Final = 50
"""The maximum number of users whose packages are attacked in the audit."""


class LRGeo(Mechanism[LRGeoInstance, LRGeoRelease]):
    """Locally relevant geo-obfuscation (Qiu et al., PoPETs 2025), with a matrix optimised for each user's surroundings.

    The ``benders`` and ``full`` methods solve a joint program that is built from the users' uploads. The ``exact``
    method publishes numbers from which each user computes a row.
    """

    problem_class = LRGeoProblem
    release_class = LRGeoRelease
    programs = True
    kit = "privopt_lr_geo.kit:PROFILE"
    reporting = "privopt_lr_geo.report:LRGeoReporting"
    scope = (
        "Methods benders and full: epsilon-metric DP inside each user's own matrix (scope own-matrix); rows of "
        "different users may violate it (measured in details.gv), and the server can find a user from what it uploads "
        "(privopt audit). Method exact: epsilon-metric DP for every two records at distance d (all pairs, those within "
        "privacy.neighbours_within, or with privacy.everywhere any two points), whichever user reports; holds against "
        "the server too, for nothing is uploaded."
    )

    def load(self, declared: LRGeoProblem, file: str) -> LRGeoInstance:
        """Load the metric problem and its users.

        Raises:
            InputError: The problem is invalid.
        """
        return LRGeoInstance.of(declared, file)

    def reopen(self, declared: LRGeoProblem, file: str, folder: Path) -> tuple[LRGeoInstance, LRGeoRelease]:
        """Load the problem and read its release from a folder.

        If the release's size determines the maximum number of places in its problem, a problem with more places is
        rejected before its files are read in full.

        Args:
            declared: The parsed problem file.
            file: The name of the problem file, for error messages.
            folder: The release folder.

        Raises:
            DoesNotHoldError: The problem and the release do not have the same size.
        """
        shape = MatrixRelease.load(folder / ARTEFACT).weights.shape
        # If every record has a row or is an output, the problem cannot have more places than the release has rows or
        # outputs. Loading stops as soon as there are more, so that no file is read in full, however large it is.
        has_all_records = declared.outputs is None or declared.lr_geo.users == "all"
        with places_at_most(max(shape) if has_all_records else None):
            problem = self.load(declared, file)
        if (len(problem.users), len(problem.data.outputs)) != shape:
            problem_size = (
                f"{number_of(len(problem.users), 'user')} and {number_of(len(problem.data.outputs), 'output')}"
            )
            raise DoesNotHoldError(
                f"{ARTEFACT}: weights: {shape[0]:,} x {shape[1]:,}, where the problem has {problem_size}"
            )
        return problem, LRGeoRelease.read(folder, problem)

    def channel(self, problem: LRGeoInstance, release: LRGeoRelease) -> Channel:
        """Return the released matrix as a channel, against which attacks can be run.

        If the matrix has a row for every record, the channel includes the prior and the places.
        """
        return release.channel_over(problem.data)

    def privacy(self, problem: LRGeoInstance, method: str) -> PrivacyConstraint[LRGeoRelease]:
        """Return the privacy constraint.

        For the ``exact`` method, this is metric DP between all records. For the other methods, it is metric DP inside
        each user's matrix.
        """
        if method == "exact":
            return EveryRow.over(problem.data)
        return OwnMatrices.within_radius(problem.data, problem.declared.lr_geo.radius)

    def utility(self, problem: LRGeoInstance, method: str) -> UtilityLoss[LRGeoRelease]:
        """Return the utility loss: the expected true cost of a report, averaged over the users.

        If the problem has a region, the average is taken over the prior instead.
        """
        if problem.data.region is not None:
            # All records are users here. MeanOfUsers divides by the number of users, although the prior's weights
            # already add up to 1, so the costs are multiplied by that number.
            return MeanOfUsers(cost=problem.data.weighted * len(problem.users), unit=problem.data.loss_unit)
        return MeanOfUsers(cost=problem.data.cost[problem.users], unit=problem.data.loss_unit)

    def bytes_needed(self, problem: LRGeoInstance, method: str) -> float:
        """Estimate the memory needed for the users' rows, in bytes."""
        return matrix_bytes(len(problem.users), len(problem.data.outputs), 0)

    def check_problem(self, problem: LRGeoInstance, method: str) -> None:
        """Check that the method supports a region, if the problem has one.

        Raises:
            InputError: The problem has a region, but the method gives no guarantee between the rows of different users.
        """
        if method != "exact" and problem.data.region is not None:
            actual = f"true with --method {method}, which is private only within each user's own matrix"
            raise InputError([Fault(problem.data.file, "privacy.everywhere", actual, "--method exact")])

    def solve(self, problem: LRGeoInstance, context: SolveContext) -> Outcome[LRGeoRelease]:
        """Solve the problem with the requested method.

        Raises:
            StoppedError: A limit or an interrupt ended the run before any feasible solution was found.
        """
        if context.method != "exact":
            return CentralSearch(problem, context).run()
        with context.time_phase("solve"):
            return ExactSearch(problem, context).run()

    def details(
        self, problem: LRGeoInstance, release: LRGeoRelease, method: str, recorded: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Compute details for result.json from the problem and the release.

        They include the number of users and, for the ``exact`` method, the loss over all records. For the other
        methods, they include the sizes of the LR sets, and how often and by how much rows of different users violate
        metric DP.

        Args:
            problem: The problem with its users.
            release: The release, with the users' matrices or the public numbers.
            method: The method that was run.
            recorded: The details that the run recorded, which are not used.
        """
        data = problem.data
        if method == "exact":
            assert release.published is not None  # the certificate was measured on these numbers
            # The objective is a mean over the users. This loss covers all records, weighted by the prior.
            value = population_loss(release.published.all_rows, data)
            population = {"value": value, "exponential": exponential_loss(data)}
            return {"users": len(problem.users), "population": population}
        assert release.matrices is not None  # as above
        sizes = [len(matrix.records) for matrix in release.matrices.values()]
        return {
            "users": len(problem.users),
            "lr_sets": {"least": min(sizes), "mean": float(np.mean(sizes)), "greatest": max(sizes)},
            "gv": across_users(data, release),
        }

    def verify(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> list[str]:
        """Check that the release is consistent with the problem.

        The records, outputs and pairs of the two must match. Each user's row must equal the row in the user's matrix
        or, for the ``exact`` method, the row computed from the published numbers.

        Args:
            problem: The problem with its users.
            release: The release, as read from its folder.
            result: The contents of result.json, whose method determines what is compared.

        Returns:
            One line for each fault. If there are many, only the first few are listed.
        """
        data, users = problem.data, problem.users
        ids = np.asarray(data.records.ids, dtype=np.str_)
        lines = []
        for name, stored, expected in (
            ("records", release.records, ids[users]),
            ("outputs", release.outputs, np.asarray(data.outputs.ids, dtype=np.str_)),
        ):
            if not np.array_equal(stored, expected):
                lines.append(f"mechanism.npz: {name}: not those of the problem, in its order")
        if lines:
            return lines
        if result.method == "exact":
            if data.region is not None or release.region is not None:
                lines += compare_regions(release.region, data.region, release.pairs)
            else:
                lines += _check_pairs("mechanism.npz", release, *pairs_inside(data, users))
            if release.published is not None:
                # Rows are recomputed from public.npz, as a user would do. It is these rows that the certificate covers.
                wrong_rows = np.flatnonzero((release.published.all_rows[users] != release.weights).any(axis=1))
                lines += [
                    f"mechanism.npz: weights: row {ids[users[r]]} is not what public.npz gives" for r in wrong_rows[:5]
                ]
            return lines
        if len(release.pairs):
            lines.append(f"mechanism.npz: pairs: expected none for scope own-matrix, got {len(release.pairs):,}")
        for row, around in enumerate(lr_sets(problem)):
            name = str(ids[around.user])
            matrix = (release.matrices or {})[name]
            if not np.array_equal(matrix.records, ids[around.records]):
                lines.append(f"private/matrices: {name}: records are not its LR set")
                continue
            if not np.array_equal(matrix.outputs, release.outputs):
                lines.append(f"private/matrices: {name}: outputs are not the problem's")
                continue
            lines += _check_pairs(f"private/matrices: {name}", matrix, around.pairs, around.lengths)
            if not np.array_equal(matrix.weights[around.user_row], release.weights[row]):
                lines.append(f"mechanism.npz: weights: row {name} is not that of the user's own matrix")
        return lines[:20]

    def audit(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> Mapping[str, Any]:
        """Measure how much an attacker learns from reports and how much the server learns from uploads.

        Args:
            problem: The problem with its users.
            release: The release with the users' rows.
            result: The contents of result.json, whose method determines whether there are uploads to attack.

        Returns:
            The entries ``epsilon`` (claimed and achieved), ``bayes_error``, ``expected_loss``, ``entropy_bits`` and
            ``gv`` (violations between rows of different users). For methods with uploads, ``server`` maps each attack
            on uploads to its success rate.
        """
        from privopt.run.attack_channel import bayes_error, entropy_bits
        from privopt_lr_geo.server_inference import attack_server
        from privopt_metric_dp.attacks import matrix_figures as attack

        data, users = problem.data, problem.users
        z, prior = release.probabilities, data.prior[users] / data.prior[users].sum()
        # All pairs of users are included, whether or not the guarantee covers them, because an observer can compare any
        # two users' reports.
        all_pairs = attack.pair_blocks(len(users), lambda i, j: data.metric.between(users[i], users[j]))
        facts: dict[str, Any] = {
            "epsilon": {
                "claimed": float(data.epsilon),
                "achieved": attack.achieved_epsilon(z, all_pairs),
                "unit": f"per {data.unit}",
            },
            "bayes_error": bayes_error(z, prior),
            "expected_loss": ExpectedLoss(weighted=prior[:, None] * data.cost[users]).evaluate(release),
            "entropy_bits": entropy_bits(z, prior),
        }
        gv = across_users(data, release)
        facts["gv"] = {"ratio": gv["ratio"], "error": gv["error"], "over": gv["over"]}
        if result.method != "exact":
            # The random draws of the run itself are secret, so new ones are made. The fixed seed 0 makes the audit
            # repeatable.
            clients = clients_of(problem, 0)[:ATTACKED_USERS]
            facts["server"] = attack_server(data, problem.declared.lr_geo, clients)
        return facts

    def meaning(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> Sequence[str]:
        """Explain in sentences what the guarantee means, what an attacker can infer, and what the protection costs."""
        return meaning(problem, release, result)

    def warnings(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> Sequence[str]:
        """Return warnings about a weak guarantee, records not covered by the guarantee, and suspicious input."""
        meaning = interpret_guarantee(release, problem.data, rows_of=np.asarray(problem.users))
        return [*problem.data.warnings, *meaning.warnings]


def _check_pairs(where: str, matrix: MatrixRelease, pairs: Any, lengths: Any) -> list[str]:
    """Compare a matrix's stored pairs and distances with the required ones, and return a line for each fault.

    Args:
        where: The names of the file and the matrix, which are placed at the start of each line.
        matrix: The stored matrix.
        pairs: (P, 2) The required pairs.
        lengths: (P,) The distance between the two records of each required pair.
    """
    if not np.array_equal(matrix.pairs, pairs):
        return [f"{where}: pairs: not the required ones"]
    # The certificate relies on the stored distances. One above the required distance would weaken the guarantee, and
    # one below it by more than rounding cannot come from this problem.
    is_wrong = (matrix.distances > lengths) | (lengths - matrix.distances > DISTANCE_TOLERANCE * lengths)
    return [f"{where}: distances: {int(is_wrong.sum())} are not those of the problem"] if is_wrong.any() else []
