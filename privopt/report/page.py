"""The frame of every report: promise, certificate, main figures, the mechanism's sections, and provenance.

A page is one HTML file without external resources, so it works offline and no server learns who reads it. All texts
that come from files are escaped in this module.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from html import escape, unescape
from importlib.resources import files
from shlex import quote
from typing import Any, Final

import attrs

from privopt.arrays import Figure
from privopt.declare.notebook import format_digits, format_value
from privopt.declare.schema import ProblemHeading
from privopt.interfaces import Result
from privopt.interfaces.reporting import Section
from privopt.interfaces.result import SQUARED
from privopt.registry import registry
from privopt.report.promise_text import claim, exposed_to, limits, trust
from privopt.report.theme import make_narrow, svg

__all__ = [
    "document",
    "drawing",
    "figure_section",
    "format_value",
    "page",
    "pair_section",
    "script_json",
    "table",
    "table_section",
]


MAX_WHOLE_TABLE: Final = 100
"""Largest number of rows of a table that is shown whole."""

FIRST_ROWS: Final = 50
"""Number of rows that are shown of a longer one."""

RATIONAL: Final = re.compile(r"-?\d+/0*[1-9]\d*", re.ASCII)
"""A quotient in a certificate's notes; a denominator of 0 does not match."""


def document(title: str, body: str) -> str:
    """Return one HTML document in the report's style, without external resources.

    Args:
        title: The title, as plain text.
        body: The markup of the body, in which texts are already escaped.
    """
    # The empty icon keeps browsers from asking a server for favicon.ico.
    style = files(__package__).joinpath("report.css").read_text("utf-8")
    if '<div class="long">' in body:
        body += f"<script>{files(__package__).joinpath('search_rows.js').read_text('utf-8')}</script>"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{style}</style></head><body>{body}</body></html>\n"
    )


def script_json(value: object) -> str:
    """Return JSON for a ``<script>``, with ``<``, ``>``, ``&`` and line separators escaped.

    With these escapes no value can end the script or begin a comment in it.

    Raises:
        ValueError: A number is not finite.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda sign: f"\\u{ord(sign.group()):04x}", text)


def figure_section(title: str, figure: Figure, lead: str = "", *, narrow: Figure | None = None) -> Section:
    """Return a section that shows one figure; see :func:`drawing`."""
    return Section(title=title, lead=lead, html=drawing(title, figure, narrow=narrow))


def drawing(title: str, figure: Figure, caption: str = "", *, narrow: Figure | None = None) -> str:
    """Return the markup of one figure, with a drawing for wide pages and another for telephones.

    Args:
        title: What a screen reader calls it.
        figure: The figure, which :func:`make_narrow` changes unless ``narrow`` is given.
        caption: A sentence below the figure.
        narrow: The figure for telephones, if it cannot be derived from ``figure``.
    """
    figcaption = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    wide_svg = svg(figure, title)
    return f"<figure>{wide_svg}{svg(narrow or make_narrow(figure), title, name='narrow')}{figcaption}</figure>"


def pair_section(title: str, drawings: Sequence[str], lead: str = "") -> Section:
    """Return a section that shows figures, the results of :func:`drawing`, side by side on a wide screen."""
    return Section(title=title, lead=lead, html=f'<div class="pair">{"".join(drawings)}</div>')


def table_section(
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    lead: str = "",
    *,
    total: int | None = None,
    file: str = "",
) -> Section:
    """Return a section that shows one table; see :func:`table`."""
    return Section(title=title, lead=lead, html=table(title, header, rows, total=total, file=file))


def table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[Any]], *, total: int | None = None, file: str = ""
) -> str:
    """Return the markup of one table, with all rows up to a hundred, otherwise the first fifty.

    A table that does not show all rows says so, with a link to the rows as CSV, which the page contains, and a box that
    searches all rows. On narrow screens the rows of a wide table become lists.

    Args:
        title: What a screen reader calls it.
        header: Names of the columns.
        rows: The rows.
        total: The total number of rows, if ``rows`` are only the first; by default the length of ``rows``.
        file: Name of the file in the release folder that has all rows; empty if there is no such file.
    """
    cell_rows = [tuple(row) for row in rows]
    is_long = len(cell_rows) > MAX_WHOLE_TABLE
    shown_rows = cell_rows[:FIRST_ROWS] if is_long else cell_rows
    numeric = [bool(cell_rows) and all(_number(row[column]) for row in cell_rows) for column in range(len(header))]
    head = "".join(
        f'<th scope="col"{" class=n" if right else ""}>{escape(name)}</th>'
        for name, right in zip(header, numeric, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(_cell(value, name) for value, name in zip(row, header, strict=True)) + "</tr>"
        for row in shown_rows
    )
    name = escape(title, quote=True)
    width_class = _width_class(header, shown_rows)
    table_html = f'<table class="{width_class}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
    # A scrolling region must be reachable by keyboard and have a name (axe-core: scrollable-region-focusable).
    html = f'<div class="scroll" tabindex="0" role="region" aria-label="Table: {name}">{table_html}</table></div>'
    total = max(total or 0, len(cell_rows))
    if not is_long and total == len(cell_rows):
        return html
    return f'<div class="long">{_describe_rows(title, header, cell_rows, len(shown_rows), total, file)}{html}</div>'


def _width_class(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return the CSS class by which report.css turns rows into lists where the table would be wider than the screen."""
    # Cells are as wide as their longest word at least, and a gap of two characters follows each.
    widths = [
        2 + max(len(word) for value in (name, *(row[column] for row in rows)) for word in (*_words(value), ""))
        for column, name in enumerate(header)
    ]
    # 390 pixels have room for some 44 characters, 768 for 80.
    return "lists many" if sum(widths) > 80 else "lists" if sum(widths) > 44 else ""


