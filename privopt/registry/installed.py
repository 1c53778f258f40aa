"""What is installed: specs, the distributions that register them, and plugins that are broken."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

import pluggy
from attrs import evolve, field, frozen

from privopt.errors import PrivoptError, RegistryError, UnknownNameError, UsageError
from privopt.registry.missing import describe_missing_distributions
from privopt.specs import KindSpec, MechanismSpec, MethodSpec, RoleSpec, Spec, TemplateSpec

S = TypeVar("S", bound=Spec)
B = TypeVar("B")
_MECHANISM = "privopt.interfaces:Mechanism"


def _import_target(target: str) -> Any:
    """Import what ``"package.module:name"`` names."""
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise RegistryError(f"{target} cannot be loaded: {error}") from error
    except (Exception, SystemExit) as error:  # whatever the module does while it is imported
        raise RegistryError(f"{target} cannot be loaded: {format_error(error)}") from error


def load_class(target: str, base: type) -> type[Any]:
    """Import the class that ``"package.module:Class"`` names.

    Raises:
        RegistryError: it cannot be imported, or is not a subclass of ``base``.
    """
    loaded = _import_target(target)
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise RegistryError(f"{target} must be a privopt {base.__name__}, got {loaded!r}")
    return loaded


@frozen(kw_only=True)
class Broken:
    """A plugin, or one of its names, that the registry leaves out.

    Attributes:
        plugin: distribution.
        version: of the distribution.
        reason: one line.
        fatal: True for an error of the plugin's author that must not go by unseen (a misspelt hook, a name
            that another plugin has): ``privopt list`` ends with exit code 2.
        is_damaged: True for a distribution whose metadata cannot be read.
        clash: category and name that two distributions claim.
    """

    plugin: str
    version: str
    reason: str
    fatal: bool = False
    is_damaged: bool = False
    clash: tuple[str, str] | None = None


@frozen(kw_only=True)
class Entry(Generic[S]):
    """A spec and the distribution that registers it."""

    spec: S
    plugin: str
    version: str

    @property
    def key(self) -> tuple[str, str]:
        """Category and name, which no other entry has."""
        return self.spec.category, self.spec.name

    @property
    def origin(self) -> str:
        """Distribution, version and target, for messages."""
        spec = cast("Spec", self.spec)
        if isinstance(spec, TemplateSpec):
            target = spec.package
        else:
            target = spec.base if isinstance(spec, RoleSpec) else spec.target
        return f"{self.plugin} {self.version} ({target})"

    def import_target(self, base: str | None = None) -> object:
        """Import the target of the spec.

        Args:
            base: ``"package.module:Class"`` that it must be a subclass of; None for anything.

        Raises:
            RegistryError: it cannot be imported, or does not have the base class; names the distribution.
        """
        target = cast("Any", self.spec).target
        try:
            return _import_target(target) if base is None else load_class(target, _import_target(base))
        except RegistryError as error:
            raise RegistryError(f"{self.plugin}: {self.spec.name}: {error}") from error

    def as_broken(self, reason: str, clash: tuple[str, str] | None = None) -> Broken:
        """Return why the registry leaves this entry out: an error of its author."""
        return Broken(plugin=self.plugin, version=self.version, reason=reason, fatal=True, clash=clash)


@frozen(kw_only=True)
class Kind(Entry[KindSpec]):
    """A kind of distance, loss, notion, solver or decomposer, and the distribution that registers it.

    Attributes:
        base: ``"package.module:Class"`` that its role requires, which the registry fills in.
    """

    base: str = ""

    def load(self) -> type[Any]:
        """Import the kind's class.

        Raises:
            RegistryError: the target cannot be imported, or does not have the base class of its role.
        """
        return cast("type[Any]", self.import_target(self.base))


@frozen(kw_only=True)
class Registered(Entry[MechanismSpec]):
    """A mechanism and the distribution that registers it."""

    def load(self) -> Any:
        """Import the mechanism's code and make it: a :class:`privopt.interfaces.Mechanism`.

        Raises:
            RegistryError: the target cannot be imported or is not a Mechanism.
        """
        mechanism_class = cast("type[Any]", self.import_target(_MECHANISM))
        try:
            return mechanism_class()
        except TypeError as error:
            raise RegistryError(f"{self.plugin}: {self.spec.name}: {error}") from error

    def expect(self, method: str, value: object, expected_type: type) -> None:
        """Refuse what one of the mechanism's methods returned if it has another type.

        Raises:
            RegistryError: names distribution, mechanism, method, the type returned and the one that it must be.
        """
        if not isinstance(value, expected_type):
            package = ".".join(expected_type.__module__.split(".")[:2])  # where plugins import it from
            raise RegistryError(
                f"{self.plugin}: {self.spec.name}: {method}() must return "
                f"{package}.{expected_type.__name__}, got {type(value).__name__}; nothing written"
            )

    def method(self, name: str | None) -> MethodSpec:
        """Return one of the mechanism's methods; the default for None."""
        if name is None:
            return self.spec.default
        for method in self.spec.methods:
            if method.name == name:
                return method
        raise UnknownNameError(f"method of {self.spec.name}", name, [method.name for method in self.spec.methods])


