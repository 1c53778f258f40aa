"""Discovery: which mechanisms and kinds are installed, from which distribution, and which plugins are broken.

The entry points are walked here, one by one, so that a plugin that fails to import is shown with its
reason and stops nothing. Nothing that a plugin's mechanisms need is imported before one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pluggy
from attrs import evolve, field, frozen

from privopt.errors import PrivoptError, RegistryError, UnknownNameError, UsageError
from privopt.specs import GROUP, ROLES, Hooks, KindSpec, MechanismSpec, MethodSpec

if TYPE_CHECKING:
    from privopt.interfaces import Mechanism, Release

__all__ = ["Broken", "Kind", "Registered", "Registry", "discover", "registry", "using"]

S = TypeVar("S", MechanismSpec, KindSpec)
_MECHANISM = "privopt.interfaces:Mechanism"


def _named(target: str) -> Any:
    """What ``"package.module:Name"`` names."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


@frozen(kw_only=True)
class _Brought(Generic[S]):
    """A spec and the distribution that brings it."""

    spec: S
    plugin: str
    version: str

    def _class(self, base: str) -> type:
        try:
            cls = _named(self.spec.target)
        except (ImportError, AttributeError) as error:
            raise RegistryError(
                f"{self.plugin}: {self.spec.name}: {self.spec.target} cannot be loaded: {error}"
            ) from error
        wanted = _named(base)
        if not (isinstance(cls, type) and issubclass(cls, wanted)):
            raise RegistryError(f"{self.plugin}: {self.spec.name}: {self.spec.target} is no privopt {wanted.__name__}")
        return cls


@frozen(kw_only=True)
class Kind(_Brought[KindSpec]):
    """A kind of distance, loss, notion, solver or decomposer, and the distribution that brings it."""

    def load(self) -> type[Any]:
        """Import the kind's class.

        Raises:
            RegistryError: the target cannot be imported or has not the base class of its role.
        """
        return self._class(ROLES[self.spec.role])


@frozen(kw_only=True)
class Registered(_Brought[MechanismSpec]):
    """A mechanism and the distribution that brings it."""

    def load(self) -> Mechanism[Any, Any]:
        """Import the mechanism's code and make it.

        Raises:
            RegistryError: the target cannot be imported or is no Mechanism.
        """
        cls = self._class(_MECHANISM)
        try:
            made: Mechanism[Any, Any] = cls()
        except TypeError as error:
            raise RegistryError(f"{self.plugin}: {self.spec.name}: {error}") from error
        return made

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
        broken: plugins that could not be taken in.
        manager: pluggy's, with every plugin that was.
    """

    mechanisms: Mapping[str, Registered] = field(factory=dict)
    kinds: Mapping[tuple[str, str], Kind] = field(factory=dict)
    broken: tuple[Broken, ...] = ()
    manager: pluggy.PluginManager

    def get(self, name: str) -> Registered:
        """The mechanism called ``name``.

        Raises:
            UnknownNameError: none is called so; names the nearest, and plugins that could not be loaded.
            RegistryError: two distributions claim the name.
        """
        self._refuse_clash("mechanism", name)
        if name not in self.mechanisms:
            raise self._unknown("mechanism", name, self.mechanisms)
        return self.mechanisms[name]

    def names(self, role: str) -> tuple[str, ...]:
        """Names of the kinds of a role, privopt's own first."""
        return tuple(name for of, name in self.kinds if of == role)

    def kind(self, role: str, name: str) -> Kind:
        """The kind called ``name``, of one of :data:`privopt.specs.ROLES`.

        Raises:
            UnknownNameError: none is called so; names the nearest, and plugins that could not be loaded.
            RegistryError: two distributions claim the name.
        """
        self._refuse_clash(role, name)
        if (role, name) not in self.kinds:
            raise self._unknown(role, name, self.names(role))
        return self.kinds[role, name]

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


