"""Sentences about a verified release, each with its evidence.

The texts are in catalogue.toml. This module selects those that apply and fills in their values. The evidence for a
sentence follows from the first part of its key (:func:`claim_of`), so no sentence can claim more than was checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Final, TypeAlias

from attrs import frozen

from privopt.declare.notebook import format_digits
from privopt.errors import ModelError, number_of
from privopt.files.release_folder import SUMS, sha256
from privopt.interfaces import Result
from privopt.interfaces.abilities import channel_of, meaning_of
from privopt.interfaces.cost import sum_text
from privopt.ledger.cost_of_report import limit_text
from privopt.ledger.ledger import Ledger
from privopt.registry import registry
from privopt.report.disclose.catalogue import CLAIMS, QUESTIONS, TEXTS
from privopt.report.promise_text import claim, limits
from privopt.run.build_result import collect_warnings
from privopt.run.verify import OpenedFolder

LOCAL: Final = "local-dp"
"""The kind of guarantee that, by definition, holds even against the server (Kasiviswanathan et al. 2011)."""

BUDGETS: Final = ("rho", "delta")
"""The parameters that a guarantee can have in addition to epsilon."""


@frozen(kw_only=True)
class Statement:
    """A sentence about a release, with the evidence for it.

    Attributes:
        key: The sentence's key in the catalogue. For the owner's answers, it is ``owner.`` followed by the question's
            name.
        text: The sentence, as plain text.
        claim: The evidence for the sentence, one of :data:`privopt.report.disclose.catalogue.CLAIMS`.
        values: The values filled into the sentence, by name.
    """

    key: str
    text: str
    claim: str
    values: Mapping[str, str]

    def __attrs_post_init__(self) -> None:
        """Check that the claim is explained in the catalogue.

        Raises:
            ModelError: The claim is not in the catalogue.
        """
        if self.claim not in CLAIMS:
            raise ModelError(f"claim must be one of {', '.join(CLAIMS)}, got {self.claim!r}")


def claim_of(key: str, verdict: str) -> str:
    """Return the evidence for a sentence. For a sentence about the release itself, this is the verdict of ``verify``.

    >>> claim_of("release.epsilon", "declared"), claim_of("limit.timing", "proved")
    ('declared', 'not checked')

    Args:
        key: The sentence's key in the catalogue.
        verdict: The verdict of ``verify`` on the folder.
    """
    kind = key.partition(".")[0]
    return {
        "release": verdict,
        "maker": "declared",
        "attack": "measured",
        "ledger": "recorded",
        "limit": "not checked",
    }[kind]


def statements(
    opened: OpenedFolder, audit: Mapping[str, Any], facts: Mapping[str, str], ledger: Ledger | None = None
) -> list[Statement]:
    """Return all statements about a release.

    Args:
        opened: The folder, opened by :func:`privopt.run.verify.open_verified`.
        audit: The metrics from ``privopt audit --json``.
        facts: The owner's answers, by key.
        ledger: The ledger that counts the release's reports, or None if there is no ledger. The ledger must have been
            checked.

    Raises:
        ModelError: The folder was opened without verification.
    """
    verdict = opened.verdict
    if verdict is None:
        raise ModelError("a release must be verified before anything is said about it")
    # A sentence's claim depends only on its key and the verdict, whatever its text says.
    recorded = [] if ledger is None else list(_state_ledger(opened, ledger))
    keyed_values = [*_state_release(opened, verdict), *_state_attacks(opened, audit), *recorded, *_state_limits(opened)]
    made_statements = [
        Statement(
            key=key,
            text=TEXTS[key].format(**values),
            claim=claim_of(key, verdict),
            values={name: str(value) for name, value in values.items()},
        )
        for key, values in keyed_values
    ]
    # A ledger with a limit answers the owner's question of how much may be spent on one person.
    answered = {"budget"} if any(key == "ledger.limit" for key, _ in recorded) else set[str]()
    return [*made_statements, *_state_answers(facts, answered)]


KeyedValues: TypeAlias = tuple[str, Mapping[str, object]]
"""The key of a text in the catalogue, and the values to fill into it."""


def _state_release(opened: OpenedFolder, verdict: str) -> Iterator[KeyedValues]:
    """Yield statements about the release, its files, and the claims and values checked by ``verify``.

    Args:
        opened: The verified folder.
        verdict: The verdict of ``verify``, which is "none" for a release without privacy.
    """
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
                "worst": _format_up(certificate.worst, certificate.allowed),
                "allowed": _format_number(certificate.allowed),
                # The worst value has the unit of epsilon only if it is an epsilon per distance.
                "unit": f" {opened.relation}" if private and opened.relation != guarantee.unit else "",
                "rests_on": certificate.rests_on,
            },
        )
    trust_key = _find_trust_key(opened) if private else "none"
    yield from _state_strength(opened, trust_key, private=private)
    yield f"limit.trust.{trust_key}", {}
    if not private:
        yield "release.after.none", {}
    elif _bounds_odds(result):
        yield "release.after", {}
    for line in limits(result)[0] if private else ():
        yield "release.checked", {"line": f"{line[:1].lower()}{line[1:]}"}
    if private:
        yield "release.arithmetic", {"arithmetic": certificate.arithmetic}
    yield from _state_loss(result)
    maker = {"mechanism": result.mechanism, "method": result.method, "privopt": result.privopt}
    yield "maker.made", maker | {"plugin": result.plugin.name, "version": result.plugin.version}
    file = json.dumps(result.problem.file, ensure_ascii=False)  # quoted, because the name can contain any words
    yield "maker.domain", {"file": file}
    yield "release.files", {"sums": sha256(opened.folder / SUMS)}


def _state_strength(opened: OpenedFolder, trust_key: str, *, private: bool) -> Iterator[KeyedValues]:
    """Yield statements about the kind of guarantee, its epsilon, its unit and its neighbouring inputs.

    For a release without privacy, these are replaced by statements that say there is no privacy.

    Args:
        opened: The verified folder.
        trust_key: The result of :func:`_find_trust_key`, or "none" for a release without privacy.
        private: Whether there is any evidence that the release is private.
    """
    guarantee = opened.result.guarantee
    members = guarantee.to_json()
    # The relation also says how distances are measured: 2 per km by road is not 2 per km in a straight line.
    unit = opened.relation if private else guarantee.unit
    epsilon = {"epsilon": members["epsilon_text"], "unit": unit}
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
        if members.get(name) is not None:
            yield "release.parameter", {"name": name, "value": members.get(f"{name}_text", members[name])}
    unit_key = "release.unit.drawn" if trust_key == "drawn" else "release.unit"
    yield (unit_key, {"unit": unit}) if guarantee.unit else ("release.unit.absent", {})
    # The scope says which pairs or neighbours the guarantee covers, such as "all-pairs".
    yield "release.neighbours", {"scope": (guarantee.scope or guarantee.kind).replace("-", " ")}
    if guarantee.statement:
        yield "release.statement", {"statement": guarantee.statement}
    # Only some notions bound how often a guess is right.
    guess = getattr(registry().kind("notion", guarantee.kind).load(), "guess", None)
    if guess is not None and guarantee.epsilon is not None:
        # Round the share of right guesses up to a tenth of a percent, so that the text never understates it.
        yield "release.guess", {"share": f"{math.ceil(guess(guarantee) * 1000) / 10:g}%"}


def _find_trust_key(opened: OpenedFolder) -> str:
    """Return a key that says who must be trusted with the secrets: "local", "drawn", "central" or "named".

    In the local model, only the sender must be trusted ("local"). If the release is a channel, which gives the
    probability of each report for each secret, whoever draws reports from it must be trusted ("drawn"). Otherwise, if
    the notion bounds an attacker's odds, the maker of the release must be trusted ("central"). Other notions do not say
    who must be trusted ("named").
    """
    if opened.result.guarantee.kind == LOCAL:
        return "local"
    if channel_of(opened.mechanism, opened.problem, opened.release) is not None:
        return "drawn"
    return "central" if _bounds_odds(opened.result) else "named"


def _bounds_odds(result: Result) -> bool:
    """Return whether the release's privacy notion bounds an attacker's odds.

    If so, the guarantee also covers anything computed from the release.
    """
    notion = registry().kind("notion", result.guarantee.kind).load()
    # ``tails`` means that the notion bounds the odds except with a small probability.
    return bool(notion.odds or notion.tails)


def _state_loss(result: Result) -> Iterator[KeyedValues]:
    """Yield statements about a release's loss and, if there is evidence that it is private, its proved bound."""
    objective = result.objective
    quantity = objective.measured_quantity
    yield (
        "release.loss",
        {
            "quantity": f"{quantity[:1].upper()}{quantity[1:]}",
            "value": _format_number(objective.value),
            "unit": objective.unit_after(objective.value),
        },
    )
    if objective.lower_bound is not None and result.certificate.evidence != "none":
        # "chosen" means that the bound covers only releases over the outputs that the mechanism chose.
        key = "release.bound.chosen" if objective.bound_over == "chosen" else "release.bound"
        bound = objective.lower_bound
        yield key, {"bound": _format_number(bound), "unit": objective.unit_after(bound)}


