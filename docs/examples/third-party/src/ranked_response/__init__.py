"""ranked-response: randomised response for answers that have an order, and kinds that every mechanism can use."""

from privopt.specs import KindSpec, MechanismSpec, MethodSpec, hookimpl


@hookimpl
def privopt_mechanisms():
    """Register the mechanisms of this distribution."""
    return [
        MechanismSpec(
            name="ranked-response",
            target="ranked_response.mechanism:RankedResponse",
            guarantee="metric-dp",
            summary="one answer out of a ranked list, with plausible denial, at the least expected error in ranks",
            source="Warner, JASA 1965; Kairouz, Oh, Viswanath, JMLR 2016",
            methods=[
                MethodSpec(name="optimal", summary="the linear program, by CBC or HiGHS"),
                MethodSpec(
                    name="warner", summary="Warner's: the truth with e^epsilon to 1, else any other answer alike"
                ),
            ],
        )
    ]


@hookimpl
def privopt_kinds():
    """Register a distance, a loss, a notion of privacy, a solver and a decomposer: all without a change to privopt."""
    rows = [
        ("distance", "hamming", "distances:Hamming", "places in which two words of one length differ"),
        ("loss", "squared-distance", "losses:SquaredDistance", "the squared distance from record to output"),
        ("notion", "approximate-metric-dp", "notions:ApproximateMetricDP", "metric DP but for a probability delta"),
        ("solver", "clarabel", "solvers:Clarabel", "the interior-point solver Clarabel"),
        ("decomposer", "lazy-rows", "decomposers:LazyRows", "rows of each block brought in as they are missed"),
    ]
    return [
        KindSpec(role=role, name=name, target=f"ranked_response.{path}", summary=summary)
        for role, name, path, summary in rows
    ]
