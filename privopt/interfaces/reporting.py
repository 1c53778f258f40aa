"""A mechanism's view of a release: its part of the report, its figures, its map, and what these are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from attrs import frozen

from privopt.arrays import Figure
from privopt.interfaces.mechanism import Mechanism
from privopt.interfaces.result import Result
from privopt.registry import load_class

__all__ = ["Feature", "Layer", "Reporting", "Section", "open_reporting", "position_text"]

P = TypeVar("P")
R = TypeVar("R")

Position = tuple[float, float]


def position_text(east: float, north: float, kind: str) -> str:
    """Return a position as a reader finds it on a map, to four decimals (some ten metres).

    >>> position_text(12.4789, -41.9, "geographic"), position_text(0.5, 12.25, "planar")
    ('41.9000\u00b0 S, 12.4789\u00b0 E', 'x 0.5 km, y 12.25 km')

    Args:
        east, north: longitude and latitude in degrees, or x and y.
        kind: geographic, or planar in km.
    """
    if kind == "planar":
        return ", ".join(f"{axis} {round(value, 4) + 0.0:.10g} km" for axis, value in (("x", east), ("y", north)))
    around = east - 360.0 if east > 180.0 else east
    return f"{abs(north):.4f}\u00b0 {'S' if north < 0 else 'N'}, {abs(around):.4f}\u00b0 {'W' if around < 0 else 'E'}"


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


class Reporting(Generic[P, R]):
    """Show a mechanism's releases: subclass it and name the class in :attr:`Mechanism.reporting`.

    It is imported when a report is asked for, and not before: what it draws with need not be loaded to solve. Each
    method may be omitted.

    Attributes:
        mechanism: The mechanism whose releases it shows.
    """

    def __init__(self, mechanism: Any) -> None:
        """Show the releases of a mechanism."""
        self.mechanism = mechanism

    def report(self, problem: P, release: R, result: Result) -> Sequence[Section]:
        """Return the body of the report, from public data alone; the frame around it is the same for all mechanisms."""
        return ()

    def in_readers_unit(self, problem: P, result: Result, value: float) -> str:
        """Return a value or bound of the objective in the unit that the problem's readers count in; empty without."""
        return ""

    def report_check(self, release: R, result: Result, folder: Path) -> Section | None:
        """Return a section that carries the release and proves its claims in the reader's browser; None without one."""
        return None

    def report_truth(self, problem: P, release: R, result: Result, private: Path) -> Sequence[Section]:
        """Compare the release with the secrets in ``private``, in sections that are written there only."""
        return ()

    def figures(self, problem: P, release: R, result: Result) -> Mapping[str, Figure]:
        """Return the report's figures by file name, without ending."""
        return {}

    def geo(self, problem: P, release: R, result: Result) -> Layer | None:
        """Return the release as a map shows it, from public data only; None if it has no places."""
        return None


def open_reporting(mechanism: Mechanism[Any, Any]) -> Reporting[Any, Any]:
    """Return what shows a mechanism's releases; the class that :attr:`Mechanism.reporting` names is imported now.

    Raises:
        RegistryError: the class cannot be imported, or is not a :class:`Reporting`.
    """
    reporting_class = load_class(mechanism.reporting, Reporting) if mechanism.reporting else Reporting
    shown: Reporting[Any, Any] = reporting_class(mechanism)
    return shown
