"""Problems that the conformance kit draws for ranked-response and for the kinds."""

from decimal import Decimal

from hypothesis import strategies as st

from privopt.testing import GeneratedProblem, Variant, csv_bytes, to_toml
from privopt_metric_dp.kit import metric_problems, metric_profile


@st.composite
def problems(draw):
    """Draw a question with two to six answers, either loss, and a small or large epsilon."""
    count = draw(st.integers(2, 6))
    attribute = {
        "ranks": [f"answer {n}" for n in range(count)],
        "loss": draw(st.sampled_from(["steps", "squared"])),
        "tilt": draw(st.sampled_from([0.0, 0.5])),
    }
    epsilon = Decimal(draw(st.sampled_from(["1.0", "0.1", "0.5", "3.0"])))
    return GeneratedProblem(toml=to_toml({"attribute": attribute, "privacy": {"epsilon": epsilon}}))


def renamed(problem, chance):
    """Return the same question with other words for its answers."""
    names = [f"word {n}" for n in chance.sample(range(100), len(problem.get("attribute.ranks")))]
    return Variant(problem=problem.with_key("attribute.ranks", names), change="every answer got another name")


PROFILE = metric_profile(problems=problems(), variants={"relabelling": renamed})


@st.composite
def words(draw):
    """Draw a problem of two to five different words of one length, of which two may be the outputs."""
    size = draw(st.integers(1, 3))
    word = st.text("ab", min_size=size, max_size=size)
    records = draw(st.lists(word, min_size=2, max_size=5, unique=True)) if size > 1 else ["a", "b"]
    tables = {
        "records": {"points": "words.csv"},
        "distance": {"kind": "hamming"},
        "privacy": {"epsilon": Decimal("0.7")},
        "utility": {"kind": "distance"},
    }
    files = {"words.csv": csv_bytes(["id"], [[record_word] for record_word in records])}
    if draw(st.booleans()):
        tables["outputs"] = {"points": "outputs.csv"}
        files["outputs.csv"] = csv_bytes(["id"], [[record_word] for record_word in records[:2]])
    return GeneratedProblem(toml=to_toml(tables), files=files)


def approximate(problem):
    """Return the same problem under the (epsilon, delta) notion."""
    return problem.with_key("privacy.kind", "approximate-metric-dp").with_key("privacy.delta", Decimal("0.01"))


WORDS = words()
PLAIN = metric_problems(shapes=("grid", "points"), utilities=("distance",), budgets=("1.0", "0.5"))
APPROXIMATE = PLAIN.map(approximate)
