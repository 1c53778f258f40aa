"""What a plugin registers, as data: mechanisms and kinds, and the hooks for them.

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
from typing import Any, ClassVar, Final

import pluggy
from attrs import Attribute, field, frozen
from attrs.validators import optional

__all__ = [
    "GROUP",
    "NOTHING",
    "CheckSpec",
    "CommandSpec",
    "Hooks",
    "KindSpec",
    "MechanismSpec",
    "MethodSpec",
    "NameSpec",
    "RoleSpec",
    "Spec",
    "TemplateSpec",
    "TraitSpec",
    "hookimpl",
    "hookspec",
]

GROUP: Final = "privopt"
"""Entry-point group, and pluggy's project name."""

NOTHING: Final = "none"
"""The notion of methods without a guarantee: they need ``--allow-unsafe``."""

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def _name(instance: object, attribute: Attribute[str], value: str) -> None:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(f"{attribute.name} must be lower-case words joined by hyphens, not {value!r}")


def _identifier(instance: object, attribute: Attribute[str], value: str) -> None:
    if not isinstance(value, str) or not value.isidentifier() or value.startswith("_"):
        raise ValueError(f"{attribute.name} must be a public Python name, not {value!r}")


def _target(instance: object, attribute: Attribute[str], value: str) -> None:
    if not isinstance(value, str) or not _TARGET.fullmatch(value):
        raise ValueError(f"target must read 'package.module:Class', not {value!r}")


@frozen(kw_only=True)
class MethodSpec:
    """A method by which a mechanism can be solved.

    >>> MethodSpec(name="benders", summary="Benders decomposition").guarantee is None
    True

    Attributes:
        name: what ``--method`` takes.
        summary: one line.
        guarantee: notion, where it differs from the mechanism's; ``"none"`` needs ``--allow-unsafe``.
        consent: False for a method of guarantee ``"none"`` that needs no ``--allow-unsafe``, since no user takes what
            it does for a promise.
        gap: relative gap asked for where ``--gap`` is omitted.
    """

    name: str = field(validator=_name)
    summary: str
    guarantee: str | None = field(default=None, validator=optional(_name))
    consent: bool = True
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

    category: ClassVar[str] = "mechanism"
    name: str = field(validator=_name)
    target: str = field(validator=_target)
    guarantee: str = field(validator=_name)
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
        """Return the guarantee kind of one of the methods."""
        return method.guarantee or self.guarantee

    def promises(self, method: MethodSpec) -> bool:
        """Check whether one of the methods claims any privacy."""
        return self.kind_of(method) != NOTHING

    def asks(self, method: MethodSpec) -> bool:
        """Check whether one of the methods needs ``--allow-unsafe``."""
        return method.consent and not self.promises(method)


@frozen(kw_only=True)
class KindSpec:
    """A distance, a loss, a notion of privacy, a solver or a decomposer, as data.

    >>> KindSpec(role="loss", name="squared", target="acme.losses:Squared", summary="the squared distance").name
    'squared'

    Attributes:
        role: name of a registered :class:`RoleSpec`, which says which base class the target has.
        name: what problem files (``distance.kind``, ``utility.kind``, ``privacy.kind``) and options (``--solver``,
            ``--method``) call it.
        target: ``"package.module:Class"``.
        summary: one line for ``describe``.
    """

    role: str = field(validator=_name)
    name: str = field(validator=_name)
    target: str = field(validator=_target)
    summary: str

    @property
    def category(self) -> str:
        """What its name is unique in: its role."""
        return self.role


@frozen(kw_only=True)
class RoleSpec:
    """What a kind can be, as data: a distance, a loss, a notion of privacy, a solver, a decomposer.

    >>> RoleSpec(name="sketch", base="acme.sketches:Sketch", summary="a sketch of a stream").name
    'sketch'

    Attributes:
        name: what :class:`KindSpec` and ``key(kinds=...)`` call it.
        base: ``"package.module:Class"``, the base class of its kinds.
        summary: one line.
    """

    category: ClassVar[str] = "role"
    name: str = field(validator=_name)
    base: str = field(validator=_target)
    summary: str


@frozen(kw_only=True)
class CommandSpec:
    """A command of the command line, as data.

    Attributes:
        name: what follows ``privopt``.
        target: ``"package.module:command"``, a :class:`click.Command`, imported when the command is called.
        summary: one line for ``privopt --help``.
    """

    category: ClassVar[str] = "command"
    name: str = field(validator=_name)
    target: str = field(validator=_target)
    summary: str


