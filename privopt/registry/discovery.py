"""Discovery: pluggy asks each plugin of an environment for its specs as it is registered.

A plugin that fails is reported with its reason and stops nothing. Nothing that a plugin's mechanisms need is imported
before one is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from importlib.metadata import EntryPoint
from typing import Any

import pluggy
from attrs import evolve

from privopt.execution.interrupts import interrupts
from privopt.registry.distributions import (
    UNKNOWN,
    DamagedMetadataError,
    folder_name_of,
    installed_entry_points,
    owner_of,
)
from privopt.registry.installed import Broken, Entry, Registered, Registry, format_error, make_entry
from privopt.registry.missing import project_distributions
from privopt.specs import (
    GROUP,
    CheckSpec,
    CommandSpec,
    Hooks,
    KindSpec,
    MechanismSpec,
    MethodSpec,
    NameSpec,
    RoleSpec,
    Spec,
    TemplateSpec,
    TraitSpec,
)


class _UnfitError(Exception):
    """A hook that is not marked, or returns what it must not: an error of the plugin's author."""


class _PluginLoader:
    """Registers plugins with pluggy, which asks each for its specs at once, because the hooks are historic.

    So an exception belongs to the plugin that is being registered.
    """

    def __init__(self) -> None:
        self.manager = pluggy.PluginManager(GROUP)
        self.manager.add_hookspecs(Hooks)
        self.specs_by_hook: dict[str, list[Spec]] = {}
        hook = self.manager.hook
        for caller, spec_types in (
            (hook.privopt_roles, (RoleSpec,)),
            (hook.privopt_kinds, (KindSpec,)),
            (hook.privopt_mechanisms, (MechanismSpec,)),
            (hook.privopt_commands, (CommandSpec,)),
            (hook.privopt_names, (NameSpec,)),
            (hook.privopt_templates, (TemplateSpec,)),
            (hook.privopt_checks, (TraitSpec, CheckSpec)),
        ):
            caller.call_historic(partial(self._add_specs, caller.name, spec_types))

    def load(self, point: EntryPoint, name: str) -> list[Spec]:
        """Import a plugin, register it and return its specs; a plugin that fails leaves nothing.

        Raises:
            _UnfitError, pluggy.PluginValidationError: an error of its author.
            BaseException: whatever its own code raises.
        """
        if self.manager.has_plugin(name):
            raise _UnfitError(f"a second entry point is called {point.name!r}")
        self.specs_by_hook, plugin = {}, point.load()
        try:
            self.manager.register(plugin, name)
            self.manager.check_pending()
            self._check_hooks(plugin)
        except BaseException:
            # pluggy may have refused it half-way: hooks that it has already must not be called later
            if self.manager.has_plugin(name):
                self.manager.unregister(name=name)
            raise
        return [spec for specs in self.specs_by_hook.values() for spec in specs]

    def _check_hooks(self, plugin: object) -> None:
        for caller in self.manager.get_hookcallers(plugin) or ():
            if caller.is_historic() and caller.name not in self.specs_by_hook:  # pluggy does not pass None on
                raise _UnfitError(f"{caller.name} must return a list, got None")
        for name in dir(plugin):
            if not name.startswith(f"{GROUP}_") or isinstance(getattr(plugin, name), type):
                continue
            is_marked = self.manager.parse_hookimpl_opts(plugin, name) is not None
            if callable(getattr(plugin, name)) and not is_marked:
                raise _UnfitError(f"{name} must be marked with @privopt.specs.hookimpl, or have another name")

    def _add_specs(self, hook: str, spec_types: tuple[type, ...], returned: object) -> None:
        is_list = isinstance(returned, Iterable) and not isinstance(returned, str | bytes)
        specs: list[Any] = list(returned) if is_list else [returned]  # type: ignore[call-overload]
        for spec in specs:
            if not isinstance(spec, spec_types):
                expected = " or ".join(each.__name__ for each in spec_types)
                raise _UnfitError(f"{hook} must return a list of {expected}, got {spec!r}")
        self.specs_by_hook[hook] = specs


def discover(points: Iterable[EntryPoint]) -> Registry:
    """Load the plugins of the given entry points: the core's, the project's, then others, each by name."""
    loader, broken, entries = _PluginLoader(), list[Broken](), list[Entry[Any]]()
    for point, plugin, version in _in_order(points, broken):
        failure = partial(Broken, plugin=plugin, version=version)
        with interrupts() as signals:
            try:
                specs = loader.load(point, f"{plugin}:{point.name}")
                entries += [make_entry(spec, plugin, version) for spec in specs]
            except (_UnfitError, pluggy.PluginValidationError) as error:
                broken.append(failure(reason=" ".join(str(error).split()), fatal=True))
            except BaseException as error:  # whatever a plugin raises, SystemExit included, stops nothing
                # A KeyboardInterrupt is the user's if a signal came, else the plugin's own.
                if signals:
                    raise
                broken.append(failure(reason=format_error(error)))
    hook = loader.manager.hook
    observers = tuple(hook.privopt_released.get_hookimpls())
    return evolve(_index_entries(entries, broken), observers=observers, handle_hook=hook.privopt_handle)


