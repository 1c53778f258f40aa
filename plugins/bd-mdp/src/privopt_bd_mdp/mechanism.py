"""BD-mDP as a mechanism: method benders, those of optimal-lp, and every registered decomposer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from privopt.interfaces import SolveContext
from privopt.search.incumbent import Answer
from privopt_bd_mdp.problem import BDmDPProblem
from privopt_metric_dp.mechanisms.certifier import CertifiedRelease, MatrixOffers, instance_view
from privopt_metric_dp.mechanisms.registered import Optimal
from privopt_metric_dp.problem.data import MetricInstance

__all__ = ["BDmDP"]


class BDmDP(Optimal[BDmDPProblem]):
    """The optimal mechanism by partition and decomposition (Qiu, IJCAI 2024)."""

    problem_class = BDmDPProblem
    kit = "privopt_bd_mdp.kit:PROFILE"
    reporting = "privopt_bd_mdp.report:BDmDPReporting"

    def search(self, problem: MetricInstance[BDmDPProblem], incumbent: MatrixOffers, context: SolveContext) -> None:
        """Search by decomposition, or by a method of optimal-lp."""
        from privopt_bd_mdp.solver import Parts
        from privopt_metric_dp.solvers.auto import METHODS, search
        from privopt_metric_dp.solvers.instance import Instance

        if context.method in (*METHODS, "full"):
            super().search(problem, incumbent, context)
            return
        options, instance = problem.declared.bd_mdp, Instance.of(problem.data)
        offers = instance_view(problem.data, incumbent)
        parts = Parts(instance, options, evolve(context, gap=offers.gap))
        incumbent.note("", partition=options.partition, parts=parts.figures)
        search(instance, offers, lambda: context.free_memory, parts)

    def describe_solver(self, answer: Answer[CertifiedRelease]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return also the figures of each part, where the report finds them."""
        solver, details = super().describe_solver(answer)
        if "parts" in answer.details:
            details = {**answer.details, "trajectory": answer.trajectory}
        return solver, details
