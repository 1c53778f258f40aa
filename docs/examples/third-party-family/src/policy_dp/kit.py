"""The family's part for the conformance kit: problems, a check of releases of answers, and one of policies."""

import time
from decimal import Decimal
from fractions import Fraction

from hypothesis import strategies as st

from policy_dp.mechanism import AnswerRelease
from privopt.numbers import exp_fixed
from privopt.registry import registry
from privopt.testing import CheckResult, GeneratedProblem, Profile, Variant, check, to_toml

QUESTION = tuple(f"answer {number}" for number in range(5))


def problem_of(answers, policy, epsilon):
    """Return the problem file of a question with these answers, a table ``[policy]``, and epsilon."""
    tables = {"question": {"answers": list(answers)}, "policy": policy, "privacy": {"epsilon": Decimal(epsilon)}}
    return GeneratedProblem(toml=to_toml(tables))


@st.composite
def problems(draw, epsilons=("1.0", "0.1", "3.0", "40.0")):
    """Draw a problem with two to five answers under either policy."""
    answers = QUESTION[: draw(st.integers(2, 5))]
    cut = draw(st.integers(2, len(answers)))
    blocks = [list(block) for block in (answers[:cut], answers[cut:]) if block]
    policy = draw(st.sampled_from([{"kind": "steps"}, {"kind": "blocks", "blocks": blocks}]))
    return problem_of(answers, policy, draw(st.sampled_from(epsilons)))


def renamed(problem, chance):
    """Return the same question with other words for its answers."""
    answers = problem.get("question.answers")
    names = dict(zip(answers, (f"word {n}" for n in chance.sample(range(100), len(answers))), strict=True))
    renamed_problem = problem.with_key("question.answers", list(names.values()))
    if problem.get("policy.kind") == "blocks":
        blocks = [[names[answer] for answer in block] for block in problem.get("policy.blocks")]
        renamed_problem = renamed_problem.with_key("policy.blocks", blocks)
    return Variant(problem=renamed_problem, change="every answer got another name")


def nothing_near(problem):
    """Return the problem with each answer in a block of its own."""
    blocks = [[answer] for answer in problem.get("question.answers")]
    return problem.with_key("policy.kind", "blocks").with_key("policy.blocks", blocks)


def stricter(problem):
    """Return the problem with half of epsilon."""
    return problem.with_key("privacy.epsilon", Decimal(problem.get("privacy.epsilon")) / 2)


def alike(problem):
    """Yield (answer, answer, steps) of the pairs that must be alike, by a search over answers one step apart."""
    answers = problem.declared.question.answers
    for start, row in enumerate(step_counts(problem.distances)):
        yield from ((answers[start], answers[end], float(steps)) for end, steps in row.items() if start < end)


def step_counts(distances):
    """Return, for each answer, the least steps to every answer within reach, by breadth-first search."""
    neighbours = [{k for k, steps in enumerate(row) if steps == 1} for row in distances]
    counts_by_answer = []
    for start in range(len(distances)):
        steps_by_answer, front = {start: 0}, {start}
        while front:
            steps = 1 + steps_by_answer[next(iter(front))]
            front = {k for i in front for k in neighbours[i]} - steps_by_answer.keys()
            steps_by_answer |= dict.fromkeys(front, steps)
        counts_by_answer.append(steps_by_answer)
    return counts_by_answer


PROFILE = Profile(
    problems=problems(),
    alike=alike,
    stricter=stricter,
    nothing_near=nothing_near,
    variants={"relabelling": renamed},
    skip={
        "reordering": "the order of the answers is what the policy speaks of",
        "units": "steps are counted in no other unit",
        "oracle": "any weights that keep the policy will do",
    },
)


def holds_answers(release):
    """Return whether a class of releases has the weights that ``policy-kept`` checks."""
    return issubclass(release, AnswerRelease)


@check("policy-kept", of={"answers"})
def policy_kept(trial):
    """Check that answers within reach differ by a factor of at most exp(epsilon times the least steps)."""
    problem = trial.problem()
    run = trial.run(problem)
    epsilon, rows = run.problem.declared.privacy.epsilon, run.release.weights.tolist()
    for i, steps_by_answer in enumerate(step_counts(run.problem.distances)):
        for k, steps in steps_by_answer.items():
            max_ratio = exp_fixed(min(epsilon * steps, Fraction(45)), 64)[1]
            if any(
                weight << 64 > max_ratio * other_weight for weight, other_weight in zip(rows[i], rows[k], strict=True)
            ):
                trial.fail(f"answers {i} and {k}, {steps} steps apart, can be told apart", problem)


def is_a_distance(name, how, seed):
    """Check that a policy's distances are as :meth:`policy_dp.policies.Policy.distances` specifies."""
    start_seconds = time.perf_counter()
    policy = registry().kind("policy", name).load()
    keys = {"blocks": (QUESTION[:3], QUESTION[3:])} if name == "blocks" else {}
    rows = policy(**keys).distances(QUESTION, "problem")
    fault = ""
    for i, row in enumerate(rows):
        if row[i] != 0 or any(row[k] != rows[k][i] for k in range(len(rows))):
            fault = f"answer {i}: expected 0 to itself and the same there and back, got {row}"
    steps_by_answer = [{k: steps for k, steps in enumerate(row) if steps is not None} for row in rows]
    if not fault and steps_by_answer != step_counts(rows):
        fault = f"expected the fewest steps between answers one step apart, got {rows}"
    return CheckResult(
        check="is-a-distance",
        version=1,
        status="failed" if fault else "passed",
        reason=fault,
        seconds=time.perf_counter() - start_seconds,
        examples=1,
    )
