"""The layout and text of disclosures written as Markdown documents (NIST, DPIA and card)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from privopt.files.release_folder import dump_json
from privopt.report.disclose.catalogue import CLAIMS, TITLES
from privopt.report.disclose.statements import Statement

FORMATS: Final = ("registry", "nist", "dpia", "card")
"""The disclosure formats. :mod:`privopt.report.disclose.entry` writes the first, and this module writes the others."""

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
"""The keys of the statements that are also included in the card as JSON-LD. Unanswered questions are left out."""

PROMISE: Final = ("release.promise", "release.verdict", "attack.warning")
"""The keys of the statements at the beginning of every document's summary."""

LAYOUTS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "nist": {
        "summary": PROMISE,
        "epsilon": ("release.kind", "release.epsilon", "release.parameter", "release.guess", "owner.why_epsilon"),
        "unit": ("release.unit", "limit.person"),
        "trust": ("limit.trust", "owner.drawn_where", "owner.access"),
        "neighbours": ("release.neighbours", "release.statement"),
        "side_channels": ("release.checked", "release.arithmetic", "limit.timing", "limit.machine"),
        "collection": ("owner.collected", "limit.collection", "owner.retention_inputs", "limit.private"),
        "utility": ("release.loss", "release.bound", "owner.utility"),
        "bias": ("owner.bias", "limit.bias"),
        "outside": (
            "limit.unchecked",
            "ledger",
            "owner.budget",
            "attack.over_time",
            "attack.repeated",
            "limit.total",
            "release.after",
        ),
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
        "budget": ("ledger", "owner.budget", "owner.why_epsilon", "limit.total"),
        "retention": ("owner.retention_inputs", "owner.retention_release", "limit.private"),
        "unprotected": (
            *("limit.unchecked", "limit.timing", "limit.machine", "limit.person", "limit.collection", "limit.bias"),
            "owner.incidents",
        ),
        "made": ("maker.made", "release.loss", "release.arithmetic", "release.files"),
    },
    "card": {
        "summary": (*PROMISE, "owner.description", "owner.product"),
        "intended": (
            *("owner.name", "owner.curator", "owner.contact", "owner.purpose", "owner.region"),
            "owner.published",
        ),
        "made": (
            *("maker.made", "maker.domain", "release.files", "release.checked", "release.arithmetic"),
            "owner.links",
        ),
        "privacy": ("release.kind", "release.epsilon", "release.parameter", "release.unit", "release.neighbours"),
        "attack": ("release.guess", "attack"),
        "utility": ("release.loss", "release.bound", "owner.utility", "owner.bias"),
        "limits": ("ledger", "limit", "release.after"),
    },
}
"""The sections of each document, in order, each with the key prefixes of its statements (see :func:`select`).

``attack.warning`` appears only in the summaries.
"""


def select(statements: Sequence[Statement], starts: Iterable[str]) -> Iterator[Statement]:
    """Yield the statements whose keys match one of the prefixes, in the order of the prefixes.

    A key matches a prefix if it equals the prefix or begins with the prefix followed by a dot.

    Args:
        statements: The statements about a release.
        starts: Prefixes of keys, such as ``"limit"`` or ``"release.kind"``.
    """
    for start in starts:
        yield from (
            statement for statement in statements if statement.key == start or statement.key.startswith(f"{start}.")
        )


def _make_field(statement: Statement) -> dict[str, Any]:
    """Return a statement's value and evidence for JSON-LD.

    The value is the statement's text or, for a question to the owner, just the owner's answer.
    """
    value = statement.values["answer"] if statement.key.startswith("owner.") else statement.text
    return {"value": value, "claim": statement.claim}


def document(name: str, statements: Sequence[Statement]) -> str:
    """Return the named document as Markdown.

    Args:
        name: A key of :data:`LAYOUTS`.
        statements: All statements about the release. The layout determines which ones are used.
    """
    parts, used_claims = [f"# {TITLES[name]}"], set()
    for title, starts in LAYOUTS[name].items():
        # The summary already contains the warnings, which sections that select all attacks would repeat.
        section_statements = [
            statement
            for statement in select(statements, starts)
            if title == "summary" or statement.key != "attack.warning"
        ]
        used_claims |= {statement.claim for statement in section_statements}
        if section_statements:
            lines = "\n".join(
                f"- {escape_markdown(statement.text)} [{statement.claim}]" for statement in section_statements
            )
            parts.append(f"## {TITLES[title]}\n\n{lines}")
    if name == "card":
        parts.append(f"## {TITLES['machine']}\n\n```json\n{_json_ld(statements)}```")
        used_claims |= {"declared"}  # the mark of maker.made, which is in the JSON
    parts.append(f"## {TITLES['marks']}\n\n" + "\n".join(f"- [{c}]: {CLAIMS[c]}" for c in CLAIMS if c in used_claims))
    return "\n\n".join(parts) + "\n"


def escape_markdown(text: str) -> str:
    """Escape text for a single line of Markdown, so that it cannot imitate a mark such as [proved].

    >>> escape_markdown("a [proved] b")
    'a \\\\[proved\\\\] b'
    """
    # Splitting at a group keeps the separators. The pieces at odd indices are therefore command names, which stay code.
    pieces = re.split(r"(`privopt [a-z]+`)", " ".join(text.split()))
    return "".join(piece if n % 2 else re.sub(r"([\\`*\[\]<>|&])", r"\\\1", piece) for n, piece in enumerate(pieces))


def _json_ld(statements: Sequence[Statement]) -> str:
    """Return the machine-readable part of the card as JSON-LD, using the schema.org vocabulary.

    Each property's description states the evidence for it, such as "proved". Unanswered questions are left out.
    """
    properties = [
        {"@type": "PropertyValue", "name": item.key.partition(".")[2], **_make_field(item)}
        for item in select(statements, PROPERTIES)
        if item.claim != "open"
    ]
    for item in properties:
        item["description"] = item.pop("claim")
    return dump_json({"@context": "https://schema.org", "@type": "Dataset", "variableMeasured": properties})