def _state_attacks(opened: OpenedFolder, audit: Mapping[str, Any]) -> Iterator[KeyedValues]:
    """Yield statements about attacks: what the guarantee means, warnings, and the audit's applicable metrics.

    Args:
        opened: The verified folder.
        audit: The metrics from ``privopt audit --json``, by name.
    """
    for line in meaning_of(opened.mechanism, opened.problem, opened.release, opened.result):
        yield "attack.meaning", {"line": line}
    for line in collect_warnings(opened.mechanism, opened.problem, opened.release, opened.result):
        yield "attack.warning", {"line": f"{line.rstrip('.')}."}
    for name, value in audit.items():
        # Metrics that do not apply are None, and ``achieved`` is None if epsilon was not measured. "gv" is about the
        # share of inequalities that are violated, and "statistical" about an attack on samples.
        if value is None or (isinstance(value, Mapping) and value.get("achieved", 0) is None):
            continue
        if name == "over_time" and isinstance(value, Mapping) and "likelihood" in value:
            yield from _state_reports(value)
        elif name == "epsilon":
            achieved, claimed = value["achieved"], value["claimed"]
            yield "attack.epsilon", {"achieved": _format_up(achieved, claimed), "claimed": _format_number(claimed)}
        elif name == "gv" and not value["ratio"]:
            yield "attack.gv.none", {}
        elif name == "gv":
            yield "attack.gv", {part: _format_number(figure) for part, figure in value.items()}
        elif name == "statistical":
            figures = {part: _format_number(figure) for part, figure in value.items()}
            # This lower bound and the error of a guess below are rounded down, so that the text does not exaggerate
            # what an attack shows.
            yield "attack.statistical", figures | {"epsilon_lower": _format_down(value["epsilon_lower"])}
        elif name == "expected_loss" and isinstance(value, (int, float)):
            # If this equals the release's loss, the statement release.loss covers it, with the stronger evidence of
            # verify.
            if not math.isclose(value, opened.result.objective.value, rel_tol=1e-9):
                unit = opened.result.objective.unit_after(value)
                yield "attack.expected_loss", {"value": _format_number(value), "unit": unit}
        elif name == "bayes_error" and isinstance(value, float):
            yield "attack.bayes_error", {"value": _format_down(value)}
        elif f"attack.{name}" in TEXTS and isinstance(value, (int, float)):
            yield f"attack.{name}", {"value": _format_number(value)}
        else:
            yield "attack.other", {"name": name.replace("_", " "), "value": _format_figures(value)}


