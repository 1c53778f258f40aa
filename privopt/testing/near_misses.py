"""A search for public methods of a mechanism that look like misspelt optional methods.

Optional methods (abilities) are recognised by name, so a misspelt one would never be called, and nothing else would
report it.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from privopt.interfaces import Mechanism
from privopt.interfaces.abilities import ABILITIES, member_of

MIN_LIKENESS: Final = 0.8
"""The lowest similarity (difflib's ratio, from 0 to 1) at which a name counts as a misspelling."""

BASE_METHODS: Final = ("load", "verify")
"""The optional methods of :class:`privopt.interfaces.Mechanism`, whose misspellings would go unnoticed."""


def misspelt_abilities(mechanism_class: type[Mechanism]) -> list[str]:  # type: ignore[type-arg]
    """Return a sentence for each public attribute of a mechanism class that is probably a misspelt optional method.

    privopt looks up a mechanism's optional methods, such as ``warnings``, by name. A similar name is not reported if
    the class also defines the correctly spelt method.

    >>> class Careless(Mechanism):
    ...     def warning(self, problem, release, result): ...
    >>> misspelt_abilities(Careless)
    ["Careless.warning is called by nobody: the ability Warns has the method 'warnings'"]
    """
    owners = {member_of(ability): f"the ability {ability.__name__}" for ability in ABILITIES}
    owners |= dict.fromkeys(BASE_METHODS, "the class Mechanism")
    sentences = []
    for cls in mechanism_class.__mro__:
        # Mechanism and its base classes do not belong to the plugin.
        if cls is Mechanism:
            break
        for name in vars(cls):
            if name.startswith("_") or name in owners or hasattr(Mechanism, name):
                continue
            # Compare names in lower case, because using the wrong case is a likely mistake as well.
            (nearest,) = get_close_matches(name.lower(), owners, n=1, cutoff=MIN_LIKENESS) or [""]
            if nearest and nearest not in vars(cls):
                sentences.append(
                    f"{cls.__name__}.{name} is called by nobody: {owners[nearest]} has the method {nearest!r}"
                )
    return sentences
