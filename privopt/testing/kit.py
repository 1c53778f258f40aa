"""The conformance kit as pytest test functions, for a mechanism or a registered kind.

::

    from privopt.testing import conformance, kind_conformance

    test_acme = conformance("acme-mech", expected_failures={"lower-bound": "no bound is computed yet"})
    test_hamming = kind_conformance("distance", "hamming")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from privopt.errors import UsageError
from privopt.interfaces import Mechanism
from privopt.registry import Entry, registry
from privopt.specs import CheckSpec, MechanismSpec
from privopt.testing.checks import checks as all_checks
from privopt.testing.efforts import Effort, effort
from privopt.testing.profile import Profile
from privopt.testing.runner import CheckResult, run_check
from privopt.testing.under_trial import spec_of, subject


def conformance(
    mechanism: str | type[Mechanism[Any, Any]],
    *,
    spec: MechanismSpec | None = None,
    guarantee: str = "",
    profile: Profile | None = None,
    methods: Sequence[str] | None = None,
    checks: Sequence[str] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    how: Effort | str | None = None,
    seed: int = 0,
) -> Callable[..., None]:
    """Return a pytest function that runs every check on a mechanism, with a separate test for each method and check.

    Args:
        mechanism: The name of an installed mechanism, or a Mechanism class.
        spec: The spec of a class that is not installed as a plugin.
        guarantee: The kind of guarantee claimed by a class without a spec.
        profile: What the kit needs to know about the mechanism (:class:`privopt.testing.Profile`). The default is the
            profile named by the mechanism.
        methods: The names of the methods to test. The default is every method that has a guarantee.
        checks: The names of the checks to run. The default is every check. Those that are not applicable are skipped
            with a reason.
        expected_failures: The reasons why certain checks are expected to fail, keyed by ``"check"`` or
            ``"method:check"``. If such a check passes, its test fails.
        how: The effort: quick, ci, full or an :class:`Effort`. If None, the effort is read from the environment
            variable PRIVOPT_PROFILE, with ci as the default.
        seed: The seed for drawing problems.

    Raises:
        UnknownNameError: The mechanism is not installed.
        UsageError: A check does not exist, a reason for an expected failure is blank, or a class has neither a spec nor
            a valid ``guarantee``.
    """
    import pytest

    check_names = list(all_checks()) if checks is None else list(checks)
    unknown_names = [name for name in check_names if name not in all_checks()]
    if unknown_names:
        raise UsageError(f"no check is called {unknown_names[0]!r}; there are {', '.join(all_checks())}")
    if isinstance(mechanism, str):
        mechanism_spec = registry().get(mechanism).spec
    else:
        mechanism_spec = spec or spec_of(mechanism, guarantee)
    names = [m.name for m in mechanism_spec.methods if mechanism_spec.promises(m)] if methods is None else list(methods)
    rows = [
        pytest.param(method, check, marks=_xfail_marks(method, check, expected_failures or {}))
        for method in names
        for check in check_names
    ]
    # All checks of a method share a subject, because it caches runs of the pipeline.
    subjects: dict[str, Any] = {}

    @pytest.mark.parametrize(("method", "check"), rows)
    def conforms(method: str, check: str) -> None:
        """Run a check on a method. The subject is created when the method's first test runs."""
        if method not in subjects:
            subjects[method] = subject(mechanism, method, spec=mechanism_spec, profile=profile)
        _end_test(run_check(check, subjects[method], how=how, seed=seed), f"{mechanism_spec.name} --method {method}")

    conforms.__doc__ = f"Conformance of {mechanism_spec.name}."
    return conforms


