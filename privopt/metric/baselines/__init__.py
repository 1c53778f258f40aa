"""The baselines that come with privopt, registered through the same door as any plugin."""

from collections.abc import Sequence

from privopt.specs import MechanismSpec, MethodSpec, hookimpl

__all__ = ["privopt_mechanisms"]


@hookimpl
def privopt_mechanisms() -> Sequence[MechanismSpec]:
    """Optimal LP, exponential, planar Laplace, constrained optimisation."""
    return [
        MechanismSpec(
            name="optimal-lp",
            target="privopt.metric.baselines.mechanisms:OptimalLP",
            guarantee="metric-dp",
            summary="the least expected loss that metric DP allows",
            source="Bordenabe, Chatzikokolakis, Palamidessi, CCS 2014",
            methods=[
                MethodSpec(name="auto", summary="the fastest of the others for the problem at hand"),
                MethodSpec(name="star", summary="closed form where it is optimal, else a near-optimal start"),
                MethodSpec(name="column-generation", summary="Dantzig-Wolfe over the rays of the privacy cone"),
                MethodSpec(name="interior-point", summary="structured interior point, for small epsilon and all pairs"),
                MethodSpec(name="full", summary="the whole LP through the modelling language, by CBC or HiGHS"),
            ],
        ),
        MechanismSpec(
            name="exponential",
            target="privopt.metric.baselines.mechanisms:Exponential",
            guarantee="metric-dp",
            summary="probabilities proportional to exp(-epsilon d / 2)",
            source="McSherry, Talwar, FOCS 2007; Chatzikokolakis et al., PETS 2013",
            methods=[MethodSpec(name="closed-form", summary="no solver")],
        ),
        MechanismSpec(
            name="planar-laplace",
            target="privopt.metric.baselines.mechanisms:PlanarLaplace",
            guarantee="metric-dp",
            summary="planar Laplace noise, remapped to the nearest output",
            source="Andrés, Bordenabe, Chatzikokolakis, Palamidessi, CCS 2013",
            methods=[MethodSpec(name="voronoi", summary="integrated over the outputs' Voronoi cells")],
        ),
        MechanismSpec(
            name="const-opt",
            target="privopt.metric.baselines.mechanisms:ConstOptimal",
            guarantee="metric-dp",
            summary="LP near the record, exponential form beyond a radius",
            source="Imola, Kasiviswanathan, White, Aggarwal, Teissier, UAI 2022",
            methods=[MethodSpec(name="full", summary="the LP through the modelling language, by CBC or HiGHS")],
        ),
    ]
