"""The registry of an environment: the specs of its plugins, the packages that provide them, and the broken plugins.

Specs refer to their code as ``"package.module:name"``. The code is imported only when an entry is loaded, so listing
mechanisms is fast.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

import pluggy
from attrs import evolve, field, frozen

from privopt.errors import PrivoptError, RegistryError, UnknownNameError, UsageError
from privopt.registry.missing import CORE, describe_missing_distributions, project_distributions
from privopt.specs import KindSpec, MechanismSpec, MethodSpec, RoleSpec, Spec, TemplateSpec

S = TypeVar("S", bound=Spec)
B = TypeVar("B")
_MECHANISM = "privopt.interfaces:Mechanism"
"""The import path of the base class for all mechanisms."""


def normalize_name(distribution: str) -> str:
    """Return a distribution's name in normalized form (PEP 503), for comparison.

    >>> normalize_name("Privopt_Metric.DP")
    'privopt-metric-dp'
    """
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _import_target(target: str) -> Any:
    """Import the object given as ``"package.module:name"``.

    Raises:
        RegistryError: The object cannot be imported, whatever error its module raises.
    """
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise RegistryError(f"{target} cannot be loaded: {error}") from error
    except (Exception, SystemExit) as error:  # the module's own code may raise any error while it is imported
        raise RegistryError(f"{target} cannot be loaded: {format_error(error)}") from error


def load_class(target: str, base: type) -> type[Any]:
    """Import the class given as ``"package.module:Class"``.

    Raises:
        RegistryError: The class cannot be imported, or is not a subclass of ``base``.
    """
    loaded = _import_target(target)
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise RegistryError(f"{target} must be a privopt {base.__name__}, got {loaded!r}")
    return loaded


@frozen(kw_only=True)
class Broken:
    """A plugin that could not be loaded, or an individual plugin entry that was left out of the registry.

    Attributes:
        plugin: The name of the plugin's package (distribution).
        version: The version of the package.
        reason: The reason for the omission, in one line.
        fatal: Whether the plugin's author must correct the cause, for example a misspelt hook or a name that another
            plugin already uses. ``privopt list`` then exits with code 2.
        is_damaged: Whether the package's metadata cannot be read.
        clash: The category and name claimed by two packages, or None if the reason is different.
    """

    plugin: str
    version: str
    reason: str
    fatal: bool = False
    is_damaged: bool = False
    clash: tuple[str, str] | None = None


@frozen(kw_only=True)
class Entry(Generic[S]):
    """A spec, together with the installed package (distribution) that registers it.

    Attributes:
        spec: The registered spec.
        plugin: The name of the package.
        version: The version of the package.
    """

    spec: S
    plugin: str
    version: str

    @property
    def key(self) -> tuple[str, str]:
        """The entry's category and name, which together identify it in a registry."""
        return self.spec.category, self.spec.name

    @property
    def origin(self) -> str:
        """The package, its version and the spec's target in one line, for use in messages."""
        spec = cast("Spec", self.spec)
        if isinstance(spec, TemplateSpec):
            target = spec.package
        else:
            target = spec.base if isinstance(spec, RoleSpec) else spec.target
        return f"{self.plugin} {self.version} ({target})"

    def import_target(self, base: str | None = None) -> object:
        """Import and return the spec's target.

        Args:
            base: The required base class as ``"package.module:Class"``. If None, any object is accepted.

        Raises:
            RegistryError: The target cannot be imported, or is not a subclass of the base class. The message names the
                package.
        """
        target = cast("Any", self.spec).target
        try:
            return _import_target(target) if base is None else load_class(target, _import_target(base))
        except RegistryError as error:
            raise RegistryError(f"{self.plugin}: {self.spec.name}: {error}") from error

    def as_broken(self, reason: str, clash: tuple[str, str] | None = None) -> Broken:
        """Return a record stating that this entry was left out of the registry.

        Args:
            reason: The mistake made by the plugin's author, in one line.
            clash: The category and name claimed by two packages, or None if the mistake is different.
        """
        return Broken(plugin=self.plugin, version=self.version, reason=reason, fatal=True, clash=clash)