def _words(value: Any) -> list[str]:
    # A position such as 45.0085° N is read as one word. Long paths break anywhere.
    return [word[:24] for word in unescape(format_value(value, 4)).replace("\u00b0 ", "\u00b0").split()]


def _describe_rows(
    title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], shown: int, total: int, file: str
) -> str:
    """Return the line above a table that does not show all rows: the number of rows, a CSV of all, and a search box."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([header, *rows])
    data = base64.b64encode(stream.getvalue().encode()).decode()
    name = re.sub(r"\W+", "-", title.lower()).strip("-")
    rest = "" if total == len(rows) else f" The search and the CSV have the first {len(rows):,}."
    rest += f" {escape(file)} has all." if file else ""
    return (
        f'<p class="rows"><strong role="status" data-total="{total}">{shown:,} of {total:,} rows</strong>'
        f'<span>{rest}</span> <a download="{name}.csv" href="data:text/csv;charset=utf-8;base64,{data}">'
        'Download the rows as CSV</a> <label class="noprint">Search <input type="search" autocomplete="off" '
        'spellcheck="false"></label></p>'
    )


def _number(value: Any) -> bool:
    """Return whether a value is a number, which tables align to the right."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)  # True is an int in Python


def _cell(value: Any, column: str) -> str:
    """Return the HTML of one cell of a table; numbers have four significant digits."""
    label = escape(column, quote=True)
    return f'<td data-label="{label}"{" class=n" if _number(value) else ""}>{format_value(value, 4)}</td>'


def _facts(caption: str, rows: Mapping[str, Any]) -> str:
    """Return the HTML of a table with two columns, the name and the value of each fact.

    Args:
        caption: The visible caption, as plain text.
        rows: Values by name. A value is markup; None omits the row.
    """
    # None stands for a fact that does not apply; the values are markup already.
    values_by_name = {name: value for name, value in rows.items() if value is not None}
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{value}</td></tr>' for name, value in values_by_name.items()
    )
    return f"<table><caption>{escape(caption)}</caption><tbody>{body}</tbody></table>"


def _verdict(result: Result) -> str:
    """Return the HTML of the badge next to the title: proved, checked except for declared noise, or not private."""
    certificate = result.certificate
    # First, because noise from a seed is not private whatever was proved.
    if result.mark:
        return f'<span class="badge bad">{result.mark}</span>'
    if certificate.evidence == "declared":
        return '<span class="badge">checked; noise vouched for by the publisher</span>'
    if exposed := exposed_to(result):
        return f'<span class="badge warm">proved, but not against {escape(exposed)}</span>'
    return '<span class="badge good">proved on the release</span>'


