"""The abstract classes implemented by plugins, and the values exchanged between them.

A mechanism solves a problem and returns an :class:`Outcome`. The pipeline (:mod:`privopt.run.solve`) certifies its
release with the mechanism's :class:`PrivacyConstraint`, evaluates it with its :class:`UtilityLoss`, and writes it only
if the certificate holds. The claim (:class:`Guarantee`) and the record of what was checked (:class:`Certificate`) have
different types. The same applies to the problem declared in a file and the loaded problem solved by a mechanism
(:meth:`Mechanism.load`).
"""

from privopt.interfaces.channel import Channel, NoisyCounts
from privopt.interfaces.decomposer import Decomposed, Decomposer
from privopt.interfaces.mechanism import Mechanism
from privopt.interfaces.plan import Plan
from privopt.interfaces.release import PrivacyConstraint, Release, Shift, UtilityLoss
from privopt.interfaces.reporting import Reporting
from privopt.interfaces.result import AGAIN, Bounds, Certificate, Evidence, Guarantee, Objective, Result
from privopt.interfaces.solving import Outcome, Progress, Proof, SolveContext

__all__ = [
    "AGAIN",
    "Bounds",
    "Certificate",
    "Channel",
    "Decomposed",
    "Decomposer",
    "Evidence",
    "Guarantee",
    "Mechanism",
    "NoisyCounts",
    "Objective",
    "Outcome",
    "Plan",
    "PrivacyConstraint",
    "Progress",
    "Proof",
    "Release",
    "Reporting",
    "Result",
    "Shift",
    "SolveContext",
    "UtilityLoss",
]
