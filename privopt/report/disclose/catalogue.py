"""The English texts of a disclosure: sentences, questions, titles and marks, kept here for translation.

What a sentence rests on follows from the first part of its key (:func:`privopt.report.disclose.statements.claim_of`).
``release`` rests on what ``verify`` found, ``maker`` on what the folder says of itself, ``attack`` on what ``audit``
measured and ``owner`` on the file of facts. ``limit`` rests on nothing: it says what was not checked or is assumed. So
no text says "proved": the mark after it does, if it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CLAIMS: Final[Mapping[str, str]] = {
    "proved": "measured on the release itself in exact arithmetic; anybody can measure it again with `privopt verify`",
    "declared": (
        "its maker's word, as far as no one can measure it on the release; of noise, scale and sensitivity were checked"
    ),
    "none": "the release gives no privacy; what is said here is not a promise",
    "measured": "computed by privopt on this release in ordinary arithmetic; `privopt verify` does not check it",
    "not checked": "privopt says here what it assumes or did not check",
    "stated by the owner": "is in the file of facts; no one checked it",
    "open": "only the owner can answer it, and has not",
}
"""What each mark behind a sentence means."""

TEXTS: Final[Mapping[str, str]] = {
    # what verify found
    "release.promise": "{promise}",
    "release.statement": "In the words of the certificate: {statement}",
    "release.verdict.proved": (
        "`privopt verify` measured {checked} conditions on the release: the worst is {worst} where {allowed} is "
        "allowed ({arithmetic})."
    ),
    "release.verdict.declared": (
        "`privopt verify` checked {checked} conditions on the noise that is stated: the worst is {worst} where "
        "{allowed} is allowed. It takes on its maker's word {rests_on}."
    ),
    "release.verdict.none": "`privopt verify` found the folder as it was written, and that it promises no privacy.",
    "release.verdict.seeded": (
        "This release is seeded, not private: its noise came from a seed, and anyone who knows the seed can remove it."
    ),
    "release.kind": "The notion of privacy is {kind}.",
    "release.kind.none": "No notion of privacy is kept.",
    "release.epsilon": "Epsilon is {epsilon} {unit}.",
    "release.epsilon.absent": "This notion of privacy states no epsilon.",
    "release.epsilon.seeded": "Noise for epsilon {epsilon} {unit} came from a seed, so it protects no one.",
    "release.parameter": "Its {name} is {value}.",
    "release.unit": "Epsilon counts {unit}: that is the unit of privacy.",
    "release.unit.absent": "The certificate states no unit of privacy.",
    "release.neighbours": "Between which inputs the promise holds, in the certificate's word: {scope}.",
    "release.neighbours.absent": "No inputs are promised to look alike.",
    "release.guess": (
        "Of two neighbouring inputs that were equally likely before, an attacker who sees the release picks the right "
        "one at most {share} of the time."
    ),
    "release.checked": "Checked: {line}",
    "release.loss": "The loss of the release is {value} ({unit}).",
    "release.bound": "No release of the same problem does better than {bound} ({unit}).",
    "release.bound.chosen": "No release of the same problem with the same outputs does better than {bound} ({unit}).",
    "maker.made": (
        "It was made by mechanism {mechanism}, method {method}, of {plugin} {version}, with privopt {privopt}."
    ),
    "maker.domain": "The problem is in the folder problem/, in a file that its maker called {file}, with its tables.",
    "release.files": "SHA-256 of its SHA256SUMS, which lists every file outside private/: {sums}.",
    "release.after": (
        "What is computed from the published files alone, however often, keeps the promise and cannot weaken it."
    ),
    "release.after.none": "What is computed from the published files has no protection either.",
    # what audit measured
    "attack.epsilon": "Attacked unchanged, the release shows an epsilon of {achieved} where {claimed} is claimed.",
    "attack.gv": "Inequalities of the promise that are violated: a share of {ratio}, by {error} at most.",
    "attack.bayes_error": (
        "An attacker who knows beforehand how likely each input is, sees one result and guesses best is wrong "
        "with probability {value}."
    ),
    "attack.expected_loss": "What users lose by it, on average: {value} ({unit}).",
    "attack.entropy_bits": "The uncertainty about a result before it is seen is {value} bits.",
    "attack.statistical": (
        "From {draws} fresh draws an attack learned that epsilon is at least {epsilon_lower}, with confidence "
        "{confidence}."
    ),
    "attack.other": "`privopt audit` also found, of {name}: {value}.",
    "attack.meaning": "{line}",
    "attack.warning": "Warning: {line}",
    # what no one checked
    "limit.unchecked": "{line}",
    "limit.trust.local": (
        "The local model is assumed: each sender's number is changed before it is sent, and the promise holds against "
        "the server too."
    ),
    "limit.trust.drawn": (
        "Assumed: reports are drawn one by one from a public table of probabilities, by the party that holds "
        "the true value: it must be trusted with that value; those who see only the report need not be."
    ),
    "limit.trust.central": (
        "The central model is assumed: the maker of the release held the true data and is trusted with them; the "
        "promise is about what is published."
    ),
    "limit.trust.named": (
        "No model of trust is assumed: the promise is about what is published, and against the attacker that it names."
    ),
    "limit.trust.none": "Everybody who sees the release must be trusted: it promises nothing.",
    "limit.timing": "How long it took to make the release or to draw from it, and when that was, was not checked.",
    "limit.machine": "The machine, its source of entropy and who could read its memory or disk were not checked.",
    "limit.private": "What is in private/ is protected by nothing but the permissions of its files.",
    "limit.private.whole": "The whole folder is its owner's own: nothing in it is meant to be published.",
    "limit.collection": "How the data were collected, and whether they are true, was not checked.",
    "limit.person": "How many records, reports or devices belong to one person was not checked.",
    "limit.bias": "Whether the loss falls more on one group of people than on another was not checked.",
    "limit.total": "What else was released about the same people was not checked; each release spends its own budget.",
    "limit.law": "Whether the processing is lawful, necessary and proportionate was not checked.",
    # what the owner says
    "owner.answer": "{question} {answer}",
    "owner.open": "Not answered: {question} (key {name} of the file of facts)",
}
"""Sentences by key; names in braces are filled in."""

QUESTIONS: Final[Mapping[str, str]] = {
    "name": "What is the deployment called?",
    "curator": "Who is responsible for the data?",
    "curator_type": "Is that Government, Industry or Nonprofit?",
    "contact": "Whom can people ask?",
    "purpose": "What is the release for, and who will use it?",
    "description": "What is published, in a sentence?",
    "product": (
        "What type of data product is it: Summary statistics, Machine learning model, Dataset, Synthetic data, "
        "Interactive API or SQL queries?"
    ),
    "region": "Which region or population is it about?",
    "sector": "Which sector is it of: Technology, Healthcare, Education, Government, Energy or Finance?",
    "published": "When was or will it be published, as YYYY-MM-DD?",
    "releases": "Is it published once or again and again, and from data that change?",
    "links": "Where can one read more?",
    "collected": "How, when and from whom were the data collected?",
    "preparation": "What was done with the data, and what was tried on them, before the release?",
    "legal_basis": "On which legal basis?",
    "retention_inputs": "How long are the true data and private/ kept, and how are they erased?",
    "retention_release": "How long is the release kept?",
    "access": "Who can reach the true data, and who the release?",
    "drawn_where": "On whose machine is noise added or are reports drawn?",
    "budget": "How much may be spent on one person in all, in which period, and how is that counted?",
    "why_epsilon": "Why was this strength of privacy chosen?",
    "utility": "Was the release tried for its purpose, and what came out?",
    "bias": "Which groups were compared, and who loses most?",
    "authors": "Who fills in the entry of the registry?",
    "incidents": "What happens if the true data or the key of a ledger leak?",
}
"""What only the owner knows, by key of the file of facts."""

TITLES: Final[Mapping[str, str]] = {
    "nist": "Evaluation after NIST SP 800-226",
    "dpia": "Annex to a data protection impact assessment",
    "card": "Model card",
    "marks": "What the marks mean",
    "summary": "In short",
    "epsilon": "Strength of privacy",
    "unit": "Unit of privacy",
    "trust": "Trust model",
    "neighbours": "Neighbouring inputs",
    "side_channels": "Side channels",
    "collection": "Data collection and exposure",
    "utility": "Utility",
    "bias": "Bias",
    "outside": "What is outside",
    "processing": "The processing",
    "protected": "What is protected",
    "attack": "What an attacker gets",
    "budget": "Budget",
    "retention": "Retention",
    "unprotected": "What is not protected",
    "intended": "Intended use",
    "made": "How it was made",
    "privacy": "Privacy",
    "limits": "Limits",
    "machine": "For machines",
    "unmarked": "What fields without a mark rest on",
    "questions": "Left to answer",
}
"""Headings by name."""
