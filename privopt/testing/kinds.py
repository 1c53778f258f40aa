"""Checks of registered kinds: a distance, a loss, a notion of privacy, a solver, a decomposer.

::

    from privopt.testing import kind_conformance

    test_hamming = kind_conformance("distance", "hamming")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from privopt.registry import Brought, registry
from privopt.specs import KindCheckSpec
from privopt.testing.backends import BACKEND_CHECKS, check_backend
from privopt.testing.decomposers import DECOMPOSER_CHECKS, check_decomposer
from privopt.testing.efforts import Effort, effort
from privopt.testing.runner import CheckResult


def _of_plugins(role: str) -> dict[str, Brought[KindCheckSpec]]:
    return registry().of(f"check of each {role}")


def _names(role: str) -> list[str]:
    """Return the checks of a role: the core's own, and those that plugins bring."""
    own = {"solver": list(BACKEND_CHECKS), "decomposer": list(DECOMPOSER_CHECKS)}.get(role, [])
    return [*own, *_of_plugins(role)]


def check_kind(role: str, name: str, *, how: Effort | str | None = None, seed: int = 0) -> list[CheckResult]:
    """Run every check of a registered kind.

    Args:
        role: one of :class:`privopt.specs.RoleSpec`.
        name: what it is registered as.
        how: dev, ci or nightly, or an effort of one's own; PRIVOPT_PROFILE's, else ci, where None.
        seed: of what is drawn.

    Raises:
        UnknownNameError: no kind, or no profile, is called so.
        UsageError: it has no table in problem files.
    """
    registered = registry().kind(role, name)
    how = effort(how)
    results: list[CheckResult] = []
    if role == "solver":
        results = check_backend(name, how=how, seed=seed)
    elif role == "decomposer":
        results = check_decomposer(registered.load()(), how=how, seed=seed)
    for one in _of_plugins(role).values():
        check = cast("Callable[[str, Effort, int], CheckResult]", one.imported(one.spec.target))
        results.append(check(name, how, seed))
    return results


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
    results: dict[str, CheckResult] = {}

    @pytest.mark.parametrize("check", _names(role))
    def conforms(check: str) -> None:
        if not results:
            results.update({found.check: found for found in check_kind(role, name, how=how, seed=seed)})
        found = results[check]
        if found.status == "failed":
            pytest.fail(f"{role} {name}: {check}: {found.reason}", pytrace=False)
        if found.status == "skipped":
            pytest.skip(found.reason)

    conforms.__doc__ = f"Conformance of the {role} {name}."
    return conforms
