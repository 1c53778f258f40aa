"""Sentences about one release that holds, each with the claim it rests on: the catalogue's, filled in."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from attrs import frozen

from privopt.errors import ModelError
from privopt.files.release_folder import SUMS, sha256
from privopt.interfaces import Result
from privopt.interfaces.abilities import channel_of, meaning_of
from privopt.registry import registry
from privopt.report.disclose.catalogue import CLAIMS, QUESTIONS, TEXTS
from privopt.report.promise_text import claim, limits
from privopt.run.build_result import collect_warnings
from privopt.run.verify import OpenedFolder

LOCAL: Final = "local-dp"
"""The kind whose promise holds against the server, by its definition (Kasiviswanathan et al. 2011)."""

BUDGETS: Final = ("rho", "delta")
"""Further parameters of a guarantee, in addition to epsilon."""


@frozen(kw_only=True)
class Statement:
    """One sentence.

    Attributes:
        key: of its text in the catalogue; of what the owner answers ``owner.`` and the question's name.
        text: the sentence, as plain text.
        claim: what it rests on, one of :data:`privopt.report.disclose.catalogue.CLAIMS`.
        values: what was filled in, by name.
    """

    key: str
    text: str
    claim: str
    values: Mapping[str, str]

    def __attrs_post_init__(self) -> None:
        if self.claim not in CLAIMS:
            raise ModelError(f"claim must be one of {', '.join(CLAIMS)}, got {self.claim!r}")


def claim_of(key: str, verdict: str) -> str:
    """Return what a sentence rests on: never more than what ``verify`` said of the folder.

    >>> claim_of("release.epsilon", "declared"), claim_of("limit.timing", "proved")
    ('declared', 'not checked')

    Args:
        key: of its text.
        verdict: what ``verify`` found.
    """
    kind = key.partition(".")[0]
    return {"release": verdict, "maker": "declared", "attack": "measured", "limit": "not checked"}[kind]


def statements(opened: OpenedFolder, audit: Mapping[str, Any], facts: Mapping[str, str]) -> list[Statement]:
    """Say all that can be said of a release.

    Args:
        opened: as :func:`privopt.run.verify.open_verified` returns it.
        audit: what ``audit`` measured.
        facts: answers of the owner, by key.
    """
    verdict = opened.verdict
    if verdict is None:
        raise ModelError("a release must be verified before anything is said of it")
    told = [*_release(opened, verdict), *_attacks(opened, audit), *_limits(opened)]
    made = [
        Statement(
            key=key,
            text=TEXTS[key].format(**values),
            claim=claim_of(key, verdict),
            values={name: str(value) for name, value in values.items()},
        )
        for key, values in told
    ]
    return [*made, *_owner(facts)]


Told: TypeAlias = tuple[str, Mapping[str, object]]


def _release(opened: OpenedFolder, verdict: str) -> Iterator[Told]:
    """Yield what ``verify`` checked: claims, figures, and which files they are of."""
    result, private = opened.result, verdict != "none"
    guarantee, certificate = result.guarantee, result.certificate
    yield "release.promise", {"promise": claim(result)}
    if guarantee.seeded:
        yield "release.verdict.seeded", {}
    else:
        yield (
            f"release.verdict.{verdict}",
            {
                "checked": f"{certificate.checked:,}",
                "worst": _number(certificate.worst),
                "allowed": _number(certificate.allowed),
                "arithmetic": certificate.arithmetic,
                "rests_on": certificate.rests_on,
            },
        )
    yield from _strength(result, private=private)
    yield f"limit.trust.{_trust(opened) if private else 'none'}", {}
    if not private:
        yield "release.after.none", {}
    elif _bounds_odds(result):
        yield "release.after", {}
    for line in limits(result)[0] if private else ():
        yield "release.checked", {"line": line}
    yield from _loss(result)
    made = {"mechanism": result.mechanism, "method": result.method, "privopt": result.privopt}
    yield "maker.made", made | {"plugin": result.plugin.name, "version": result.plugin.version}
    file = json.dumps(result.problem.file, ensure_ascii=False)  # quoted: any words may be in it
    yield "maker.domain", {"file": file}
    yield "release.files", {"sums": sha256(opened.folder / SUMS)}


def _strength(result: Result, *, private: bool) -> Iterator[Told]:
    """Kind, epsilon, unit and neighbours; without privacy none of them is stated as if it were kept."""
    guarantee = result.guarantee
    shown = guarantee.to_json()
    epsilon = {"epsilon": shown["epsilon_text"], "unit": guarantee.unit}
    if not private:
        yield "release.kind.none", {}
        if guarantee.epsilon is not None:
            yield "release.epsilon.seeded", epsilon
        yield "release.unit.absent", {}
        yield "release.neighbours.absent", {}
        return
    yield "release.kind", {"kind": guarantee.kind}
    yield ("release.epsilon.absent", {}) if guarantee.epsilon is None else ("release.epsilon", epsilon)
    for name in BUDGETS:
        if shown.get(name) is not None:
            yield "release.parameter", {"name": name, "value": shown.get(f"{name}_text", shown[name])}
    yield ("release.unit", {"unit": guarantee.unit}) if guarantee.unit else ("release.unit.absent", {})
    yield "release.neighbours", {"scope": guarantee.scope or guarantee.kind}
    if guarantee.statement:
        yield "release.statement", {"statement": guarantee.statement}
    guess = getattr(registry().kind("notion", guarantee.kind).load(), "guess", None)
    if guess is not None and guarantee.epsilon is not None:
        yield "release.guess", {"share": f"{math.ceil(guess(guarantee) * 1000) / 10:g}%"}


def _trust(opened: OpenedFolder) -> str:
    """Return the key of the text that says who must be trusted with the truth."""
    if opened.result.guarantee.kind == LOCAL:
        return "local"
    if channel_of(opened.mechanism, opened.problem, opened.release) is not None:
        return "drawn"
    return "central" if _bounds_odds(opened.result) else "named"


def _bounds_odds(result: Result) -> bool:
    """Return whether the notion bounds odds, so that it holds for whatever is computed from a release."""
    notion = registry().kind("notion", result.guarantee.kind).load()
    return bool(notion.odds or notion.tails)


def _loss(result: Result) -> Iterator[Told]:
    stated = result.objective
    yield "release.loss", {"value": _number(stated.value), "unit": stated.unit}
    if stated.lower_bound is not None and result.certificate.evidence != "none":
        key = "release.bound.chosen" if stated.bound_over == "chosen" else "release.bound"
        yield key, {"bound": _number(stated.lower_bound), "unit": stated.unit}


def _attacks(opened: OpenedFolder, audit: Mapping[str, Any]) -> Iterator[Told]:
    """Yield what ``audit`` measured; what does not apply is omitted."""
    for line in meaning_of(opened.mechanism, opened.problem, opened.release, opened.result):
        yield "attack.meaning", {"line": line}
    for line in collect_warnings(opened.mechanism, opened.problem, opened.release, opened.result):
        yield "attack.warning", {"line": f"{line.rstrip('.')}."}
    for name, value in audit.items():
        if value is None or (isinstance(value, Mapping) and value.get("achieved", 0) is None):
            continue
        if name in ("epsilon", "gv", "statistical"):
            yield f"attack.{name}", {each: _number(figure) for each, figure in value.items()}
        elif name == "expected_loss" and isinstance(value, (int, float)):
            yield "attack.expected_loss", {"value": _number(value), "unit": opened.result.objective.unit}
        elif f"attack.{name}" in TEXTS and isinstance(value, (int, float)):
            yield f"attack.{name}", {"value": _number(value)}
        else:
            yield "attack.other", {"name": name.replace("_", " "), "value": _figures(value)}


def _limits(opened: OpenedFolder) -> Iterator[Told]:
    """Yield what was not checked: of the notion, and of any release."""
    for line in limits(opened.result)[1]:
        yield "limit.unchecked", {"line": line}
    for key in TEXTS:
        if key.startswith("limit.") and not key.startswith(("limit.unchecked", "limit.trust", "limit.private")):
            yield key, {}
    yield "limit.private.whole" if opened.release.private_folder else "limit.private", {}


def _owner(facts: Mapping[str, str]) -> Iterator[Statement]:
    for name, question in QUESTIONS.items():
        answer = facts.get(name)
        values = {"question": question, "name": name, "answer": answer or ""}
        yield Statement(
            key=f"owner.{name}",
            text=TEXTS["owner.open" if answer is None else "owner.answer"].format(**values),
            claim="open" if answer is None else "stated by the owner",
            values=values,
        )


def _number(value: object) -> str:
    """Show a figure to six digits, or say that it is unknown or has no bound."""
    if value is None:
        return "unknown"
    if isinstance(value, float) and math.isinf(value):
        return "without bound"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _figures(value: object) -> str:
    """Figures inside one another, as a clause."""
    if isinstance(value, Mapping):
        return ", ".join(f"{str(name).replace('_', ' ')} {_figures(inner)}" for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(map(_figures, value))
    return _number(value)