def _decimals(value: object) -> object:
    """Return a value in which each rational is followed by an approximate decimal, such as ``"1/3 (0.333333)"``.

    Lists are searched recursively; other values are returned unchanged.
    """
    if isinstance(value, (list, tuple)):
        return [_decimals(inner) for inner in value]
    if isinstance(value, str) and RATIONAL.fullmatch(value):
        numerator, denominator = map(Decimal, value.split("/"))
        return f"{value} ({numerator / denominator:.6g})"
    return value


def _certificate(result: Result) -> Section:
    """Return the section on the certificate: what was checked, what was not, and the certificate's figures."""
    certificate, guarantee = result.certificate, result.guarantee
    epsilon = (
        "none"
        if guarantee.epsilon is None
        else f"{format_value(float(guarantee.epsilon))} {format_value(guarantee.unit)}"
    )
    # Values of facts are markup; format_value escapes the texts of result.json, which may come from a tampered folder.
    rows = {
        "kind": format_value(guarantee.kind),
        "epsilon": epsilon,
        "scope": format_value(guarantee.scope or "see the statement above"),
        "holds": format_value(certificate.holds),
        "evidence": format_value(certificate.evidence),
        "worst found": format_value(certificate.worst),
        "allowed": format_value(certificate.allowed),
        "conditions checked": format_value(certificate.checked),
        "arithmetic": format_value(certificate.arithmetic),
    }
    # Further figures of the certificate, which depend on the notion, are shown under their keys.
    notes = {"rests_on": certificate.rests_on, **certificate.notes}
    rows |= {name.replace("_", " "): format_value(_decimals(value)) for name, value in notes.items() if value != ""}
    checked, unchecked = (
        "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>" for lines in limits(result)
    )
    lists = {"Checked": checked, "Not checked, not covered": unchecked}
    pair = "".join(f"<div><h3>{title}</h3>{lines}</div>" for title, lines in lists.items())
    html = f'<div class="pair">{pair}</div>'
    lead = "What was checked, in exact arithmetic, after everything was rounded."
    return Section(title="Certificate", lead=lead, html=html + _facts("as measured", rows))


def _render_section(section: Section, name: str, level: int = 2) -> str:
    """Return the markup of a section, with headings from the given level downwards."""
    lead = f"<p>{escape(section.lead)}</p>" if section.lead else ""
    html = section.html if level == 2 else section.html.replace("<h3>", "<h4>").replace("</h3>", "</h4>")
    # Screen readers list sections by their headings, which the ids connect.
    heading = f'<h{level} id="{name}">{escape(section.title)}</h{level}>'
    return f'<section aria-labelledby="{name}">{heading}{lead}{html}</section>'


def _guarantee_section(result: Result, in_readers_unit: Callable[[float], str], *, is_said: bool) -> Section:
    """Return the section on the guarantee: in one sentence, unless ``is_said``, then in full, and the main figures."""
    statement = escape(result.guarantee.statement or "No statement.")
    sentence = "" if is_said else f"<p>{escape(claim(result))}</p>"
    html = (
        f'{sentence}<p class="soft"><strong>In full.</strong> {statement}</p>'
        f"{_tiles(result, in_readers_unit)}{_about(result)}"
    )
    return Section(title="What is guaranteed", html=html)


def _about(result: Result) -> str:
    """Return a paragraph on what the mechanism does, and on the units of the report's numbers."""
    objective = result.objective
    # A sum of squares is no error that a reader could picture.
    is_fit = objective.unit.endswith(SQUARED)
    units = [] if is_fit else [f"{objective.unit_in_words} ({objective.measured_quantity})"]
    if result.guarantee.epsilon is not None and result.guarantee.unit:
        units.append(f"{result.guarantee.unit} (epsilon)")
    summary = registry().get(result.mechanism).spec.summary
    sentence = f"{summary[:1].upper()}{summary[1:]}. " if summary else ""
    unit_text = f"Units: {', '.join(units)}." if units else ""
    return f'<p class="soft">{escape(sentence + unit_text)}</p>'


