"""Say which places the roads of a problem do not join to the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from privopt.numbers.graphs import components
from privopt_metric_dp.space.roads import Roads

__all__ = ["JOIN_PARTS", "describe_parts"]

JOIN_PARTS: Final = "add the road or ferry between the parts to the table, or make a problem of each part"
"""What to do about roads in several parts."""

NAMED_PLACES: Final = 5
"""Places that a message names."""


def describe_parts(roads: Roads, ids: Iterable[str]) -> str:
    """Return which places lie outside the largest part of the roads.

    Args:
        roads: Along directed ones a part has ways from each of its places to each other.
        ids: Nodes of the roads. The largest part is the one with most of these.
    """
    names = list(dict.fromkeys(ids))
    labels = components(len(roads), roads.ends, strong=roads.directed)[roads.positions(names)]
    separate = np.flatnonzero(labels != np.bincount(labels).argmax()).tolist()
    listed = ", ".join(names[number] for number in separate[:NAMED_PLACES])
    listed += ", ..." * (len(separate) > NAMED_PLACES)
    part = "part with ways there and back" if roads.directed else "connected part"
    return f"{len(separate)} of {len(names)} places lie outside the largest {part}: {listed}"
