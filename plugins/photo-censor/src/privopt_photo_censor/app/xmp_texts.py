"""List the texts of an XMP packet: values of its properties, whatever their schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from xml.parsers import expat

__all__ = ["xmp_texts"]

RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
TECHNICAL_SCHEMAS: Final = (
    "http://ns.adobe.com/camera-raw-settings/",
    "http://ns.adobe.com/hdr-gain-map/",
    "http://ns.google.com/photos/",
)
"""Schemas whose properties say how a picture was made or is put together."""
TECHNICAL: Final = re.compile(
    r"about|resource|parseType|lang|xmptk|format|Mime|Semantic|CreatorTool|(Create|Modify|Metadata)Date|DateCreated|when"
    r"|DateTime(Original|Digitized)?|softwareAgent|action|changed|ColorMode|ICCProfile(Name)?|ProcessVersion|Version"
    r"|Make|Model|Lens\w*|(Body|Lens)?SerialNumber|Firmware|Software|Exif[Vv]ersion|Flashpix[Vv]ersion|Type|unit"
    r"|\w*(Instance|Document|version)ID|DerivedFrom|Rating|Orientation|ColorSpace"
)
"""Local names of properties that have a column of their own, or say how a picture was made."""
DESCRIPTIVE: Final = re.compile(r"(?i)description|title|subject|headline|\w*comment|\w*caption|keywords?|label|\w*name")
"""Local names of properties that a person writes: a number in them is listed too."""
NO_TEXT: Final = re.compile(r"[-+]?[\d.]*(/\d+)?|(?i:true|false|yes|no)|\d{4}-\d\d(-\d\d.*)?|[0-9A-Fa-f]{16,}")
"""Values of other properties that are no text: numbers, truths, times, digests."""


def xmp_texts(packet: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of the properties of an XMP packet; all of it as one text if it is not well-formed."""
    reader = _Reader()
    parser = expat.ParserCreate()  # without namespaces: a packet may use a prefix that it does not declare
    parser.StartElementHandler, parser.EndElementHandler = reader.begin, reader.end
    parser.CharacterDataHandler = reader.write
    try:
        parser.Parse(packet, True)
    except expat.ExpatError:
        yield "XMP that is not well-formed", re.sub(r"<[^<>]*>", " ", packet)
        return
    yield from (("XMP " + name, value) for name, value in reader.texts)


class _Reader:
    """Collects the texts of a packet from the events of its parser."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []
        self._names: list[str] = []
        self._parts: list[list[str]] = []
        self._schemas: dict[str, str] = {}

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        """Enter an element; its attributes are properties too."""
        for key, value in attributes.items():
            if key.startswith("xmlns"):
                self._schemas[key.partition(":")[2]] = value
        self._names.append(name)
        self._parts.append([])
        for key, value in attributes.items():
            if not key.startswith(("xmlns", "xml:")):
                self._add(key, value)

    def write(self, text: str) -> None:
        """Take a part of an element's text."""
        self._parts[-1].append(text)

    def end(self, _: str) -> None:
        """Leave an element; an item of a list has the name of the property that it belongs to."""
        text = "".join(self._parts.pop())
        named = [name for name in self._names if not self._is_rdf(name)]
        self._names.pop()
        if named:
            self._add(named[-1], text)

    def _is_rdf(self, name: str) -> bool:
        prefix = name.rpartition(":")[0]
        return self._schemas.get(prefix, RDF if prefix == "rdf" else "") == RDF

    def _add(self, name: str, text: str) -> None:
        prefix, _, local = name.rpartition(":")
        schema, value = self._schemas.get(prefix, ""), text.strip()
        if not value or schema.startswith(TECHNICAL_SCHEMAS) or TECHNICAL.fullmatch(local):
            return
        if DESCRIPTIVE.fullmatch(local) or not NO_TEXT.fullmatch(value):
            self.texts.append((name, value))
