"""Discovery: the plugins of an environment, taken in one by one from their entry points.

A plugin that fails to import is shown with its reason and stops nothing. Nothing that a plugin's mechanisms need is
imported before one is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import pluggy
from attrs import evolve

from privopt.registry.installed import Broken, Brought, Kind, Registered, Registry, reason_in
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
    ("privopt_checks", (TraitSpec, CheckSpec)),
)


def _take_in(manager: pluggy.PluginManager, point: EntryPoint) -> list[Any]:
    """Return the specs of a plugin.

    Raises:
        _UnfitError: an error of its author.
        Exception: whatever its own code raises.
    """
    module, name = point.load(), f"{_owner(point)[0]}:{point.name}"
    try:
        manager.register(module, name=name)
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        if manager.has_plugin(name):
            manager.unregister(name=name)
        raise _UnfitError(f"hook that does not fit: {' '.join(str(error).split())}") from error
    specs: list[Any] = []
    for hook, wanted in _HOOKS:
        kinds = " or ".join(each.__name__ for each in wanted)
        bring = getattr(module, hook, None)
        if bring is None:
            continue
        returned: object = bring()
        if not isinstance(returned, Iterable) or isinstance(returned, str | bytes):
            raise _UnfitError(f"{hook} returned {returned!r}, not a list of {kinds}")
        found = list(returned)
        wrong = [spec for spec in found if not isinstance(spec, wanted)]
        if wrong:
            raise _UnfitError(f"{hook} returned {wrong[0]!r}, not a {kinds}")
        specs += found
    return specs


class _UnfitError(Exception):
    """What a plugin brings is not what its hooks must bring."""


def _with_decomposers(spec: MechanismSpec, kinds: Iterable[KindSpec]) -> MechanismSpec:
    """Return the spec with a method for each registered decomposer; its own method of that name takes precedence."""
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
        try:
            specs = _take_in(manager, point)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # whatever a plugin raises, SystemExit included, is reported and stops nothing
            fatal = isinstance(error, _UnfitError)
            reason = str(error) if fatal else reason_in(error)
            broken.append(Broken(plugin=plugin, version=version, reason=reason, fatal=fatal))
            continue
        brought += [_class_of(spec)(spec=spec, plugin=plugin, version=version) for spec in specs]
    roles = {one.spec.name: one for one in reversed(brought) if isinstance(one.spec, RoleSpec)}
    found: dict[tuple[str, str], Brought[Any]] = {}
    for one in brought:
        spec, wrong = one.spec, partial(Broken, plugin=one.plugin, version=one.version, fatal=True)
        key = (spec.category, spec.name)
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
            found[key] = one
    return _checked(found, tuple(broken), manager)


def _class_of(spec: Spec) -> type[Brought[Any]]:
    """Return what a spec becomes: mechanisms and kinds can be loaded."""
    if isinstance(spec, MechanismSpec):
        return Registered
    return Kind if isinstance(spec, KindSpec) else Brought


def _target(spec: Spec) -> str:
    if isinstance(spec, TemplateSpec):
        return spec.package
    return spec.base if isinstance(spec, RoleSpec) else spec.target


def _checked(
    brought: dict[tuple[str, str], Brought[Any]], broken: tuple[Broken, ...], manager: pluggy.PluginManager
) -> Registry:
    """Return a registry of what was found, without the mechanisms that claim an unregistered notion."""
    kinds = {key: one for key, one in brought.items() if isinstance(one, Kind)}
    notions = {name for role, name in kinds if role == "notion"}
    decomposers = [kind.spec for kind in kinds.values() if kind.spec.role == "decomposer"]
    mechanisms: dict[str, Registered] = {}
    for one in (one for _, one in sorted(brought.items()) if isinstance(one, Registered)):
        taken = evolve(one, spec=_with_decomposers(one.spec, decomposers)) if one.spec.decomposes else one
        missing = {taken.spec.kind_of(method) for method in taken.spec.methods} - notions
        for notion in sorted(missing):
            reason = f"the mechanism {one.spec.name!r} claims {notion!r}, which no plugin registers as a notion"
            broken += (Broken(plugin=one.plugin, version=one.version, reason=reason, fatal=True),)
        if not missing:
            mechanisms[one.spec.name] = taken

    others = {key: one for key, one in brought.items() if not isinstance(one, Kind | Registered)}
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
    """Open a block in which :func:`registry` returns ``taken``, in this thread: for mechanisms not installed."""
    token = _instead.set(taken)
    try:
        yield
    finally:
        _instead.reset(token)
