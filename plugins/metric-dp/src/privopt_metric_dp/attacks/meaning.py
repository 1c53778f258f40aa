"""Explain what a metric DP guarantee means in practice, because even a valid guarantee may protect little.

Epsilon is given per unit of distance, so the factor exp(epsilon d) between neighbours may be 1.2 or 20,000, depending
on the distances between the records. The explanation therefore states what the guarantee means at the distance to the
nearest neighbour, and how likely an attacker's best guess from one report is to be right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import ROUND_CEILING, Context, Decimal
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.declare.notebook import format_digits
from privopt.errors import number_of
from privopt.interfaces.notions import USELESS_FACTOR
from privopt.interfaces.result import Objective
from privopt.numbers.distances import amount_text
from privopt.run.attack_channel import bayes_error
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.problem.loss_kinds import DistanceLoss, TravelCost
from privopt_metric_dp.space.places import Space

__all__ = [
    "Interpretation",
    "costs_in_words",
    "describe_error",
    "describe_guess",
    "guess_rates",
    "in_readers_unit",
    "interpret_guarantee",
    "noun_of",
]

NEARLY_CERTAIN: Final = 0.9
"""The probability above which a guess after one report counts as nearly certain to be right.

A warning is given if, in addition, such a guess is wrong less than half as often as a guess without a report.
"""

MORE_OFTEN_RIGHT_THAN_WRONG: Final = 0.5
"""The smallest probability of a right guess after one report that may lead to a warning.