def make_entry(spec: Spec, plugin: str, version: str) -> Entry[Any]:
    """Return a spec as the registry holds it: mechanisms and kinds can be loaded."""
    if isinstance(spec, MechanismSpec):
        return Registered(spec=spec, plugin=plugin, version=version)
    if isinstance(spec, KindSpec):
        return Kind(spec=spec, plugin=plugin, version=version)
    return Entry(spec=spec, plugin=plugin, version=version)


@frozen(kw_only=True)
class Registry:
    """Everything that is installed.

    Attributes:
        entries: by category and name, privopt's own first. Categories are ``"mechanism"``, the roles of kinds
            (``"notion"``, ``"solver"``, ...), ``"role"``, ``"command"``, ``"name"`` (of the package ``privopt``),
            ``"template"`` (of ``privopt new``), ``"trait"`` or ``"check"`` (of the kit), ``"check of each ROLE"``.
        broken: plugins that could not be loaded, and names that are left out.
        observers: implementations of the hook ``privopt_released``.
        handle_hook: calls the hook ``privopt_handle``; None for no plugins.
    """

    entries: Mapping[tuple[str, str], Entry[Any]] = field(factory=dict)
    broken: tuple[Broken, ...] = ()
    observers: tuple[pluggy.HookImpl, ...] = ()
    handle_hook: pluggy.HookCaller | None = None

    def of(self, category: str) -> dict[str, Entry[Any]]:
        """Return the entries of a category, by name."""
        return {name: entry for (its_category, name), entry in self.entries.items() if its_category == category}

    @property
    def mechanisms(self) -> Mapping[str, Registered]:
        """The mechanisms, sorted by name."""
        return cast("dict[str, Registered]", dict(sorted(self.of(MechanismSpec.category).items())))

    def get(self, name: str) -> Registered:
        """Return the mechanism called ``name``; raises as :meth:`find` does."""
        return cast("Registered", self.find(MechanismSpec.category, name))

    def names(self, role: str) -> tuple[str, ...]:
        """Return the names of the kinds of a role, privopt's own first."""
        return tuple(self.of(role))

    def kind(self, role: str, name: str) -> Kind:
        """Return the kind called ``name``, of a registered role; raises as :meth:`find` does."""
        return evolve(cast("Kind", self.find(role, name)), base=self.of(RoleSpec.category)[role].spec.base)

    def import_entry(self, category: str, name: str) -> object:
        """Import the target of a command, a Python name or a check; raises as :meth:`find` does."""
        return self.find(category, name).import_target()

    def find(self, category: str, name: str) -> Entry[Any]:
        """Return the entry of a category under a name.

        Raises:
            UnknownNameError: nothing is called so; names the nearest.
            UsageError: the same if plugins are broken or distributions of the project missing, which it names.
            RegistryError: two distributions claim the name.
        """
        for broken in self.broken:
            if broken.clash == (category, name):
                raise RegistryError(broken.reason)
        if (category, name) in self.entries:
            return self.entries[category, name]
        error = UnknownNameError(category, name, self.of(category))
        absences = self.describe_absences()
        if not absences:
            raise error
        raise UsageError("; ".join([str(error), *absences]))

    def describe_absences(self) -> list[str]:
        """Return why something may be missing: plugins that could not be loaded, and what is not installed."""
        failures = [f"{broken.plugin} could not be loaded: {broken.reason}" for broken in self.broken]
        return [*failures, *describe_missing_distributions()]

    def replace(self, *entries: Entry[Any]) -> Registry:
        """Return this registry with other entries, for :func:`using`; no plugin observes its releases."""
        return evolve(self, entries={**self.entries, **{entry.key: entry for entry in entries}}, observers=())

    def find_handle_class(self, release: object, base: type[B]) -> type[B]:
        """Return the first class that a plugin gives for the handle of a release; ``base`` if none gives any.

        Raises:
            RegistryError: it is not a subclass of ``base``.
        """
        handle_class = None if self.handle_hook is None else self.handle_hook(release=release)
        if handle_class is None:
            return base
        if not (isinstance(handle_class, type) and issubclass(handle_class, base)):
            raise RegistryError(f"privopt_handle must return a subclass of {base.__name__}, got {handle_class!r}")
        return handle_class

    def notify_released(self, release: object, problem: object) -> list[str]:
        """Call every plugin's ``privopt_released``; an observer's error is returned, not raised."""
        complaints = []
        arguments = {"release": release, "problem": problem}
        for observer in self.observers:
            try:
                observer.function(*(arguments[name] for name in observer.argnames))
            except Exception as error:  # the release is already written; an observer cannot take it back
                reason = str(error) if isinstance(error, PrivoptError) else format_error(error)
                complaints.append(f"{observer.plugin_name}: {reason}")
        return complaints


def format_error(error: BaseException) -> str:
    """Return an error of a plugin in one line, whatever its own ``__str__`` does."""
    try:
        message = str(error)
    except Exception:
        message = "its message cannot be shown"
    return " ".join(f"{type(error).__name__}: {message}".split())
