"""The registry, which lists installed mechanisms and kinds, the packages that provide them, and broken plugins."""

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
