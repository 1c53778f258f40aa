"""The conformance kit in one call, for pytest: of a mechanism, or of a registered kind.

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
    """Return a test function that runs every check, one test for each method and check.

    Args:
        mechanism: name of an installed mechanism, or a Mechanism class.
        spec: for a class: what it would be registered as.
        guarantee: for a class without a spec: the kind it claims.
        profile: :class:`privopt.testing.Profile`; default: the one that the mechanism names, or the default of
            :class:`privopt_metric_dp.problem.declared.MetricProblem`.
        methods: default: every method that has a guarantee.
        checks: default: every check; those that do not apply are skipped, with the reason.
        expected_failures: check, or ``"method:check"``, -> reason. Strict: one that passes fails the test.
        how: dev, ci or nightly, or an effort of one's own; PRIVOPT_PROFILE's, else ci, where None.
        seed: of the problems drawn.
    """
    import pytest

    chosen = list(all_checks()) if checks is None else list(checks)
    unknown = [name for name in chosen if name not in all_checks()]
    if unknown:
        raise UsageError(f"no check is called {unknown[0]!r}; there are {', '.join(all_checks())}")
    if isinstance(mechanism, str):
        known = registry().get(mechanism).spec
    else:
        known = spec or spec_of(mechanism, guarantee)
    names = [m.name for m in known.methods if known.promises(m)] if methods is None else list(methods)
    rows = [
        pytest.param(method, check, marks=_expected(method, check, expected_failures or {}))
        for method in names
        for check in chosen
    ]
    kept: dict[str, Any] = {}

    @pytest.mark.parametrize(("method", "check"), rows)
    def conforms(method: str, check: str) -> None:
        if method not in kept:
            kept[method] = subject(mechanism, method, spec=known, profile=profile)
        _end_test(run_check(check, kept[method], how=how, seed=seed), f"{known.name} --method {method}")

    conforms.__doc__ = f"Conformance of {known.name}."
    return conforms


def _expected(method: str, check: str, failures: Mapping[str, str]) -> list[Any]:
    """Return the mark of a test that is expected to fail, by ``check`` or ``method:check``; strict: it must."""
    import pytest

    for key, reason in failures.items():
        if key.rpartition(":")[2] not in all_checks() or not reason.strip():
            raise UsageError(f"expected failure {key!r} must name a check, and a reason in words, got {reason!r}")
    reason = failures.get(f"{method}:{check}", failures.get(check, ""))
    return [pytest.mark.xfail(reason=reason, strict=True)] if reason else []


def _end_test(result: CheckResult, tried: str) -> None:
    """End a test of pytest as a check ended."""
    import pytest

    if result.status == "failed":
        pytest.fail(f"{tried}: {result.check}: {result.reason}", pytrace=False)
    if result.status == "skipped":
        pytest.skip(result.reason)


def _checks_of(role: str) -> dict[str, Entry[CheckSpec]]:
    return registry().of(f"check of each {role}")


def check_kind(role: str, name: str, *, how: Effort | str | None = None, seed: int = 0) -> list[CheckResult]:
    """Run every check of a registered kind.

    Args:
        role: one of :class:`privopt.specs.RoleSpec`.
        name: what it is registered as.
        how, seed: as of :func:`kind_conformance`.

    Raises:
        UnknownNameError: no kind, or no profile, is called so.
        UsageError: it has no table in problem files.
    """
    registry().kind(role, name)
    return [_of_kind(check, name, how, seed) for check in _checks_of(role).values()]


def _of_kind(check: Entry[CheckSpec], name: str, how: Effort | str | None, seed: int) -> CheckResult:
    run = cast("Callable[[str, Effort, int], CheckResult]", check.import_target())
    return run(name, effort(how), seed)


def kind_conformance(role: str, name: str, *, how: Effort | str | None = None, seed: int = 0) -> Callable[..., None]:
    """Return a test function that runs every check of a registered kind, one test for each.

    Args:
        role: one of :class:`privopt.specs.RoleSpec`.
        name: what it is registered as.
        how: dev, ci or nightly, or an effort of one's own; PRIVOPT_PROFILE's, else ci, where None.
        seed: of what is drawn.
    """
    import pytest

    registry().kind(role, name)
    checks = _checks_of(role)

    @pytest.mark.parametrize("check", list(checks))
    def conforms(check: str) -> None:
        _end_test(_of_kind(checks[check], name, how, seed), f"{role} {name}")

    conforms.__doc__ = f"Conformance of the {role} {name}."
    return conforms
