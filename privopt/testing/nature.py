"""Traits of a release and its notion, by which the kit chooses its checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import attrs

from privopt.interfaces import PrivacyConstraint, Release
from privopt.registry import registry

TRAITS: Final = {
    "matrix": "the release is no matrix of weights",
    "sampler": "the release cannot be sampled",
    "noise": "the release is no draw of noise",
    "choice": "the release is no deterministic choice",
    "odds": "its notion bounds no odds",
    "tails": "its notion allows no delta",
}
"""Each of the core's traits, and what is said of a release without it."""


def missing_traits() -> dict[str, str]:
    """Return what is said of a release without a trait, by trait: the core's, and those that plugins bring."""
    return TRAITS | {name: one.spec.missing for name, one in registry().of("trait").items()}


def nature(release: type[Release], notion: type[PrivacyConstraint[Any]]) -> frozenset[str]:
    """Return the traits of the releases of a class that claim a notion.

    * ``matrix``: it has ``weights``, a row of whole numbers for each secret;
    * ``sampler``: it draws for any secret (:meth:`privopt.interfaces.Release.sample`);
    * ``odds``: the notion bounds odds (:attr:`privopt.interfaces.PrivacyConstraint.odds`);
    * ``tails``: the notion bounds them but for events of small probability (``PrivacyConstraint.tails``);
    * ``noise``: it is neither matrix nor sampler, and either is bounded: so what it publishes was drawn;
    * ``choice``: none of these, one result that follows from its input.

    Plugins bring further ones (:class:`privopt.specs.TraitSpec`).
    """
    found = {name for name in ("odds", "tails") if getattr(notion, name)}
    fields = {each.name for each in attrs.fields(release)} if attrs.has(release) else set()
    if hasattr(release, "weights") or "weights" in fields:
        found.add("matrix")
    if getattr(release, "sample", Release.sample) is not Release.sample:
        found.add("sampler")
    for name, one in registry().of("trait").items():
        has = cast("Callable[[type[Release]], bool]", one.imported(one.spec.target))
        found |= {name} if has(release) else set()
    if not found & {"matrix", "sampler"}:
        found.add("noise" if found & {"odds", "tails"} else "choice")
    return frozenset(found)
