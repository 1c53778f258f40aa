"""Which mechanisms and kinds are installed, from which distribution, and which plugins are broken."""

from privopt.registry.discovery import discover, registry, using
from privopt.registry.installed import Broken, Entry, Kind, Registered, Registry, load_class

__all__ = [
    "Broken",
    "Entry",
    "Kind",
    "Registered",
    "Registry",
    "discover",
    "load_class",
    "registry",
    "using",
]
