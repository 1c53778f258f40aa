"""Plugin discovery. pluggy calls a plugin's hooks when the plugin is registered.

If a plugin fails, the reason is reported and the other plugins still work. Only the module named by a plugin's entry
point is imported. Mechanisms are imported when they are needed.
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

from privopt.execution.clock import interrupts
from privopt.registry.distributions import (
    UNKNOWN,
    DamagedMetadataError,
    folder_name_of,
    installed_entry_points,
    owner_of,
)
from privopt.registry.installed import Broken, Entry, Registered, Registry, format_error, make_entry
from privopt.registry.missing import CORE, project_distributions
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
    """Raised for a mistake by a plugin's author, such as a hook without ``@hookimpl`` or with the wrong return type."""


class _PluginLoader:
    """Registers plugins with pluggy, one at a time.

    The hooks are historic, which means that pluggy calls a plugin's hooks when it registers the plugin. Any exception
    can therefore be attributed to that plugin.

    Attributes:
        manager: pluggy's manager.
        specs_by_hook: The specs returned by the hooks of the most recently loaded plugin, by hook name.
    """

    def __init__(self) -> None:
        """Create pluggy's manager, and have it pass the results of each historic hook to :meth:`_add_specs`."""
        self.manager = pluggy.PluginManager(GROUP)
        self.manager.add_hookspecs(Hooks)
        self.specs_by_hook: dict[str, list[Spec]] = {}
        hook = self.manager.hook
        # Each hook with the types of specs that it may return.
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
        """Import and register a plugin, and return its specs. If this fails, the plugin is not registered.

        Args:
            point: The entry point that names the plugin's module.
            name: The plugin's unique name in pluggy, made up of the names of the package and the entry point.

        Raises:
            _UnfitError, pluggy.PluginValidationError: The plugin contains a mistake that its author must correct.
            BaseException: Any error raised by the plugin's code.
        """
        if self.manager.has_plugin(name):
            raise _UnfitError(f"a second entry point is called {point.name!r}")
        self.specs_by_hook, plugin = {}, point.load()
        try:
            self.manager.register(plugin, name)
            self.manager.check_pending()
            self._check_hooks(plugin)
        except BaseException:
            # The plugin may be partly registered, and none of its hooks must be called later.
            if self.manager.has_plugin(name):
                self.manager.unregister(name=name)
            raise
        return [spec for specs in self.specs_by_hook.values() for spec in specs]

    def _check_hooks(self, plugin: object) -> None:
        """Raise _UnfitError if a hook of the plugin returned None or is not marked with ``@hookimpl``.

        pluggy silently ignores such hooks, so without this check the plugin's author would not learn why a hook has no
        effect.
        """
        for caller in self.manager.get_hookcallers(plugin) or ():
            # pluggy does not pass on None, so a hook that returned it has no entry in specs_by_hook.
            if caller.is_historic() and caller.name not in self.specs_by_hook:
                raise _UnfitError(f"{caller.name} must return a list, got None")
        for name in dir(plugin):
            if not name.startswith(f"{GROUP}_") or isinstance(getattr(plugin, name), type):
                continue
            is_marked = self.manager.parse_hookimpl_opts(plugin, name) is not None
            # Every function whose name begins with privopt_ is taken to be a hook. Classes were skipped above.
            if callable(getattr(plugin, name)) and not is_marked:
                raise _UnfitError(f"{name} must be marked with @privopt.specs.hookimpl, or have another name")

    def _add_specs(self, hook: str, spec_types: tuple[type, ...], returned: object) -> None:
        """Record the specs returned by a plugin's hook.

        pluggy calls this method with the result of each historic hook.

        Args:
            hook: The name of the hook.
            spec_types: The types of specs that the hook may return.
            returned: The value returned by the plugin's function.

        Raises:
            _UnfitError: The value is not a list of specs of these types.
        """
        is_list = isinstance(returned, Iterable) and not isinstance(returned, str | bytes)
        specs: list[Any] = list(returned) if is_list else [returned]  # type: ignore[call-overload]
        # A value that is not a list is rejected even if it is a valid spec, and the message shows it in full.
        invalid_specs = [spec for spec in specs if not (is_list and isinstance(spec, spec_types))]
        if invalid_specs:
            expectation = " or ".join(spec_type.__name__ for spec_type in spec_types)
            raise _UnfitError(f"{hook} must return a list of {expectation}, got {invalid_specs[0]!r}")
        self.specs_by_hook[hook] = specs


