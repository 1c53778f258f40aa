"""The BD-mDP plugin: metric differential privacy by Benders decomposition (Qiu, IJCAI 2024).

This module only registers the mechanism and its methods. The linear program and its path cuts are in
:mod:`privopt_bd_mdp.model`. Records are divided into subsets by :mod:`privopt_bd_mdp.partitioners`, and
:mod:`privopt_bd_mdp.solver` decides which solvers run on each connected component of the problem.
"""

from collections.abc import Sequence

from privopt.specs import MechanismSpec, MethodSpec, hookimpl

__all__ = ["privopt_mechanisms"]


@hookimpl
def privopt_mechanisms() -> Sequence[MechanismSpec]:
    """Return the specification of the ``bd-mdp`` mechanism.

    Its methods are Benders decomposition (the default) and those of ``optimal-lp``. Because ``decomposes`` is set, the
    registry also adds a method for each registered decomposer.
    """
    return [
        MechanismSpec(
            name="bd-mdp",
            target="privopt_bd_mdp.mechanism:BDmDP",
            guarantee="metric-dp",
            decomposes=True,
            summary="the smallest expected loss that metric DP allows, by partitioning and Benders decomposition",
            source="Qiu, Enhancing Scalability of Metric Differential Privacy via Secret Dataset Partitioning and "
            "Benders Decomposition, IJCAI 2024",
            methods=[
                MethodSpec(name="benders", summary="partition, master and blocks, cross decomposition", gap=1e-2),
                MethodSpec(name="auto", summary="the fastest of those below for the problem"),
                MethodSpec(name="star", summary="closed form where it is optimal, else a near-optimal start"),
                MethodSpec(name="column-generation", summary="Dantzig-Wolfe over the rays of the privacy cone"),
                MethodSpec(name="interior-point", summary="structured interior point, for small epsilon and all pairs"),
                MethodSpec(name="full", summary="the whole LP through the modelling language, by CBC or HiGHS"),
            ],
        )
    ]
