"""What a release is, as its class shows, and what its notion bounds: the kit chooses its checks by these traits."""

from __future__ import annotations

from typing import Any, Final

import attrs

from privopt.interfaces import PrivacyConstraint, Release
from privopt.metric.matrix import MatrixRelease

__all__ = ["TRAITS", "nature"]

TRAITS: Final = {
    "matrix": "the release is no matrix of weights",
    "traces": "the release draws no traces",
    "sampler": "the release cannot be sampled",
    "noise": "the release is no draw of noise",
    "choice": "the release is no deterministic choice",
    "odds": "its notion bounds no odds",
    "tails": "its notion allows no delta",
}
"""Each trait, and what is said of a release without it."""


def nature(release: type[Release], notion: type[PrivacyConstraint[Any]]) -> frozenset[str]:
    """Traits of the releases of a class that claim a notion.

    * ``matrix``: it has ``weights``, a row of whole numbers for each secret;
    * ``traces``: it has a ``walker`` of its own, which draws reports along a trace;
    * ``sampler``: it draws for any secret (:meth:`privopt.interfaces.Release.sample`);
    * ``odds``: the notion bounds odds (:attr:`privopt.interfaces.PrivacyConstraint.odds`);
    * ``tails``: the notion bounds them but for events of small probability (``PrivacyConstraint.tails``);
    * ``noise``: it is neither matrix nor sampler, and either is bounded: so what it publishes was drawn;
    * ``choice``: none of these, one result that follows from its input.
    """
    found = {name for name in ("odds", "tails") if getattr(notion, name)}
    fields = {each.name for each in attrs.fields(release)} if attrs.has(release) else set()
    if hasattr(release, "weights") or "weights" in fields:
        found.add("matrix")
    if getattr(release, "walker", MatrixRelease.walker) is not MatrixRelease.walker or "walker" in fields:
        found.add("traces")
    if getattr(release, "sample", Release.sample) is not Release.sample:
        found.add("sampler")
    if not found & {"matrix", "sampler"}:
        found.add("noise" if found & {"odds", "tails"} else "choice")
    return frozenset(found)