def _tiles(result: Result, in_readers_unit: Callable[[float], str]) -> str:
    """Return the HTML of the report's main figures as tiles. Losses come first in the readers' unit, if any.

    Args:
        result: The content of result.json.
        in_readers_unit: Formats a loss in the unit that the problem names for its readers, such as minutes; returns an
            empty text without one.
    """
    objective, guarantee = result.objective, result.guarantee
    unit = f" <small>{format_value(objective.unit_in_words)}</small>"

    def format_loss(value: float) -> str:
        """Return the HTML of a loss, in the readers' unit if there is one, followed by the objective's own unit."""
        value_text, reader_text = format_digits(value) + unit, in_readers_unit(value)
        return f"{escape(reader_text)} <small>= {value_text}</small>" if reader_text else value_text

    # Tiles are shown in the order in which they are added.
    tiles = {}
    if guarantee.epsilon is not None:
        tiles["epsilon"] = f"{format_digits(float(guarantee.epsilon))} <small>{format_value(guarantee.unit)}</small>"
    # A fit to noisy values is no error, and is left to experts.
    is_fit = objective.unit.endswith(SQUARED)
    if not is_fit:
        tiles[objective.measured_quantity] = format_loss(objective.value)
    if objective.lower_bound is not None and not is_fit:
        scope_note = " <small>over the outputs chosen</small>" if objective.bound_over == "chosen" else ""
        tiles["least possible (proved)"] = format_loss(objective.lower_bound) + scope_note
    return _tile_list(tiles)


def _solver_section(result: Result) -> Section:
    """Return the section on the solver's results, with more digits and in the solver's own words."""
    objective, certificate = result.objective, result.certificate
    unit = f" <small>{format_value(objective.unit_in_words)}</small>"
    tiles = {objective.measured_quantity: format_value(objective.value, 6) + unit}
    # A fit to noisy values has no bound to show: that bounds the distance to the noise, not the errors.
    if not objective.unit.endswith(SQUARED):
        bound = "none" if objective.lower_bound is None else format_value(objective.lower_bound, 6) + unit
        tiles["proved bound"] = bound
        if objective.gap is not None:
            tiles["gap"] = format_value(objective.gap, 2)
    tiles["checked"] = f"{format_value(certificate.checked)} <small>conditions</small>"
    tiles["time"] = f"{result.time.total:.2f} <small>seconds</small>"
    return Section(title="What the solver reached", html=_tile_list(tiles))


def _tile_list(tiles: Mapping[str, str]) -> str:
    """Return the HTML of tiles, given the figures by name."""
    body = "".join(f"<div><dt>{escape(label)}</dt><dd>{value}</dd></div>" for label, value in tiles.items())
    return f'<dl class="tiles">{body}</dl>'


