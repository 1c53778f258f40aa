"""A methods paragraph for a paper or a table's footnote: what was released, how, and its guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from html import escape

from privopt.declare.exact_text import exact_text
from privopt.interfaces import Result
from privopt.interfaces.report_parts import Section
from privopt_hierarchical_dp.noise_distributions import NoiseDistribution, Scale
from privopt_hierarchical_dp.problem import Privacy

__all__ = ["methods_section", "methods_text"]


def methods_text(
    privacy: Privacy,
    result: Result,
    *,
    law: NoiseDistribution,
    what: str,
    parts: Sequence[tuple[str, Scale, Fraction]],
    sensitivity: int,
    invariant: str,
    confidence: float,
) -> str:
    """Return the paragraph: mechanism, relation, budget by part, what is exact, what intervals mean.

    Args:
        privacy: what was asked.
        result: of the release.
        law: of the noise.
        what: was measured, in words: ``"counts of households by size"``.
        parts: name, scale of the noise and part of the budget of each measurement.
        sensitivity: of each.
        invariant: what is published exactly, a clause.
        confidence: of intervals.
    """
    budget = {
        "pure-dp": "epsilon-differential privacy with epsilon",
        "zcdp": "zero-concentrated differential privacy with rho",
        "approx-dp": "(epsilon, delta)-differential privacy with epsilon",
    }[privacy.kind]
    amount = privacy.rho if privacy.epsilon is None else privacy.epsilon
    assert amount is not None  # the notion has it
    beside = "" if privacy.delta is None else f" and delta = {exact_text(privacy.delta)}"
    spent = [
        f"{name} {exact_text(part)} ({law.word} {float(scale):.4g})" for name, scale, part in parts if scale is not None
    ]
    sums = [name for name, scale, _ in parts if scale is None]
    sentences = [
        f"Published with privopt {result.privopt}, mechanism {result.mechanism}, method {result.method}: {what} were "
        f"measured with {law.name} of sensitivity {sensitivity}, under {budget} = {exact_text(amount)}{beside}; two "
        f"inputs are neighbours where {result.guarantee.scope}.",
        f"Of the budget ({law.budget}) the measurements have: {'; '.join(spent)}.",
        *([f"Not measured, but sums of the level below: {', '.join(sums)}."] if sums else []),
        invariant,
        "The noisy values were made non-negative whole numbers that add up, which uses nothing but them and what is "
        "public, and costs no privacy.",
        f"An interval holds the true count with probability {confidence:g}, each by itself, over the noise.",
    ]
    return " ".join(sentences)


def methods_section(text: str) -> Section:
    """Return the section of a report that holds the paragraph, to be copied."""
    lead = "A paragraph to copy into a publication: everything in it is public."
    return Section(title="Methods", html=f"<p>{escape(text)}</p>", lead=lead)
