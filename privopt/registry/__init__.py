"""Which mechanisms and kinds are installed, from which distribution, and which plugins are broken."""

from privopt.registry.brought import brought
from privopt.registry.discovery import discover, registry, using
from privopt.registry.installed import Broken, Brought, Kind, Registered, Registry, load_class

__all__ = [
    "Broken",
    "Brought",
    "Kind",
    "Registered",
    "Registry",
    "brought",
    "discover",
    "load_class",
    "registry",
    "using",
]
