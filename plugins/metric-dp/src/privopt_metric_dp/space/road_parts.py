"""Describe places that are not connected to the rest by roads, for use in error messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from privopt.numbers.graphs import components
from privopt_metric_dp.space.roads import Roads

__all__ = ["JOIN_PARTS", "describe_parts"]

JOIN_PARTS: Final = "add the road or ferry between the parts to the table, or make a separate problem of each part"
"""Advice for error messages about disconnected roads."""

NAMED_PLACES: Final = 5
"""The maximum number of places named in an error message."""


def describe_parts(roads: Roads, ids: Iterable[str]) -> str:
    """Return a phrase that counts the places outside the main connected part of the network and names some of them.

    The main part is the connected component that contains the largest number of the given places. At most
    :data:`NAMED_PLACES` places are named.

    Args:
        roads: The roads. If they are directed, two places are connected only if each can be reached from the other.
        ids: The ids of the places, each of which must be a node of the roads.
    """
    names = list(dict.fromkeys(ids))
    labels = components(len(roads), roads.edge_nodes, strong=roads.directed)[roads.positions(names)]
    # The largest component is the one whose label is the most frequent among the ids.
    separate = np.flatnonzero(labels != np.bincount(labels).argmax()).tolist()
    listed = ", ".join(names[number] for number in separate[:NAMED_PLACES])
    listed += ", ..." * (len(separate) > NAMED_PLACES)
    part = "part with paths there and back" if roads.directed else "connected part"
    return f"{len(separate)} of {len(names)} places lie outside the largest {part}: {listed}"
