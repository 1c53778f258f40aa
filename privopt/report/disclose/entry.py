"""Entries for the registry of differential-privacy deployments, in the form defined by the registry's schema.

Each sentence ends with a mark, such as [proved], that states the evidence for it (:attr:`Statement.claim`).
"""

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
from privopt.report.disclose.documents import escape_markdown, select
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
        "mechanisms": ("maker.made", "release.checked", "release.arithmetic", "release.files"),
        "composition": ("ledger", "limit.total", "owner.budget"),
        "post_processing": ("release.after",),
        "justification": ("owner.why_epsilon",),
        "utility": ("release.loss", "release.bound", "owner.utility"),
        "additional_information": ("owner.incidents", "owner.links"),
    },
}
"""The entry's text fields, by group, each with the key prefixes of the sentences that fill it.

Groups, fields, lists and types are those of the schema in opendp/deployments-registry-data, 2026 (Nanayakkara, Ghazi,
Vadhan: Practitioners' Perspectives on a Differential Privacy Deployment Registry, arXiv 2509.13509).
"""

ANSWERS: Final[Mapping[str, str]] = {
    "name": "owner.name",
    "data_product_type": "owner.product",
    "data_product_sector": "owner.sector",
    "publication_date": "owner.published",
}
"""The ``basic`` fields that hold a single answer from the owner, each with the key of the answer's statement."""

LISTS: Final[Mapping[str, tuple[str, ...]]] = {
    "product": (
        *("Summary statistics", "Machine learning model", "Dataset", "Synthetic data", "Interactive API"),
        "SQL queries",
    ),
    "sector": ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance"),
    "curator_type": ("Government", "Industry", "Nonprofit"),
}
"""The permitted answers to the questions for which the schema lists choices, by question key."""

VARIANTS: Final[Mapping[str, str]] = {
    "pure-dp": "Pure DP",
    "local-dp": "Pure DP",
    "approx-dp": "Approximate DP",
    "zcdp": "Zero-concentrated DP",
}
"""The schema's names for privacy notions. All other notions are "Custom"."""

MODELS: Final[Mapping[str, str]] = {"limit.trust.local": "Local", "limit.trust.central": "Central"}
"""Maps the keys of statements about trust to the schema's names for trust models."""

Field: TypeAlias = tuple[str, str, Any, str]
"""The group, name, value and claim of a field whose value cannot contain a mark."""


def check_answers(answers: Mapping[str, str], file: str) -> None:
    """Check that the registry's schema permits the owner's answers.

    Args:
        answers: The answers, by question key.
        file: The name of the file that contains the answers, for error messages.

    Raises:
        InputError: An answer is not in the schema's list, or the publication date is not a date.
    """
    faults = [
        Fault(file, name, cut(repr(answers[name])), f"one of {', '.join(choices)}")
        for name, choices in LISTS.items()
        if name in answers and answers[name] not in choices
    ]
    published = answers.get("published")
    if published is not None and not _is_date(published):
        faults.append(Fault(file, "published", cut(repr(published)), "a date as YYYY-MM-DD"))
    if faults:
        raise InputError(faults)


def _is_date(text: str) -> bool:
    """Return whether a string is a valid calendar date in the form YYYY-MM-DD."""
    try:
        # fromisoformat also accepts other ISO forms, such as 20260131, which the schema does not permit.
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def entry(statements: Sequence[Statement]) -> str:
    """Return an entry for the registry as JSON, which is also valid YAML.

    Each sentence in the entry ends with a mark, such as [proved], that states the evidence for it. Numbers, dates and
    choices from a list cannot contain a mark, so their marks are listed in ``additional_information``. Unanswered
    questions are left out, so that validation against the schema reports the required fields that are missing.

    Args:
        statements: All statements about the release. The answers in them must have passed :func:`check_answers`.
    """
    answered = [statement for statement in statements if statement.claim != "open"]
    # The fields of TEXTS_OF for which there is at least one sentence.
    groups: dict[str, dict[str, Any]] = {
        group: {
            name: text
            for name, starts in fields.items()
            if (text := _format_sentences(group, select(answered, starts)))
        }
        for group, fields in TEXTS_OF.items()
    }
    typed = list(_list_typed_fields(answered))
    # Nobody has reviewed the entry yet, so it is a draft in the registry's first tier.
    groups["administrative"] = {"status": "Draft", "tier": 1}
    for group, name, value, _ in typed:
        groups[group][name] = value
    information = groups["implementation"].get("additional_information", "")
    groups["implementation"]["additional_information"] = f"{information}\n{_explain_marks(statements, typed)}".lstrip()
    return dump_json({"url_slug": _make_slug(answered), "deployment": groups})