def _state_limits(opened: OpenedFolder) -> Iterator[KeyedValues]:
    """Yield statements about what the release's privacy notion does not cover, and about what no guarantee covers."""
    for line in limits(opened.result)[1]:
        yield "limit.unchecked", {"line": line}
    # The sentences about trust and about private/ depend on the release. All others apply to every release.
    for key in TEXTS:
        if key.startswith("limit.") and not key.startswith(("limit.unchecked", "limit.trust", "limit.private")):
            yield key, {}
    yield "limit.private.whole" if opened.release.private_folder else "limit.private", {}


def _state_ledger(opened: OpenedFolder, ledger: Ledger) -> Iterator[KeyedValues]:
    """Yield statements about a ledger: its limits, its total charges, and its charges for this release.

    The statements include the largest amount spent by any one subject, but name no subjects.

    Args:
        opened: The verified folder.
        ledger: The ledger. All of its entries have been checked.
    """
    relation = ledger.unit or ""
    for account_unit in ledger.units:
        limit, accounts = ledger.limit_of(account_unit), ledger.accounts(unit=account_unit)
        unit_values = {"account": account_unit}
        if limit is None:
            yield "ledger.unlimited", unit_values
        else:
            yield "ledger.limit", unit_values | {"limit": limit_text(limit, relation)}
        if accounts:
            # Tuples are compared by their first number (epsilon or rho), and then by delta.
            most = max(account.spent_sum for account in accounts)
            # With a limit per calendar period, there is an account for each period. Otherwise, an account counts all
            # charges.
            within = "" if limit is None or limit.calendar is None else " in one period"
            yield (
                "ledger.spent",
                unit_values
                | {
                    "charges": number_of(sum(account.reports for account in accounts), "charge"),
                    "subjects": number_of(len({account.subject for account in accounts}), "subject"),
                    "within": within,
                    "most": sum_text(most),
                    "unit": f" {relation}" if relation else "",
                },
            )
    # Reports are charged under the release's checksum. Noise is charged before the release exists, so it is charged
    # under the problem's checksum.
    counts = {
        "ledger.release": ledger.count_charges(sha256(opened.folder / SUMS)),
        "ledger.solved": ledger.count_charges(opened.result.problem.sha256),
    }
    for key, count in counts.items():
        if count:
            yield key, {"charges": number_of(count, "charge")}
    if ledger.archive is not None:
        yield "ledger.continues", {}
    elif not any(counts.values()):
        yield "ledger.other", {}


