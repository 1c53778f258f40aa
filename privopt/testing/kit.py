"""The conformance kit in one call, for pytest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from privopt.errors import UsageError
from privopt.interfaces import Mechanism
from privopt.registry import registry
from privopt.specs import MechanismSpec
from privopt.testing.efforts import Effort
from privopt.testing.profile import Profile


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

    ::

        from privopt.testing import conformance

        test_acme = conformance("acme-mech", expected_failures={"lower-bound": "no bound is computed yet"})

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

    from privopt.testing.checks import checks as all_checks

    chosen = list(all_checks()) if checks is None else list(checks)
    unknown = [name for name in chosen if name not in all_checks()]
    if unknown:
        raise UsageError(f"no check is called {unknown[0]!r}; there are {', '.join(all_checks())}")
    known = _spec(mechanism, spec, guarantee)
    names = [m.name for m in known.methods if known.promises(m)] if methods is None else list(methods)
    kept: dict[str, Any] = {}

    @pytest.mark.parametrize("check", chosen)
    @pytest.mark.parametrize("method", names)
    def conforms(method: str, check: str) -> None:
        from privopt.testing.runner import expected_for, judged, run_check
        from privopt.testing.under_trial import subject

        if method not in kept:
            kept[method] = subject(mechanism, method, spec=known, profile=profile)
        tried = kept[method]
        reason = expected_for(tried, expected_failures or {}).get(check)
        result = judged(run_check(check, tried, how=how, seed=seed), reason)
        if result.status == "failed":
            pytest.fail(f"{known.name} --method {method}: {check}: {result.reason}", pytrace=False)
        if result.status == "skipped":
            pytest.skip(result.reason)
        if result.status == "expected-failure":
            pytest.xfail(result.reason)

    conforms.__doc__ = f"Conformance of {known.name}."
    return conforms


def _spec(mechanism: str | type[Mechanism[Any, Any]], spec: MechanismSpec | None, guarantee: str) -> MechanismSpec:
    if isinstance(mechanism, str):
        return registry().get(mechanism).spec
    from privopt.testing.under_trial import spec_of

    return spec or spec_of(mechanism, guarantee)