@frozen(kw_only=True)
class Kind(Entry[KindSpec]):
    """A kind of distance, loss, notion, solver or decomposer, together with the package that registers it.

    Attributes:
        base: The base class required by the kind's role, as ``"package.module:Class"``. It is set by
            :meth:`Registry.kind`.
    """

    base: str = ""

    def load(self) -> type[Any]:
        """Import the kind's class.

        Raises:
            RegistryError: The target cannot be imported, or is not a subclass of the base class required by the role.
        """
        return cast("type[Any]", self.import_target(self.base))


@frozen(kw_only=True)
class Registered(Entry[MechanismSpec]):
    """A mechanism, together with the installed package that registers it."""

    def load(self) -> Any:
        """Import the mechanism's class and return a new instance, a :class:`privopt.interfaces.Mechanism`.

        Raises:
            RegistryError: The target cannot be imported or is not a Mechanism.
        """
        mechanism_class = cast("type[Any]", self.import_target(_MECHANISM))
        try:
            return mechanism_class()
        except TypeError as error:  # an abstract method is missing, or __init__ has arguments
            raise RegistryError(f"{self.plugin}: {self.spec.name}: {error}") from error

    def expect(self, method: str, value: object, expected_type: type) -> None:
        """Check the type of a value returned by one of the mechanism's methods.

        Args:
            method: The name of the method, for the error message.
            value: The value returned by the method.
            expected_type: The required type of the value.

        Raises:
            RegistryError: The type is wrong. The message names the package, mechanism, method and both types.
        """
        if not isinstance(value, expected_type):
            # Name the package from which plugins import the type, rather than the module that defines it.
            package = ".".join(expected_type.__module__.split(".")[:2])
            raise RegistryError(
                f"{self.plugin}: {self.spec.name}: {method}() must return "
                f"{package}.{expected_type.__name__}, got {type(value).__name__}; nothing written"
            )

    def method(self, name: str | None) -> MethodSpec:
        """Return the mechanism's method called ``name``, or its default method if ``name`` is None.

        Raises:
            UnknownNameError: The mechanism has no such method.
        """
        if name is None:
            return self.spec.default
        for method in self.spec.methods:
            if method.name == name:
                return method
        raise UnknownNameError(f"method of {self.spec.name}", name, [method.name for method in self.spec.methods])


def make_entry(spec: Spec, plugin: str, version: str) -> Entry[Any]:
    """Return the registry entry for a spec. Entries for mechanisms and kinds have a ``load`` method."""
    if isinstance(spec, MechanismSpec):
        return Registered(spec=spec, plugin=plugin, version=version)
    if isinstance(spec, KindSpec):
        return Kind(spec=spec, plugin=plugin, version=version)
    return Entry(spec=spec, plugin=plugin, version=version)


