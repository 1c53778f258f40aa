"""What a plugin registers, as data: mechanisms and kinds, and the hooks they come through.

This module imports nothing heavy, so ``privopt list`` stays fast; a plugin's package should import
nothing else of privopt at its top::

    from privopt.specs import MechanismSpec, MethodSpec, hookimpl

    @hookimpl
    def privopt_mechanisms():
        return [
            MechanismSpec(
                name="acme-mech",
                target="acme_mech.mechanism:AcmeMech",
                guarantee="metric-dp",
                summary="Noise for Acme's maps",
                source="A. Author, A Paper, 2026",
                methods=[MethodSpec(name="solve", summary="the LP of section 3")],
            )
        ]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pluggy
from attrs import Attribute, field, frozen

if TYPE_CHECKING:
    from privopt.interfaces import Release

__all__ = ["GROUP", "NOTHING", "ROLES", "Hooks", "KindSpec", "MechanismSpec", "MethodSpec", "hookimpl", "hookspec"]

GROUP: Final = "privopt"
"""Entry-point group, and pluggy's project name."""

NOTHING: Final = "none"
"""The notion of methods without a guarantee: they need ``--allow-unsafe``."""

ROLES: Final = {
    "distance": "privopt.metric.kinds:DistanceKind",
    "loss": "privopt.metric.kinds:LossKind",
    "notion": "privopt.interfaces:PrivacyConstraint",
    "solver": "privopt.backends.base:Backend",
    "decomposer": "privopt.interfaces:Decomposer",
}
"""What a kind can be, and the base class that its code has."""

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def _name(instance: object, attribute: Attribute[str], value: str) -> None:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(f"{attribute.name} must be lower-case words joined by hyphens, not {value!r}")


def _guarantee(instance: object, attribute: Attribute[Any], value: str | None) -> None:
    if value is not None:
        _name(instance, attribute, value)


def _role(instance: object, attribute: Attribute[str], value: str) -> None:
    if value not in ROLES:
        raise ValueError(f"role must be one of {', '.join(ROLES)}, not {value!r}")


def _target(instance: object, attribute: Attribute[str], value: str) -> None:
    if not isinstance(value, str) or not _TARGET.fullmatch(value):
        raise ValueError(f"target must read 'package.module:Class', not {value!r}")


@frozen(kw_only=True)
class MethodSpec:
    """One way in which a mechanism can be solved.

    >>> MethodSpec(name="benders", summary="Benders decomposition").guarantee is None
    True

    Attributes:
        name: what ``--method`` takes.
        summary: one line.
        guarantee: notion, where it differs from the mechanism's; ``"none"`` needs ``--allow-unsafe``.
        gap: relative gap asked for where ``--gap`` is left out.
    """

    name: str = field(validator=_name)
    summary: str
    guarantee: str | None = field(default=None, validator=_guarantee)
    gap: float = 1e-6


def _methods(value: Sequence[MethodSpec]) -> tuple[MethodSpec, ...]:
    return tuple(value)


@frozen(kw_only=True)
class MechanismSpec:
    """A mechanism as data: everything ``privopt list`` needs, and where its code is.

    Attributes:
        name: what the command line calls it.
        target: ``"package.module:Class"`` of a :class:`privopt.interfaces.Mechanism`.
        guarantee: name of a registered notion of privacy, or ``"none"``.
        summary: one line.
        source: the paper.
        methods: at least one; the first is the default.
        decomposes: whether it solves by decomposition, so that each registered decomposer's name is a method too.
    """

    name: str = field(validator=_name)
    target: str = field(validator=_target)
    guarantee: str = field(validator=_guarantee)
    summary: str
    source: str = ""
    methods: tuple[MethodSpec, ...] = field(converter=_methods)
    decomposes: bool = False

    @methods.validator
    def _at_least_one(self, attribute: Attribute[Any], value: tuple[MethodSpec, ...]) -> None:
        names = [method.name for method in value]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"{self.name}: wants one method or more under different names, not {names}")

    @property
    def default(self) -> MethodSpec:
        """The method used where none is named."""
        return self.methods[0]

    def kind_of(self, method: MethodSpec) -> str:
        """Guarantee kind of one of the methods."""
        return method.guarantee or self.guarantee

    def promises(self, method: MethodSpec) -> bool:
        """Whether one of the methods claims any privacy."""
        return self.kind_of(method) != NOTHING


@frozen(kw_only=True)
class KindSpec:
    """A distance, a loss, a notion of privacy, a solver or a decomposer, as data.

    >>> KindSpec(role="loss", name="squared", target="acme.losses:Squared", summary="the squared distance").name
    'squared'

    Attributes:
        role: one of :data:`ROLES`; says which base class the target has.
        name: what problem files (``distance.kind``, ``utility.kind``, ``privacy.kind``) and options (``--solver``,
            ``--method``) call it.
        target: ``"package.module:Class"``.
        summary: one line for ``describe``.
    """

    role: str = field(validator=_role)
    name: str = field(validator=_name)
    target: str = field(validator=_target)
    summary: str


class Hooks:
    """The whole hook surface."""

    @staticmethod
    @hookspec
    def privopt_mechanisms() -> Sequence[MechanismSpec]:  # type: ignore[empty-body]
        """Return the mechanisms that this plugin registers."""

    @staticmethod
    @hookspec
    def privopt_kinds() -> Sequence[KindSpec]:  # type: ignore[empty-body]
        """Return the distances, losses, notions of privacy, solvers and decomposers that this plugin registers."""

    @staticmethod
    @hookspec
    def privopt_released(release: Release, problem: object) -> None:
        """Observe a certified release just after its folder was written."""