def _xfail_marks(method: str, check: str, failures: Mapping[str, str]) -> list[Any]:
    """Return the pytest marks of a test: a strict xfail mark if it is expected to fail, or none otherwise.

    Args:
        method: The method under test.
        check: The name of the check.
        failures: The reasons for expected failures, keyed by ``"check"`` or ``"method:check"``. The more specific key
            takes precedence.

    Raises:
        UsageError: A key does not name a check, or a reason is blank.
    """
    import pytest

    for key, reason in failures.items():
        # A misspelt name would never match, so the expectation would silently have no effect.
        if key.rpartition(":")[2] not in all_checks() or not reason.strip():
            raise UsageError(f"expected failure {key!r} must name a check, and a reason in words, got {reason!r}")
    reason = failures.get(f"{method}:{check}", failures.get(check, ""))
    return [pytest.mark.xfail(reason=reason, strict=True)] if reason else []


def _end_test(result: CheckResult, subject_name: str) -> None:
    """Fail or skip the current pytest test with the check's reason, or return if the check passed.

    If the check is not applicable, the test is skipped with a message that says so, because neither pytest nor JUnit
    XML has a separate status for this.

    Args:
        result: The result of the check.
        subject_name: The name of the method or kind that was checked, for the failure message.
    """
    import pytest

    if result.status == "failed":
        # The finding is enough. A traceback would only show the kit's own code.
        pytest.fail(f"{subject_name}: {result.check}: {result.reason}", pytrace=False)
    if result.status == "skipped":
        pytest.skip(f"skipped: {result.reason}")
    if result.status == "not applicable":
        pytest.skip(f"not applicable: {result.reason}")


def _kind_checks(role: str) -> dict[str, Entry[CheckSpec]]:
    """Return the checks that apply to every kind with a given role, such as ``"solver"``, by name.

    Raises:
        UsageError: The role has no checks. The message names the roles that have checks.
    """
    checks = registry().of(f"check of each {role}")
    if not checks:
        checked_roles = [name for name in registry().names("role") if registry().of(f"check of each {name}")]
        raise UsageError(
            f"the kit has no checks of each {role}, only of each {', '.join(checked_roles)}; a plugin can register "
            "some (privopt.specs.CheckSpec with a role)"
        )
    return checks


def check_kind(role: str, name: str, *, how: Effort | str | None = None, seed: int = 0) -> list[CheckResult]:
    """Run every check for a role on one of the kinds registered for it, and return the results.

    Args:
        role: The kind's role, as named by a :class:`privopt.specs.RoleSpec`.
        name: The name under which the kind is registered.
        how: The effort: quick, ci, full or an :class:`Effort`. If None, the effort is read from the environment
            variable PRIVOPT_PROFILE, with ci as the default.
        seed: The seed for all random draws.

    Raises:
        UnknownNameError: The kind or the effort does not exist.
        UsageError: No checks are registered for the role.
    """
    registry().kind(role, name)
    return [_run_kind_check(check, name, how, seed) for check in _kind_checks(role).values()]


def _run_kind_check(check: Entry[CheckSpec], name: str, how: Effort | str | None, seed: int) -> CheckResult:
    """Import a registered check, run it on the kind called ``name``, and return the result."""
    run = cast("Callable[[str, Effort, int], CheckResult]", check.import_target())
    return run(name, effort(how), seed)


def kind_conformance(role: str, name: str, *, how: Effort | str | None = None, seed: int = 0) -> Callable[..., None]:
    """Return a pytest function that runs every check on a registered kind, with a separate test for each check.

    Args:
        role: The kind's role, as named by a :class:`privopt.specs.RoleSpec`.
        name: The name under which the kind is registered.
        how: The effort: quick, ci, full or an :class:`Effort`. If None, the effort is read from the environment
            variable PRIVOPT_PROFILE, with ci as the default.
        seed: The seed for all random draws.

    Raises:
        UnknownNameError: The kind does not exist.
        UsageError: No checks are registered for the role.
    """
    import pytest

    registry().kind(role, name)
    checks = _kind_checks(role)

    @pytest.mark.parametrize("check", list(checks))
    def conforms(check: str) -> None:
        """Run one check on the kind."""
        _end_test(_run_kind_check(checks[check], name, how, seed), f"{role} {name}")

    conforms.__doc__ = f"Conformance of the {role} {name}."
    return conforms
