"""The BD-mDP mechanism, solved by ``benders``, by any method of optimal-lp, or by any registered decomposer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from privopt.interfaces import SolveContext
from privopt.search.incumbent import Answer
from privopt_bd_mdp.problem import BDmDPProblem
from privopt_metric_dp.mechanisms.certifier import CertifiedRelease, MatrixOffers, instance_view, reserve_memory
from privopt_metric_dp.mechanisms.optimal_lp import Optimal
from privopt_metric_dp.problem.data import MetricInstance

__all__ = ["BDmDP"]


class BDmDP(Optimal[BDmDPProblem]):
    """The optimal metric DP mechanism, computed by Benders decomposition over a partition (Qiu, IJCAI 2024)."""

    problem_class = BDmDPProblem
    kit = "privopt_bd_mdp.kit:PROFILE"
    reporting = "privopt_bd_mdp.report:BDmDPReporting"

    def search(self, problem: MetricInstance[BDmDPProblem], incumbent: MatrixOffers, context: SolveContext) -> None:
        """Search for the optimal matrix with ``context.method``, giving ``incumbent`` each matrix and bound found.

        Methods inherited from ``optimal-lp`` run exactly as they do there. For ``benders`` and registered decomposers,
        :class:`privopt_bd_mdp.solver.Parts` chooses the solvers for each connected component of the graph of required
        pairs.

        Args:
            problem: The loaded problem.
            incumbent: The collector of results. It certifies the best matrix and derives the best lower bound from the
                multipliers it receives.
            context: The run's method, solver, optimality gap and limits.
        """
        # Imported late because solvers are slow to import, and many commands only read the registration.
        from privopt_bd_mdp.solver import Parts
        from privopt_metric_dp.solvers.auto import METHODS, search
        from privopt_metric_dp.solvers.instance import Instance

        if context.method in (*METHODS, "full"):
            super().search(problem, incumbent, context)
            return
        options, instance = problem.declared.bd_mdp, Instance.of(problem.data)
        offers = instance_view(problem.data, incumbent)
        # The list of statistics is attached to the result before the search, which then appends to it. In this way the
        # statistics survive even if the run is stopped early.
        solver_context = reserve_memory(evolve(context, gap=offers.gap), *problem.data.shape)
        parts = Parts(instance, options, solver_context)
        incumbent.note("", partition=options.partition, parts=parts.figures)
        search(instance, offers, lambda: solver_context.free_memory, parts)

    def describe_solver(self, answer: Answer[CertifiedRelease]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the solver's summary and details, which are stored in result.json.

        For decompositions, the details are the statistics collected during the search, together with the trajectory of
        the best value and bound over time. The report reads the statistics of each part from these details
        (:func:`privopt_bd_mdp.report.sections`).
        """
        solver, details = super().describe_solver(answer)
        if "parts" in answer.details:
            details = {**answer.details, "trajectory": answer.trajectory}
        return solver, details