A warning is given if, in addition, a guess after one report is right at least twice as often as one without a report.
"""

RECORDS_NAMED: Final = 3
"""The maximum number of records named in a sentence."""


@frozen(kw_only=True)
class Interpretation:
    """An explanation of a guarantee for the readers of a report.

    Attributes:
        sentences: Sentences that explain the guarantee in numbers.
        warnings: Reasons why the guarantee protects little in practice. Empty if there are none.
    """

    sentences: tuple[str, ...]
    warnings: tuple[str, ...]


def interpret_guarantee(
    release: MatrixRelease, data: MetricData, *, by_distance: bool = True, rows_of: Ints | None = None
) -> Interpretation:
    """Explain the guarantee of a release in sentences, and warn if it protects little.

    This takes one pass over the required pairs and one over the matrix.

    Args:
        release: The release, with one row for each record, or for each element of ``rows_of`` if that is given.
        data: The data of the problem.
        by_distance: Whether the privacy notion bounds odds by exp(epsilon d). If not, the sentences do not mention
            distances.
        rows_of: Array of shape (M,) with the record index of each row, if the rows belong to M equally likely senders.
            If None, there is one row per record, and senders are distributed according to the prior.
    """
    noun = noun_of(data.records)
    noun, plural = (noun, f"{noun}s") if data.region is None else ("vertex", "vertices")
    # If the metric knows pairs that imply all others, these suffice, because they contain each record with its nearest
    # neighbour: no path between the two can pass through a third place.
    implying_pairs = data.metric.implying(data.within)
    pairs, distances = data.required if implying_pairs is None or data.region is not None else implying_pairs
    if data.region is not None:
        # Along the edges of a region, rows satisfy stricter inequalities than the actual distances require. The
        # guarantee is explained at the actual distances.
        distances = data.distance.between(pairs[:, 0], pairs[:, 1])
    sentences, warnings = [], list(_warn_of_isolated_records(data, pairs))
    # Records at the same place do not count as neighbours here, so the distance between them is set to infinity.
    separations = np.where((distances > 0) & by_distance, distances, np.inf)
    nearest = np.full(len(data.records), np.inf)
    for ends in pairs.T:
        np.minimum.at(nearest, ends, separations)
    # The records that share a place with another record.
    coincident = np.unique(pairs[distances == 0]) if by_distance else np.zeros(0, dtype=np.int64)
    finite_distances, epsilon = nearest[np.isfinite(nearest)], float(data.epsilon)
    if finite_distances.size:
        median, closest_pair = float(np.median(finite_distances)), int(separations.argmin())
        first_label, second_label = (data.records.label(place) for place in pairs[closest_pair].tolist())
        elsewhere, which = (" elsewhere", " that lie apart") if coincident.size else ("", "")
        way = f" {data.way}" if data.way and data.records.kind != "vector" else ""
        sentences.append(
            f"For two typical neighbours{elsewhere} ({amount_text(f'{median:.3g}', data.unit)} apart{way}) one report "
            f"changes the odds by a factor of at most {_format_factor(epsilon * median)}; for the two closest "
            f"{plural}{which}, {first_label} and {second_label}, by at most "
            f"{_format_factor(epsilon * float(distances[closest_pair]))}."
        )
        if epsilon * median > math.log(USELESS_FACTOR):
            warnings.append(
                "the promise hides next to nothing: one report may change the odds between nearest neighbours by a "
                f"factor of {_format_factor(epsilon * median)} at the median, and {USELESS_FACTOR:g} leaves hardly "
                "any doubt; a smaller epsilon hides more"
            )
    if coincident.size:
        sentences.append(
            f"{coincident.size:,} of {len(data.records):,} {plural} coincide with another: no report distinguishes "
            "those at one place."
        )
    guess_rate, prior_rate = guess_rates(release, data, rows_of)
    guess_sentence = f"the best guess at the {noun} from one report is right in {_format_percent(guess_rate)} of cases"
    sentences.append(describe_guess(guess_rate, prior_rate, noun))
    # A release is not to blame if the prior alone makes a guess nearly certain, so there is a warning only if a report
    # also more than halves how often the guess is wrong.
    if guess_rate > NEARLY_CERTAIN and 1.0 - guess_rate < (1.0 - prior_rate) / 2:
        warnings.append(
            f"{guess_sentence} (in {_format_percent(prior_rate)} without one): this release hides next to nothing "
            "from anyone who knows the prior"
        )
    elif guess_rate >= MORE_OFTEN_RIGHT_THAN_WRONG and guess_rate >= 2.0 * prior_rate:
        warnings.append(
            f"{guess_sentence} (in {_format_percent(prior_rate)} without one): one report gives the {noun} away in at "
            "least half of the cases; a smaller epsilon hides more"
        )
    return Interpretation(sentences=tuple(sentences), warnings=tuple(warnings))


def guess_rates(release: MatrixRelease, data: MetricData, rows_of: Ints | None = None) -> tuple[float, float]:
    """Return the probabilities that an attacker's best guess of the record is right, with and without a report.

    Args:
        release: The release, with one row for each record, or for each element of ``rows_of`` if that is given.
        data: The data of the problem.
        rows_of: Array of shape (M,) with the record index of each row, if the rows belong to M equally likely senders.
            If None, there is one row per record, and senders are distributed according to the prior.

    Returns:
        The probability after one report, and the probability without a report.
    """
    rows, prior = _average_by_record(release, data, rows_of)
    return 1.0 - bayes_error(rows, prior), float(prior.max())


def describe_error(data: MetricData, objective: Objective, kind: str) -> str:
    """Describe the expected loss in a sentence, as the average error of a report or as a cost.

    Args:
        data: The data of the problem.
        objective: The expected loss of the release, and its unit.
        kind: The kind of loss, as given by ``utility.kind``, or "" if the problem does not declare this loss.
    """
    amount = f"{format_digits(objective.value)} {objective.unit}"
    in_words = in_readers_unit(data, objective, objective.value)
    in_words = f" ({in_words})" if in_words else ""
    way = " by road" if objective.unit == "km" and data.way == "by road" else ""
    if kind == DistanceLoss.kind:
        return f"A report is {amount}{way} off on average{in_words}."
    if kind == TravelCost.kind:
        return (
            f"The way to a target, measured from the report, is {amount}{way} too long or too short on "
            f"average{in_words}."
        )
    return f"An error costs {amount}{way} on average{in_words}."


def describe_guess(guess_rate: float, prior_rate: float, noun: str) -> str:
    """Describe in a sentence how often an attacker's best guess is right, with and without a report.

    Args:
        guess_rate: The probability that the guess is right after one report.
        prior_rate: The probability that the guess is right without a report.
        noun: The word for a record, such as "place".
    """
    # Both rates are rounded in the same way, or else a report that reveals nothing could seem to reveal a little.
    after, without = _times_in_100(guess_rate), _times_in_100(prior_rate)
    return (
        f"After one report an attacker names the right {noun} {after} times in 100; without a report, {without} times."
    )


def noun_of(space: Space) -> str:
    """Return the noun used for a record in messages: "word", "place", "value" or "record"."""
    return {"vector": "word", "plain": "record"}.get(space.kind, "place" if space.unit == "km" else "value")


def _warn_of_isolated_records(data: MetricData, pairs: Ints) -> Iterator[str]:
    """Yield a warning if the guarantee leaves some records unprotected because they have no required pairs.

    Args:
        data: The data of the problem.
        pairs: Array of shape (P, 2) with all required pairs, or with enough of them that their constraints imply all
            others.
    """
    isolated_records = (
        np.setdiff1d(np.arange(len(data.records)), pairs) if data.within is not None else np.zeros(0, dtype=int)
    )
    if isolated_records.size:
        labels = ", ".join(data.records.label(row) for row in isolated_records[:RECORDS_NAMED].tolist())
        labels += ", ..." if isolated_records.size > RECORDS_NAMED else ""
        verb, pronoun = ("has", "it") if isolated_records.size == 1 else ("have", "them")
        yield (
            f"{isolated_records.size:,} of {number_of(len(data.records), 'record')} {verb} no neighbour within "
            f"{amount_text(f'{data.within:g}', data.unit)} ({labels}): nothing is promised for {pronoun}"
        )


def _average_by_record(release: MatrixRelease, data: MetricData, rows_of: Ints | None) -> tuple[Floats, Floats]:
    """Average the rows that belong to the same record, and compute the share of senders at each record.

    Args:
        release: The release, whose rows are averaged.
        data: The data of the problem.
        rows_of: The record index of each row. If None, there is one row per record, and a record's share is its prior.

    Returns:
        Array of shape (M, K) with the mean rows of the M records that have rows, and array of shape (M,) with the
        shares of these records.
    """
    if rows_of is None:
        return release.probabilities, data.prior
    record_numbers, record_index = np.unique(rows_of, return_inverse=True)
    total = np.zeros((len(record_numbers), release.weights.shape[1]))
    np.add.at(total, record_index, release.probabilities)
    count = np.bincount(record_index)
    return total / count[:, None], count / len(rows_of)


def costs_in_words(data: MetricData, objective: Objective) -> tuple[str, ...]:
    """Return a tuple with one sentence that states the loss in the unit declared by ``per_km``.

    The tuple is empty if the problem does not declare ``per_km`` or the loss is not in km.

    Args:
        data: The data of the problem.
        objective: The expected loss of the release, and its unit.
    """
    cost = in_readers_unit(data, objective, objective.value)
    return (f"It costs {format_digits(objective.value)} km on average: {cost}.",) if cost else ()


def in_readers_unit(data: MetricData, objective: Objective, value: float) -> str:
    """Convert a loss or bound from km to the unit declared by ``per_km``, and format it as in "3.2 minutes".

    Args:
        data: The data of the problem.
        objective: The expected loss of the release, and its unit.
        value: The loss or bound to convert.

    Returns:
        The formatted string, or "" if the problem does not declare ``per_km`` or the loss is not in km.
    """
    return "" if data.per_km is None or objective.unit != "km" else data.per_km.of(value)


def _format_factor(exponent: float) -> str:
    """Format exp(exponent), rounded up to a readable number of digits because it is an upper bound.

    >>> [_format_factor(exponent) for exponent in (0.0, 0.004, 1.5, 9.5, 25.0, 1000.0, 1e300)]
    ['1', '1.01', '4.49', '13,360', '7.21e+10', '10^435', '10^(4.35e+299)']
    """
    three_digits = Context(prec=3, rounding=ROUND_CEILING)
    # Beyond the range of doubles, only the power of ten is shown.
    if exponent > 700.0:
        power = math.ceil(exponent / math.log(10))
        return f"10^{power:,}" if power < 10**9 else f"10^({three_digits.plus(Decimal(power)):.2e})"
    value = Decimal(exponent).exp()
    if value < 100:
        return f"{three_digits.plus(value).normalize():f}"
    return f"{math.ceil(value):,}" if value < 10**9 else f"{three_digits.plus(value):.2e}"


def _times_in_100(rate: float) -> str:
    """Format a rate between 0 and 1 as a number of times in 100, with up to three digits.

    A rate below 1 is never shown as 100.

    >>> _times_in_100(1 / 3), _times_in_100(0.0003), _times_in_100(0.99996), _times_in_100(1.0)
    ('33.3', '0.03', 'more than 99.9', '100')
    """
    # Smaller numbers would be formatted with an exponent, and mean little to readers.
    if 0.0 < rate < 1e-5:
        return "less than 0.001"
    text = f"{100 * rate:.3g}"
    # A rate is a sum of doubles, so a rate of 1 may have come out slightly smaller.
    return "more than 99.9" if text == "100" and rate < 1.0 - 1e-12 else text


def _format_percent(share: float) -> str:
    """Format a share as a percentage. Only a share of 0 is shown as 0 %, and only a share of 1 as 100 %."""
    # Small shares get two significant digits. Others get as many decimals as needed so that a share below 1 is not
    # shown as 100 %.
    if 0.0 < share < 0.01:
        return f"{100 * share:.2g} %"
    for digits in range(1, 7):
        text = f"{100 * share:.{digits}f}"
        if share == 1.0 or float(text) < 100.0:
            return f"{text} %"
    return "more than 99.999999 %"