@frozen(kw_only=True)
class Registry:
    """The installed mechanisms, kinds, commands and other entries.

    Attributes:
        entries: The entries by category and name, with the core's entries first. The categories are ``"mechanism"``,
            the roles that kinds fill (``"notion"``, ``"solver"`` and so on), ``"role"``, ``"command"``, ``"name"`` (an
            object in the ``privopt`` package), ``"template"`` (for ``privopt new``), ``"trait"`` and ``"check"`` (for
            the conformance kit), and ``"check of each ROLE"`` (a check of the kinds that fill a role).
        broken: The plugins that could not be loaded, and the individual entries that were left out.
        observers: The implementations of the ``privopt_released`` hook.
        handle_hook: pluggy's caller for the ``privopt_handle`` hook, or None if no plugins are loaded.
    """

    entries: Mapping[tuple[str, str], Entry[Any]] = field(factory=dict)
    broken: tuple[Broken, ...] = ()
    observers: tuple[pluggy.HookImpl, ...] = ()
    handle_hook: pluggy.HookCaller | None = None

    def of(self, category: str) -> dict[str, Entry[Any]]:
        """Return all entries in a category, by name."""
        return {name: entry for (its_category, name), entry in self.entries.items() if its_category == category}

    @property
    def mechanisms(self) -> Mapping[str, Registered]:
        """The mechanisms, sorted by name."""
        return cast("dict[str, Registered]", dict(sorted(self.of(MechanismSpec.category).items())))

    def get(self, name: str) -> Registered:
        """Return the mechanism called ``name``. Raises the same errors as :meth:`find`."""
        return cast("Registered", self.find(MechanismSpec.category, name))

    def names(self, role: str) -> tuple[str, ...]:
        """Return the names of the kinds that can fill a role, with the core's kinds first."""
        return tuple(self.of(role))

    def kind(self, role: str, name: str) -> Kind:
        """Return the kind called ``name`` for a role such as ``"solver"``, with the base class required by the role.

        Raises:
            UnknownNameError: There is no such role or kind. The message suggests similar or known names.
            UsageError, RegistryError: See :meth:`find`.
        """
        base: str = self.find(RoleSpec.category, role).spec.base
        return evolve(cast("Kind", self.find(role, name)), base=base)

    def import_entry(self, category: str, name: str) -> object:
        """Import and return the target of an entry, such as a command, a Python object or a check.

        Raises the same errors as :meth:`find` if there is no such entry.
        """
        return self.find(category, name).import_target()

    def find(self, category: str, name: str) -> Entry[Any]:
        """Return the entry with a given category and name.

        Raises:
            UnknownNameError: There is no such entry. The message suggests similar or known names.
            UsageError: There is no such entry, and some plugins are broken or some packages of the project are not
                installed. The message names these as well, because one of them may be the cause.
            RegistryError: Two packages claim the name, and it is not registered by this project.
        """
        entry = self.entries.get((category, name))
        clash = next((broken for broken in self.broken if broken.clash == (category, name)), None)
        # The project's names stay in use, so that no plugin can disable them. Of two other packages, the first is not
        # preferred, although its entry is still registered.
        if clash is not None and (entry is None or entry.plugin not in (CORE, *project_distributions())):
            raise RegistryError(clash.reason)
        if entry is not None:
            return entry
        error = UnknownNameError(category, name, self.of(category))
        absences = self.describe_absences()
        if not absences:
            raise error
        raise UsageError("; ".join([str(error), *absences]))

    def describe_absences(self) -> list[str]:
        """Return possible reasons why a name is missing: plugins that failed to load, and missing packages."""
        failures = [f"{broken.plugin} could not be loaded: {broken.reason}" for broken in self.broken]
        return [*failures, *describe_missing_distributions()]

    def replace(self, *entries: Entry[Any]) -> Registry:
        """Return a copy of this registry with the given entries added or replaced, for use with :func:`using`.

        The copy has no observers, so runs of the conformance kit do not trigger the ``privopt_released`` hook.
        """
        return evolve(self, entries={**self.entries, **{entry.key: entry for entry in entries}}, observers=())

    def find_handle_class(self, release: object, base: type[B]) -> type[B]:
        """Return the class of a release's handle, as chosen by the ``privopt_handle`` hook.

        A handle is the Python object through which users access a release.

        Args:
            release: The release.
            base: The base class of all handles, which is returned if no plugin provides a class for this release.

        Raises:
            RegistryError: The class is not a subclass of ``base``.
        """
        handle_class = None if self.handle_hook is None else self.handle_hook(release=release)
        if handle_class is None:
            return base
        if not (isinstance(handle_class, type) and issubclass(handle_class, base)):
            raise RegistryError(f"privopt_handle must return a subclass of {base.__name__}, got {handle_class!r}")
        return handle_class

    def notify_released(self, release: object, problem: object) -> list[str]:
        """Call every plugin's ``privopt_released`` hook, and return a message for each hook that raised an error.

        Args:
            release: The certified release. Its folder has been verified and is in its final place.
            problem: The problem for which the release was made.
        """
        complaints = []
        # pluggy would stop at the first error, so the observers are called directly.
        arguments = {"release": release, "problem": problem}
        for observer in self.observers:
            try:
                observer.function(*(arguments[name] for name in observer.argnames))
            except (Exception, SystemExit) as error:  # the other observers are called all the same
                reason = str(error) if isinstance(error, PrivoptError) else format_error(error)
                complaints.append(f"{observer.plugin_name}: {reason}")
        return complaints


def format_error(error: BaseException) -> str:
    """Return a plugin's error as a single line of text, even if converting the error to a string fails."""
    try:
        message = str(error)
    except Exception:
        message = "its message cannot be shown"
    return " ".join(f"{type(error).__name__}: {message}".split())
