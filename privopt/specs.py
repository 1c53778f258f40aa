"""The specs registered by plugins (mechanisms, kinds, commands and others), and the hooks that return them.

This module imports no large libraries, so that ``privopt list`` is fast. A plugin's top-level module should import
nothing else from privopt::

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
"""The name of the entry-point group and of the pluggy project."""

NOTHING: Final = "none"
"""The name of the notion claimed by methods without a guarantee, which usually need ``--allow-unsafe``."""

hookspec = pluggy.HookspecMarker(GROUP)
"""The decorator used to declare the hooks called by privopt (:class:`Hooks`)."""

hookimpl = pluggy.HookimplMarker(GROUP)
"""The decorator for a plugin's hook implementations."""

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""Matches names: lower-case words and digits, joined by hyphens."""

_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""Matches import paths such as ``package.module:Class``."""


def _name(instance: object, attribute: Attribute[str], value: str) -> None:
    """Check that a field's value is a name, that is, lower-case words joined by hyphens (attrs validator)."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(f"{attribute.name} must be lower-case words joined by hyphens, not {value!r}")


def _identifier(instance: object, attribute: Attribute[str], value: str) -> None:
    """Check that a field's value is a Python identifier that does not begin with an underscore (attrs validator)."""
    if not isinstance(value, str) or not value.isidentifier() or value.startswith("_"):
        raise ValueError(f"{attribute.name} must be a public Python name, not {value!r}")


def _target(instance: object, attribute: Attribute[str], value: str) -> None:
    """Check that a field's value has the form ``"package.module:Class"`` (attrs validator).

    Nothing is imported.
    """
    if not isinstance(value, str) or not _TARGET.fullmatch(value):
        raise ValueError(f"target must read 'package.module:Class', not {value!r}")


def _text(instance: object, attribute: Attribute[str], value: str) -> None:
    """Check that a field's value is a string, because ``list`` and ``--help`` show all plugins' texts together."""
    if not isinstance(value, str):
        raise TypeError(f"{attribute.name} must be a string, not {value!r}")


@frozen(kw_only=True)
class MethodSpec:
    """A method for solving a mechanism's problems.

    >>> MethodSpec(name="benders", summary="Benders decomposition").guarantee is None
    True

    Attributes:
        name: The method's name, as used with ``--method``.
        summary: A one-line description for ``privopt list`` and ``describe``.
        guarantee: The name of the method's privacy notion if it differs from the mechanism's, or ``"none"`` if the
            method gives no guarantee.
        consent: Whether the method needs ``--allow-unsafe`` if its guarantee is ``"none"``. It should be False only if
            no user could mistake the method's effect for a privacy guarantee.
        gap: The relative optimality gap at which the method may stop if ``--gap`` is not given.
    """

    name: str = field(validator=_name)
    summary: str = field(validator=_text)
    guarantee: str | None = field(default=None, validator=optional(_name))
    consent: bool = True
    gap: float = 1e-6


def _methods(value: Sequence[MethodSpec]) -> tuple[MethodSpec, ...]:
    """Convert a plugin's list of methods to a tuple, so that the spec is immutable."""
    return tuple(value)


@frozen(kw_only=True)
class MechanismSpec:
    """The spec of a mechanism: the data needed for ``privopt list``, and the import path of the code.

    Attributes:
        name: The mechanism's name on the command line.
        target: The :class:`privopt.interfaces.Mechanism` as ``"package.module:Class"``.
        guarantee: The name of a registered privacy notion, or ``"none"``.
        summary: A one-line description for ``privopt list``.
        source: The paper that describes the mechanism.
        methods: One or more methods for solving the mechanism's problems. The first is the default.
        decomposes: Whether the mechanism's problems can be solved by decomposition. If so, every registered decomposer
            can be used as a method under its own name.
    """

    category: ClassVar[str] = "mechanism"
    name: str = field(validator=_name)
    target: str = field(validator=_target)
    guarantee: str = field(validator=_name)
    summary: str = field(validator=_text)
    source: str = field(default="", validator=_text)
    methods: tuple[MethodSpec, ...] = field(converter=_methods)
    decomposes: bool = False

    @methods.validator
    def _at_least_one(self, attribute: Attribute[Any], value: tuple[MethodSpec, ...]) -> None:
        """Check that there is at least one method, and that no two methods have the same name."""
        names = [method.name for method in value]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"{self.name}: needs at least one method, all with different names, not {names}")

    @property
    def default(self) -> MethodSpec:
        """The method used if ``--method`` is not given."""
        return self.methods[0]

    def kind_of(self, method: MethodSpec) -> str:
        """Return the name of the privacy notion claimed by a method: its own, if any, and otherwise the mechanism's."""
        return method.guarantee or self.guarantee

    def promises(self, method: MethodSpec) -> bool:
        """Return whether a method claims any privacy."""
        return self.kind_of(method) != NOTHING

    def asks(self, method: MethodSpec) -> bool:
        """Return whether a method needs the user's consent (``--allow-unsafe``) because it claims no privacy."""
        return method.consent and not self.promises(method)


