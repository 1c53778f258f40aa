"""The plugin's hooks, which register the mechanisms, kinds, roles, commands, names, checks and templates of metric DP.

Specs refer to their targets by name, so registering a spec does not import its target.
"""

from collections.abc import Sequence

from privopt.specs import (
    CheckSpec,
    CommandSpec,
    KindSpec,
    MechanismSpec,
    MethodSpec,
    NameSpec,
    RoleSpec,
    TemplateSpec,
    hookimpl,
)

__all__ = [
    "privopt_checks",
    "privopt_commands",
    "privopt_kinds",
    "privopt_mechanisms",
    "privopt_names",
    "privopt_roles",
    "privopt_templates",
]


@hookimpl
def privopt_mechanisms() -> Sequence[MechanismSpec]:
    """Return the optimal mechanism, the baselines, and the mechanisms for given matrices and for traces."""
    return [
        MechanismSpec(
            name="optimal-lp",
            target="privopt_metric_dp.mechanisms.optimal_lp:OptimalLP",
            guarantee="metric-dp",
            summary="the smallest expected loss that metric DP allows",
            source="Bordenabe, Chatzikokolakis, Palamidessi, CCS 2014",
            methods=[
                MethodSpec(name="auto", summary="the fastest of the others for the problem"),
                MethodSpec(name="star", summary="closed form where it is optimal, else a near-optimal start"),
                MethodSpec(name="column-generation", summary="Dantzig-Wolfe over the rays of the privacy cone"),
                MethodSpec(name="interior-point", summary="structured interior point, for small epsilon and all pairs"),
                MethodSpec(name="full", summary="the whole LP through the modelling language, by CBC or HiGHS"),
            ],
        ),
        MechanismSpec(
            name="exponential",
            target="privopt_metric_dp.mechanisms.baselines:Exponential",
            guarantee="metric-dp",
            summary="the exponential mechanism: probabilities proportional to exp(-epsilon d / 2)",
            source="McSherry, Talwar, FOCS 2007; Chatzikokolakis et al., PETS 2013",
            methods=[
                MethodSpec(name="exponential", summary="half of epsilon in the exponents, which always certifies"),
                MethodSpec(name="calibrated", summary="the largest share of epsilon that certifies"),
            ],
        ),
        MechanismSpec(
            name="planar-laplace",
            target="privopt_metric_dp.mechanisms.baselines:PlanarLaplace",
            guarantee="metric-dp",
            summary="planar Laplace noise, remapped to the nearest output",
            source="Andrés, Bordenabe, Chatzikokolakis, Palamidessi, CCS 2013",
            methods=[MethodSpec(name="voronoi", summary="integrated over the outputs' Voronoi cells")],
        ),
        MechanismSpec(
            name="const-opt",
            target="privopt_metric_dp.mechanisms.baselines:ConstOptimal",
            guarantee="metric-dp",
            summary="a linear program near each record, and exponentially decaying probabilities beyond a radius",
            source="Imola, Kasiviswanathan, White, Aggarwal, Teissier, UAI 2022",
            methods=[MethodSpec(name="full", summary="the LP through the modelling language, by CBC or HiGHS")],
        ),
        MechanismSpec(
            name="given",
            target="privopt_metric_dp.mechanisms.given_matrix:Given",
            guarantee="metric-dp",
            summary="repairs and certifies a matrix from any other program",
            source="the matrix's own",
            methods=[
                MethodSpec(name="repair", summary="as it is if it satisfies epsilon, else repaired"),
                MethodSpec(name="bounded", summary="the same, with a proved lower bound on the loss of any other"),
            ],
        ),
        MechanismSpec(
            name="predictive",
            target="privopt_metric_dp.mechanisms.predictive:Predictive",
            guarantee="trace-dp",
            summary="reports along a trace: repeats the last one while a private test accepts it, otherwise draws anew",
            source="Chatzikokolakis, Palamidessi, Stronati, PETS 2014; Dwork et al., STOC 2009",
            methods=[MethodSpec(name="auto", summary="fresh reports by the fastest structured solver")],
        ),
    ]


