"""The conformance kit and its Hypothesis strategies, for testing privopt itself and other authors' mechanisms.

A mechanism's test file contains::

    from privopt.testing import conformance

    test_acme = conformance("acme-mech")
"""

from privopt.testing.checks.base import Trial, check
from privopt.testing.judging import Verdict, judge
from privopt.testing.kit import check_kind, conformance, kind_conformance
from privopt.testing.problems import GeneratedProblem, Variant, csv_bytes, examples_near, npy_bytes, to_toml
from privopt.testing.profile import Profile, Query
from privopt.testing.runner import CheckResult, run_check, run_checks
from privopt.testing.under_trial import Subject, subject
from privopt.testing.variants import export_again, relabel, reorder

__all__ = [
    "CheckResult",
    "GeneratedProblem",
    "Profile",
    "Query",
    "Subject",
    "Trial",
    "Variant",
    "Verdict",
    "check",
    "check_kind",
    "conformance",
    "csv_bytes",
    "examples_near",
    "export_again",
    "judge",
    "kind_conformance",
    "npy_bytes",
    "relabel",
    "reorder",
    "run_check",
    "run_checks",
    "subject",
    "to_toml",
]
