"""What a plan says of the split that it found."""

from fractions import Fraction

from privopt.interfaces.plan import Plan


def test_a_plan_claims_the_least_of_the_splits_it_tried_alone():
    """Splits are tried on a grid of twentieths: nothing is known of those between."""
    half = Fraction(1, 2)
    plan = Plan(
        method="m", budget="epsilon", unit="u", basis="b", parts=("p",), errors={half: (1.0,)}, best=((half,), (1.0,))
    )
    assert plan.lines()[-1] == "least of the splits tried: shares 1/2: 1"
    assert "in all" not in "".join(plan.lines())
