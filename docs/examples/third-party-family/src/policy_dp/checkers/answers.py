"""Check a release of answers under a policy, by code that shares nothing with the code that wrote it."""

import json
import math
from fractions import Fraction

from privopt.checker.compare import compare
from privopt.checker.exact import ONE, exp_down, low, need, number, rational

TOTAL = 2**63
"""Sum of each row of weights."""

LARGEST = 45
"""Larger exponents are replaced by this one, because no ratio of two weights is above exp(45)."""

CLOSE = frozenset({"certificate"})
"""Parts of result.json that may differ in the last digits, because logarithms depend on the platform."""


class Answers:
    """A table of weights, and the policy that says which of its rows must be alike."""

    def __init__(self, folder, problem, result):
        """Read the problem and answers.json.

        Raises:
            RefusedError: The problem or the weights have an unknown form.
        """
        problem.allow({"question", "policy", "privacy"})
        self.answers = problem.table("question", "answers")["answers"]
        self.policy = problem.table("policy", "kind blocks")
        self.epsilon = number(problem.table("privacy", "epsilon")["epsilon"])
        self.result = result
        contents = json.loads((folder / "answers.json").read_text("utf-8"))
        need(contents.keys() == {"answers", "weights"}, "answers.json: unknown here", 2)
        need(contents["answers"] == self.answers, "answers.json: other answers than the problem's")
        self.weights = contents["weights"]
        sides = {len(self.weights), *map(len, self.weights)}
        need(sides == {len(self.answers)}, "answers.json: not a row of weights for each answer", 2)
        are_integers = all(type(weight) is int and weight >= 0 for row in self.weights for weight in row)
        need(are_integers, "answers.json: weights that are no whole numbers", 2)
        self.pairs = self._pairs()

    def _pairs(self):
        """Return (answer, answer, steps) of all pairs that must be alike."""
        count = range(len(self.answers))
        answer_pairs = [(i, k) for i in count for k in count if i < k]
        if self.policy["kind"] == "steps":
            return [(i, k, k - i) for i, k in answer_pairs]
        need(self.policy["kind"] == "blocks", f"policy {self.policy['kind']!r}: unknown here", 2)
        blocks = [set(block) for block in self.policy["blocks"]]
        policy_answers = sorted(answer for block in self.policy["blocks"] for answer in block)
        need(policy_answers == sorted(self.answers), "policy.blocks: not each answer once", 2)
        together = [{self.answers[i], self.answers[k]} for i, k in answer_pairs]
        return [
            (i, k, 1)
            for (i, k), pair_blocks in zip(answer_pairs, together, strict=True)
            if any(pair_blocks <= block for block in blocks)
        ]

    def claims(self):
        """Return the claims to check, in order."""
        return {"privacy": self.privacy, "words": self.words}

    def privacy(self):
        """Check that each weight is at most exp(epsilon steps) times that of the same output in the other row.

        Raises:
            RefusedError: A weight is larger, or a row does not sum to 2**63.
        """
        need(self.epsilon > 0 and self.pairs, "problem: nothing is hidden", 2)
        need(all(sum(row) == TOTAL for row in self.weights), "a row that does not sum to 2**63")
        self.worst = 0.0
        for i, k, steps in self.pairs:
            max_ratio = exp_down(low(min(self.epsilon * steps, Fraction(LARGEST))))
            for output, output_weights in enumerate(zip(self.weights[i], self.weights[k], strict=True)):
                if max(output_weights):
                    place_text = f"answers {i} and {k}, output {output}"
                    need(max(output_weights) * ONE <= max_ratio * min(output_weights), f"{place_text}: told apart")
                    self.worst = max(self.worst, math.log(Fraction(max(output_weights), min(output_weights))) / steps)
        return f"{len(self.pairs)} pairs of answers are alike as the policy says"

    def words(self):
        """Check that result.json states what was measured.

        Raises:
            RefusedError: It does not.
        """
        right = sum(row[i] for i, row in enumerate(self.weights))
        epsilon, text = float(self.epsilon), str(self.result["guarantee"]["epsilon_text"])
        need(rational(text) == self.epsilon, "guarantee.epsilon_text: another number")
        promise = {
            "kind": "policy-dp",
            "epsilon": epsilon,
            "epsilon_text": text,
            "unit": "per step",
            "scope": self.policy["kind"],
        }
        measurement = {
            "worst": min(self.worst, epsilon),
            "allowed": epsilon,
            "checked": len(self.pairs) * len(self.answers),
        }
        return compare(
            self.result,
            promise=promise,
            measured=measurement,
            value=float(1 - Fraction(right, len(self.answers) * TOTAL)),
            unit="share",
            gap=None,
            close=CLOSE,
        )
