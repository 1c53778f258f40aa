"""Find installed mechanisms and kinds by entry points, with their distributions, and report broken plugins.

The entry points are walked here, one by one, so that a plugin that fails to import is shown with its
reason and stops nothing. Nothing that a plugin's mechanisms need is imported before one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Generic, TypeVar, cast

import pluggy
from attrs import evolve, field, frozen

from privopt.errors import PrivoptError, RegistryError, UnknownNameError, UsageError
from privopt.specs import (
    GROUP,
    CheckSpec,
    CommandSpec,
    Hooks,
    KindCheckSpec,
    KindSpec,
    MechanismSpec,
    MethodSpec,
    NameSpec,
    RoleSpec,
    TemplateSpec,
    TraitSpec,
)

__all__ = ["Broken", "Brought", "Kind", "Registered", "Registry", "discover", "load_class", "registry", "using"]

Spec = (
    MechanismSpec | KindSpec | RoleSpec | CommandSpec | NameSpec | TraitSpec | CheckSpec | KindCheckSpec | TemplateSpec
)
S = TypeVar("S", bound=Spec)
_MECHANISM = "privopt.interfaces:Mechanism"


def _load(target: str) -> Any:
    """Import what ``"package.module:name"`` names."""
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise RegistryError(f"{target} cannot be loaded: {error}") from error


def load_class(target: str, base: type) -> type[Any]:
    """Import the class that ``"package.module:Class"`` names.

    Raises:
        RegistryError: it cannot be imported, or is not a subclass of ``base``.
    """
    found = _load(target)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise RegistryError(f"{target} must be a privopt {base.__name__}, got {found!r}")
    return found


@frozen(kw_only=True)
class Brought(Generic[S]):
    """A spec and the distribution that brings it."""

    spec: S
    plugin: str
    version: str

    def imported(self, target: str, base: str | None = None) -> object:
        """Import what ``"package.module:name"`` names.

        Args:
            target: of the spec.
            base: of the class it must be; None for anything.

        Raises:
            RegistryError: it cannot be imported, or has not the base class; names the distribution.
        """
        try:
            return _load(target) if base is None else load_class(target, _load(base))
        except RegistryError as error:
            raise RegistryError(f"{self.plugin}: {self.spec.name}: {error}") from error


@frozen(kw_only=True)
class Kind(Brought[KindSpec]):
    """A kind of distance, loss, notion, solver or decomposer, and the distribution that brings it."""

    def load(self) -> type[Any]:
        """Import the kind's class.

        Raises:
            RegistryError: the target cannot be imported or has not the base class of its role.
        """
        return cast("type[Any]", self.imported(self.spec.target, registry().of("role")[self.spec.role].spec.base))


@frozen(kw_only=True)
class Registered(Brought[MechanismSpec]):
    """A mechanism and the distribution that brings it."""

    def load(self) -> Any:
        """Import the mechanism's code and make it: a :class:`privopt.interfaces.Mechanism`.

        Raises:
            RegistryError: the target cannot be imported or is not a Mechanism.
        """
        cls = cast("type[Any]", self.imported(self.spec.target, _MECHANISM))
        try:
            return cls()
        except TypeError as error:
            raise RegistryError(f"{self.plugin}: {self.spec.name}: {error}") from error

    def expect(self, method: str, made: object, wanted: type) -> None:
        """Refuse what one of the mechanism's methods returned where it is of another kind.

        Raises:
            RegistryError: naming distribution, mechanism, method, what came and what was wanted.
        """
        if not isinstance(made, wanted):
            room = ".".join(wanted.__module__.split(".")[:2])  # where plugins import it from
            raise RegistryError(
                f"{self.plugin}: {self.spec.name}: {method}() returned {type(made).__name__}, "
                f"wanted {room}.{wanted.__name__}; nothing written"
            )

    def method(self, name: str | None) -> MethodSpec:
        """One of the mechanism's methods; the default where ``name`` is None."""
        if name is None:
            return self.spec.default
        for method in self.spec.methods:
            if method.name == name:
                return method
        raise UnknownNameError(f"method of {self.spec.name}", name, [method.name for method in self.spec.methods])


