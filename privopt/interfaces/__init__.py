"""The abstract classes that a plugin implements, and the values they exchange.

A mechanism takes a problem to an :class:`Outcome`; the pipeline (:mod:`privopt.run.solve`) measures the
release it holds with the mechanism's own :class:`PrivacyConstraint`, evaluates it with its
:class:`UtilityLoss`, and writes it only if the certificate holds. What is claimed
(:class:`Guarantee`) and what was measured (:class:`Certificate`) are different types; so are a problem as its file
declares it and what a mechanism works on (:meth:`Mechanism.load`).
"""

from privopt.interfaces.channel import Channel, NoisyCounts
from privopt.interfaces.claims import AGAIN, Bounds, Certificate, Evidence, Guarantee, Objective
from privopt.interfaces.decomposer import Decomposed, Decomposer
from privopt.interfaces.mechanism import Mechanism
from privopt.interfaces.plan import Plan
from privopt.interfaces.privacy import PrivacyConstraint, Shift
from privopt.interfaces.release import Release
from privopt.interfaces.reporting import Reporting
from privopt.interfaces.result import Result
from privopt.interfaces.solving import Outcome, Progress, Proof, SolveContext
from privopt.interfaces.utility import UtilityLoss

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
