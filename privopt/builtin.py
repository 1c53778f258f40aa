"""What privopt itself brings: mechanisms and kinds, registered through the same door as any plugin's."""

from collections.abc import Sequence

from privopt.specs import KindSpec, MechanismSpec, MethodSpec, hookimpl

__all__ = ["privopt_kinds", "privopt_mechanisms"]


@hookimpl
def privopt_mechanisms() -> Sequence[MechanismSpec]:
    """Optimal LP, exponential, planar Laplace, constrained optimisation, given matrices, prediction over traces."""
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
            methods=[
                MethodSpec(name="exponential", summary="half of epsilon in the exponents, which always does"),
                MethodSpec(name="calibrated", summary="the largest share of epsilon that certifies"),
            ],
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
        MechanismSpec(
            name="given",
            target="privopt.metric.given:Given",
            guarantee="metric-dp",
            summary="a matrix made anywhere, repaired and certified",
            source="the matrix's own",
            methods=[
                MethodSpec(name="repair", summary="as it is where it keeps epsilon, else repaired"),
                MethodSpec(name="bounded", summary="the same, and what any other must lose, proved"),
            ],
        ),
        MechanismSpec(
            name="predictive",
            target="privopt.metric.traces.mechanism:Predictive",
            guarantee="trace-dp",
            summary="traces: keeps the last report while a private test finds it good, else draws an optimal one",
            source="Chatzikokolakis, Palamidessi, Stronati, PETS 2014; Dwork et al., STOC 2009",
            methods=[MethodSpec(name="auto", summary="fresh reports by the fastest structured solver")],
        ),
    ]


@hookimpl
def privopt_kinds() -> Sequence[KindSpec]:
    """Distances and losses of metric problems, notions of privacy, solvers, a decomposer."""
    rows = [
        ("distance", "euclidean", "privopt.metric.space.kinds:Euclidean", "straight lines between points or vectors"),
        ("distance", "haversine", "privopt.metric.space.kinds:Haversine", "great circles in km, R = 6371.0"),
        ("distance", "graph", "privopt.metric.space.kinds:Graph", "shortest paths over edges"),
        ("distance", "matrix", "privopt.metric.space.kinds:Table", "a table of distances"),
        ("loss", "distance", "privopt.metric.losses:DistanceLoss", "the distance from record to output"),
        ("loss", "travel-cost", "privopt.metric.losses:TravelCost", "the error in the travel distance to targets"),
        ("loss", "matrix", "privopt.metric.losses:CostMatrix", "a table of losses"),
        ("notion", "metric-dp", "privopt.metric.privacy:MetricDP", "odds change by exp(epsilon d) at most"),
        ("notion", "trace-dp", "privopt.metric.traces.notion:TraceDP", "metric DP of all reports of a trace together"),
        ("notion", "pure-dp", "privopt.interfaces.notions:PureDP", "epsilon-DP between neighbouring inputs"),
        ("notion", "local-dp", "privopt.interfaces.notions:LocalDP", "epsilon-DP of each sender's own report"),
        ("notion", "zcdp", "privopt.interfaces.gaussian:ZCDP", "rho-zero-concentrated DP between neighbouring inputs"),
        (
            "notion",
            "approx-dp",
            "privopt.interfaces.gaussian:ApproxDP",
            "(epsilon, delta)-DP between neighbouring inputs",
        ),
        ("notion", "none", "privopt.interfaces.notions:NoGuarantee", "no privacy: for comparison"),
        ("solver", "cbc", "privopt.backends.cbc:Cbc", "COIN-OR CBC, in a process of its own"),
        ("solver", "highs", "privopt.backends.highs:Highs", "HiGHS"),
        ("decomposer", "benders", "privopt.decompose.benders:Benders", "Benders decomposition, many cuts a round"),
    ]
    return [KindSpec(role=role, name=name, target=target, summary=summary) for role, name, target, summary in rows]
