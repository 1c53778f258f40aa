"""Find public methods of a mechanism whose names nearly match an ability: they are never called."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from privopt.interfaces import Mechanism
from privopt.interfaces.abilities import ABILITIES, member_of

MIN_LIKENESS: Final = 0.8
"""Share of letters in common, as difflib counts, from which a name is taken for a misspelt one."""

BASE_METHODS: Final = ("load", "verify")
"""Methods of :class:`privopt.interfaces.Mechanism` that a mechanism may omit, so that a misspelt one goes unnoticed."""


def misspelt_abilities(mechanism_class: type[Mechanism]) -> list[str]:  # type: ignore[type-arg]
    """Return a sentence for each public name that nearly matches an ability which its class does not define.

    >>> class Careless(Mechanism):
    ...     def warning(self, problem, release, result): ...
    >>> misspelt_abilities(Careless)
    ["Careless.warning is called by nobody: the ability Warns has the method 'warnings'"]
    """
    owners = {member_of(ability): f"the ability {ability.__name__}" for ability in ABILITIES}
    owners |= dict.fromkeys(BASE_METHODS, "the class Mechanism")
    sentences = []
    for cls in mechanism_class.__mro__:
        if cls is Mechanism:
            break
        for name in vars(cls):
            if name.startswith("_") or name in owners or hasattr(Mechanism, name):
                continue
            (near,) = get_close_matches(name.lower(), owners, n=1, cutoff=MIN_LIKENESS) or [""]
            if near and near not in vars(cls):
                sentences.append(f"{cls.__name__}.{name} is called by nobody: {owners[near]} has the method {near!r}")
    return sentences
