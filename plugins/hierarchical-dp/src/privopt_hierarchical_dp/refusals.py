"""What is refused before any noise is drawn: what a method cannot do, and noise that there is no room for."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Final

from privopt.errors import Fault, InputError
from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.laws import GEOMETRIC, KINDS
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.problem import HierarchyProblem, Privacy
from privopt_hierarchical_dp.zeros import Zeros

__all__ = ["check_asked", "check_hidden", "check_noise", "refuse_wide", "sizes_differ"]

LARGEST_SCALE: Final = 1 << 40
PROGRAM_SCALE: Final = 1 << 20
"""Squares of noise of this scale are still exact in doubles, which integer programs are given."""


def sizes_differ(problem: HierarchyProblem, zeros: Zeros | None) -> bool:
    """Whether some region can have groups of two sizes: where none can, a number of groups is all there is to know."""
    if zeros is None:
        return problem.hierarchy.classes > 1
    return bool(((~zeros.levels[-1]).sum(axis=1) > 1).any())


def check_hidden(problem: HierarchyProblem, zeros: Zeros | None, file: str) -> None:
    """Refuse a relation that hides nothing of the problem: numbers of groups exact, and one size for all of them."""
    if problem.relation.exact and not sizes_differ(problem, zeros):
        found = f'"{problem.privacy.relation}" where groups have one size alone: every number of groups would be exact'
        wanted = '"individuals" or "groups", which hide numbers of groups; or groups of two sizes or more'
        raise InputError([Fault(file, "privacy.relation", found, wanted)])


def check_asked(design: Design) -> None:
    """Refuse what a method cannot do: totals that it must or cannot publish, noise that it was not published with."""
    problem, method, relation, rule = design.problem, design.method, design.relation, design.rule
    if rule.query == "chain" and design.law is not GEOMETRIC:
        wanted = f"pure-dp: {method} is as it was printed, with double geometric noise"
        raise InputError([Fault("problem", "privacy.kind", problem.privacy.kind, wanted)])
    if rule.query == "chain" and not relation.exact:
        wanted = f'"sizes": {method} is as it was printed, with the exact number of groups'
        raise InputError([Fault("problem", "privacy.relation", f'"{relation.name}"', wanted)])
    if design.limits is not None and rule.totals == "never":
        wanted = f"nothing: {method} does not use region totals, which bounds are kept by"
        raise InputError([Fault("problem", "hierarchy.bounds", "a file", wanted)])
    if design.zeros is not None:
        _check_zeros(design, design.zeros)
    asked = problem.settings.region_totals
    if asked and not relation.exact:
        found, wanted = "true", f'false, or nothing: no number of groups is exact under relation "{relation.name}"'
    elif asked is False and relation.exact and rule.totals == "always":
        found, wanted = "false", f"true, or nothing: {method} publishes every region's number of groups exactly"
    elif asked and rule.totals == "never":
        found, wanted = "true", f"false, or nothing: {method} does not use region totals"
    else:
        return
    raise InputError([Fault("problem", "hierarchical-dp.region_totals", found, wanted)])


def _check_zeros(design: Design, zeros: Zeros) -> None:
    """Refuse sizes that are impossible in some regions alone where a method would put groups there."""
    method = design.method
    if design.rule.query == "chain":
        raise InputError(
            [Fault("problem", "hierarchy.impossible", "a file", f"nothing: {method} is as it was printed")]
        )
    able = ", ".join(name for name, rule in METHODS.items() if rule.zeros)
    if zeros.regional and (not design.rule.zeros or design.totals or design.limits is not None):
        wanted = f"the same for all regions ({method}, exact region totals, bounds); without these {able} take others"
        raise InputError([Fault("problem", "hierarchy.impossible", "sizes that differ from region to region", wanted)])


def check_noise(design: Design) -> None:
    """Refuse noise that the fit's integers, or an integer program's doubles, have no room for."""
    most = PROGRAM_SCALE if design.method in ("hierarchical", "cumulative") else LARGEST_SCALE
    for level, budget in enumerate(design.budgets, start=1):
        refuse_wide(design.problem.privacy, budget, design.delta, f"level {level}", most=most, method=design.method)


def refuse_wide(
    privacy: Privacy, budget: Fraction, delta: int, where: str, *, most: int = LARGEST_SCALE, method: str = ""
) -> None:
    """Refuse one part of a budget whose noise would be wider than ``most``.

    Raises:
        InputError: with the part, where it is spent, and the noise.
    """
    law, (key, *_) = KINDS[privacy.kind]
    wide = law.wide(budget, delta)
    if wide > law.widest(most):
        found = f"{_short(budget)} of it on {where}: noise of {law.word} {_short(wide)}"
        least = f"a {law.word} of at most {law.widest(most):,}{f' ({method})' * bool(method)}"
        raise InputError(
            [Fault("problem", f"privacy.{key}", found, f"{least}: a larger {key}, or a larger share of it")]
        )


def _short(value: Fraction) -> str:
    """Three digits of a rational that may be no double."""
    return f"{Decimal(value.numerator) / Decimal(value.denominator):.3g}"
