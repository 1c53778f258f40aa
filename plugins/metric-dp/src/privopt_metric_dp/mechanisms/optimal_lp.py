"""The ``optimal-lp`` mechanism, which minimises the expected loss by solving a linear program (LP).

The whole LP has one variable per record and output. Structured solvers, such as column generation and an interior-point
method, solve it without building all of it in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Final, Generic

from attrs import evolve

from privopt import dsl
from privopt.errors import CertificationError, SolverDiedError, SolverError
from privopt.execution.clock import Clock, check, clock
from privopt.execution.resources import GB
from privopt.interfaces import Result, SolveContext, UtilityLoss
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.privacy import MatrixConstraint, MetricDP, add_reversed_pairs
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.mechanisms.answer import Matrix
from privopt_metric_dp.mechanisms.base import MetricMechanism
from privopt_metric_dp.mechanisms.certifier import MatrixOffers, instance_view, reserve_memory
from privopt_metric_dp.problem.data import D, MetricData, MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.proof import Proof

BYTES_A_NUMBER: Final = 180.0
"""The number of bytes per coefficient of the whole LP, in this process and the solver's combined.

See tests/run/test_memory.py."""


def optimal_model(data: MetricData, privacy: MatrixConstraint, utility: UtilityLoss[MatrixRelease]) -> dsl.Model:
    """Return the LP for the matrix with the least expected loss under a privacy notion (Bordenabe et al. 2014).

    The LP minimises sum_ik p_i c_ik z_ik over all z >= 0 whose rows sum to 1, subject to the notion's privacy
    constraints. If constraints compose along paths (:attr:`MatrixConstraint.along_paths`), redundant pairs are omitted.
    A pair is redundant if a path of other pairs connects its two records and is, in exact arithmetic, no longer than
    the distance between them. The release is nevertheless certified for all pairs that the guarantee covers.

    Args:
        data: The data of the problem.
        privacy: The privacy notion, which adds its constraints to the model.
        utility: The loss, which adds the objective.
    """
    from privopt.dsl import Eq, Index, IndexSet, Model, total

    m = Model("optimal")
    X, Y = IndexSet("X", data.records.ids), IndexSet("Y", data.outputs.ids)
    i, j, k = Index("i", X), Index("j", X), Index("k", Y)
    z = m.variable("z", X, Y, lower=0)
    d = m.param("d", data.metric.between)
    c = m.param("c", data.weighted)
    utility.emit(m, z=z, i=i, k=k, c=c)
    m.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
    # If constraints add up along paths, the pairs in `needed` imply all other required pairs.
    pairs = data.needed[0] if privacy.along_paths else data.pairs
    privacy.emit(m, z=z, i=i, j=j, k=k, d=d, pairs=add_reversed_pairs(pairs))
    return m


def full_bytes(data: MetricData) -> float:
    """Estimate how many bytes of memory the whole LP needs, including the copy in the solver's process.

    The whole LP has one variable per record and output.
    """
    pairs, (records, outputs) = len(data.standing[0]), data.shape
    # For each output, a pair has two rows with two coefficients each, and a record has a cost, a coefficient in its row
    # sum and a bound.
    return BYTES_A_NUMBER * outputs * (4.0 * pairs + 3.0 * records)


def whole_program(
    data: MetricData, privacy: MatrixConstraint, utility: UtilityLoss[MatrixRelease], context: SolveContext
) -> Matrix:
    """Solve the whole LP, with one variable per record and output, and return the resulting matrix.

    Args:
        data: The data of the problem.
        privacy: The privacy notion.
        utility: The loss.
        context: The solver (CBC or HiGHS), gap and limits of the run.

    Raises:
        OutOfTime: The time limit expired before a feasible solution was found.
        SolverError: The solver crashed, or its solution violates the constraints.
    """

    def solve(how: SolveContext) -> Matrix:
        """Build the whole LP and solve it with the solver named by ``how``."""
        model = optimal_model(data, privacy, utility)
        # Building a large model may take longer than the time limit allows, in which case this raises OutOfTime.
        check("the model was made")
        how.report(f"model of {len(data.records):,} x {len(data.outputs):,}, {how.solver}")
        return Matrix.of(model.solve(how.solver, gap=how.gap), data, how)

    try:
        return by_any_solver(solve, context)
    except SolverError as error:
        if not isinstance(privacy, MetricDP):
            # The other methods support only metric DP, so there is none to recommend.
            raise
        raise SolverError(f"{error}; --method auto solves the same problem without a solver's help") from error


def by_any_solver(solve: Callable[[SolveContext], Matrix], context: SolveContext) -> Matrix:
    """Solve a program with the requested solver, falling back to another one if it fails.

    Args:
        solve: A function that takes a context and solves the program with the solver named in it.
        context: The context, which names the requested solver.

    Raises:
        SolverDiedError: The process of the requested solver was killed. No other solver is tried in this case.
        SolverError: Both solvers failed, or no other solver is registered.
    """
    from privopt.backends.choose import names

    try:
        return solve(context)
    except SolverDiedError:
        # Whatever killed the process, such as a lack of memory, would probably kill the next solver's too.
        raise
    except SolverError as error:
        next_solver = next((name for name in names() if name != context.solver), None)
        if next_solver is None:
            raise
        try:
            answer = solve(evolve(context, solver=next_solver))
        except SolverError as second_error:
            raise SolverError(f"{error}; {second_error}") from error
        return evolve(answer, solver={**answer.solver, "path": f"{context.method} ({error}), {next_solver}"})


def search_structured(data: MetricData, offers: MatrixOffers, context: SolveContext, *, method: str = "auto") -> None:
    """Run structured solvers, which offer matrices and dual multipliers to a search.

    Structured solvers solve the LP for the optimal matrix without building all of it in memory.

    Args:
        data: The data of the problem.
        offers: The search that receives the results. It determines the gap to reach.
        context: The context of the run. Its free memory limits the solvers.
        method: The name of a structured solver, or "auto" to run the suitable solvers one after another until the gap
            is reached. The best matrix and the best bound found by any of them count.

    Raises:
        OutOfTime: The time limit expired. Earlier offers remain valid.
        SolverError: The requested method does not apply. The message names alternatives.
    """
    from privopt_metric_dp.solvers.auto import begins_with_star, search
    from privopt_metric_dp.solvers.instance import Instance

    # If the star solver comes first, `run_search` waits for it even beyond the time limit, which may therefore have
    # expired by now.
    with clock().without_deadline() if begins_with_star(*data.shape, method) else nullcontext():
        instance = Instance.of(data)
    solver_context = reserve_memory(context, *data.shape)
    search(instance, instance_view(data, offers), lambda: solver_context.free_memory, method)


PRICED_PER_OUTPUT: Final = 6
"""The largest number of priced records per output for which a bound over all streets is computed.

