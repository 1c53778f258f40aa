"""An entry of the registry of deployments that the registry's own schema takes, with a mark at each sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from fractions import Fraction
from typing import Any, Final, TypeAlias

from privopt.errors import Fault, InputError, cut
from privopt.files.release_folder import dump_json
from privopt.numbers.exp_log_bounds import float_up
from privopt.report.disclose.catalogue import CLAIMS, TITLES
from privopt.report.disclose.documents import plain, select
from privopt.report.disclose.statements import Statement

TEXTS_OF: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "basic": {
        "description": ("owner.description",),
        "intended_use": ("owner.purpose",),
        "data_product_region": ("owner.region",),
    },
    "dp_variant": {
        "data_domain": ("maker.domain", "owner.collected"),
        "unprotected_quantities": ("limit.unchecked", "limit.private"),
    },
    "privacy_loss": {
        "privacy_unit": ("release.unit",),
        "privacy_unit_details": ("release.neighbours", "release.statement", "limit.person"),
        "privacy_parameters_details": (
            *("release.kind", "release.verdict", "release.epsilon", "release.parameter"),
            "release.promise",
        ),
    },
    "deployment_model": {
        "model_name_details": ("limit.trust", "owner.drawn_where"),
        "trust_assumptions": ("limit.timing", "limit.machine"),
        "actors": ("owner.access",),
        "release_type_details": ("owner.releases",),
    },
    "implementation": {
        "preprocessing_and_hyperparameter_tuning": ("owner.preparation",),
        "mechanisms": ("maker.made", "release.checked", "release.files"),
        "composition": ("limit.total", "owner.budget"),
        "post_processing": ("release.after",),
        "justification": ("owner.why_epsilon",),
        "utility": ("release.loss", "release.bound", "owner.utility"),
        "additional_information": ("owner.incidents", "owner.links"),
    },
}
"""Fields that are text, by their groups, each with the sentences that fill it.

