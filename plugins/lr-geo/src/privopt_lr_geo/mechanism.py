"""LR-Geo as a mechanism: users and server in one process, with nothing but messages between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from privopt.errors import DoesNotHoldError, Fault, InputError
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
"""Users on whose packages the audit tries its attacks, at most."""


class LRGeo(Mechanism[LRGeoInstance, LRGeoRelease]):
    """Locally relevant geo-obfuscation (Qiu et al., PoPETs 2025)."""

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
        """Return the metric problem and its users."""
        return LRGeoInstance.of(declared, file)

    def reopen(self, declared: LRGeoProblem, file: str, folder: Path) -> tuple[LRGeoInstance, LRGeoRelease]:
        """Return the problem and the release, which has all records where they are outputs, or all are users.

        Raises:
            DoesNotHoldError: of another size than the release.
        """
        shape = MatrixRelease.load(folder / ARTEFACT).weights.shape
        every = declared.outputs is None or declared.lr_geo.users == "all"
        with places_at_most(max(shape) if every else None):
            problem = self.load(declared, file)
        if (len(problem.users), len(problem.data.outputs)) != shape:
            wide = f"{len(problem.users):,} users and {len(problem.data.outputs):,} outputs"
            raise DoesNotHoldError(f"{ARTEFACT}: weights: {shape[0]:,} x {shape[1]:,}, where the problem has {wide}")
        return problem, LRGeoRelease.read(folder, problem)

    def channel(self, problem: LRGeoInstance, release: LRGeoRelease) -> Channel:
        """Return the matrix as a channel, with prior, distances and places where it has a row for each record."""
        return release.channel_over(problem.data)

    def privacy(self, problem: LRGeoInstance, method: str) -> PrivacyConstraint[LRGeoRelease]:
        """Return every pair of records (exact), or each user's own matrix."""
        if method == "exact":
            return EveryRow.over(problem.data)
        return OwnMatrices.within_radius(problem.data, problem.declared.lr_geo.radius)

    def utility(self, problem: LRGeoInstance, method: str) -> UtilityLoss[LRGeoRelease]:
        """Return the mean true cost of the users' own rows; at every point of a region, of anyone who may be there."""
        if problem.data.region is not None:
            return MeanOfUsers(cost=problem.data.weighted * len(problem.users), unit=problem.data.loss_unit)
        return MeanOfUsers(cost=problem.data.cost[problem.users], unit=problem.data.loss_unit)

    def bytes_needed(self, problem: LRGeoInstance, method: str) -> float:
        """Return bytes of the users' rows."""
        return matrix_bytes(len(problem.users), len(problem.data.outputs), 0)

    def check_problem(self, problem: LRGeoInstance, method: str) -> None:
        """Check that the method can take a region.

        Raises:
            InputError: a method that promises nothing between rows of different users, at every point of a region.
        """
        if method != "exact" and problem.data.region is not None:
            found = f"true beside --method {method}, which holds in each user's own matrix alone"
            raise InputError([Fault(problem.data.file, "privacy.everywhere", found, "--method exact")])

    def solve(self, problem: LRGeoInstance, context: SolveContext) -> Outcome[LRGeoRelease]:
        """Solve by the method asked for.

        Raises:
            StoppedError: a limit came before anything feasible.
        """
        if context.method != "exact":
            return CentralSearch(problem, context).run()
        with context.timed("solve"):
            return ExactSearch(problem, context).run()

    def details(
        self, problem: LRGeoInstance, release: LRGeoRelease, method: str, recorded: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return sizes, and the population's loss (exact) or how far rows of different users break the inequality."""
        data = problem.data
        if method == "exact":
            assert release.published is not None  # what its certificate was measured on
            value = population_loss(release.published.whole, data)
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
        """Return rows, records, outputs and pairs against the problem's own, and against what rows come from."""
        data, users = problem.data, problem.users
        ids = np.asarray(data.records.ids, dtype=np.str_)
        lines = []
        for name, stored, wanted in (
            ("records", release.records, ids[users]),
            ("outputs", release.outputs, np.asarray(data.outputs.ids, dtype=np.str_)),
        ):
            if not np.array_equal(stored, wanted):
                lines.append(f"mechanism.npz: {name}: not those of the problem, in its order")
        if lines:
            return lines
        if result.method == "exact":
            if data.region is not None or release.region is not None:
                lines += compare_regions(release.region, data.region, release.pairs)
            else:
                lines += _same_pairs("mechanism.npz", release, *pairs_inside(data, users))
            if release.published is not None:
                off = np.flatnonzero((release.published.whole[users] != release.weights).any(axis=1))
                lines += [f"mechanism.npz: weights: row {ids[users[r]]} is not what public.npz gives" for r in off[:5]]
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
            lines += _same_pairs(f"private/matrices: {name}", matrix, around.pairs, around.lengths)
            if not np.array_equal(matrix.weights[around.own], release.weights[row]):
                lines.append(f"mechanism.npz: weights: row {name} is not that of the user's own matrix")
        return lines[:20]

    def audit(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> Mapping[str, Any]:
        """Return what an attacker learns from reports, and what the server learns from uploads."""
        from privopt.run.attack_channel import bayes_error, entropy_bits
        from privopt_lr_geo.server_inference import attack_server
        from privopt_metric_dp.attacks import matrix_figures as attack

        data, users = problem.data, problem.users
        z, prior = release.probabilities, data.prior[users] / data.prior[users].sum()
        every = attack.pair_blocks(len(users), lambda i, j: data.metric.between(users[i], users[j]))
        found: dict[str, Any] = {
            "epsilon": {
                "claimed": float(data.epsilon),
                "achieved": attack.achieved_epsilon(z, every),
                "unit": f"per {data.unit}",
            },
            "bayes_error": bayes_error(z, prior),
            "expected_loss": ExpectedLoss(weighted=prior[:, None] * data.cost[users]).evaluate(release),
            "entropy_bits": entropy_bits(z, prior),
        }
        gv = across_users(data, release)
        found["gv"] = {"ratio": gv["ratio"], "error": gv["error"], "over": gv["over"]}
        if result.method != "exact":
            chosen = clients_of(problem, 0)[:ATTACKED_USERS]
            found["server"] = attack_server(data, problem.declared.lr_geo, chosen)
        return found

    def meaning(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> Sequence[str]:
        """Return the promise at the distance between nearest neighbours, and the best guess at a user's record."""
        return meaning(problem, release, result)

    def warnings(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> Sequence[str]:
        """Return where the promise hides next to nothing or leaves records out, and what in the files is not meant."""
        meaning = interpret_guarantee(release, problem.data, rows_of=np.asarray(problem.users))
        return [*problem.data.warnings, *meaning.warnings]


def _same_pairs(where: str, matrix: MatrixRelease, pairs: Any, lengths: Any) -> list[str]:
    if not np.array_equal(matrix.pairs, pairs):
        return [f"{where}: pairs: not the required ones"]
    # they are what was certified: a longer one would be a weaker promise
    off = (matrix.distances > lengths) | (lengths - matrix.distances > DISTANCE_TOLERANCE * lengths)
    return [f"{where}: distances: {int(off.sum())} are not those of the problem"] if off.any() else []
