"""The sections of a metric release's report: interactive map, losses, worst pairs, baselines and convergence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from privopt.arrays import Figure
from privopt.declare.notebook import format_digits
from privopt.errors import UsageError
from privopt.interfaces import Result, UtilityLoss
from privopt.interfaces.reporting import Feature, Layer, Section
from privopt.report.charts import draw_losses as bars_beside_bound
from privopt.report.map_files import point_features
from privopt.report.page import drawing, figure_section, pair_section, table
from privopt_metric_dp.attacks.many_reports import describe_attack, over_time
from privopt_metric_dp.attacks.meaning import noun_of
from privopt_metric_dp.matrix.expected_loss import costs_of
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.report import figures
from privopt_metric_dp.report.explorer import (
    ODDS,
    ExplorerData,
    cell_around,
    explorer_section,
    hidden_among,
    lines_between,
)
from privopt_metric_dp.report.word_figures import word_section
from privopt_metric_dp.solvers.exponential import exponential_loss
from privopt_metric_dp.space.places import Space

__all__ = [
    "compare_losses",
    "meaning_section",
    "metric_figures",
    "metric_layer",
    "metric_sections",
    "space_features",
    "trajectory_of",
]


MOST_ATTACKED: Final = 4_000_000
"""The maximum number of matrix entries for which a report shows attacks that combine many reports about one place."""

_SECRET: Final = {
    "geographic": "--lat LAT --lon LON",
    "planar": "--x X --y Y",
    "vector": "--text TEXT --unknown mask",
    "plain": "--id ID",
}
"""The options of ``privopt apply`` that name the columns with secrets, by kind of record."""

_MANY = (
    "New reports of one {noun} add up. An attacker who knows the table of probabilities guesses the likeliest {noun}. "
    "Fresh: each report is drawn anew. Sticky: the first one is sent again, which reveals no more."
)
_ATTACKED = " The attack was tried {count:,} times, on {noun}s drawn by how common they are (the prior)."


def trajectory_of(result: Result) -> list[Any]:
    """Return the trajectory of a search from its result, as rows of seconds, lower bound and loss.

    Rows that contain neither a bound nor a loss are dropped. Malformed rows are dropped too, because the field
    ``details.told.trajectory`` of result.json is not verified.
    """
    rounds = result.details.told.get("trajectory")
    rows = [row for row in rounds if isinstance(row, list) and len(row) == 3] if isinstance(rounds, list) else []
    return [row for row in rows if any(isinstance(value, (int, float)) for value in row[1:])]


def compare_losses(data: MetricData | None, result: Result) -> list[tuple[str, float, str]]:
    """Return the loss of a release and, if costs are known, the losses of mechanisms that do not need a solver.

    Args:
        data: The problem's data, whose costs define the loss, or None if the loss is not an expected cost.
        result: The result, which contains the name of the mechanism and the loss of the release.

    Returns:
        The name, the loss and a remark for each mechanism.
    """
    rows = [(f"this release ({result.mechanism})", float(result.objective.value), "")]
    if data is None:
        return rows
    # The exponential mechanism is skipped on a page about itself, which shows its loss already, and for a large matrix,
    # because it would take too long.
    skipped = data.cost.size > 4_000_000 or result.mechanism == "exponential"
    exponential_value = None if skipped else exponential_loss(data)
    if exponential_value is not None:
        remark = "a usual method: probabilities proportional to exp(-epsilon d / 2)"
        rows.append(("exponential mechanism", exponential_value, remark))
    # The expected loss of releasing the same output for every record, for the best such output.
    best = float((data.prior @ data.cost).min())
    rows.append(("one output for all", best, "the same report for everybody, which reveals nothing"))
    return rows


def metric_figures(
    release: MatrixRelease,
    data: MetricData,
    result: Result,
    loss: UtilityLoss[MatrixRelease],
    *,
    attacked: Mapping[str, Any] | None = None,
) -> dict[str, Figure]:
    """Draw the figures for a report and return them, keyed by file name.

    Figures for which data are missing are omitted.

    Args:
        release: The release.
        data: The data of the problem.
        result: The result, which contains the lower bound and the trajectory of the search.
        loss: The loss that the mechanism minimises.
        attacked: The result of :func:`attack_reports`. If None, it is computed.
    """
    # If the guarantee covers a region, the release stores no pairs, so the region's edges serve as pairs.
    release = release.along_edges(data)
    attacked = attacked or attack_reports(release, data)
    costed = costs_of(loss, data)
    losses = [(name, value) for name, value, _ in compare_losses(costed, result)]
    bound = result.objective.lower_bound
    drawings = {} if costed is None else {"loss-map": figures.loss_map(release, costed)}
    drawings |= {
        "privacy-map": figures.privacy_map(release, data),
        "privacy-spent": figures.spent_by_distance(release, data),
        "release-from-one-record": figures.spread_from(release, data, str(release.records[len(release.records) // 2])),
        "loss-beside-baselines": bars_beside_bound(losses, f"average loss ({loss.unit})", bound),
    }
    if attacked is not None:
        drawings["over-time"] = figures.over_time(attacked, noun_of(data.records))
    trajectory = trajectory_of(result)
    if len(trajectory) > 1:
        drawings["convergence"] = figures.convergence(trajectory, f"loss ({loss.unit})")
    return drawings


def attack_reports(release: MatrixRelease, data: MetricData) -> dict[str, Any] | None:
    """Simulate attacks that combine many reports about one place, and return their results.

    Returns None if the matrix is too large, or if the release does not have exactly one row per record.
    """
    return over_time(release, data) if release.weights.size <= MOST_ATTACKED else None


def metric_sections(
    release: MatrixRelease, data: MetricData, result: Result, loss: UtilityLoss[MatrixRelease]
) -> list[Section]:
    """Return the sections of a release's report: map, losses, worst pairs, attacks and convergence.

    Args:
        release: The release.
        data: The data of the problem.
        result: The result, which contains the lower bound and the trajectory of the search.
        loss: The loss that the mechanism minimises.
    """
    release = release.along_edges(data)
    attacked = attack_reports(release, data)
    drawings, noun = metric_figures(release, data, result, loss, attacked=attacked), noun_of(data.records)
    sections = []
    explorer_data = _explorer_data(release, data, loss, result)
    lead = (
        f"Choose a {noun}, by its name, by the list or by a click on the map, to see where its reports "
        "fall, and for which others it could be mistaken."
    )
    explored = explorer_section(explorer_data, lead)
    # If the matrix is too large for an interactive map, a figure for one record is shown instead.
    if explored is not None:
        sections.append(explored)
    else:
        lead = f"One of {len(release.records):,} records; too many for a map to explore."
        sections.append(figure_section("Where a report falls", drawings["release-from-one-record"], lead))
    if data.records.kind == "vector":
        sections.append(word_section(release, data))
    sections.append(_show_comparison(costs_of(loss, data), result, loss.unit, drawings["loss-beside-baselines"]))
    sections.append(_maps_section(drawings, noun))
    # If there is only one record, or all records share a place, there is no pair for an attacker to tell apart.
    if (release.distances > 0).any():
        sections.append(_pairs_section(release, data, drawings["privacy-spent"]))
    lead, html = _MANY.format(noun=noun), ""
    text = f"The matrix has more than {MOST_ATTACKED:,} entries: privopt audit DIR --over-time attacks it."
    if attacked is not None:
        lead += _ATTACKED.format(count=attacked["places"], noun=noun)
        text, html = describe_attack(attacked, noun), drawing(f"Reports of one {noun}", drawings["over-time"])
    sections.append(Section(title="What many reports reveal", lead=lead, paragraphs=[text], html=html))
    if "convergence" in drawings:
        lead = f"While it was solved: {_covered_mechanisms(result)} can be below the lower line."
        sections.append(figure_section("Convergence of the bounds", drawings["convergence"], lead, for_experts=True))
    return sections


def _covered_mechanisms(result: Result) -> str:
    """Return a phrase describing the mechanisms to which a lower bound applies, such as "no mechanism with ...".

    For a problem over a region, bounds apply only to mechanisms that satisfy the constraints along the region's edges
    (docs/guide/everywhere.md).
    """
    if result.guarantee.scope == "everywhere":
        return "no mechanism whose rows satisfy the factor 1 + a along every edge of these streets or triangles"
    return "no mechanism with this guarantee and these outputs"


def meaning_section(sentences: Sequence[str], records: Space, result: Result, relation: str = "") -> Section:
    """Return a section that explains the guarantee and suggests commands for protecting a table.

    Args:
        sentences: The sentences that explain the guarantee.
        records: The records, whose kind determines the suggested commands.
        result: The result. If it has a mark such as "seeded, not private", no commands are suggested.
        relation: The unit of epsilon and the kind of distance, such as "per km by road". By default, only the unit is
            shown.
    """
    epsilon, unit = result.guarantee.epsilon, relation or result.guarantee.unit
    amount = "the guarantee" if epsilon is None else f"epsilon {format_digits(float(epsilon))} {unit}".strip()
    title, lead = "What the promise means", f"What {amount} means here:"
    if result.mark:
        return Section(title=title, lead=lead, paragraphs=sentences)
    command = f"privopt apply DIR TABLE.csv {_SECRET[records.kind]} --out PROTECTED.csv"
    return Section(
        title=title,
        lead=lead,
        paragraphs=[
            *sentences,
            "This page describes the mechanism; it has not seen your data. To protect a table, run these commands with "
            "this page's folder for DIR and your own names for the other words in capitals. The ledger counts the "
            "epsilon that each person has used, and budget shows it.",
        ],
        commands=f"{command} --ledger LEDGER --subject SUBJECT\nprivopt budget LEDGER",
    )


def _maps_section(figures: Mapping[str, Figure], noun: str) -> Section:
    """Return a section with a map of the fraction of epsilon used by each record and, if known, a map of the loss.

    Args:
        figures: The figures of the report, keyed by name. "loss-map" is missing if the loss is not an expected cost.
        noun: The word for a record.
    """
    spent = (
        f"the share of the allowed epsilon that each {noun} uses; the certificate proves that none uses more than 1."
    )
    drawings = [
        drawing(
            "Epsilon used over the map",
            figures["privacy-map"],
            f"The largest share of each {noun}, over the others that it must be hard to tell from.",
        )
    ]
    if "loss-map" not in figures:
        return pair_section("Privacy over the map", drawings, f"It shows {spent}")
    drawings.insert(0, drawing("Loss over the map", figures["loss-map"], f"Average loss of each {noun}."))
    lead = f"The first map shows the average loss of the people whose {noun} it is. The second shows {spent}"
    return pair_section("Loss and privacy over the map", drawings, lead)


def space_features(space: Space, columns: Mapping[str, Any]) -> list[Feature]:
    """Return a map feature (a point with properties) for each place in a space.

    Args:
        space: The records or outputs.
        columns: The properties, keyed by name, each with one value per place.

    Raises:
        UsageError: The space has no coordinates on a map.
    """
    if space.on_map is None:
        raise UsageError(f"--geo: {space.source} has no coordinates on a map, only {space.kind} ones")
    return point_features(space.ids, space.on_map, columns, geographic=space.kind == "geographic")


def metric_layer(release: MatrixRelease, data: MetricData, loss: UtilityLoss[MatrixRelease]) -> Layer | None:
    """Return a map layer that shows the loss of each record and the frequency of each output.

    Args:
        release: The release.
        data: The data of the problem.
        loss: The loss that the mechanism minimises.

    Returns:
        The layer, or None if the records have no coordinates on a map.
    """
    if data.records.kind not in ("geographic", "planar"):
        return None
    release = release.along_edges(data)
    costed, z = costs_of(loss, data), release.probabilities
    likeliest = z.argmax(axis=1)
    # The probability of each output under the prior.
    frequencies = data.prior @ z
    has_own_outputs = data.outputs is data.records
    records = space_features(
        data.records,
        {
            "kind": ["record"] * len(data.records),
            "prior": data.prior,
            "expected_loss": [None] * len(data.records) if costed is None else figures.loss_of_records(release, costed),
            "share_of_epsilon": figures.spent_of_records(release, float(data.epsilon)),
            "likeliest_output": release.outputs[likeliest],
            "its_probability": z.max(axis=1),
            "released": frequencies if has_own_outputs else [None] * len(data.records),
        },
    )
    if has_own_outputs:
        return Layer(kind=data.records.kind, features=records, unit=data.records.unit)
    # All features in a layer must have the same columns.
    empty = [None] * len(data.outputs)
    names = ("prior", "expected_loss", "share_of_epsilon", "likeliest_output", "its_probability")
    empty_columns: dict[str, Any] = {"kind": ["output"] * len(data.outputs)} | dict.fromkeys(names, empty)
    outputs = space_features(data.outputs, empty_columns | {"released": frequencies})
    return Layer(kind=data.records.kind, features=[*records, *outputs], unit=data.records.unit)


def _pairs_section(release: MatrixRelease, data: MetricData, spent: Figure) -> Section:
    """Return a section about how well an attacker can tell the two records of a pair apart.

    It contains a figure of all pairs and a table of the pairs whose records are easiest to distinguish.

    Args:
        release: The release. If the guarantee covers a region, its pairs are the region's edges.
        data: The data of the problem.
        spent: The figure that plots the log ratio of each pair against its distance.
    """
    noun = noun_of(data.records)
    header = (noun, noun, f"distance ({data.unit})", "advantage", "most allowed")
    lead = (
        f"Every dot is a pair of {noun}s that must be hard to tell apart; none lies above the line of what is allowed. "
        "The table has the pairs that reports tell apart best for their distance. An attacker must say which of the "
        "two it was. Advantage 0: right half of the time, as by chance; 0.3: 65 times in 100; 1: always. The last "
        "column is the largest advantage that the guarantee allows at that distance."
    )
    worst = table("Pairs distinguished best for their distance", header, _worst_pairs(release, data))
    return pair_section("Worst pairs", [drawing("Privacy spent by distance", spent), worst], lead)


def _worst_pairs(release: MatrixRelease, data: MetricData) -> list[tuple[Any, ...]]:
    """Return the pairs of records that are easiest to distinguish relative to their distance, at most ten.

    Pairs are ranked by the total variation distance between the output distributions of their two records, divided by
    the distance between the records. An attacker who must decide between two equally likely records is right with
    probability (1 + total variation) / 2.

    Returns:
        The labels of each pair's two records, their distance, their total variation, and the largest total variation
        allowed by the guarantee.
    """
    z = release.probabilities
    positive_pairs = np.flatnonzero(release.distances > 0)
    # In a large problem, only every n-th pair is examined, because all of them would take too long for a table of ten.
    selected = positive_pairs[:: max(1, positive_pairs.size // 20_000)]
    i, j = release.pairs[selected].T
    # Pairs are processed in blocks of 512 to limit memory use. If there are no pairs, the result is empty.
    variation = np.concatenate(
        [np.abs(z[i[s : s + 512]] - z[j[s : s + 512]]).sum(axis=1) / 2 for s in range(0, len(selected), 512)]
        or [np.zeros(0)]
    )
    # All distances here are positive. 1e-300 only prevents an overflow.
    order = np.argsort(-variation / np.maximum(release.distances[selected], 1e-300))[:10]
    return [
        (
            data.records.label(int(i[n])),
            data.records.label(int(j[n])),
            float(release.distances[selected[n]]),
            float(variation[n]),
            # If the odds between two distributions are at most exp(x), their total variation is at most tanh(x / 2).
            float(math.tanh(float(data.epsilon) * release.distances[selected[n]] / 2)),
        )
        for n in order.tolist()
    ]


def _show_comparison(data: MetricData | None, result: Result, unit: str, chart: Figure) -> Section:
    """Return a section that compares the loss with the lower bound and with mechanisms that do not need a solver.

    Args:
        data: The problem's data, whose costs define the loss, or None if the loss is not an expected cost.
        result: The result.
        unit: The unit of the loss.
        chart: The figure that shows the losses.
    """
    rows = compare_losses(data, result)
    if result.objective.lower_bound is not None:
        bound = float(result.objective.lower_bound)
        rows.insert(1, ("proved bound", bound, f"{_covered_mechanisms(result)} is below"))
    # The cost of a kilometre in another unit, such as minutes, applies only to losses in km.
    price = None if data is None or unit != "km" else data.per_km
    header = ["mechanism", f"loss ({unit})", *([] if price is None else [f"loss ({price.unit})"]), "remark"]
    cells = [[name, value, *([] if price is None else [price.cost * value]), remark] for name, value, remark in rows]
    losses_table = table("Losses", header, cells)
    figure = drawing("How large the loss is", chart)
    lead = (
        "The loss of an average report, if people are where the problem file says (the prior). A shorter bar is better."
    )
    return Section(title="How large the loss is", lead=lead, html=figure + losses_table)


def _explorer_data(
    release: MatrixRelease, data: MetricData, loss: UtilityLoss[MatrixRelease], result: Result
) -> ExplorerData:
    """Return the content of a release's interactive map.

    Args:
        release: The release. If the guarantee covers a region, its pairs are the region's edges.
        data: The data of the problem.
        loss: The loss that the mechanism minimises.
        result: The result, which contains the guarantee.
    """
    spaces = [data.records] if data.outputs is data.records else [data.records, data.outputs]
    placed = figures.layout(*spaces)  # the last one is the outputs' layout, whether they are the records or not
    lost, spent, people = "average loss", "epsilon used", "people here"
    costed = costs_of(loss, data)
    facts, unit = {}, {}
    if costed is not None:
        facts[lost], unit[lost] = figures.loss_of_records(release, costed), loss.unit
        if data.per_km is not None and loss.unit == "km":
            facts["that is"], unit["that is"] = data.per_km.cost * facts[lost], data.per_km.unit
    return ExplorerData(
        rows=release.records.tolist(),
        outputs=release.outputs.tolist(),
        probabilities=release.probabilities,
        places=placed[0].places,
        output_places=placed[-1].places,
        # A map with a scale bar need not say where its axes begin.
        axes=("east", "north") if data.records.kind == "geographic" else placed[0].axes,
        scale=placed[0].unit,
        facts=facts
        | {
            spent: 100.0 * figures.spent_of_records(release, float(data.epsilon)),
            people: 100.0 * data.prior,
        },
        unit=unit | {spent: "% of what is allowed", people: "% of all"},
        streets=lines_between(data),
        noun=noun_of(data.records),
        descriptions=[data.records.description(index) for index in range(len(data.records))],
        output_descriptions=[data.outputs.description(index) for index in range(len(data.outputs))],
        cell=cell_around(placed[-1].places) if placed[0].unit and data.region is None else None,
        prior=data.prior,
        hidden=lambda: hidden_among(release, result, ODDS),
    )
