"""LR-Geo as a mechanism: users and server in one process, with nothing but packages between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from privopt.errors import Fault, InputError, StoppedError
from privopt.interfaces import Mechanism, Outcome, PrivacyConstraint, Result, SolveContext, UtilityLoss
from privopt.metric.baselines.exponential import exponential_loss
from privopt.metric.everywhere.region import unlike
from privopt.metric.matrix import MatrixRelease
from privopt.metric.mechanism import SAME_WITHIN
from privopt.metric.worth import Worth, worth_of
from privopt_lr_geo.alone import exponential_spare, own_loss, population_spare, program_value
from privopt_lr_geo.bounds import cost_bounds
from privopt_lr_geo.client import Client, indicator
from privopt_lr_geo.draws import draw, draw_or_resume
from privopt_lr_geo.estimate import Costs, Exchange
from privopt_lr_geo.exact import population_loss, solve_exact
from privopt_lr_geo.local import Ways, pairs_inside, surroundings
from privopt_lr_geo.loss import MeanOfUsers
from privopt_lr_geo.measures import across_users, proposition_bound
from privopt_lr_geo.package import Answer, Package, Terms
from privopt_lr_geo.privacy import EveryRow, OwnMatrices
from privopt_lr_geo.private import unlike_own, with_own_rows
from privopt_lr_geo.problem import LRGeoInstance, LRGeoProblem
from privopt_lr_geo.release import LRGeoRelease, Published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from privopt.execution import Executor
    from privopt.run.report.geo import Layer
    from privopt.run.report.page import Section

__all__ = ["LRGeo", "clients_of", "costs_of"]

SLACK: Final = 1e-7
"""The program is solved at epsilon (1 - SLACK), so that the repair leaves entries tied across users as they are."""
ATTACKED: Final = 50
"""Users on whose packages the audit tries its attacks, at most."""
BOUNDED: Final = 10
"""Users over whom the audit bounds the cost, at most, and PATIENCE the seconds that it takes for that."""
PATIENCE: Final = 60.0


@frozen(kw_only=True, eq=False)
class _Served:
    """What users have in the end: a certified release, and value and bound of the program behind it."""

    release: LRGeoRelease
    value: float
    lower_bound: float | None
    solver: Mapping[str, Any]
    details: Mapping[str, Any]
    stopped: bool


def costs_of(problem: LRGeoInstance, executor: Executor | None = None) -> Costs:
    """Where users have costs from: the cost reference table, or the problem itself."""
    cell_km = problem.declared.lr_geo.reference_cell_km
    return Costs(problem) if cell_km is None else Exchange(problem, cell_km, executor)


def clients_of(
    problem: LRGeoInstance, seed: int | None, costs: Costs | None = None, context: SolveContext | None = None
) -> list[Client]:
    """Each user with its LR set, in the order of the records.

    Args:
        problem: what the users see.
        seed: of the order of rows and of circles; None takes them from the operating system's entropy.
        costs: where they have costs from; left out: as the problem says.
        context: of a run that may be gone on with: what users draw is kept in its checkpoint, and taken from there.
    """
    data, options = problem.data, problem.declared.lr_geo
    ways, users = Ways(data), problem.users.tolist()
    costs = costs or costs_of(problem)
    places = [surroundings(problem, ways, user) for user in users]
    sets = [around.records for around in places]
    if context is None or context.checkpoint is None:
        drawn = draw(users, sets, seed)
    else:
        drawn = draw_or_resume(users, sets, seed, context.checkpoint, resume=context.resume)
    clients = []
    for around, own in zip(places, drawn, strict=True):
        records = around.records
        clients.append(
            Client(
                around=around,
                distances=data.metric.between(records[:, None], records[None, :]),
                costs=data.prior[records, None] * costs.of(records, own.centre).upper,
                free=indicator(options, around.reach, data.cost[records]),
                order=own.order,
            )
        )
    return clients


class LRGeo(Mechanism[LRGeoInstance, LRGeoRelease]):
    """Locally relevant geo-obfuscation (Qiu et al., PoPETs 2025)."""

    problem_class = LRGeoProblem
    release_class = LRGeoRelease
    programs = True
    kit = "privopt_lr_geo.kit:PROFILE"
    scope = (
        "Methods benders and full: epsilon-metric DP inside each user's own matrix (scope own-matrix); rows of "
        "different users may violate it (measured in details.gv), and the server can find a user from what it uploads "
        "(privopt audit). Method exact: epsilon-metric DP for every two records at distance d (all pairs, those within "
        "privacy.neighbours_within, or with privacy.everywhere any two points), whichever user reports; holds against "
        "the server too, for nothing is uploaded."
    )

    def load(self, declared: LRGeoProblem, file: str) -> LRGeoInstance:
        """The metric problem and its users."""
        return LRGeoInstance.of(declared, file)

    def privacy(self, problem: LRGeoInstance, method: str) -> PrivacyConstraint[LRGeoRelease]:
        """Every pair of records (exact), or each user's own matrix."""
        if method == "exact":
            return EveryRow.over(problem.data, problem.band)
        return OwnMatrices.within_radius(problem.data, problem.declared.lr_geo.radius)

    def utility(self, problem: LRGeoInstance, method: str) -> UtilityLoss[LRGeoRelease]:
        """Mean true cost of the users' own rows; at every point of a region, of whoever may stand there."""
        if problem.data.region is not None:
            return MeanOfUsers(cost=problem.data.weighted * len(problem.users), unit=problem.data.loss_unit)
        return MeanOfUsers(cost=problem.data.cost[problem.users], unit=problem.data.loss_unit)

    def solve(self, problem: LRGeoInstance, context: SolveContext) -> Outcome[LRGeoRelease]:
        """By the method asked for.

        Raises:
            InputError: a method that promises nothing between rows of different users, at every point of a region.
        """
        if context.method == "exact":
            return self._exact(problem, context)
        if problem.data.region is not None:
            found = f"true beside --method {context.method}, which holds in each user's own matrix alone"
            raise InputError([Fault(problem.data.file, "privacy.everywhere", found, "--method exact")])
        if problem.band is not None:
            found = f"a file beside --method {context.method}, whose users upload their costs to the server"
            raise InputError([Fault(problem.data.file, "lr-geo.private_weights", found, "--method exact")])
        return self._central(problem, context)

    def _exact(self, problem: LRGeoInstance, context: SolveContext) -> Outcome[LRGeoRelease]:
        data, users = problem.data, problem.users
        if problem.band is not None:
            data = evolve(data, epsilon=problem.band.epsilon)
        with context.timed("solve"):
            found = solve_exact(data, context)
        published = Published(columns=found.public, data=data, given=found.whole)
        everybody = len(users) == len(data.records)
        pairs, lengths = (data.pairs, data.distances) if everybody else pairs_inside(data, users)
        if data.region is not None:
            pairs, lengths = pairs[:0], lengths[:0]
        release = LRGeoRelease(
            weights=found.whole if everybody else found.whole[users],
            records=np.asarray(data.records.ids, dtype=np.str_)[users],
            outputs=np.asarray(data.outputs.ids, dtype=np.str_),
            pairs=pairs,
            distances=lengths,
            region=data.region,
            published=published,
        )
        release, truth = with_own_rows(problem, release)
        lp = {"value": population_loss(found.whole, data), "lower_bound": found.lower_bound}
        details = {"lp": lp, **found.details}
        return Outcome(release=release, solver=found.solver, details=details, stopped=found.stopped, truth=truth)

    def details(
        self, problem: LRGeoInstance, release: LRGeoRelease, method: str, told: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Sizes; what the whole population loses (exact), or how far rows of different users violate the inequality."""
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
            "gv": across_users(data, release, release.matrices),
        }

    def _central(self, problem: LRGeoInstance, context: SolveContext) -> Outcome[LRGeoRelease]:
        data, options = problem.data, problem.declared.lr_geo
        with context.timed("build"):
            data.required  # noqa: B018  (loaded here, so that building is timed as such)
            costs = costs_of(problem, context.executor)
            clients = clients_of(problem, context.seed, costs, context if context.method == "benders" else None)
            sent = [client.package().to_bytes() for client in clients]
        terms = Terms(
            epsilon=float(data.epsilon * (1 - Fraction(SLACK))),
            within=data.within,
            obfuscation_radius=options.obfuscation_radius,
            exponent=options.exponent,
        )
        found = self._served(problem, clients, [Package.from_bytes(raw) for raw in sent], terms, context)
        details = {
            "lp": {"value": found.value, "lower_bound": found.lower_bound},
            "proposition_4_5": proposition_bound(
                [client.around for client in clients], [~client.free for client in clients]
            ),
            **costs.details(),
            **found.details,
        }
        return Outcome(release=found.release, solver=found.solver, details=details, stopped=found.stopped)

    def _served(
        self,
        problem: LRGeoInstance,
        clients: Sequence[Client],
        packages: Sequence[Package],
        terms: Terms,
        context: SolveContext,
    ) -> _Served:
        """The server's answer; where a limit stopped it above what users can do alone, that.

        Raises:
            StoppedError: nothing feasible in time, and users can do nothing alone.
        """
        from privopt_lr_geo import server

        spares = [population_spare(clients, problem.data, context)]
        served: _Served | None = None
        late: StoppedError | None = None
        try:
            with context.timed("solve"):
                solved = server.solve(packages, terms, context)
        except server.NoRoomError as error:
            late = error
            spares.append(population_spare(clients, problem.data, context, patient=True))
        except StoppedError as error:
            late = error
        else:
            answers = [Answer.from_bytes(answer.to_bytes()) for answer in solved.answers]
            served = _Served(
                release=_accept(problem, clients, answers, context),
                value=solved.value,
                lower_bound=solved.lower_bound,
                solver=solved.solver,
                details=solved.details,
                stopped=solved.stopped,
            )
            if not solved.stopped:
                return served
        spares.append(exponential_spare(clients, float(problem.data.epsilon)))
        cost = problem.data.cost[problem.users]
        best = min((one for one in spares if one), key=lambda one: own_loss(clients, one.answers, cost), default=None)
        if best is None:
            if served is None:
                raise late or StoppedError("stopped before anything feasible was found; nothing written")
            return served
        release = _accept(problem, clients, best.answers, context)
        loss = MeanOfUsers(cost=cost).evaluate
        if served is not None and loss(served.release) <= loss(release):
            return served
        small = isinstance(late, server.NoRoomError)
        reason = f"the users' program {late}" if small else "the limit came before the users' program was better"
        stopped_at = {} if served is None else {"stopped_at": served.value}
        return _Served(
            release=release,
            value=program_value(clients, best.answers),
            lower_bound=None,
            solver={"name": best.name, "path": f"{context.method}{f' ({late})' if small else ''}, {best.name}"},
            details={"reason": reason, **stopped_at},
            stopped=not small or context.remaining == 0.0,
        )

    def verify(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> list[str]:
        """Rows, records, outputs and pairs against the problem's own, and against what rows come from."""
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
                lines += unlike(release.region, data.region, release.pairs)
            else:
                lines += _same_pairs("mechanism.npz", release, *pairs_inside(data, users))
            if release.published is not None:
                off = np.flatnonzero((release.published.whole[users] != release.weights).any(axis=1))
                lines += [f"mechanism.npz: weights: row {ids[users[r]]} is not what public.npz gives" for r in off[:5]]
            lines += unlike_own(problem, release)
            return lines
        if len(release.pairs):
            lines.append("mechanism.npz: pairs: wanted none, for scope own-matrix")
        ways = Ways(data)
        for row, user in enumerate(users.tolist()):
            around = surroundings(problem, ways, user)
            name = str(ids[user])
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
        """What who sees the reports gets, and what the server gets from uploads."""
        from privopt.metric import attack
        from privopt_lr_geo.threats import attack_server

        data, users = problem.data, problem.users
        z, prior = release.probabilities, data.prior[users] / data.prior[users].sum()
        every = attack.pair_blocks(len(users), lambda i, j: data.metric.between(users[i], users[j]))
        found: dict[str, Any] = {
            "epsilon": {
                "claimed": float(data.epsilon),
                "achieved": attack.achieved_epsilon(z, every),
                "unit": f"per {data.unit}",
            },
            "bayes_error": attack.bayes_error(z, prior),
            "expected_loss": attack.expected_loss(z, data.cost[users], prior),
            "entropy_bits": attack.entropy_bits(z, prior),
        }
        gv = across_users(data, release, release.matrices)
        found["gv"] = {"ratio": gv["ratio"], "error": gv["error"], "over": gv["over"]}
        if result.method != "exact":
            costs = costs_of(problem)
            chosen = clients_of(problem, 0, costs)[:ATTACKED]
            found["server"] = attack_server(data, problem.declared.lr_geo, chosen)
            found["bounds"] = cost_bounds(problem, chosen[:BOUNDED], costs, release.matrices, seconds=PATIENCE)
        return found

    def meaning(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> Sequence[str]:
        """The promise at the distance between nearest neighbours, and the best guess at a user's record."""
        lines = self._worth(problem, release).sentences()
        return ("In each user's own matrix: " + lines[0], *lines[1:]) if self._own(result) and len(lines) > 1 else lines

    def warnings(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> Sequence[str]:
        """Where the promise hides next to nothing, or leaves records out."""
        return self._worth(problem, release).warnings()

    @staticmethod
    def _own(result: Result) -> bool:
        return bool(result.guarantee.scope == "own-matrix")

    @staticmethod
    def _worth(problem: LRGeoInstance, release: LRGeoRelease) -> Worth:
        return worth_of(release, problem.data, rows_of=np.asarray(problem.users))

    def report(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> Sequence[Section]:
        """What users pay, and what is and is not covered."""
        from privopt.metric.pages import meaning_section
        from privopt_lr_geo.report import sections

        return [meaning_section(self.meaning(problem, release, result)), *sections(problem, release, result)]

    def figures(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> Mapping[str, Figure]:
        """Bounds by round, and one user's row."""
        from privopt_lr_geo.report import figures

        return figures(problem, release, result)

    def geo(self, problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> Layer | None:
        """Users with their losses, and outputs with how often users release them."""
        from privopt_lr_geo.report import map_layer

        return map_layer(problem, release)


def _accept(
    problem: LRGeoInstance, clients: Sequence[Client], answers: Sequence[Answer], context: SolveContext
) -> LRGeoRelease:
    """Each user repairs and certifies its matrix and takes its row."""
    context.report("repair")
    data = problem.data
    ids, outputs = np.asarray(data.records.ids, dtype=np.str_), np.asarray(data.outputs.ids, dtype=np.str_)
    matrices: dict[str, MatrixRelease] = {}
    rows: list[NDArray[np.uint64]] = []
    for client, answer in zip(clients, answers, strict=True):
        around = client.around
        with context.timed("repair"):
            repaired = client.accept(answer, data.epsilon, gap=1e-6, executor=context.executor)
        matrices[str(ids[around.user])] = MatrixRelease(
            weights=repaired.weights,
            records=ids[around.records],
            outputs=outputs,
            pairs=around.pairs,
            distances=around.lengths,
        )
        rows.append(repaired.weights[around.own])
    return LRGeoRelease(
        weights=np.array(rows),
        records=ids[problem.users],
        outputs=outputs,
        pairs=np.zeros((0, 2), dtype=np.int64),
        distances=np.zeros(0),
        matrices=matrices,
    )


def _same_pairs(where: str, matrix: MatrixRelease, pairs: Any, lengths: Any) -> list[str]:
    if not np.array_equal(matrix.pairs, pairs):
        return [f"{where}: pairs: not the required ones"]
    # they are what was certified: a longer one would be a weaker promise
    off = (matrix.distances > lengths) | (lengths - matrix.distances > SAME_WITHIN * lengths)
    return [f"{where}: distances: {int(off.sum())} are not those of the problem"] if off.any() else []