@frozen(kw_only=True)
class NameSpec:
    """A name of the Python package ``privopt`` that a plugin brings, as data.

    Attributes:
        name: ``privopt.NAME``.
        target: ``"package.module:name"``, imported when the name is first asked for.
    """

    category: ClassVar[str] = "name"
    name: str = field(validator=_identifier)
    target: str = field(validator=_target)


@frozen(kw_only=True)
class TraitSpec:
    """A trait of releases by which the conformance kit chooses its checks, as data.

    Attributes:
        name: what a check names it.
        missing: what is said of a release without it.
        target: ``"package.module:function"``: takes the release's class, says whether it has the trait.
    """

    category: ClassVar[str] = "trait"
    name: str = field(validator=_name)
    missing: str
    target: str = field(validator=_target)


@frozen(kw_only=True)
class CheckSpec:
    """A check of the conformance kit, or one of the registered kinds of a role, as data.

    Attributes:
        name: of the check.
        target: ``"package.module:function"``, a function under :func:`privopt.testing.check`. Of kinds it takes the
            kind's name, an effort and a seed, and returns a :class:`privopt.testing.CheckResult`.
        role: of the kinds that it checks; None for a check of mechanisms.
    """

    name: str = field(validator=_name)
    target: str = field(validator=_target)
    role: str | None = field(default=None, validator=optional(_name))

    @property
    def category(self) -> str:
        """What its name is unique in: the checks of mechanisms, or of that role's kinds."""
        return "check" if self.role is None else f"check of each {self.role}"


@frozen(kw_only=True)
class TemplateSpec:
    """A kind of project that ``privopt new`` writes, as data.

    Attributes:
        name: what ``--kind`` takes.
        package: importable package whose folder ``templates/NAME`` holds the files, each with ``.txt`` behind its name.
        files: names of the files; those that end in ``.py`` go into the project's package, the others to its top.
        notion: that its mechanism claims.
        method: name of its one method.
        does: that method, in a line.
        needs: distributions that the project depends on in addition to privopt.
    """

    category: ClassVar[str] = "template"
    name: str = field(validator=_name)
    package: str
    files: tuple[str, ...]
    notion: str = field(validator=_name)
    method: str = field(validator=_name)
    does: str
    needs: tuple[str, ...] = ()


Spec = MechanismSpec | KindSpec | RoleSpec | CommandSpec | NameSpec | TraitSpec | CheckSpec | TemplateSpec
"""Anything that a plugin registers."""


class Hooks:
    """The whole hook surface."""

    @staticmethod
    @hookspec(historic=True)
    def privopt_mechanisms() -> Sequence[MechanismSpec]:  # type: ignore[empty-body]
        """Return the mechanisms that this plugin registers."""

    @staticmethod
    @hookspec(historic=True)
    def privopt_kinds() -> Sequence[KindSpec]:  # type: ignore[empty-body]
        """Return the kinds (distances, losses, notions of privacy, solvers, ...) that this plugin registers."""

    @staticmethod
    @hookspec(historic=True)
    def privopt_roles() -> Sequence[RoleSpec]:  # type: ignore[empty-body]
        """Return the roles of kinds that this plugin brings."""

    @staticmethod
    @hookspec(historic=True)
    def privopt_commands() -> Sequence[CommandSpec]:  # type: ignore[empty-body]
        """Return the commands that this plugin adds to the command line."""

    @staticmethod
    @hookspec(historic=True)
    def privopt_names() -> Sequence[NameSpec]:  # type: ignore[empty-body]
        """Return the names that this plugin adds to the Python package ``privopt``."""

    @staticmethod
    @hookspec(historic=True)
    def privopt_templates() -> Sequence[TemplateSpec]:  # type: ignore[empty-body]
        """Return the kinds of project that ``privopt new`` can write with this plugin."""

    @staticmethod
    @hookspec(historic=True)
    def privopt_checks() -> Sequence[TraitSpec | CheckSpec]:  # type: ignore[empty-body]
        """Return what this plugin adds to the conformance kit: traits of releases, checks, checks of kinds."""

    @staticmethod
    @hookspec(firstresult=True)
    def privopt_handle(release: object) -> type | None:
        """Return the class of the object that :func:`privopt.open` makes of a release; None for other releases."""

    @staticmethod
    @hookspec
    def privopt_released(release: object, problem: object) -> None:
        """Observe a certified release just after its folder was written."""
