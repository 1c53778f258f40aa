"""Extract the texts in an XMP packet: the values of its properties, whatever their schema."""

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
"""The prefixes of schemas whose properties are skipped because they describe how a picture was produced."""
TECHNICAL: Final = re.compile(
    r"about|resource|parseType|lang|xmptk|format|Mime|Semantic|CreatorTool|(Create|Modify|Metadata)Date|DateCreated|when"
    r"|DateTime(Original|Digitized)?|softwareAgent|action|changed|ColorMode|ICCProfile(Name)?|ProcessVersion|Version"
    r"|Make|Model|Lens\w*|(Body|Lens)?SerialNumber|Firmware|Software|Exif[Vv]ersion|Flashpix[Vv]ersion|Type|unit"
    r"|\w*(Instance|Document|version)ID|DerivedFrom|Rating|Orientation|ColorSpace"
)
"""A pattern that matches the local names of properties to skip.

These properties have their own columns in metadata.csv, or describe how a picture was produced.
"""
DESCRIPTIVE: Final = re.compile(r"(?i)description|title|subject|headline|\w*comment|\w*caption|keywords?|label|\w*name")
"""A pattern that matches the local names of properties usually written by people. Their values are listed even if
numeric."""
NO_TEXT: Final = re.compile(r"[-+]?[\d.]*(/\d+)?|(?i:true|false|yes|no)|\d{4}-\d\d(-\d\d.*)?|[0-9A-Fa-f]{16,}")
"""A pattern that matches values that do not count as text in other properties: numbers, booleans, times and
digests."""


def xmp_texts(packet: str) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each XMP property that may contain text written by a person.

    If the packet is not well-formed XML, everything outside its tags is yielded as a single text.
    """
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
    """An XML event handler that collects the text in an XMP packet.

    Attributes:
        texts: The name and text of each property found so far.
    """

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []
        # The name of each open element and the pieces of its text, the outermost element first. Then the schema of each
        # declared prefix.
        self._names: list[str] = []
        self._parts: list[list[str]] = []
        self._schemas: dict[str, str] = {}

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        """Open an element, and record its attributes, which count as properties too."""
        for key, value in attributes.items():
            if key.startswith("xmlns"):
                self._schemas[key.partition(":")[2]] = value
        # Attributes are only recorded now, because their prefixes may be declared by the element itself.
        self._names.append(name)
        self._parts.append([])
        for key, value in attributes.items():
            if not key.startswith(("xmlns", "xml:")):
                self._add(key, value)

    def write(self, text: str) -> None:
        """Add a piece of text to the innermost open element."""
        self._parts[-1].append(text)

    def end(self, _: str) -> None:
        """Close an element, and record its text under the name of the property to which it belongs."""
        text = "".join(self._parts.pop())
        # The property is the innermost open element that does not belong to RDF. List elements (rdf:Bag, rdf:li) may
        # lie between the property and its text.
        named = [name for name in self._names if not self._is_rdf(name)]
        self._names.pop()
        if named:
            self._add(named[-1], text)

    def _is_rdf(self, name: str) -> bool:
        """Return whether an element belongs to the RDF namespace, whose elements only structure the packet."""
        prefix = name.rpartition(":")[0]
        # A packet may use the prefix rdf without declaring it.
        return self._schemas.get(prefix, RDF if prefix == "rdf" else "") == RDF

    def _add(self, name: str, text: str) -> None:
        """Record a property if its value is likely to be human-readable text.

        Empty values and technical properties are skipped. So are numbers, booleans, times and digests, except in
        properties that people usually write (see :data:`DESCRIPTIVE`).

        Args:
            name: The property's name, with its prefix.
            text: The property's text.
        """
        prefix, _, local = name.rpartition(":")
        schema, value = self._schemas.get(prefix, ""), text.strip()
        if not value or schema.startswith(TECHNICAL_SCHEMAS) or TECHNICAL.fullmatch(local):
            return
        if DESCRIPTIVE.fullmatch(local) or not NO_TEXT.fullmatch(value):
            self.texts.append((name, value))