def _provenance(result: Result, absent: Sequence[str]) -> Section:
    """Return the section on how the release was made: versions, options, and the commands that repeat and check it.

    Args:
        result: The content of result.json.
        absent: Names of the secret files, without which only the owner can repeat the solve.
    """
    applied = result.asked
    # Details under ``told`` are not verified, so a tampered folder can have any JSON value here.
    jobs = result.details.told.get("jobs")
    options = [
        ("jobs", jobs if type(jobs) is int and jobs > 0 else None),
        ("time-limit", applied.time_limit),
        ("memory", applied.memory),
        ("seed", result.seed),
    ]
    option_text = "".join(f" --{name} {value!r}" for name, value in options if value is not None)
    # The command must run as printed: a method without a guarantee is refused without --allow-unsafe.
    entry = registry().get(result.mechanism)
    unsafe = " --allow-unsafe" if entry.spec.asks(entry.method(result.method)) else ""
    command = (
        f"privopt solve {result.mechanism} {quote('problem/' + result.problem.file)} --method {result.method} "
        f"--solver {quote(applied.solver)} --gap {applied.gap!r}{option_text}{unsafe} "
        "--out again\nprivopt verify ."
    )
    # ``solver`` is not verified either, so its members may have any type.
    versions = result.solver.get("versions")
    made_with = (
        ", ".join(f"{format_value(k)} {format_value(v)}" for k, v in versions.items())
        if isinstance(versions, dict)
        else None
    )
    rows = {
        "privopt": format_value(result.privopt),
        "plugin": f"{format_value(result.plugin.name)} {format_value(result.plugin.version)}",
        "method": format_value(result.method),
        "status": format_value(result.status_in_words),
        "solver": ", ".join(
            f"{format_value(k)}: {format_value(v)}" for k, v in result.solver.items() if not isinstance(v, (dict, list))
        ),
        "made with": made_with,
        "problem": f"{format_value(result.problem.file)}, SHA-256 {format_value(result.problem.sha256)}",
        "seed": "none: noise, where there is any, from the operating system"
        if result.seed is None
        else format_value(result.seed),
        "seconds": ", ".join(f"{format_value(k)} {v:.2f}" for k, v in attrs.asdict(result.time).items())
        + " (repair and verify run within solve too)",
    }
    owner = f" Its owner alone can solve again, with the secret {escape(', '.join(absent))}." if absent else ""
    html = (
        f"{_facts('where it came from', rows)}<h3>To reproduce and to check</h3>"
        f'<pre tabindex="0">{escape(command)}</pre>'
        f"<p>Run them in this folder.{owner}</p>"
    )
    return Section(title="Provenance", html=html)


def page(
    result: Result,
    body: Sequence[Section],
    *,
    headline: str = "",
    heading: ProblemHeading,
    truth: bool = False,
    absent: Sequence[str] = (),
    warnings: Sequence[str] = (),
    in_readers_unit: Callable[[float], str] = lambda value: "",
) -> str:
    """Return the whole report as one HTML document.

    Args:
        result: The content of result.json.
        body: The mechanism's sections.
        headline: A sentence on what was published, its error and an attacker's gain; by default the guarantee.
        heading: Title and purpose of the problem. Without a title the mechanism's name is the heading.
        truth: Whether sections compare the release with the secrets. The page then says that it must stay private.
        absent: Names of the secret files, which are only in ``private/``.
        warnings: Sentences that every user of the release should know.
        in_readers_unit: Formats a loss in the unit that the problem names for its readers; returns an empty text
            without one.
    """
    # Without a title of the problem, mechanism and file are the heading; with one they stand below it.
    made_by = f"{result.mechanism}: {result.problem.file}"
    title = heading.title or made_by
    purpose_lines = [] if heading.purpose is None else [f"<p>{escape(heading.purpose)}</p>"]
    purpose_lines += [] if heading.title is None else [f'<p class="soft">{escape(made_by)}</p>']
    for_readers = [section for section in body if not section.for_experts]
    for_experts = [section for section in body if section.for_experts]
    guarantee = _guarantee_section(result, in_readers_unit, is_said=not headline)
    experts = [_solver_section(result), *for_experts, _certificate(result), _provenance(result, absent)]
    sections = [*for_readers[:1], guarantee, *for_readers[1:]]
    parts = [_render_section(section, f"s{number}") for number, section in enumerate(sections)]
    expert_parts = "".join(_render_section(section, f"e{n}", level=3) for n, section in enumerate(experts))
    parts.append(f'<div class="experts"><h2 id="experts">For experts</h2>{expert_parts}</div>')
    note = '<p class="bad">This page compares with the secrets: keep it in private/.</p>' if truth else ""
    note += "".join(f'<p class="bad">Warning: {escape(line)}</p>' for line in warnings)
    return document(
        title,
        '<a class="skip" href="#content">Skip to the content</a>'
        f"<header><h1>{escape(title)}</h1>{''.join(purpose_lines)}"
        f'<p class="claim">{escape(headline or claim(result))}</p>'
        f"<p>{_verdict(result)} {'' if result.mark else escape(trust(result))}</p>{note}</header>"
        f'<main id="content" tabindex="-1">{"".join(parts)}</main>'
        '<footer class="soft"><p>Made by privopt from the files in its folder; no network needed.</p></footer>',
    )
