"""The notion: the odds of two answers that are d steps apart change by a factor of at most exp(epsilon d)."""

from fractions import Fraction
from typing import ClassVar

from attrs import frozen

from privopt.interfaces import Certificate, Guarantee
from privopt.interfaces.notions import BoundedOdds, factor
from privopt.numbers import exp_fixed
from privopt.numbers.exp_log_bounds import log_bounds

BITS = 128
"""Fractional bits of the bounds on exp(epsilon d)."""

LARGEST = 45
"""Larger exponents are replaced by this one: exp(45) is above 2**64, and so above any ratio of weights."""


@frozen(kw_only=True)
class PolicyDP(BoundedOdds):
    """Policy differential privacy of one answer (He, Machanavajjhala, Ding, SIGMOD 2014, definition 4.2).

    Attributes:
        epsilon: The exact epsilon per step.
        policy: Name of the policy.
        distances: n rows of n numbers of steps; None where nothing is required.
    """

    kind: ClassVar[str] = "policy-dp"
    odds: ClassVar[bool] = True

    epsilon: Fraction
    policy: str
    distances: tuple

    @property
    def guarantee(self):
        """The guarantee, also in words."""
        words = (
            "Whatever is reported is at most exp(epsilon d) times as likely under one answer as under another that the "
            "policy sets d steps apart; answers without a distance may be told apart."
        )
        return Guarantee(kind=self.kind, epsilon=self.epsilon, unit="per step", scope=self.policy, statement=words)

    @classmethod
    def bound(cls, guarantee):
        """Return a clause on how much likelier a report can be."""
        return f"a report is at most {factor(float(guarantee.epsilon))} as likely under an answer as one step beside it"

    @classmethod
    def describe_hidden(cls, guarantee):
        """Return a clause on what stays hidden."""
        return "Which of two answers beside each other was meant hardly shows"

    def pairs(self):
        """Return (answer, answer, steps) of all pairs that must be alike."""
        rows = enumerate(self.distances)
        return [(i, k, steps) for i, row in rows for k, steps in enumerate(row) if i < k and steps is not None]

    def measure(self, release):
        """Compare all weights of each pair in integers, and return the certificate."""
        worst, failures = 0.0, []
        weights = [[int(weight) for weight in row] for row in release.weights]
        for i, k, steps in self.pairs():
            exponent = min(self.epsilon * steps, Fraction(LARGEST))
            max_ratio = exp_fixed(exponent, BITS)[0]  # rounded down, which is the strict side
            for output, (own_weight, other_weight) in enumerate(zip(weights[i], weights[k], strict=True)):
                high, low = max(own_weight, other_weight), min(own_weight, other_weight)
                if high:
                    worst = max(worst, log_bounds(Fraction(high, low), Fraction(steps))[1] if low else float("inf"))
                if high << BITS > max_ratio * low:
                    failures.append(f"answers {i} and {k}, output {output}: weights {own_weight} and {other_weight}")
        is_kept = not failures and all(sum(row) == 1 << 63 for row in weights)
        # An upper bound on a logarithm can exceed epsilon in its last digits although the weights do not.
        return Certificate(
            holds=is_kept,
            evidence="proved",
            kind=self.kind,
            worst=min(worst, float(self.epsilon)) if is_kept else worst,
            allowed=float(self.epsilon),
            checked=len(self.pairs()) * len(weights),
            arithmetic="whole numbers, exp enclosed to 128 binary digits",
            failures=tuple(failures),
        )

    @classmethod
    def limits(cls, result):
        """Return what was checked, and what was not."""
        checked_parts = ["The weights of every pair of answers with a distance, output by output, in whole numbers."]
        return checked_parts, ["A second answer of the same person: it spends epsilon again."]