Priced records are those with dual multipliers. With more of them, the computation would take too long."""
OVER_ALL: Final = 2.0
"""The gap at which the search for a bound over all streets ends, as a multiple of the requested gap.

This gap is coarse because the bound is not requested and takes a long time to compute. For 5,000 nodes in Helsinki with
960 outputs, reaching a gap of 4 % took 95 s, and after 220 s the gap was still 3.8 %.
"""
CHOICE_TIME_SHARE: Final = 0.3
"""The fraction of the remaining time that choosing outputs may take."""


class Optimal(MetricMechanism[D], Generic[D]):
    """Base class for mechanisms that minimise the expected loss with the whole LP or with structured solvers."""

    any_notion = frozenset({"full"})
    closed_forms = frozenset({"auto", "star"})
    falls_back = True

    def matrix(self, problem: MetricInstance[D], context: SolveContext) -> Matrix:
        """Solve the whole LP, which has one variable per record and output, and return the resulting matrix."""
        return whole_program(problem.data, self.privacy(problem, "full"), self.utility(problem, "full"), context)

    def search(self, problem: MetricInstance[D], incumbent: MatrixOffers, context: SolveContext) -> None:
        """Solve the whole LP if it was requested and fits in memory. Otherwise, run structured solvers.

        For a privacy notion other than metric DP, the whole LP is solved even if its estimated size exceeds the free
        memory.
        """
        if context.method != "full":
            search_structured(problem.data, incumbent, context, method=context.method)
        # Structured solvers support only metric DP. For any other notion, the whole LP is solved, however large it is.
        elif full_bytes(problem.data) <= context.free_memory or not isinstance(self.privacy(problem, "full"), MetricDP):
            super().search(problem, incumbent, context)
        else:
            incumbent.note(f"full ({full_bytes(problem.data) / GB:.2g} GB, too much)")
            search_structured(problem.data, incumbent, context)


MIN_ADVANTAGE: Final = 0.02
"""The fraction by which noise without a mesh must reduce the estimated loss before it is recommended."""


def _compare_with_noise(problem: MetricInstance[MetricProblem], result: Result) -> Sequence[str]:
    """Return a sentence that recommends planar noise if it would have a clearly smaller loss than the release.

    Planar noise is added to the true position instead of a nearby vertex, and its outputs are remapped. It is
    recommended if its estimated loss is smaller by at least the fraction :data:`MIN_ADVANTAGE`. The comparison is only
    made if the guarantee covers a triangulated plane, the loss is the distance, and the problem does not remap outputs.
    Otherwise, the sequence is empty.
    """
    from privopt_metric_dp.problem.loss_kinds import DistanceLoss
    from privopt_metric_dp.region.region import Plane

    # `whole` is the data with all possible outputs, even if only some of them were chosen.
    data, utility = problem.whole, problem.declared.utility
    if not isinstance(data.region, Plane) or not isinstance(utility, DistanceLoss) or utility.remap:
        return ()
    from privopt_metric_dp.solvers.noise_at_positions import estimate_noise_loss, people_over_region

    people, shares = people_over_region(data, at_records=utility.prior is not None)
    estimate, value = estimate_noise_loss(people, shares, float(data.epsilon)), result.objective.value
    if estimate > value * (1.0 - MIN_ADVANTAGE):
        return ()
    return (
        f"Between the corners of a mesh rows change linearly, which loses {value:.3g} {result.objective.unit} here. "
        f"Noise at the position itself, remapped under the same prior, would lose about {estimate:.3g}: "
        "spherical-laplace draws it, for positions on Earth.",
    )


class OptimalLP(Optimal[MetricProblem]):
    """A mechanism that minimises the expected loss under metric DP (Bordenabe et al., CCS 2014)."""

    chooses = True

    def meaning(self, problem: MetricInstance[MetricProblem], release: MatrixRelease, result: Result) -> Sequence[str]:
        """Return the base class's sentences, and another one if planar noise would have a clearly smaller loss.

        See :func:`_compare_with_noise` for the conditions.
        """
        sentences = super().meaning(problem, release, result)
        return (*sentences, *_compare_with_noise(problem, result))

    def choose(self, problem: MetricInstance[MetricProblem], context: SolveContext) -> None:
        """Choose as outputs the records reported most often in a rough solution for a sample of the records."""
        from privopt_metric_dp.solvers.choose_outputs import choose_outputs

        time = Clock(CHOICE_TIME_SHARE * context.search_time.left, clock())
        problem.choose(choose_outputs(problem.whole, search_time=time, progress=context.report))

    def prove_over_all(
        self, problem: MetricInstance[MetricProblem], release: MatrixRelease, context: SolveContext
    ) -> tuple[Proof, float] | None:
        """Prove a lower bound on the loss of all mechanisms that may report any point on the streets.

        This is possible if losses are path lengths along streets with few junctions. Only junctions, dead ends and
        records that divide long streets have dual multipliers. Every other record lies on a stretch of street between
        two of these (docs/reference/proof.md, "Over all streets").

        Returns:
            The proof and its bound. None if the problem is unsuitable, if there is not enough time or memory, or if the
            multipliers prove no more than the trivial bound. The trivial bound is the loss if every record reports its
            cheapest output.
        """
        from privopt_metric_dp.proof.make_proof import prove_over_streets
        from privopt_metric_dp.solvers.street_bound import priced_records, solve_street_bound

        data, loss = problem.data, self.utility(problem, context.method)
        priced = priced_records(data, PRICED_PER_OUTPUT * len(data.outputs))
        if priced is None or not isinstance(loss, ExpectedLoss):
            return None
        try:
            with context.time_phase("solve"):
                multipliers = solve_street_bound(
                    data,
                    priced,
                    gap=OVER_ALL * context.gap,
                    memory_limit=context.free_memory,
                    seconds=context.search_time.left,
                    progress=context.report,
                )
        except CertificationError:  # some crossings are not records
            return None
        if multipliers is None:
            return None
        # The stated loss. The stated bound must not be rounded to a value above it.
        value = loss.state(release)[0] or 0.0
        with context.time_phase("verify"):
            return prove_over_streets(
                multipliers, priced, data, loss.weighted, value, gap=context.gap, memory_limit=context.free_memory
            )