@frozen(kw_only=True)
class KindSpec:
    """The spec of a kind, which is an implementation of a role such as distance, loss, privacy notion or solver.

    >>> KindSpec(role="loss", name="squared", target="acme.losses:Squared", summary="the squared distance").name
    'squared'

    Attributes:
        role: The name of a registered :class:`RoleSpec`, which determines the base class of the target.
        name: The kind's name in problem files (``distance.kind``, ``utility.kind``, ``privacy.kind``) and in options
            (``--solver``, ``--method``).
        target: The class that implements the kind, as ``"package.module:Class"``.
        summary: A one-line description for ``describe``.
    """

    role: str = field(validator=_name)
    name: str = field(validator=_name)
    target: str = field(validator=_target)
    summary: str = field(validator=_text)

    @property
    def category(self) -> str:
        """The category within which the kind's name must be unique: the kind's role."""
        return self.role


@frozen(kw_only=True)
class RoleSpec:
    """The spec of a role that kinds can fill, such as distance, loss, privacy notion, solver or decomposer.

    >>> RoleSpec(name="sketch", base="acme.sketches:Sketch", summary="a sketch of a stream").name
    'sketch'

    Attributes:
        name: The role's name in :class:`KindSpec` and in ``key(kinds=...)``.
        base: The base class of all kinds that fill this role, as ``"package.module:Class"``.
        summary: A one-line description.
    """

    category: ClassVar[str] = "role"
    name: str = field(validator=_name)
    base: str = field(validator=_target)
    summary: str = field(validator=_text)


COMMAND_GROUPS: Final = (
    "Make a release",
    "Check a release",
    "Use a release",
    "Publish a release",
    "Write a plugin",
)
"""The headings in ``privopt --help``, in order. Any other headings follow, sorted by name."""


@frozen(kw_only=True)
class CommandSpec:
    """The spec of a ``privopt`` command.

    Attributes:
        name: The command's name, which follows ``privopt`` on the command line.
        target: The :class:`click.Command` as ``"package.module:command"``, which is imported when the command is
            called.
        summary: A complete sentence for ``privopt --help``.
        group: The command's heading in ``privopt --help``, either one of :data:`COMMAND_GROUPS` or a plugin's own.
        example: A complete example call for ``privopt NAME --help``.
        page: The command's documentation page, such as ``docs/how-to/tables.md``, or a URL for plugins.
    """

    category: ClassVar[str] = "command"
    name: str = field(validator=_name)
    target: str = field(validator=_target)
    summary: str = field(validator=_text)
    group: str = field(default="Other commands", validator=_text)
    example: str = field(default="", validator=_text)
    page: str = field(default="", validator=_text)


@frozen(kw_only=True)
class NameSpec:
    """The spec of a name added by a plugin to the ``privopt`` Python package.

    Attributes:
        name: The name, which becomes available as ``privopt.NAME``.
        target: The object as ``"package.module:name"``, which is imported when the name is first used.
    """

    category: ClassVar[str] = "name"
    name: str = field(validator=_identifier)
    target: str = field(validator=_target)


@frozen(kw_only=True)
class TraitSpec:
    """The spec of a trait of releases.

    The conformance kit runs a check only on releases that have all the traits required by the check.

    Attributes:
        name: The trait's name, as used in the requirements of checks.
        missing: A clause that says why a check that requires the trait does not apply to releases without it.
        target: The function as ``"package.module:function"``. It takes a release class and returns whether its releases
            have the trait.
    """

    category: ClassVar[str] = "trait"
    name: str = field(validator=_name)
    missing: str = field(validator=_text)
    target: str = field(validator=_target)


