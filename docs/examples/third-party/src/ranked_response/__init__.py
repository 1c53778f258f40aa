"""ranked-response: randomised response for answers that have an order, at the least expected loss."""

from privopt.specs import MechanismSpec, MethodSpec, hookimpl


@hookimpl
def privopt_mechanisms():
    """What this distribution registers."""
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