def _state_reports(attack: Mapping[str, Any]) -> Iterator[KeyedValues]:
    """Yield statements about an attacker who observes one or more reports about the same place (``audit --over-time``).

    In the "fresh" attack, a new report is drawn each time. In the "sticky" attack, which the audit may leave out, the
    first report is repeated.
    """
    unit, counts = attack["unit"], [f"{count:,}" for count in attack["reports"]]
    medians = {name: [f"{median:.3g}" for median in errors["median"]] for name, errors in attack["likelihood"].items()}
    yield (
        "attack.over_time",
        {
            "reports": _join_alternatives(counts),
            "medians": _join_alternatives(medians["fresh"]),
            "unit": unit,
            "places": f"{attack['places']:,}",
        },
    )
    if "sticky" in medians:
        yield "attack.repeated", {"median": medians["sticky"][-1], "unit": unit}


def _join_alternatives(texts: Sequence[str]) -> str:
    """Join strings with commas and "or".

    >>> _join_alternatives(["1", "10", "50"])
    '1, 10 or 50'
    """
    return " or ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else texts[0]


def _state_answers(facts: Mapping[str, str], answered: Container[str] = ()) -> Iterator[Statement]:
    """Yield a statement for each question to the owner. Unanswered questions are marked as open.

    Args:
        facts: The owner's answers, by key.
        answered: The keys of questions already answered by other statements. These are left out unless the owner has
            answered them as well.
    """
    for name, question in QUESTIONS.items():
        answer = facts.get(name)
        if answer is None and name in answered:
            continue
        values = {"question": question, "name": name, "answer": answer or ""}
        yield Statement(
            key=f"owner.{name}",
            text=TEXTS["owner.open" if answer is None else "owner.answer"].format(**values),
            claim="open" if answer is None else "stated by the owner",
            values=values,
        )


def _format_up(value: float | None, limit: float | None) -> str:
    """Format a number with four significant digits, rounded up. None and infinity are replaced by words.

    A number that does not exceed ``limit`` is never rounded up beyond it.

    >>> _format_up(1.53348, 2.0), _format_up(0.0999977, 0.1), _format_up(None, 1.0)
    ('1.534', '0.1', 'unknown')
    """
    if value is None or not math.isfinite(value):
        return _format_number(value)
    rounded = float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(Decimal(value)))
    return f"{limit:.6g}" if limit is not None and value <= limit < rounded else f"{rounded:.4g}"


def _format_down(value: float) -> str:
    """Format a number with four significant digits, rounded down.

    >>> _format_down(0.897359)
    '0.8973'
    """
    if not math.isfinite(value):
        return _format_number(value)
    return f"{float(Context(prec=4, rounding=ROUND_FLOOR).create_decimal(Decimal(value))):.4g}"


def _format_number(value: object) -> str:
    """Format a value as text: integers in full, doubles with four significant digits, None and infinity as words."""
    if value is None:
        return "unknown"
    if isinstance(value, float) and math.isinf(value):
        return "without bound"
    if isinstance(value, int):
        return f"{value:,}"
    return format_digits(value, 4) if isinstance(value, float) else str(value)


def _format_figures(value: object) -> str:
    """Format nested values from ``audit`` as text, with each value in a mapping preceded by its name."""
    if isinstance(value, Mapping):
        return ", ".join(f"{str(name).replace('_', ' ')} {_format_figures(inner)}" for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(map(_format_figures, value))
    return _format_number(value)
