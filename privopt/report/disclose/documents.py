"""Write a disclosure in Markdown (NIST, DPIA, card): the layout of each document and its text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from privopt.files.release_folder import dump_json
from privopt.report.disclose.catalogue import CLAIMS, TITLES
from privopt.report.disclose.statements import Statement

FORMATS: Final = ("registry", "nist", "dpia", "card")

PROPERTIES: Final = (
    "release.verdict",
    "release.kind",
    "release.epsilon",
    "release.unit",
    "release.loss",
    "maker.made",
    "owner.name",
    "owner.description",
    "owner.published",
    "owner.curator",
)
"""Sentences that the card has for machines too; of the owner's those that are answered."""

PROMISE: Final = ("release.promise", "release.verdict", "attack.warning")

LAYOUTS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "nist": {
        "summary": PROMISE,
        "epsilon": ("release.kind", "release.epsilon", "release.parameter", "release.guess", "owner.why_epsilon"),
        "unit": ("release.unit", "limit.person"),
        "trust": ("limit.trust", "owner.drawn_where", "owner.access"),
        "neighbours": ("release.neighbours", "release.statement"),
        "side_channels": ("release.checked", "limit.timing", "limit.machine"),
        "collection": ("owner.collected", "limit.collection", "owner.retention_inputs", "limit.private"),
        "utility": ("release.loss", "release.bound", "attack.expected_loss", "owner.utility"),
        "bias": ("owner.bias", "limit.bias"),
        "outside": ("limit.unchecked", "limit.total", "owner.budget", "release.after"),
        "made": ("maker.made", "maker.domain", "release.files"),
    },
    "dpia": {
        "summary": PROMISE,
        "processing": (
            *("owner.name", "owner.curator", "owner.contact", "owner.purpose", "owner.collected", "owner.legal_basis"),
            *("owner.access", "limit.trust", "limit.law"),
        ),
        "protected": (
            "release.neighbours",
            "release.unit",
            "release.epsilon",
            "release.parameter",
            "release.statement",
        ),
        "attack": ("release.guess", "attack"),
        "budget": ("owner.budget", "owner.why_epsilon", "limit.total"),
        "retention": ("owner.retention_inputs", "owner.retention_release", "limit.private"),
        "unprotected": (
            *("limit.unchecked", "limit.timing", "limit.machine", "limit.person", "limit.collection", "limit.bias"),
            "owner.incidents",
        ),
        "made": ("maker.made", "release.files"),
    },
    "card": {
        "summary": (*PROMISE, "owner.description", "owner.product"),
        "intended": (
            *("owner.name", "owner.curator", "owner.contact", "owner.purpose", "owner.region"),
            "owner.published",
        ),
        "made": ("maker.made", "maker.domain", "release.files", "release.checked", "owner.links"),
        "privacy": ("release.kind", "release.epsilon", "release.parameter", "release.unit", "release.neighbours"),
        "attack": ("release.guess", "attack"),
        "utility": ("release.loss", "release.bound", "owner.utility", "owner.bias"),
        "limits": ("limit", "release.after"),
    },
}
"""Sentences of each section by the first parts of their keys. ``attack.warning`` is in the summary alone."""


def select(statements: Sequence[Statement], starts: Iterable[str]) -> Iterator[Statement]:
    """Yield the sentences whose keys begin so, in the order of the starts."""
    for start in starts:
        yield from (each for each in statements if each.key == start or each.key.startswith(f"{start}."))


def _field(statement: Statement) -> dict[str, Any]:
    said = statement.values["answer"] if statement.key.startswith("owner.") else statement.text
    return {"value": said, "claim": statement.claim}


def document(name: str, statements: Sequence[Statement]) -> str:
    """Write one of the documents.

    Args:
        name: a key of :data:`LAYOUTS`.
        statements: all sentences there are; each document takes those it has a place for.
    """
    parts, used = [f"# {TITLES[name]}"], set()
    for title, starts in LAYOUTS[name].items():
        chosen = [each for each in select(statements, starts) if title == "summary" or each.key != "attack.warning"]
        used |= {each.claim for each in chosen}
        if chosen:
            lines = "\n".join(f"- {plain(each.text)} [{each.claim}]" for each in chosen)
            parts.append(f"## {TITLES[title]}\n\n{lines}")
    if name == "card":
        parts.append(f"## {TITLES['machine']}\n\n```json\n{_json_ld(statements)}```")
        used |= {"declared"}
    parts.append(f"## {TITLES['marks']}\n\n" + "\n".join(f"- [{c}]: {CLAIMS[c]}" for c in CLAIMS if c in used))
    return "\n\n".join(parts) + "\n"


def plain(text: str) -> str:
    """Write text so that Markdown takes it for text: on one line, and no mark but ours can be in brackets.

    >>> plain("a [proved] b")
    'a \\\\[proved\\\\] b'
    """
    pieces = re.split(r"(`privopt [a-z]+`)", " ".join(text.split()))
    return "".join(piece if n % 2 else re.sub(r"([\\`*\[\]<>|&])", r"\\\1", piece) for n, piece in enumerate(pieces))


def _json_ld(statements: Sequence[Statement]) -> str:
    """Return the machine-readable card, in schema.org's terms; each property's description is the claim it rests on."""
    properties = [
        {"@type": "PropertyValue", "name": each.key.partition(".")[2], **_field(each)}
        for each in select(statements, PROPERTIES)
        if each.claim != "open"
    ]
    for each in properties:
        each["description"] = each.pop("claim")
    return dump_json({"@context": "https://schema.org", "@type": "Dataset", "variableMeasured": properties})