@frozen(kw_only=True)
class Broken:
    """A plugin that could not be taken in.

    Attributes:
        plugin: distribution.
        version: of the distribution.
        reason: one line.
        fatal: True for an error of the plugin's author that must not go by unseen (a misspelt hook, a name
            that another plugin has): ``privopt list`` ends with exit code 2.
        clash: the name of a mechanism, or role and name of a kind, that two distributions claim.
    """

    plugin: str
    version: str
    reason: str
    fatal: bool = False
    clash: tuple[str, str] | None = None


@frozen(kw_only=True)
class Registry:
    """Everything that is installed.

    Attributes:
        mechanisms: by name.
        kinds: by role and name, in the order in which the plugins give them; privopt's own come first.
        others: what else plugins bring, by category and name: see :meth:`of`.
        broken: plugins that could not be taken in.
        manager: pluggy's, with every plugin that was.
    """

    mechanisms: Mapping[str, Registered] = field(factory=dict)
    kinds: Mapping[tuple[str, str], Kind] = field(factory=dict)
    others: Mapping[tuple[str, str], Brought[Any]] = field(factory=dict)
    broken: tuple[Broken, ...] = ()
    manager: pluggy.PluginManager

    def get(self, name: str) -> Registered:
        """Return the mechanism called ``name``.

        Raises:
            UnknownNameError: none is called so; names the nearest, and plugins that could not be loaded.
            UsageError: none is installed.
            RegistryError: two distributions claim the name.
        """
        self._refuse_clash("mechanism", name)
        if not self.mechanisms and not self.broken:
            raise UsageError(f"no mechanism is called {name!r}: no plugin that brings mechanisms is installed")
        if name not in self.mechanisms:
            raise self._unknown("mechanism", name, self.mechanisms)
        return self.mechanisms[name]

    def names(self, role: str) -> tuple[str, ...]:
        """Names of the kinds of a role, privopt's own first."""
        return tuple(name for of, name in self.kinds if of == role)

    def kind(self, role: str, name: str) -> Kind:
        """Return the kind called ``name``, of one of :attr:`roles`.

        Raises:
            UnknownNameError: none is called so; names the nearest, and plugins that could not be loaded.
            RegistryError: two distributions claim the name.
        """
        self._refuse_clash(role, name)
        if (role, name) not in self.kinds:
            raise self._unknown(role, name, self.names(role))
        return self.kinds[role, name]

    def with_instead(
        self, *, mechanisms: Mapping[str, Registered] | None = None, kinds: Mapping[tuple[str, str], Kind] | None = None
    ) -> Registry:
        """Return this registry with other mechanisms or kinds, for :func:`using`; no plugin observes its releases."""
        return evolve(
            self,
            mechanisms=self.mechanisms if mechanisms is None else mechanisms,
            kinds=self.kinds if kinds is None else kinds,
            manager=discover([]).manager,
        )

    def of(self, category: str) -> dict[str, Brought[Any]]:
        """Return what plugins register in a category, by name.

        Args:
            category: ``"role"`` (of kinds), ``"command"``, ``"name"`` (of the package ``privopt``), ``"template"`` (of
                ``privopt new``), ``"trait"`` or ``"check"`` (of the conformance kit), ``"check of each ROLE"``.
        """
        return {name: one for (its, name), one in self.others.items() if its == category}

    def imported(self, category: str, name: str) -> object:
        """Import what a plugin brings of a category under a name.

        Raises:
            UnknownNameError: no plugin brings it.
            RegistryError: two distributions claim the name, or it cannot be imported.
        """
        self._refuse_clash(category, name)
        known = self.of(category)
        if name not in known:
            raise self._unknown(category, name, known)
        return known[name].imported(known[name].spec.target)

    def _refuse_clash(self, role: str, name: str) -> None:
        for broken in self.broken:
            if broken.clash == (role, name):
                raise RegistryError(broken.reason)

    def _unknown(self, what: str, name: str, known: Iterable[str]) -> UsageError:
        error = UnknownNameError(what, name, known)
        if not self.broken:
            return error
        lines = "; ".join(f"{broken.plugin} could not be loaded: {broken.reason}" for broken in self.broken)
        return UsageError(f"{error}; {lines}")


