"""policy-response: one answer, the less likely the farther it is from the truth."""

import json
import math
from fractions import Fraction
from operator import index

import numpy as np
from attrs import field, frozen

import privopt
from policy_dp.notion import PolicyDP
from policy_dp.policies import Policy
from privopt.declare import key, positive
from privopt.errors import Fault, InputError, UsageError
from privopt.interfaces import Channel, Mechanism, Outcome, Release, UtilityLoss
from privopt.numbers import TOTAL, draw

KEPT = Fraction(999, 1000)
"""Share of epsilon that is used; the rest is for rounding to whole numbers."""

DEPTH = 20.0
"""An answer that must be like the truth is at least exp(-DEPTH) times as likely."""

FILE = "answers.json"


def _different(answers):
    """Return None for two or more different answers, and otherwise the text of what is expected."""
    return None if len(set(answers)) == len(answers) >= 2 else "two or more different answers"


@frozen(kw_only=True)
class Question:
    """The table [question]."""

    answers: tuple[str, ...] = key(help="the answers there are, in their order", check=_different)


@frozen(kw_only=True)
class Budget:
    """The table [privacy]."""

    epsilon: Fraction = key(help="privacy budget", unit="per step", check=positive)


@frozen(kw_only=True)
class PolicyProblem:
    """A question, and the policy that says which of its answers must be alike."""

    question: Question = key(help="what is asked")
    policy: Policy = key(help="which answers must be alike", kinds="policy")
    privacy: Budget = key(help="how much may leak")


@frozen(kw_only=True)
class PolicyInstance:
    """A problem, and the steps between its answers.

    Attributes:
        declared: The problem as its file declares it.
        distances: n rows of n whole numbers of steps; None where nothing is required.
    """

    declared: PolicyProblem
    distances: tuple


@frozen(kw_only=True, eq=False)
class AnswerRelease(Release):
    """The probability of each reported answer given the true one, as integer weights.

    Attributes:
        records: The n answers.
        weights: (n, n) uint64 weights, true answers by reported ones. Each row sums to 2**63.
    """

    records: tuple
    weights: np.ndarray = field(converter=lambda rows: np.array(rows, dtype=np.uint64))

    @property
    def outputs(self):
        """The possible reports, which are the answers."""
        return self.records

    def write(self, folder):
        """Write answers.json."""
        contents = {"answers": list(self.records), "weights": self.weights.tolist()}
        (folder / FILE).write_text(json.dumps(contents, indent=1) + "\n", "utf-8")

    @classmethod
    def read(cls, folder, problem):
        """Read answers.json.

        Raises:
            InputError: The file has other contents.
        """
        answers = problem.declared.question.answers
        try:
            contents = json.loads((folder / FILE).read_text("utf-8"))
            weights = [[index(weight) for weight in row] for row in contents["weights"]]  # whole numbers alone
            release = cls(records=tuple(contents["answers"]), weights=weights)
        except (ValueError, OverflowError, KeyError, TypeError):
            raise InputError([Fault(FILE, "", "other contents", "answers and weights")]) from None
        if release.records != answers or release.weights.shape != (len(answers), len(answers)):
            raise InputError(
                [Fault(FILE, "answers", "other answers", "those of the problem, a row of weights for each")]
            )
        return release

    def sample(self, input_id, count):
        """Draw reports of somebody whose answer is ``input_id``.

        Raises:
            UsageError: It is not one of the answers.
        """
        if input_id not in self.records:
            raise UsageError(f"answer: expected one of {', '.join(self.records)}, got {input_id!r}")
        row = self.weights[self.records.index(input_id)]
        return [self.records[number] for number in draw(row, count).tolist()]

    def channel(self):
        """Return the probabilities of reports given answers, for ``privopt estimate``."""
        return Channel(inputs=self.records, outputs=self.records, probabilities=self.weights / float(TOTAL))


@frozen(kw_only=True)
class ChangedAnswers(UtilityLoss):
    """The share of reports that are not the true answer, if all answers are equally likely."""

    unit: str = "share"

    def evaluate(self, release):
        """Return the share, computed exactly from the weights and rounded once."""
        right = sum(int(weight) for weight in np.diag(release.weights))
        return float(1 - Fraction(right, len(release.records) * TOTAL))


class PolicyResponse(Mechanism):
    """The exponential mechanism over the policy's distances."""

    problem_class = PolicyProblem
    release_class = AnswerRelease
    kit = "policy_dp.kit:PROFILE"
    scope = "Hides one person's answer from whoever gets the report, from the others that the policy sets beside it."

    def load(self, declared, file):
        """Compute the distances.

        Raises:
            InputError: The policy hides nothing, or epsilon is too small for weights of 63 bits.
        """
        answers = declared.question.answers
        rows = tuple(map(tuple, declared.policy.distances(answers, file)))
        if not any(steps for row in rows for steps in row):
            raise InputError([Fault(file, "policy", "no two answers that must be alike", "one such pair or more")])
        # Rounding to integers changes the logarithm of a ratio of weights by less than 4 n exp(DEPTH) / TOTAL. The
        # unused share of epsilon must allow that.
        min_epsilon = 4 * len(answers) * math.exp(DEPTH) / TOTAL / float(1 - KEPT)
        if declared.privacy.epsilon < min_epsilon:
            actual = f"{float(declared.privacy.epsilon):g}"
            expectation = f"at least {min_epsilon:.3g} (probabilities are rounded to whole numbers)"
            raise InputError([Fault(file, "privacy.epsilon", actual, expectation)])
        return PolicyInstance(declared=declared, distances=rows)

    def privacy(self, problem, method):
        """Return the notion, with the problem's distances."""
        keys = problem.declared
        return PolicyDP(epsilon=keys.privacy.epsilon, policy=keys.policy.kind, distances=problem.distances)

    def utility(self, problem, method):
        """Return the loss."""
        return ChangedAnswers()

    def probabilities(self, problem, steps):
        """Return n numbers in proportion to the probabilities of the answers, for one true answer.

        Args:
            problem: The problem, for its epsilon.
            steps: n numbers of steps from the true answer; None where nothing is hidden.
        """
        half = float(KEPT * problem.declared.privacy.epsilon) / 2
        return [0.0 if d is None else math.exp(max(-half * d, -DEPTH)) for d in steps]

    def solve(self, problem, context):
        """Round the probabilities down to integer weights, and add the remainder to the true answer."""
        weights = []
        for true, steps in enumerate(problem.distances):
            shares = [Fraction(exact_share) for exact_share in self.probabilities(problem, steps)]
            row = [int(exact_share * TOTAL / sum(shares)) for exact_share in shares]
            row[true] += TOTAL - sum(row)
            weights.append(row)
        return Outcome(release=AnswerRelease(records=problem.declared.question.answers, weights=weights))


def policy_problem(answers, *, epsilon, policy="steps", **keys):
    """Make a problem in memory: ``privopt.policy_problem(["no", "yes"], epsilon=1)``.

    Args:
        answers: The possible answers, in their order.
        epsilon: Epsilon per step.
        policy: Kind of policy.
        keys: Further keys of ``[policy]``.
    """
    return privopt.problem(
        question={"answers": list(answers)}, policy={"kind": policy, **keys}, privacy={"epsilon": epsilon}
    )
