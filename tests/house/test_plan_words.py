"""What a plan says of the split that it found."""

from fractions import Fraction

from privopt.interfaces.plan import Plan


def test_a_plan_claims_the_best_split_that_it_found_alone_and_shows_simpler_ways_beside_it():
    """A search finds no more than it finds: nothing is said of all splits."""
    half = Fraction(1, 2)
    plan = Plan(
        method="m",
        budget="epsilon",
        unit="u",
        basis="b",
        parts=("p",),
        errors={half: (1.0,)},
        best=((half,), (1.0,)),
        baselines={"leaves-only": {half: (2.0,)}},
        own=half,
    )
    head, row, best = plan.lines()[1:]
    assert head.split() == ["epsilon", "0.5", "leaves-only", "best", "split"]
    assert row.split() == ["p", "1", "2", "1"]
    assert best == "best split found: 1/2"
    assert plan.to_json()["baselines"][0]["by_part"] == [2.0]