def _format_sentences(group: str, sentences: Iterator[Statement]) -> str:
    """Return a field's sentences, one per line, each followed by a mark such as [proved] that states its evidence.

    In the ``basic`` group, the field's name already says what the question was, so only the owner's answer is written.
    """
    return "".join(
        f"- {escape_markdown(sentence.values['answer'] if group == 'basic' else sentence.text)} [{sentence.claim}]\n"
        for sentence in sentences
    )


def _list_typed_fields(answered: Sequence[Statement]) -> Iterator[Field]:
    """Yield the fields that the schema requires to be a number, a date, a name or a choice from a list.

    Args:
        answered: All statements about the release except unanswered questions.
    """
    by_key = {statement.key: statement for statement in answered}
    for name, key in ANSWERS.items():
        if key in by_key:
            yield "basic", name, escape_markdown(by_key[key].values["answer"]), by_key[key].claim
    # The schema requires a list of curators, each with a name and a type.
    if "owner.curator" in by_key and "owner.curator_type" in by_key:
        curator, kind = (by_key[key].values["answer"] for key in ("owner.curator", "owner.curator_type"))
        value = [{"data_curator_name": escape_markdown(curator), "data_curator_type": kind}]
        yield "basic", "data_curators", value, by_key["owner.curator"].claim
    if "owner.authors" in by_key:
        authors = by_key["owner.authors"]
        yield "administrative", "registry_authors", [escape_markdown(authors.values["answer"])], authors.claim
    if "release.kind" in by_key:
        notion = by_key["release.kind"]
        yield "dp_variant", "variant_name", VARIANTS.get(notion.values["kind"], "Custom"), notion.claim
        yield "privacy_loss", "privacy_parameters", dict(_list_parameters(answered)), notion.claim
    for key, model in MODELS.items():
        if key in by_key:
            yield "deployment_model", "model_name", model, by_key[key].claim


def _list_parameters(answered: Sequence[Statement]) -> Iterator[tuple[str, float | str]]:
    """Yield the name and value of each of the guarantee's parameters: epsilon, rho and delta.

    Values are rounded up to doubles, so that the entry never claims more privacy than the guarantee provides. If a
    double would be printed with an exponent, delta is yielded as a string instead, and any other parameter is left out.

    Args:
        answered: All statements about the release except unanswered questions.
    """
    for statement in answered:
        if statement.key in ("release.epsilon", "release.parameter"):
            name = statement.values.get("name", "epsilon")
            text = statement.values.get("value", statement.values.get("epsilon", ""))
            number = float_up(Fraction(text))
            # YAML 1.1 parses 1e-9 as a string, and the schema accepts strings only for delta.
            if "e" not in repr(number):
                yield name, number
            elif name == "delta":
                yield name, text


def _explain_marks(statements: Sequence[Statement], typed: Sequence[Field]) -> str:
    """Return Markdown that explains an entry's marks, such as [proved], which state the evidence for each sentence.

    The text lists the marks of fields that cannot contain one, the unanswered questions, and the meanings of the marks.

    Args:
        statements: All statements about the release.
        typed: The fields that cannot contain a mark (:func:`_list_typed_fields`).
    """
    parts = []
    # Group the fields by mark, so that there is one line per mark.
    fields: dict[str, list[str]] = {}
    for group, name, _, claim in typed:
        fields.setdefault(claim, []).append(f"`{group}.{name}`")
    if fields:
        parts += [f"**{TITLES['unmarked']}**", "\n".join(f"- {', '.join(f)} [{c}]" for c, f in fields.items())]
    open_lines = [
        f"- {escape_markdown(statement.text)} [open]" for statement in statements if statement.claim == "open"
    ]
    if open_lines:
        parts += [f"**{TITLES['questions']}**", "\n".join(open_lines)]
    used_claims = {statement.claim for statement in statements}
    parts += [
        f"**{TITLES['marks']}**",
        "\n".join(f"- [{c}]: {words}" for c, words in CLAIMS.items() if c in used_claims),
    ]
    return "\n\n".join(parts)


def _make_slug(answered: Sequence[Statement]) -> str:
    """Return the last part of the entry's URL: the deployment's name in lower case, with underscores.

    If the owner gave no name, the slug is "release" followed by the first digits of the folder's checksum.
    """
    values = {statement.key: statement.values for statement in answered}
    name = re.sub(r"[^a-z0-9]+", "_", values.get("owner.name", {}).get("answer", "").lower()).strip("_")
    return name or f"release_{values['release.files']['sums'][:12]}"
