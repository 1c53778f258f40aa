"""The judge: tests whether any Python function keeps the guarantee it claims, by its draws alone.

Inputs, and events of outputs, are chosen on draws that are then put away; what is said rests on fresh draws, by
Clopper-Pearson bounds whose errors are shared out among all that is tested. So no data choose their own event.
"""

from privopt.testing.judging.judge import judge
from privopt.testing.judging.verdict import Verdict

__all__ = ["Verdict", "judge"]
