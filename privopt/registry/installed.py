"""What is installed: mechanisms and kinds, the distributions that bring them, and plugins that are broken."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

import pluggy
from attrs import evolve, field, frozen

from privopt.errors import PrivoptError, RegistryError, UnknownNameError, UsageError
from privopt.specs import GROUP, Hooks, KindSpec, MechanismSpec, MethodSpec, Spec

S = TypeVar("S", bound=Spec)
B = TypeVar("B")
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
    """A kind of distance, loss, notion, solver or decomposer, and the distribution that brings it.

    Attributes:
        base: ``"package.module:Class"`` that its role wants it to be of, which the registry says.
    """

    base: str = ""

    def load(self) -> type[Any]:
        """Import the kind's class.

        Raises:
            RegistryError: the target cannot be imported or has not the base class of its role.
        """
        return cast("type[Any]", self.imported(self.spec.target, self.base))


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

    def expect(self, method: str, value: object, wanted: type) -> None:
        """Refuse what one of the mechanism's methods returned where it is of another kind.

        Raises:
            RegistryError: names distribution, mechanism, method, the type returned and the one that it must be.
        """
        if not isinstance(value, wanted):
            room = ".".join(wanted.__module__.split(".")[:2])  # where plugins import it from
            raise RegistryError(
                f"{self.plugin}: {self.spec.name}: {method}() must return "
                f"{room}.{wanted.__name__}, got {type(value).__name__}; nothing written"
            )

    def method(self, name: str | None) -> MethodSpec:
        """Return one of the mechanism's methods; the default for None."""
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
        if not self.mechanisms and not self.broken:
            raise UsageError(f"no mechanism is called {name!r}: no plugin that brings mechanisms is installed")
        return self._lookup("mechanism", name, self.mechanisms)

    def names(self, role: str) -> tuple[str, ...]:
        """Return the names of the kinds of a role, privopt's own first."""
        return tuple(name for of, name in self.kinds if of == role)

    def kind(self, role: str, name: str) -> Kind:
        """Return the kind called ``name``, of one of :attr:`roles`.

        Raises:
            UnknownNameError: none is called so; names the nearest, and plugins that could not be loaded.
            RegistryError: two distributions claim the name.
        """
        known = {own: kind for (of, own), kind in self.kinds.items() if of == role}
        return evolve(self._lookup(role, name, known), base=self.of("role")[role].spec.base)

    def with_instead(
        self, *, mechanisms: Mapping[str, Registered] | None = None, kinds: Mapping[tuple[str, str], Kind] | None = None
    ) -> Registry:
        """Return this registry with other mechanisms or kinds, for :func:`using`; no plugin observes its releases."""
        unobserved = pluggy.PluginManager(GROUP)
        unobserved.add_hookspecs(Hooks)
        return evolve(
            self,
            mechanisms=self.mechanisms if mechanisms is None else mechanisms,
            kinds=self.kinds if kinds is None else kinds,
            manager=unobserved,
        )

    def of(self, category: str) -> dict[str, Brought[Any]]:
        """Return what plugins bring of a category, by name.

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
        found = self._lookup(category, name, self.of(category))
        return found.imported(found.spec.target)

    def observed(self, release: object, problem: object) -> list[str]:
        """Call every plugin's ``privopt_released``; an observer's error is returned, not raised."""
        complaints = []
        for implementation in self.manager.hook.privopt_released.get_hookimpls():
            arguments = {"release": release, "problem": problem}
            try:
                implementation.function(*(arguments[name] for name in implementation.argnames))
            except PrivoptError as error:
                complaints.append(f"{implementation.plugin_name}: {error}")
            except Exception as error:  # the release is already written; an observer cannot take it back
                complaints.append(f"{implementation.plugin_name}: {reason_in(error)}")
        return complaints

    def _lookup(self, category: str, name: str, known: Mapping[str, B]) -> B:
        """Return what is called so; refuse a name that is unknown or claimed twice."""
        for broken in self.broken:
            if broken.clash == (category, name):
                raise RegistryError(broken.reason)
        if name in known:
            return known[name]
        error = UnknownNameError(category, name, known)
        if not self.broken:
            raise error
        lines = "; ".join(f"{broken.plugin} could not be loaded: {broken.reason}" for broken in self.broken)
        raise UsageError(f"{error}; {lines}")


def reason_in(error: BaseException) -> str:
    """Show an error of a plugin in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
