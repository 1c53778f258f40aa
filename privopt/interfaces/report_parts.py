"""The parts that a mechanism gives to a report and a map: sections, layers, features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from attrs import frozen

Position = tuple[float, float]


@frozen(kw_only=True)
class Feature:
    """A point, or a line of two or more, and what is known of it.

    Attributes:
        path: (x, y), or (longitude, latitude) in degrees; one for a point.
        properties: name -> text, number, truth value or None; every feature of a layer has the same names.
    """

    path: tuple[Position, ...]
    properties: Mapping[str, Any]

    @property
    def shape(self) -> str:
        """The geometry's type."""
        return "Point" if len(self.path) == 1 else "LineString"


@frozen(kw_only=True)
class Layer:
    """What a mechanism hands to a map.

    Attributes:
        kind: geographic (degrees, WGS 84) or planar.
        features: in order.
        unit: of planar coordinates, where it is known.
    """

    kind: Literal["geographic", "planar"]
    features: Sequence[Feature]
    unit: str = "km"


@frozen(kw_only=True)
class Section:
    """A part of a report's body.

    Attributes:
        title: heading.
        html: ready markup; everything in it that came from files must have been escaped.
        lead: one or two sentences that say what is to be seen, as plain text.
    """

    title: str
    html: str
    lead: str = ""
