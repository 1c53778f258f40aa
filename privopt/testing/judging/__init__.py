"""The judge: a statistical test, from draws alone, of whether a Python function satisfies the guarantee that it claims.

Inputs and events of outputs are chosen from some draws, which are then discarded. Each statement is based on fresh
draws, by Clopper-Pearson bounds whose error probability is split among all tests (Bonferroni). So no event is tested on
the data from which it was chosen.
"""

from privopt.testing.judging.judge import judge
from privopt.testing.judging.verdict import Verdict

__all__ = ["Verdict", "judge"]