Groups, fields, lists and types are those of the schema of opendp/deployments-registry-data, 2026 (Nanayakkara, Ghazi,
Vadhan: Practitioners' Perspectives on a Differential Privacy Deployment Registry, arXiv 2509.13509)."""

ANSWERS: Final[Mapping[str, str]] = {
    "name": "owner.name",
    "data_product_type": "owner.product",
    "data_product_sector": "owner.sector",
    "publication_date": "owner.published",
}
"""Fields of ``basic`` that are one answer of the owner's."""

LISTS: Final[Mapping[str, tuple[str, ...]]] = {
    "product": (
        *("Summary statistics", "Machine learning model", "Dataset", "Synthetic data", "Interactive API"),
        "SQL queries",
    ),
    "sector": ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance"),
    "curator_type": ("Government", "Industry", "Nonprofit"),
}
"""Answers of which the schema takes these alone, by question."""

VARIANTS: Final[Mapping[str, str]] = {
    "pure-dp": "Pure DP",
    "local-dp": "Pure DP",
    "approx-dp": "Approximate DP",
    "zcdp": "Zero-concentrated DP",
}
"""What the schema calls a notion of privacy; all others are "Custom"."""

MODELS: Final[Mapping[str, str]] = {"limit.trust.local": "Local", "limit.trust.central": "Central"}
"""What the schema calls a model of trust; of the others no folder shows which it is."""

Field: TypeAlias = tuple[str, str, Any, str]
"""Group, field, value and claim of a field that is no text with marks."""


def check_answers(answers: Mapping[str, str], file: str) -> None:
    """Refuse answers that the registry's schema would refuse.

    Raises:
        InputError: a text where the schema has a list or a date.
    """
    faults = [
        Fault(file, name, cut(repr(answers[name])), f"one of {', '.join(taken)}")
        for name, taken in LISTS.items()
        if name in answers and answers[name] not in taken
    ]
    published = answers.get("published")
    if published is not None and not _is_date(published):
        faults.append(Fault(file, "published", cut(repr(published)), "a date as YYYY-MM-DD"))
    if faults:
        raise InputError(faults)


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def entry(statements: Sequence[Statement]) -> str:
    """Write an entry as JSON, which every reader of YAML reads too.

    What is open is omitted, so the schema names required fields that no one has answered. A field that is a number, a
    date or one of a list cannot have a mark: ``additional_information`` says what each of them rests on.

    Args:
        statements: all sentences there are, with answers that :func:`check_answers` takes.
    """
    known = [each for each in statements if each.claim != "open"]
    groups: dict[str, dict[str, Any]] = {
        group: {name: text for name, starts in fields.items() if (text := _text(group, select(known, starts)))}
        for group, fields in TEXTS_OF.items()
    }
    typed = list(_typed(known))
    groups["administrative"] = {"status": "Draft", "tier": 1}
    for group, name, value, _ in typed:
        groups[group][name] = value
    more = groups["implementation"].get("additional_information", "")
    groups["implementation"]["additional_information"] = f"{more}\n{_marks(statements, typed)}".lstrip()
    return dump_json({"url_slug": _slug(known), "deployment": groups})


def _text(group: str, sentences: Iterator[Statement]) -> str:
    """Return a field's sentences, one a line, each with its mark; in ``basic`` the field's name is the question."""
    return "".join(
        f"- {plain(each.values['answer'] if group == 'basic' else each.text)} [{each.claim}]\n" for each in sentences
    )


def _typed(known: Sequence[Statement]) -> Iterator[Field]:
    """Yield the fields that are a number, a date, a name or one of a list."""
    by_key = {each.key: each for each in known}
    for name, key in ANSWERS.items():
        if key in by_key:
            yield "basic", name, plain(by_key[key].values["answer"]), by_key[key].claim
    if "owner.curator" in by_key and "owner.curator_type" in by_key:
        curator, kind = (by_key[key].values["answer"] for key in ("owner.curator", "owner.curator_type"))
        value = [{"data_curator_name": plain(curator), "data_curator_type": kind}]
        yield "basic", "data_curators", value, by_key["owner.curator"].claim
    if "owner.authors" in by_key:
        authors = by_key["owner.authors"]
        yield "administrative", "registry_authors", [plain(authors.values["answer"])], authors.claim
    if "release.kind" in by_key:
        notion = by_key["release.kind"]
        yield "dp_variant", "variant_name", VARIANTS.get(notion.values["kind"], "Custom"), notion.claim
        yield "privacy_loss", "privacy_parameters", dict(_parameters(known)), notion.claim
    for key, model in MODELS.items():
        if key in by_key:
            yield "deployment_model", "model_name", model, by_key[key].claim


def _parameters(known: Sequence[Statement]) -> Iterator[tuple[str, float | str]]:
    """Yield epsilon, rho and delta, rounded up. YAML reads 1e-9 as a text, which the schema takes for delta alone."""
    for each in known:
        if each.key in ("release.epsilon", "release.parameter"):
            name = each.values.get("name", "epsilon")
            text = each.values.get("value", each.values.get("epsilon", ""))
            number = float_up(Fraction(text))
            if "e" not in repr(number):
                yield name, number
            elif name == "delta":
                yield name, text


def _marks(statements: Sequence[Statement], typed: Sequence[Field]) -> str:
    """Say what fields without a mark rest on, what is left to answer, and what the marks mean."""
    parts = []
    fields: dict[str, list[str]] = {}
    for group, name, _, claim in typed:
        fields.setdefault(claim, []).append(f"`{group}.{name}`")
    if fields:
        parts += [f"**{TITLES['unmarked']}**", "\n".join(f"- {', '.join(f)} [{c}]" for c, f in fields.items())]
    left = [f"- {plain(each.text)} [open]" for each in statements if each.claim == "open"]
    if left:
        parts += [f"**{TITLES['questions']}**", "\n".join(left)]
    used = {each.claim for each in statements}
    parts += [f"**{TITLES['marks']}**", "\n".join(f"- [{c}]: {words}" for c, words in CLAIMS.items() if c in used)]
    return "\n\n".join(parts)


def _slug(known: Sequence[Statement]) -> str:
    """Return the last part of the entry's address: the deployment's name, or a digest of the release."""
    values = {each.key: each.values for each in known}
    name = re.sub(r"[^a-z0-9]+", "_", values.get("owner.name", {}).get("answer", "").lower()).strip("_")
    return name or f"release_{values['release.files']['sums'][:12]}"
