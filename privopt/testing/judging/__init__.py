"""The judge: a statistical test of a function's claimed guarantee, based only on draws from the function.

Pairs of inputs and events (sets of outputs) are chosen using some draws, which are then discarded. Every conclusion is
based on fresh draws, so no event is tested on the data from which it was chosen. The tests use Clopper-Pearson bounds,
whose error probability is split among all tests (Bonferroni).
"""

from privopt.testing.judging.judge import judge
from privopt.testing.judging.verdict import Verdict

__all__ = ["Verdict", "judge"]
