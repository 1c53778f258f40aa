"""The interface for presenting a mechanism's releases: report sections, figures and a map layer.

:mod:`privopt.report` embeds the sections and figures of all mechanisms in the same page layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from attrs import frozen

from privopt.arrays import Figure
from privopt.interfaces.mechanism import Mechanism
from privopt.interfaces.result import Result
from privopt.registry import load_class

__all__ = ["Feature", "Layer", "Reporting", "Section", "open_reporting"]

P = TypeVar("P")
R = TypeVar("R")

Position = tuple[float, float]
"""A position as (x, y), or as (longitude, latitude) in degrees."""


@frozen(kw_only=True)
class Feature:
    """A point or line on a map, with its properties.

    Attributes:
        path: The positions of its vertices. A point has one vertex, and a line has two or more.
        properties: Strings, numbers, booleans or None, by name. All features of a layer have the same property names.
    """

    path: tuple[Position, ...]
    properties: Mapping[str, Any]

    @property
    def shape(self) -> str:
        """The feature's GeoJSON geometry type."""
        return "Point" if len(self.path) == 1 else "LineString"


@frozen(kw_only=True)
class Layer:
    """The map layer for a release.

    Attributes:
        kind: ``"geographic"`` (degrees, WGS 84) or ``"planar"``.
        features: The features, in drawing order.
        unit: The unit of planar coordinates.
    """

    kind: Literal["geographic", "planar"]
    features: Sequence[Feature]
    unit: str = "km"


@frozen(kw_only=True)
class Section:
    """A section of a report's body.

    Attributes:
        title: The heading, as plain text.
        html: The markup shown below the text. It must be created by :func:`privopt.report.render` or a function that
            calls it, such as ``table``. Any other string is treated as plain text and escaped.
        lead: One or two sentences about what the section shows, as plain text.
        paragraphs: Further paragraphs below the lead, as plain text.
        commands: Commands for readers to copy, one per line, shown at the end of the section.
        for_experts: Whether the section is shown after all others under the heading "For experts".
    """

    title: str
    html: str = ""
    lead: str = ""
    paragraphs: Sequence[str] = ()
    commands: str = ""
    for_experts: bool = False


class Reporting(Generic[P, R]):
    """Base class for presenting a mechanism's releases in reports, figures and maps.

    Plugins subclass this class and name the subclass in :attr:`Mechanism.reporting`. The subclass is imported only when
    a report is created, so that plotting libraries are not loaded during solving. All methods are optional.

    Attributes:
        mechanism: The mechanism whose releases are presented.
    """

    def __init__(self, mechanism: Any) -> None:
        """Store the mechanism whose releases are presented."""
        self.mechanism = mechanism

    def headline(self, problem: P, release: R, result: Result) -> str:
        """Return plain sentences about the published data, its accuracy and what an attacker could gain.

        The report begins with these sentences (at most three). If the string is empty, the report begins with a
        sentence about the guarantee.
        """
        return ""

    def report(self, problem: P, release: R, result: Result) -> Sequence[Section]:
        """Return the sections of the report's body, based only on public data.

        The first section should contain a picture, which is shown directly below the headline.
        """
        return ()

    def in_readers_unit(self, problem: P, result: Result, value: float) -> str:
        """Return a value or bound as text in the unit that the problem defines for readers, or "" if there is none."""
        return ""

    def report_check(self, release: R, result: Result, folder: Path) -> Section | None:
        """Return a section that checks the release's claims in the reader's browser, or None to omit this section."""
        return None

    def report_truth(self, problem: P, release: R, result: Result, private: Path) -> Sequence[Section]:
        """Return sections that compare the release with the secrets in the ``private`` folder.

        The report containing these sections is written only to that folder.
        """
        return ()

    def figures(self, problem: P, release: R, result: Result) -> Mapping[str, Figure]:
        """Return the report's figures, keyed by file name without extension."""
        return {}

    def geo(self, problem: P, release: R, result: Result) -> Layer | None:
        """Return the release's map layer, based only on public data, or None if the release has no places."""
        return None


def open_reporting(mechanism: Mechanism[Any, Any]) -> Reporting[Any, Any]:
    """Create an instance of the class named by :attr:`Mechanism.reporting`.

    Raises:
        RegistryError: The class cannot be imported, or is not a :class:`Reporting`.
    """
    # If the mechanism names no class, use the base class, whose report body is empty.
    reporting_class = load_class(mechanism.reporting, Reporting) if mechanism.reporting else Reporting
    reporting: Reporting[Any, Any] = reporting_class(mechanism)
    return reporting