def discover(points: Iterable[EntryPoint]) -> Registry:
    """Load the plugins named by the given entry points, and return a registry of everything they register.

    The core's plugin comes first, followed by the project's other plugins and then all remaining ones. Each group is
    sorted by name. Plugins that fail to load are listed in the registry as broken.
    """
    loader, broken, entries = _PluginLoader(), list[Broken](), list[Entry[Any]]()
    for point, plugin, version in _in_order(points, broken):
        failure = partial(Broken, plugin=plugin, version=version)
        with interrupts() as signals:
            try:
                specs = loader.load(point, f"{plugin}:{point.name}")
                entries += [make_entry(spec, plugin, version) for spec in specs]
            except (_UnfitError, pluggy.PluginValidationError) as error:
                broken.append(failure(reason=" ".join(str(error).split()), fatal=True))
            except BaseException as error:  # even a SystemExit of one plugin must not disable the others
                # A KeyboardInterrupt was caused by the user if a signal arrived, and by the plugin otherwise.
                if signals:
                    raise
                broken.append(failure(reason=format_error(error)))
    hook = loader.manager.hook
    observers = tuple(hook.privopt_released.get_hookimpls())
    return evolve(_index_entries(entries, broken), observers=observers, handle_hook=hook.privopt_handle)


def _in_order(points: Iterable[EntryPoint], broken: list[Broken]) -> list[tuple[EntryPoint, str, str]]:
    """Return the entry points in order of precedence, each with the name and version of its package.

    The core comes first, then the project's other packages, then third-party ones. If two packages register an entry
    under the same name, the later one is rejected, so plugins cannot replace parts of the project.

    Args:
        points: The entry points of plugins.
        broken: The list to which packages with damaged metadata are added.
    """
    project = project_distributions()
    owned_points: list[tuple[tuple[object, ...], EntryPoint, str, str]] = []
    for point in points:
        try:
            plugin, version = owner_of(point)
        except DamagedMetadataError as error:
            broken.append(Broken(plugin=folder_name_of(point), version=UNKNOWN, reason=str(error), is_damaged=True))
            continue
        # The core comes first, then the project's other packages, then third-party ones.
        rank = 0 if plugin == CORE else 1 if plugin in project else 2
        owned_points.append(((rank, plugin, point.name, point.value), point, plugin, version))
    return [row[1:] for row in sorted(owned_points, key=lambda row: row[0])]


def _index_entries(entries: Iterable[Entry[Any]], broken: list[Broken]) -> Registry:
    """Return a registry of the valid entries, and add the invalid ones to ``broken``.

    An entry is invalid if an earlier entry has the same category and name, if it is a kind with an unregistered role,
    or if it is a mechanism that claims an unregistered notion. If two mechanisms have the same name, both are left out,
    because it is unclear which one a user would mean.

    Args:
        entries: All entries, in order of precedence.
        broken: The list to which invalid entries are added.
    """
    index: dict[tuple[str, str], Entry[Any]] = {}
    for entry in entries:
        first = index.setdefault(entry.key, entry)
        if first is not entry:
            category, name = entry.key
            reason = f"the {category} {name!r} is registered by both {first.origin} and {entry.origin}; uninstall one"
            broken.append(entry.as_broken(reason, clash=entry.key))
    # If two packages register the same mechanism, both are dropped, because it is unclear which one a user means.
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
    """Return a mechanism's spec, extended with a method for each registered decomposer.

    The spec is returned unchanged if the mechanism cannot be decomposed. A decomposer is skipped if the mechanism
    already has a method with the same name.
    """
    if not spec.decomposes:
        return spec
    method_names = {method.name for method in spec.methods}
    added = [kind for kind in decomposers if kind.name not in method_names]
    # Decomposers have no default gap of their own, so they use that of the mechanism's default method.
    methods = (MethodSpec(name=kind.name, summary=kind.summary, gap=spec.default.gap) for kind in added)
    return evolve(spec, methods=(*spec.methods, *methods))


_substitute: ContextVar[Registry | None] = ContextVar("registry", default=None)
"""The registry that replaces the installed one inside a :func:`using` block, or None outside such blocks."""


def registry() -> Registry:
    """Return the registry of this environment, or the one substituted by :func:`using`.

    The environment is read once per process.
    """
    return _substitute.get() or _installed_registry()


@cache
def _installed_registry() -> Registry:
    """Return the registry of the installed plugins, with unreadable distributions listed as broken.

    The registry is cached, because importing all plugins is slow and the installed distributions rarely change during a
    run.
    """
    installed = installed_entry_points()
    discovered = discover(point for point in installed.points if point.group == GROUP)
    damaged = (
        Broken(plugin=distribution.name, version=UNKNOWN, reason=distribution.reason, is_damaged=True)
        for distribution in installed.damaged
    )
    return evolve(discovered, broken=(*discovered.broken, *damaged))


@contextmanager
def using(substitute: Registry) -> Iterator[None]:
    """Make :func:`registry` return ``substitute`` within a ``with`` block.

    The conformance kit and the tests use this to run mechanisms that are not installed.
    """
    # This is a context variable, so threads and tasks outside of the block keep the installed registry.
    token = _substitute.set(substitute)
    try:
        yield
    finally:
        _substitute.reset(token)