@hookimpl
def privopt_kinds() -> Sequence[KindSpec]:
    """Return the kinds of distance, loss and privacy notion available to metric problems."""
    distances, losses = "privopt_metric_dp.problem.distance_kinds", "privopt_metric_dp.problem.loss_kinds"
    rows = [
        ("distance", "euclidean", f"{distances}:Euclidean", "straight lines between points or vectors"),
        ("distance", "haversine", f"{distances}:Haversine", "great circles in km, R = 6371.0"),
        ("distance", "graph", f"{distances}:Graph", "shortest paths over edges"),
        ("distance", "matrix", f"{distances}:Table", "a table of distances"),
        ("loss", "distance", f"{losses}:DistanceLoss", "the distance from record to output"),
        ("loss", "travel-cost", f"{losses}:TravelCost", "the error in the travel distance to targets"),
        ("loss", "matrix", f"{losses}:CostMatrix", "a table of losses"),
        ("notion", "metric-dp", "privopt_metric_dp.matrix.privacy:MetricDP", "odds change by exp(epsilon d) at most"),
        (
            "notion",
            "trace-dp",
            "privopt_metric_dp.mechanisms.trace_dp:TraceDP",
            "metric DP of all reports of a trace together",
        ),
    ]
    return [KindSpec(role=role, name=name, target=target, summary=summary) for role, name, target, summary in rows]


@hookimpl
def privopt_roles() -> Sequence[RoleSpec]:
    """Return the roles "distance" and "loss".

    For each role, a problem file selects one of the registered kinds.
    """
    kinds = "privopt_metric_dp.problem.declared"
    return [
        RoleSpec(name="distance", base=f"{kinds}:DistanceKind", summary="a distance between records"),
        RoleSpec(name="loss", base=f"{kinds}:LossKind", summary="the loss of releasing an output for a record"),
    ]


@hookimpl
def privopt_commands() -> Sequence[CommandSpec]:
    """Return the ``certify`` command."""
    commands = "privopt_metric_dp.commands"
    return [
        CommandSpec(
            name="certify",
            target=f"{commands}.certify:certify",
            summary="Compute the least epsilon that a matrix satisfies.",
            group="Check a release",
            example="privopt certify matrix.npy problem.toml",
            page="docs/explanation/questions.md",
        ),
    ]


@hookimpl
def privopt_names() -> Sequence[NameSpec]:
    """Return the functions exported by ``privopt`` for building metric problems and certifying matrices."""
    parts = ("cost", "distances", "grid", "mesh", "metric_problem", "records", "roads", "travel_cost", "vectors")
    homes = dict.fromkeys(parts, "privopt_metric_dp.api.problem_parts")
    homes |= {"certify": "privopt_metric_dp.mechanisms.certify_matrix"}
    return [NameSpec(name=name, target=f"{home}:{name}") for name, home in homes.items()]


@hookimpl
def privopt_checks() -> Sequence[CheckSpec]:
    """Return the conformance checks for metric mechanisms and for kinds of distance, loss and privacy notion."""
    kit = "privopt_metric_dp.kit"
    kinds = f"{kit}.check_kinds"
    return [
        CheckSpec(name="input-order", target=f"{kit}.check_matrix:input_order"),
        CheckSpec(name="expected-loss", target=f"{kit}.check_matrix:expected_loss"),
        CheckSpec(name="distances", target=f"{kit}.check_distances:distances"),
        CheckSpec(name="every-point", target=f"{kit}.check_region:every_point"),
        CheckSpec(role="distance", name="distances", target=f"{kinds}:distances"),
        CheckSpec(role="loss", name="losses", target=f"{kinds}:losses"),
        CheckSpec(role="notion", name="planted-violation", target=f"{kinds}:planted_violation"),
        CheckSpec(role="notion", name="released", target=f"{kinds}:released"),
    ]


@hookimpl
def privopt_templates() -> Sequence[TemplateSpec]:
    """Return the templates for new mechanism projects: one that releases a matrix and one that samples reports."""
    template_files, package = ("example.toml", "mechanism.py", "kit.py"), "privopt_metric_dp"
    return [
        TemplateSpec(
            name="matrix",
            package=package,
            files=template_files,
            notion="metric-dp",
            method="lp",
            does="the linear program, by CBC or HiGHS",
            needs=("privopt-metric-dp",),
        ),
        TemplateSpec(
            name="sampler",
            package=package,
            files=template_files,
            notion="metric-dp",
            method="shift",
            does="discrete Laplace noise on a place",
            needs=("privopt-metric-dp",),
        ),
    ]
