"""The BD-mDP mechanism, whose methods are ``benders``, the methods of optimal-lp, and every registered decomposer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from privopt.interfaces import SolveContext
from privopt.search.incumbent import Answer
from privopt_bd_mdp.problem import BDmDPProblem
from privopt_metric_dp.mechanisms.certifier import CertifiedRelease, MatrixOffers, instance_view
from privopt_metric_dp.mechanisms.optimal_lp import Optimal
from privopt_metric_dp.problem.data import MetricInstance

__all__ = ["BDmDP"]


class BDmDP(Optimal[BDmDPProblem]):
    """The optimal metric DP mechanism, computed by Benders decomposition over a partition (Qiu, IJCAI 2024)."""

    problem_class = BDmDPProblem
    kit = "privopt_bd_mdp.kit:PROFILE"
    reporting = "privopt_bd_mdp.report:BDmDPReporting"

    def search(self, problem: MetricInstance[BDmDPProblem], incumbent: MatrixOffers, context: SolveContext) -> None:
        """Search for the optimal matrix by the method ``context.method``, and offer every result to ``incumbent``.

        The methods of optimal-lp run unchanged. For ``benders`` and the registered decomposers,
        :class:`privopt_bd_mdp.solver.Parts` chooses the solvers for each connected component of the required pairs.

        Args:
            problem: The loaded problem.
            incumbent: The object that receives matrices and multipliers. It certifies the best matrix, and proves the
                best bound that it can.
            context: The method, solver, optimality gap and limits of the run.
        """
        # Imported here because solvers are slow to import and many commands only read the registration.
        from privopt_bd_mdp.solver import Parts
        from privopt_metric_dp.solvers.auto import METHODS, search
        from privopt_metric_dp.solvers.instance import Instance

        if context.method in (*METHODS, "full"):
            super().search(problem, incumbent, context)
            return
        options, instance = problem.declared.bd_mdp, Instance.of(problem.data)
        offers = instance_view(problem.data, incumbent)
        # The statistics are noted before the search and filled in during it, so that a stopped run has them as well.
        parts = Parts(instance, options, evolve(context, gap=offers.gap))
        incumbent.note("", partition=options.partition, parts=parts.figures)
        search(instance, offers, lambda: context.free_memory, parts)

    def describe_solver(self, answer: Answer[CertifiedRelease]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the solver's summary and the solver's details for result.json.

        After a decomposition, the details are those of the answer, plus its trajectory: the values and bounds over
        time. The report reads each part's statistics from them (:func:`privopt_bd_mdp.report.sections`).
        """
        solver, details = super().describe_solver(answer)
        if "parts" in answer.details:
            details = {**answer.details, "trajectory": answer.trajectory}
        return solver, details
