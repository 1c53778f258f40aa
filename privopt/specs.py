"""What a plugin registers: mechanisms as data, and the hooks they come through.

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

__all__ = ["GROUP", "GUARANTEE_KINDS", "Hooks", "MechanismSpec", "MethodSpec", "hookimpl", "hookspec"]

GROUP: Final = "privopt"
"""Entry-point group, and pluggy's project name."""

GUARANTEE_KINDS: Final = ("metric-dp", "pure-dp", "local-dp", "top-k", "none")

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def _name(instance: object, attribute: Attribute[str], value: str) -> None:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(f"{attribute.name} must be lower-case words joined by hyphens, not {value!r}")


def _kind(instance: object, attribute: Attribute[Any], value: str | None) -> None:
    if value is not None and value not in GUARANTEE_KINDS:
        raise ValueError(f"guarantee must be one of {', '.join(GUARANTEE_KINDS)}, not {value!r}")


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
        guarantee: kind, where it differs from the mechanism's; ``"none"`` needs ``--allow-unsafe``.
        gap: relative gap asked for where ``--gap`` is left out.
    """

    name: str = field(validator=_name)
    summary: str
    guarantee: str | None = field(default=None, validator=_kind)
    gap: float = 1e-6


def _methods(value: Sequence[MethodSpec]) -> tuple[MethodSpec, ...]:
    return tuple(value)


@frozen(kw_only=True)
class MechanismSpec:
    """A mechanism as data: everything ``privopt list`` needs, and where its code is.

    Attributes:
        name: what the command line calls it.
        target: ``"package.module:Class"`` of a :class:`privopt.interfaces.Mechanism`.
        guarantee: kind, one of :data:`GUARANTEE_KINDS`.
        summary: one line.
        source: the paper.
        methods: at least one; the first is the default.
    """

    name: str = field(validator=_name)
    target: str = field(validator=_target)
    guarantee: str = field(validator=_kind)
    summary: str
    source: str = ""
    methods: tuple[MethodSpec, ...] = field(converter=_methods)

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


class Hooks:
    """The whole hook surface."""

    @staticmethod
    @hookspec
    def privopt_mechanisms() -> Sequence[MechanismSpec]:  # type: ignore[empty-body]
        """Return the mechanisms that this plugin registers."""

    @staticmethod
    @hookspec
    def privopt_released(release: Release, problem: Any) -> None:
        """Observe a certified release just after its folder was written."""