_HOOKS: tuple[tuple[str, type], ...] = (("privopt_kinds", KindSpec), ("privopt_mechanisms", MechanismSpec))


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
        function = getattr(module, hook, None)
        if function is None:
            continue
        try:
            returned = function()
            if not isinstance(returned, Iterable) or isinstance(returned, str | bytes):
                return broken(f"{hook} returned {returned!r}, not a list of {wanted.__name__}", fatal=True)
            found = list(returned)
        except Exception as error:  # as above: any error of a plugin's own code is reported against its name
            return broken(error)
        wrong = [spec for spec in found if not isinstance(spec, wanted)]
        if wrong:
            return broken(f"{hook} returned {wrong[0]!r}, not a {wanted.__name__}", fatal=True)
        specs += found
    return specs, None


def _with_decomposers(spec: MechanismSpec, kinds: Iterable[KindSpec]) -> MechanismSpec:
    """The spec with a method for each registered decomposer; a method of its own under that name stands."""
    known = {method.name for method in spec.methods}
    new = [kind for kind in kinds if kind.name not in known]
    added = (MethodSpec(name=kind.name, summary=kind.summary, gap=spec.default.gap) for kind in new)
    return evolve(spec, methods=(*spec.methods, *added))


def discover(points: Iterable[EntryPoint]) -> Registry:
    """Take in the given entry points, in the order of their distributions' names."""
    manager = _Manager(GROUP)
    manager.add_hookspecs(Hooks)
    found: dict[tuple[str, str], Registered | Kind] = {}
    broken: list[Broken] = []
    for point in sorted(points, key=lambda p: (_owner(p)[0] != GROUP, _owner(p)[0], p.name)):
        plugin, version = _owner(point)
        specs, fault = _take_in(manager, point)
        if fault is not None:
            broken.append(fault)
        for spec in specs:
            role = spec.role if isinstance(spec, KindSpec) else "mechanism"
            key = (role, spec.name)
            if key in found:
                first = found[key]
                reason = (
                    f"the {role} {spec.name!r} is registered by both {first.plugin} {first.version} "
                    f"({first.spec.target}) and {plugin} {version} ({spec.target}); uninstall one"
                )
                broken.append(Broken(plugin=plugin, version=version, reason=reason, fatal=True, clash=key))
            elif isinstance(spec, KindSpec):
                found[key] = Kind(spec=spec, plugin=plugin, version=version)
            else:
                found[key] = Registered(spec=spec, plugin=plugin, version=version)
    decomposers = [one.spec for one in found.values() if isinstance(one, Kind) and one.spec.role == "decomposer"]
    for key, one in list(found.items()):
        if not isinstance(one, Registered):
            continue
        if one.spec.decomposes:
            found[key] = one = evolve(one, spec=_with_decomposers(one.spec, decomposers))
        for notion in {one.spec.kind_of(method) for method in one.spec.methods}:
            if ("notion", notion) not in found:
                reason = f"the mechanism {one.spec.name!r} claims {notion!r}, which no plugin registers as a notion"
                broken.append(Broken(plugin=one.plugin, version=one.version, reason=reason, fatal=True))
                found.pop(key, None)
    return Registry(
        mechanisms={name: one for (_, name), one in sorted(found.items()) if isinstance(one, Registered)},
        kinds={key: one for key, one in found.items() if isinstance(one, Kind)},
        broken=tuple(broken),
        manager=manager,
    )


_instead: ContextVar[Registry | None] = ContextVar("registry", default=None)


def registry() -> Registry:
    """What is installed in this environment, found once a process; or what :func:`using` puts in its place."""
    return _instead.get() or _installed()


@cache
def _installed() -> Registry:
    return discover(entry_points(group=GROUP))


@contextmanager
def using(taken: Registry) -> Iterator[None]:
    """A block in which :func:`registry` returns ``taken``, in this thread: for mechanisms that are not installed."""
    token = _instead.set(taken)
    try:
        yield
    finally:
        _instead.reset(token)


def observers_of(taken: Registry) -> Callable[[Release, object], list[str]]:
    """Call every plugin's ``privopt_released``; an observer's error is reported, not raised."""

    def call(release: Release, problem: object) -> list[str]:
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