@frozen(kw_only=True)
class CheckSpec:
    """The spec of a check in the conformance kit, either for mechanisms or for the kinds registered for a role.

    Attributes:
        name: The check's name.
        target: The function as ``"package.module:function"``. A check for mechanisms is decorated with
            :func:`privopt.testing.check`. A check for kinds takes the kind's name, an effort and a seed, and returns a
            :class:`privopt.testing.CheckResult`.
        role: The role of the kinds to check, or None if the check is for mechanisms.
    """

    name: str = field(validator=_name)
    target: str = field(validator=_target)
    role: str | None = field(default=None, validator=optional(_name))

    @property
    def category(self) -> str:
        """The category within which the check's name must be unique.

        The checks for mechanisms form one category, and the checks for each role form another.
        """
        return "check" if self.role is None else f"check of each {self.role}"


@frozen(kw_only=True)
class TemplateSpec:
    """The spec of a project template for ``privopt new``.

    Attributes:
        name: The template's name, as used with ``--kind``.
        package: The importable package that contains the files in its ``templates/NAME`` folder, with ``.txt`` appended
            to each file name.
        files: The names of the files, without the appended ``.txt``. Those that end in ``.py`` go into the project's
            package, and all others into its top folder.
        notion: The privacy notion claimed by the template's mechanism.
        method: The name of the mechanism's only method.
        does: A description of the method in a few words.
        needs: The packages that the project requires in addition to privopt.
    """

    category: ClassVar[str] = "template"
    name: str = field(validator=_name)
    package: str = field(validator=_text)
    files: tuple[str, ...]
    notion: str = field(validator=_name)
    method: str = field(validator=_name)
    does: str = field(validator=_text)
    needs: tuple[str, ...] = ()


Spec = MechanismSpec | KindSpec | RoleSpec | CommandSpec | NameSpec | TraitSpec | CheckSpec | TemplateSpec
"""Any of the specs that a plugin can register."""


class Hooks:
    """The hooks that a plugin can implement: functions with these names that are decorated with :data:`hookimpl`."""

    @staticmethod
    @hookspec(historic=True)
    def privopt_mechanisms() -> Sequence[MechanismSpec]:  # type: ignore[empty-body]
        """Return the mechanisms registered by this plugin."""

    @staticmethod
    @hookspec(historic=True)
    def privopt_kinds() -> Sequence[KindSpec]:  # type: ignore[empty-body]
        """Return the kinds (distances, losses, privacy notions, solvers, ...) registered by this plugin."""

    @staticmethod
    @hookspec(historic=True)
    def privopt_roles() -> Sequence[RoleSpec]:  # type: ignore[empty-body]
        """Return the roles registered by this plugin."""

    @staticmethod
    @hookspec(historic=True)
    def privopt_commands() -> Sequence[CommandSpec]:  # type: ignore[empty-body]
        """Return the commands that this plugin adds to the command line."""

    @staticmethod
    @hookspec(historic=True)
    def privopt_names() -> Sequence[NameSpec]:  # type: ignore[empty-body]
        """Return the names that this plugin adds to the ``privopt`` Python package."""

    @staticmethod
    @hookspec(historic=True)
    def privopt_templates() -> Sequence[TemplateSpec]:  # type: ignore[empty-body]
        """Return the project templates that this plugin adds to ``privopt new``."""

    @staticmethod
    @hookspec(historic=True)
    def privopt_checks() -> Sequence[TraitSpec | CheckSpec]:  # type: ignore[empty-body]
        """Return the traits of releases and the checks that this plugin adds to the conformance kit."""

    @staticmethod
    @hookspec(firstresult=True)
    def privopt_handle(release: object) -> type | None:
        """Return the class used by :func:`privopt.open` for a release, or None for releases of other plugins."""

    @staticmethod
    @hookspec
    def privopt_released(release: object, problem: object) -> None:
        """React to a certified release, after its folder has been verified and moved into place.

        An error raised by this hook does not undo the release, but is reported as a warning.
        """
