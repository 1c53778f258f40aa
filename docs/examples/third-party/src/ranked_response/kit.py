"""How the conformance kit draws problems for ranked-response."""

from decimal import Decimal

from hypothesis import strategies as st

from privopt.testing import GeneratedProblem, Variant, metric_profile, to_toml


@st.composite
def problems(draw):
    """Two to six answers, either loss, budgets small and large."""
    count = draw(st.integers(2, 6))
    attribute = {
        "ranks": [f"answer {n}" for n in range(count)],
        "loss": draw(st.sampled_from(["steps", "squared"])),
        "tilt": draw(st.sampled_from([0.0, 0.5])),
    }
    epsilon = Decimal(draw(st.sampled_from(["1.0", "0.1", "0.5", "3.0"])))
    return GeneratedProblem(toml=to_toml({"attribute": attribute, "privacy": {"epsilon": epsilon}}))


def renamed(problem, chance):
    """The same question with other words for its answers."""
    names = [f"word {n}" for n in chance.sample(range(100), len(problem.get("attribute.ranks")))]
    return Variant(problem=problem.with_key("attribute.ranks", names), change="every answer got another name")


PROFILE = metric_profile(problems=problems(), variants={"relabelling": renamed})
