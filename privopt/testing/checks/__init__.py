"""The core's checks, in the order in which they run, followed by those from plugins."""

from importlib import import_module

from privopt.errors import RegistryError
from privopt.registry import registry
from privopt.testing.checks.base import CHECKS, Check

ORDER = (
    "runs",
    "neighbours",
    "attack",
    "outcomes",
    "channel",
    "matrix",
    "fresh",
    "files",
    "forged",
    "secrets",
    "inputs",
    "loss",
    "abilities",
)
"""The modules that contain the core's checks. Importing a module registers its checks."""

for _name in ORDER:
    import_module(f"{__name__}.{_name}")


def check_names() -> list[str]:
    """Return the names of all checks.

    The plugins' modules are not imported, because importing them can take a second.

    Raises:
        RegistryError: Two checks have the same name. The message names the packages.
    """
    for broken in registry().broken:
        if broken.clash is not None and broken.clash[0] == "check":
            raise RegistryError(broken.reason)
    return list(dict.fromkeys([*CHECKS, *registry().of("check")]))


def checks() -> dict[str, Check]:
    """Return all checks, by name, after importing the plugins' modules that register checks.

    Raises:
        RegistryError: A check cannot be imported, has the same name as another, or is not decorated with its registered
            name. The message names the package.
    """
    check_names()  # raises the error if a name occurs twice
    for name, entry in registry().of("check").items():
        entry.import_target()
        if name not in CHECKS:
            raise RegistryError(f"{entry.origin}: the function must be decorated with @check({name!r})")
    return CHECKS