def _reason(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _owner(point: EntryPoint) -> tuple[str, str]:
    return (point.dist.name, point.dist.version) if point.dist is not None else (point.value, "unknown")


class _Manager(pluggy.PluginManager):
    """Takes every function called ``privopt_*`` for a hook, so that a misspelt one is found out."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        options = super().parse_hookimpl_opts(plugin, name)
        member = getattr(plugin, name, None)
        if options is None and name.startswith("privopt_") and callable(member):
            return pluggy.HookimplOpts(
                wrapper=False, hookwrapper=False, optionalhook=False, tryfirst=False, trylast=False, specname=None
            )
        return options


_HOOKS: Final[tuple[tuple[str, tuple[type, ...]], ...]] = (
    ("privopt_roles", (RoleSpec,)),
    ("privopt_kinds", (KindSpec,)),
    ("privopt_mechanisms", (MechanismSpec,)),
    ("privopt_commands", (CommandSpec,)),
    ("privopt_names", (NameSpec,)),
    ("privopt_templates", (TemplateSpec,)),
    ("privopt_checks", (TraitSpec, CheckSpec, KindCheckSpec)),
)
_CATEGORIES: Final[Mapping[type, str]] = {
    RoleSpec: "role",
    MechanismSpec: "mechanism",
    CommandSpec: "command",
    NameSpec: "name",
    TraitSpec: "trait",
    CheckSpec: "check",
    TemplateSpec: "template",
}
"""What a name is called in messages; a kind is called by its role."""


def _take_in(manager: pluggy.PluginManager, point: EntryPoint) -> tuple[list[Any], Broken | None]:
    plugin, version = _owner(point)

    def broken(error: BaseException | str, *, fatal: bool = False) -> tuple[list[Any], Broken]:
        reason = error if isinstance(error, str) else _reason(error)
        return [], Broken(plugin=plugin, version=version, reason=reason, fatal=fatal)

    try:
        module = point.load()
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # whatever a plugin raises, SystemExit included, is reported and stops nothing
        return broken(error)
    name = f"{plugin}:{point.name}"
    try:
        manager.register(module, name=name)
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        if manager.has_plugin(name):
            manager.unregister(name=name)
        return broken(f"hook that does not fit: {' '.join(str(error).split())}", fatal=True)
    specs: list[Any] = []
    for hook, wanted in _HOOKS:
        kinds = " or ".join(each.__name__ for each in wanted)
        function = getattr(module, hook, None)
        if function is None:
            continue
        try:
            returned = function()
            if not isinstance(returned, Iterable) or isinstance(returned, str | bytes):
                return broken(f"{hook} returned {returned!r}, not a list of {kinds}", fatal=True)
            found = list(returned)
        except Exception as error:  # as above: any error of a plugin's own code is reported against its name
            return broken(error)
        wrong = [spec for spec in found if not isinstance(spec, wanted)]
        if wrong:
            return broken(f"{hook} returned {wrong[0]!r}, not a {kinds}", fatal=True)
        specs += found
    return specs, None


def _with_decomposers(spec: MechanismSpec, kinds: Iterable[KindSpec]) -> MechanismSpec:
    """Return the spec with a method for each registered decomposer; a method of its own under that name stands."""
    known = {method.name for method in spec.methods}
    new = [kind for kind in kinds if kind.name not in known]
    added = (MethodSpec(name=kind.name, summary=kind.summary, gap=spec.default.gap) for kind in new)
    return evolve(spec, methods=(*spec.methods, *added))


def discover(points: Iterable[EntryPoint]) -> Registry:
    """Take in the given entry points, in the order of their distributions' names."""
    manager = _Manager(GROUP)
    manager.add_hookspecs(Hooks)
    broken: list[Broken] = []
    brought: list[Brought[Any]] = []
    for point in sorted(points, key=lambda p: (_owner(p)[0] != GROUP, _owner(p)[0], p.name)):
        plugin, version = _owner(point)
        specs, fault = _take_in(manager, point)
        if fault is not None:
            broken.append(fault)
        brought += [Brought(spec=spec, plugin=plugin, version=version) for spec in specs]
    roles = {one.spec.name: one for one in reversed(brought) if isinstance(one.spec, RoleSpec)}
    found: dict[tuple[str, str], Brought[Any]] = {}
    for one in brought:
        spec, wrong = one.spec, partial(Broken, plugin=one.plugin, version=one.version, fatal=True)
        key = (_category(spec), spec.name)
        if isinstance(spec, KindSpec) and spec.role not in roles:
            reason = f"the kind {spec.name!r} has the role {spec.role!r}, which must be one of {', '.join(roles)}"
            broken.append(wrong(reason=reason))
        elif key in found:
            first = found[key]
            reason = (
                f"the {key[0]} {spec.name!r} is registered by both {first.plugin} {first.version} "
                f"({_target(first.spec)}) and {one.plugin} {one.version} ({_target(spec)}); uninstall one"
            )
            broken.append(wrong(reason=reason, clash=key))
        else:
            found[key] = _typed(one)
    return _checked(found, tuple(broken), manager)


def _category(spec: Spec) -> str:
    """Describe what a name is unique in, as messages call it."""
    if isinstance(spec, KindSpec):
        return spec.role
    return f"check of each {spec.role}" if isinstance(spec, KindCheckSpec) else _CATEGORIES[type(spec)]


def _target(spec: Spec) -> str:
    if isinstance(spec, TemplateSpec):
        return spec.package
    return spec.base if isinstance(spec, RoleSpec) else spec.target


def _typed(one: Brought[Any]) -> Brought[Any]:
    """Return a kind or a mechanism as one that can be loaded."""
    if isinstance(one.spec, KindSpec):
        return Kind(spec=one.spec, plugin=one.plugin, version=one.version)
    if isinstance(one.spec, MechanismSpec):
        return Registered(spec=one.spec, plugin=one.plugin, version=one.version)
    return one


def _checked(
    found: dict[tuple[str, str], Brought[Any]], broken: tuple[Broken, ...], manager: pluggy.PluginManager
) -> Registry:
    """Return a registry of what was found, less the mechanisms that claim a notion that no one registers."""
    kinds = {key: one for key, one in found.items() if isinstance(one, Kind)}
    decomposers = [kind.spec for kind in kinds.values() if kind.spec.role == "decomposer"]
    mechanisms: dict[str, Registered] = {}
    for one in (one for _, one in sorted(found.items()) if isinstance(one, Registered)):
        taken = evolve(one, spec=_with_decomposers(one.spec, decomposers)) if one.spec.decomposes else one
        missing = {taken.spec.kind_of(method) for method in taken.spec.methods} - {
            name for role, name in kinds if role == "notion"
        }
        for notion in sorted(missing):
            reason = f"the mechanism {one.spec.name!r} claims {notion!r}, which no plugin registers as a notion"
            broken += (Broken(plugin=one.plugin, version=one.version, reason=reason, fatal=True),)
        if not missing:
            mechanisms[one.spec.name] = taken

    others = {key: one for key, one in found.items() if not isinstance(one, Kind | Registered)}
    return Registry(mechanisms=mechanisms, kinds=kinds, others=others, broken=broken, manager=manager)


_instead: ContextVar[Registry | None] = ContextVar("registry", default=None)


def registry() -> Registry:
    """Return what is installed in this environment, found once a process; or what :func:`using` puts in its place."""
    return _instead.get() or _installed()


@cache
def _installed() -> Registry:
    return discover(entry_points(group=GROUP))


@contextmanager
def using(taken: Registry) -> Iterator[None]:
    """Make :func:`registry` return ``taken`` in this block and thread: for mechanisms that are not installed."""
    token = _instead.set(taken)
    try:
        yield
    finally:
        _instead.reset(token)


def observers_of(taken: Registry) -> Callable[[object, object], list[str]]:
    """Call every plugin's ``privopt_released``; an observer's error is reported, not raised."""

    def call(release: object, problem: object) -> list[str]:
        complaints = []
        for implementation in taken.manager.hook.privopt_released.get_hookimpls():
            arguments = {"release": release, "problem": problem}
            try:
                implementation.function(*(arguments[name] for name in implementation.argnames))
            except PrivoptError as error:
                complaints.append(f"{implementation.plugin_name}: {error}")
            except Exception as error:  # the release is already written; an observer cannot take it back
                complaints.append(f"{implementation.plugin_name}: {_reason(error)}")
        return complaints

    return call
