"""BD-mDP: Benders decomposition for metric differential privacy (Qiu, IJCAI 2024).

This file only registers the mechanism and its methods. :mod:`privopt_bd_mdp.model` contains the linear program and its
path cuts, :mod:`privopt_bd_mdp.partitioners` splits the records into subsets, and :mod:`privopt_bd_mdp.solver` chooses
the sequence of solvers for each connected component.
"""

from collections.abc import Sequence

from privopt.specs import MechanismSpec, MethodSpec, hookimpl

__all__ = ["privopt_mechanisms"]


@hookimpl
def privopt_mechanisms() -> Sequence[MechanismSpec]:
    """Return the specification of ``bd-mdp``, with Benders decomposition and the methods of ``optimal-lp``.

    The first method is the default. Because ``decomposes`` is set, the registry adds a method for each registered
    decomposer.
    """
    return [
        MechanismSpec(
            name="bd-mdp",
            target="privopt_bd_mdp.mechanism:BDmDP",
            guarantee="metric-dp",
            decomposes=True,
            summary="the least expected loss that metric DP allows, by partition and Benders decomposition",
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