def _in_order(points: Iterable[EntryPoint], broken: list[Broken]) -> list[tuple[EntryPoint, str, str]]:
    """Return entry points with name and version of their distributions, those that may claim a name first at the front.

    A name that two distributions claim is shown as the first one's: nobody replaces what the project has.
    """
    project = project_distributions()
    owned_points: list[tuple[tuple[object, ...], EntryPoint, str, str]] = []
    for point in points:
        try:
            plugin, version = owner_of(point)
        except DamagedMetadataError as error:
            broken.append(Broken(plugin=folder_name_of(point), version=UNKNOWN, reason=str(error), is_damaged=True))
            continue
        rank = 0 if plugin == GROUP else 1 if plugin in project else 2
        owned_points.append(((rank, plugin, point.name, point.value), point, plugin, version))
    return [row[1:] for row in sorted(owned_points, key=lambda row: row[0])]


def _index_entries(entries: Iterable[Entry[Any]], broken: list[Broken]) -> Registry:
    """Return a registry of the entries.

    Left out, and added to ``broken``: names claimed twice, kinds whose role nobody registers, and mechanisms that claim
    a notion that nobody registers. A mechanism that two distributions claim belongs to neither.
    """
    index: dict[tuple[str, str], Entry[Any]] = {}
    for entry in entries:
        first = index.setdefault(entry.key, entry)
        if first is not entry:
            category, name = entry.key
            reason = f"the {category} {name!r} is registered by both {first.origin} and {entry.origin}; uninstall one"
            broken.append(entry.as_broken(reason, clash=entry.key))
    for failure in broken:
        if failure.clash is not None and failure.clash[0] == MechanismSpec.category:
            index.pop(failure.clash, None)
    roles = [name for category, name in index if category == RoleSpec.category]
    for entry in [entry for entry in index.values() if isinstance(entry.spec, KindSpec)]:
        if entry.spec.role not in roles:
            name, role = entry.spec.name, entry.spec.role
            reason = f"the kind {name!r} has the role {role!r}, which must be one of {', '.join(roles)}"
            broken.append(index.pop(entry.key).as_broken(reason))
    decomposers = [entry.spec for entry in index.values() if entry.spec.category == "decomposer"]
    notions = {name for category, name in index if category == "notion"}
    for entry in [entry for entry in index.values() if isinstance(entry, Registered)]:
        spec = _add_decomposers(entry.spec, decomposers)
        index[entry.key] = evolve(entry, spec=spec)
        for notion in sorted({spec.kind_of(method) for method in spec.methods} - notions):
            reason = f"the mechanism {spec.name!r} claims {notion!r}, which no plugin registers as a notion"
            broken.append(entry.as_broken(reason))
            index.pop(entry.key, None)
    return Registry(entries=index, broken=tuple(broken))


def _add_decomposers(spec: MechanismSpec, decomposers: Iterable[KindSpec]) -> MechanismSpec:
    """Return a spec that decomposes with a method for each decomposer; its own of that name take precedence."""
    if not spec.decomposes:
        return spec
    method_names = {method.name for method in spec.methods}
    added = [kind for kind in decomposers if kind.name not in method_names]
    methods = (MethodSpec(name=kind.name, summary=kind.summary, gap=spec.default.gap) for kind in added)
    return evolve(spec, methods=(*spec.methods, *methods))


_substitute: ContextVar[Registry | None] = ContextVar("registry", default=None)


def registry() -> Registry:
    """Return what is installed in this environment, read once a process; or what :func:`using` puts in its place."""
    return _substitute.get() or _installed_registry()


@cache
def _installed_registry() -> Registry:
    installed = installed_entry_points()
    discovered = discover(point for point in installed.points if point.group == GROUP)
    damaged = (
        Broken(plugin=each.name, version=UNKNOWN, reason=each.reason, is_damaged=True) for each in installed.damaged
    )
    return evolve(discovered, broken=(*discovered.broken, *damaged))


@contextmanager
def using(substitute: Registry) -> Iterator[None]:
    """Open a block in which :func:`registry` returns ``substitute``, in this thread: for mechanisms not installed."""
    token = _substitute.set(substitute)
    try:
        yield
    finally:
        _substitute.reset(token)
