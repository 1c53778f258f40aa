"""The conformance kit and its strategies, for tests of privopt and of mechanisms made elsewhere.

A mechanism's test file::

    from privopt.testing import conformance

    test_acme = conformance("acme-mech")

Everything is loaded where it is first asked for, so that nothing here needs pytest or Hypothesis by being named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privopt.testing.checks.base import Trial, check
    from privopt.testing.judging import Verdict, judge
    from privopt.testing.kit import check_kind, conformance, kind_conformance
    from privopt.testing.problems import GeneratedProblem, Variant, csv_bytes, npy_bytes, to_toml
    from privopt.testing.profile import Profile, Query
    from privopt.testing.runner import CheckResult, run_check, run_checks
    from privopt.testing.under_trial import Subject, subject
    from privopt.testing.variants import export_again, relabel, reorder

_HOMES = {
    "checks.base": ("Trial", "check"),
    "judging": ("Verdict", "judge"),
    "kit": ("check_kind", "conformance", "kind_conformance"),
    "problems": ("GeneratedProblem", "Variant", "csv_bytes", "npy_bytes", "to_toml"),
    "profile": ("Profile", "Query"),
    "runner": ("CheckResult", "run_check", "run_checks"),
    "under_trial": ("Subject", "subject"),
    "variants": ("export_again", "relabel", "reorder"),
}

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


# not lazy-loader: docs/adr/0008
def __getattr__(name: str) -> Any:
    for home, members in _HOMES.items():
        if name in members:
            return getattr(import_module(f"privopt.testing.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
