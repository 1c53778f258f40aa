"""What a release promises, in words for everybody: the claim, what was checked, and what was not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["claim", "limits"]


def claim(result: Mapping[str, Any]) -> str:
    """The promise in one sentence, from the ``guarantee`` of result.json."""
    guarantee = result["guarantee"]
    epsilon, kind = guarantee.get("epsilon"), guarantee["kind"]
    if kind == "none":
        return "This result promises no privacy: it was asked for with --allow-unsafe."
    if guarantee.get("seeded"):
        return "This result is not private: its noise came from --seed, so whoever knows the seed can take it off."
    if kind == "metric-dp" and epsilon:
        return _metric(guarantee, float(epsilon))
    who = guarantee.get("scope") or "one individual"
    if kind == "local-dp" and epsilon:
        return (
            f"Nobody, not even the server that works with the reports, learns much about {who}: whatever is published "
            f"is at most {_times(epsilon)} as likely with as without."
        )
    if kind == "pure-dp" and epsilon:
        return (
            f"What one individual changes hardly shows: whether or not {who}, every result is at most "
            f"{_times(epsilon)} as likely in the one case as in the other."
        )
    if kind == "top-k":
        return _ranked(result)
    return str(guarantee.get("statement") or "No statement.")


def _times(epsilon: float) -> str:
    """A factor exp(epsilon) in words, rounded up."""
    if epsilon > 20:
        return f"e^{epsilon:g} times"
    excess = math.expm1(float(epsilon))
    digits = max(0, 1 - math.floor(math.log10(excess)))
    return f"{1 + math.ceil(excess * 10**digits) / 10**digits:.{digits}f} times"


def _down(value: float) -> float:
    """Two significant digits, rounded down."""
    scale = 10.0 ** (1 - math.floor(math.log10(value)))
    return math.floor(value * scale) / scale


def _metric(guarantee: Mapping[str, Any], epsilon: float) -> str:
    unit = str(guarantee.get("unit") or "").removeprefix("per ")
    unit = "" if unit == "unit of distance" else f" {unit}"
    start, end = "Whoever sees what was released, whatever else they know, can", "."
    pair = "two records"
    if guarantee.get("scope") == "own-matrix":
        start, pair = "Whoever sees a report and knows the one matrix that it was drawn from can", "two places"
        end = "; between different users, and towards the server, nothing of the kind is promised."
    within = guarantee.get("neighbours_within")
    two = _down(math.log(2) / epsilon)
    start += f" hardly tell {pair} close to one another apart: "
    likely = "as likely from the one as from the other, and less the nearer they are"
    if within is not None and two > within:
        return f"{start}at {within:g}{unit} a release is at most {_times(epsilon * within)} {likely}{end}"
    if within is not None:
        likely += f" (records up to {within:g}{unit} apart are compared)"
    return f"{start}at {two:g}{unit} a release is at most twice {likely}{end}"


def _ranked(result: Mapping[str, Any]) -> str:
    details, guarantee = result.get("details", {}), result["guarantee"]
    after, before = details.get("rank_after"), details.get("rank_before")
    shift = f" (it was guess {before}, now it is guess {after})" if after and before else ""
    if guarantee.get("top_k"):
        k = guarantee["top_k"]
        best = "best guess" if k == 1 else f"{k} best guesses"
        return f"From the photos that remain, the classifier does not have the true place among its {best}{shift}."
    return (
        f"With at most {guarantee.get('deletion_budget')} photos deleted, at least "
        f"{details.get('protected_k', 'so many')} other places look as likely to the classifier as the true one{shift}."
    )


def limits(result: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What was checked of the release, and what was not: a line each."""
    certificate = result["certificate"]
    kind = result["guarantee"]["kind"]
    again = "A second release of the same secret: it spends epsilon again."
    if kind == "metric-dp":
        checked = [
            f"{certificate['checked']:,} inequalities between probabilities, on the integers that are drawn from.",
            "That every row adds up to exactly 2^63.",
        ]
        unchecked = [again, "What the sender reveals elsewhere, or by when and how often it reports."]
        if result["guarantee"].get("scope") == "own-matrix":
            unchecked.insert(0, "Rows of different users against each other, and what the server learns from uploads.")
        return checked, unchecked
    if kind in ("local-dp", "pure-dp"):
        checked = [
            "The noise's scale against the greatest change that one individual can make, in rationals.",
        ]
        unchecked = [
            again,
            "That the noise was really drawn at that scale: one release cannot show it.",
        ]
        return checked, unchecked
    if kind == "top-k":
        checked = ["The rank of the true place from the photos that remain, by exact sums of the scores."]
        return checked, [
            "Other classifiers, unless they lie within the margin; and people, who may know the place.",
            "What file names, captions, dates and positions in the photos' files tell.",
        ]
    return ["Nothing: this method claims nothing."], ["Everything."]
