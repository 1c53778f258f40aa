"""The frame of every report: claim, certificate, loss, body, provenance. Works offline, prints, light and dark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from html import escape
from importlib.resources import files
from shlex import quote
from typing import Any, Final

import attrs

from privopt.arrays import Figure
from privopt.declare.notebook import shown
from privopt.declare.schema import ProblemHeading
from privopt.interfaces import Result
from privopt.interfaces.claims import SQUARED
from privopt.interfaces.reporting import Section
from privopt.registry import registry
from privopt.report.promise_text import claim, limits
from privopt.report.theme import svg

__all__ = [
    "document",
    "drawing",
    "figure_section",
    "page",
    "pair_section",
    "script_json",
    "shown",
    "table",
    "table_section",
]


RATIONAL: Final = re.compile(r"-?\d+/0*[1-9]\d*", re.ASCII)


def document(title: str, body: str) -> str:
    """Return one HTML document in the report's style, without anything from outside; ``body`` is ready markup."""
    style = files(__package__).joinpath("report.css").read_text("utf-8")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{style}</style></head><body>{body}</body></html>\n"
    )


def script_json(value: object) -> str:
    """Return JSON for a ``<script>``, with ``<``, ``>``, ``&`` and line separators escaped.

    No value can then end the script or begin a comment in it.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda sign: f"\\u{ord(sign.group()):04x}", text)


def figure_section(title: str, figure: Figure, lead: str = "") -> Section:
    """Return a section that shows one figure."""
    return Section(title=title, lead=lead, html=drawing(title, figure))


def drawing(title: str, figure: Figure, caption: str = "") -> str:
    """Return the markup of one figure; ``title`` is what a screen reader calls it."""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure tabindex="0">{svg(figure, title)}{below}</figure>'


def pair_section(title: str, drawings: Sequence[str], lead: str = "") -> Section:
    """Return a section that shows figures side by side on a wide screen; see :func:`drawing`."""
    return Section(title=title, lead=lead, html=f'<div class="pair">{"".join(drawings)}</div>')


def table_section(title: str, header: Sequence[str], rows: Iterable[Sequence[Any]], lead: str = "") -> Section:
    """Return a section that shows one table."""
    return Section(title=title, lead=lead, html=table(title, header, rows))


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return the markup of one table, which scrolls if it is too large; ``title`` is what a screen reader calls it."""
    kept = [tuple(row) for row in rows]
    numeric = [bool(kept) and all(_number(row[place]) for row in kept) for place in range(len(header))]
    head = "".join(
        f'<th scope="col"{" class=n" if right else ""}>{escape(name)}</th>'
        for name, right in zip(header, numeric, strict=True)
    )
    body = "".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in kept)
    html = f'<div class="scroll" tabindex="0" role="region" aria-label="Table: {escape(title, quote=True)}">'
    return html + f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    return f"<td{' class=n' if _number(value) else ''}>{shown(value, 4)}</td>"


def _facts(caption: str, rows: Mapping[str, Any]) -> str:
    known = {name: value for name, value in rows.items() if value is not None}
    body = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{value}</td></tr>' for name, value in known.items())
    return f"<table><caption>{escape(caption)}</caption><tbody>{body}</tbody></table>"


def _verdict(result: Result) -> str:
    certificate = result.certificate
    if result.mark:
        return f'<span class="badge bad">{result.mark}</span>'
    if certificate.evidence == "declared":
        return '<span class="badge">checked, but for its maker\'s word that noise was drawn</span>'
    return '<span class="badge good">proved on the release</span>'


def _decimals(value: object) -> object:
    """Rationals as text, with the decimals that they are near to."""
    if isinstance(value, (list, tuple)):
        return [_decimals(inner) for inner in value]
    if isinstance(value, str) and RATIONAL.fullmatch(value):
        above, below = map(Decimal, value.split("/"))
        return f"{value} ({above / below:.6g})"
    return value


def _certificate(result: Result) -> Section:
    certificate, guarantee = result.certificate, result.guarantee
    epsilon = "none" if guarantee.epsilon is None else f"{shown(float(guarantee.epsilon))} {shown(guarantee.unit)}"
    rows = {
        "kind": shown(guarantee.kind),
        "epsilon": epsilon,
        "scope": shown(guarantee.scope or "see the statement above"),
        "holds": shown(certificate.holds),
        "evidence": shown(certificate.evidence),
        "worst found": shown(certificate.worst),
        "allowed": shown(certificate.allowed),
        "conditions checked": shown(certificate.checked),
        "arithmetic": shown(certificate.arithmetic),
    }
    notes = {"rests_on": certificate.rests_on, **certificate.notes}
    rows |= {name.replace("_", " "): shown(_decimals(value)) for name, value in notes.items() if value != ""}
    checked, unchecked = (
        "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>" for lines in limits(result)
    )
    lists = {"Checked": checked, "Not checked, not covered": unchecked}
    pair = "".join(f"<div><h3>{title}</h3>{lines}</div>" for title, lines in lists.items())
    html = f'<div class="pair">{pair}</div>'
    lead = "What was checked, in exact arithmetic, after everything was rounded."
    return Section(title="Certificate", lead=lead, html=html + _facts("as measured", rows))


def _about(result: Result, summary: str) -> str:
    """Return what the mechanism does, and the units of the report's numbers."""
    units = [f"{result.objective.unit_in_words} ({result.objective.measured})"]
    if result.guarantee.epsilon is not None and result.guarantee.unit:
        units.append(f"{result.guarantee.unit} (epsilon)")
    sentence = f"{summary[:1].upper()}{summary[1:]}. " if summary else ""
    return f'<p class="soft">{escape(sentence)}Units: {escape(", ".join(units))}.</p>'


def _tiles(result: Result, in_readers_unit: Callable[[float], str]) -> str:
    """Return the report's main figures as tiles, losses first in the reader's unit where there is one."""
    objective, guarantee, certificate = result.objective, result.guarantee, result.certificate
    unit = f" <small>{shown(objective.unit_in_words)}</small>"

    def measured(value: float) -> str:
        plain, told = shown(value, 6) + unit, in_readers_unit(value)
        return f"{escape(told)} <small>= {plain}</small>" if told else plain

    tiles = {}
    if guarantee.epsilon is not None:
        tiles["epsilon"] = f"{shown(float(guarantee.epsilon), 6)} <small>{shown(guarantee.unit)}</small>"
    bent = objective.unit.endswith(SQUARED)
    tiles[objective.measured] = measured(objective.value)
    if objective.lower_bound is not None and not bent:
        over = " <small>over the outputs chosen</small>" if objective.bound_over == "chosen" else ""
        tiles["proved bound"] = measured(objective.lower_bound) + over
        tiles["gap"] = shown(objective.gap, 2)
    elif not bent:
        tiles["proved bound"] = "none"
    tiles["checked"] = f"{shown(certificate.checked)} <small>conditions</small>"
    tiles["time"] = f"{result.time.total:.2f} <small>seconds</small>"
    body = "".join(f"<div><dt>{escape(label)}</dt><dd>{value}</dd></div>" for label, value in tiles.items())
    return f'<dl class="tiles">{body}</dl>'


def _provenance(result: Result, absent: Sequence[str]) -> Section:
    asked = result.asked
    jobs = result.details.told.get("jobs")  # anything may be there
    options = [
        ("jobs", jobs if type(jobs) is int and jobs > 0 else None),
        ("time-limit", asked.time_limit),
        ("memory", asked.memory),
        ("seed", result.seed),
    ]
    given = "".join(f" --{name} {value!r}" for name, value in options if value is not None)
    made = registry().get(result.mechanism)
    unsafe = " --allow-unsafe" if made.spec.asks(made.method(result.method)) else ""
    command = (
        f"privopt solve {result.mechanism} {quote('problem/' + result.problem.file)} --method {result.method} "
        f"--solver {quote(asked.solver)} --gap {asked.gap!r}{given}{unsafe} --out again\nprivopt verify ."
    )
    versions = result.solver.get("versions")
    made_with = ", ".join(f"{shown(k)} {shown(v)}" for k, v in versions.items()) if isinstance(versions, dict) else None
    rows = {
        "privopt": shown(result.privopt),
        "plugin": f"{shown(result.plugin.name)} {shown(result.plugin.version)}",
        "method": shown(result.method),
        "status": shown(result.status_in_words),
        "solver": ", ".join(
            f"{shown(k)}: {shown(v)}" for k, v in result.solver.items() if not isinstance(v, (dict, list))
        ),
        "made with": made_with,
        "problem": f"{shown(result.problem.file)}, SHA-256 {shown(result.problem.sha256)}",
        "seed": "none: noise, where there is any, from the operating system"
        if result.seed is None
        else shown(result.seed),
        "seconds": ", ".join(f"{shown(k)} {v:.2f}" for k, v in attrs.asdict(result.time).items())
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
    summary: str = "",
    heading: ProblemHeading,
    truth: bool = False,
    absent: Sequence[str] = (),
    warnings: Sequence[str] = (),
    in_readers_unit: Callable[[float], str] = lambda value: "",
) -> str:
    """Return the whole report as one HTML document.

    Args:
        result: result.json.
        body: the mechanism's sections.
        summary: what the mechanism does, a clause.
        heading: title and purpose of the problem; without a title the mechanism's name is the heading.
        truth: whether they compare with the secrets.
        absent: names of secret files that are in ``private/`` alone.
        warnings: what anyone who uses the release must know, a sentence each.
        in_readers_unit: says a loss in the unit that the problem names for its readers; empty without one.
    """
    made_by = f"{result.mechanism}: {result.problem.file}"
    title = heading.title or made_by
    told = [] if heading.purpose is None else [f"<p>{escape(heading.purpose)}</p>"]
    told += [] if heading.title is None else [f'<p class="soft">{escape(made_by)}</p>']
    parts = []
    for number, section in enumerate([*body, _certificate(result), _provenance(result, absent)]):
        lead = f"<p>{escape(section.lead)}</p>" if section.lead else ""
        parts.append(
            f'<section aria-labelledby="s{number}"><h2 id="s{number}">{escape(section.title)}</h2>'
            f"{lead}{section.html}</section>"
        )
    note = '<p class="bad">This page compares with the secrets: keep it in private/.</p>' if truth else ""
    note += "".join(f'<p class="bad">Warning: {escape(line)}</p>' for line in warnings)
    statement = escape(result.guarantee.statement or "No statement.")
    return document(
        title,
        '<a class="skip" href="#content">Skip to the content</a>'
        f"<header><h1>{escape(title)} {_verdict(result)}</h1>{''.join(told)}{_about(result, summary)}{note}"
        f'<p class="claim">{escape(claim(result))}</p>'
        f'<p class="soft"><strong>In full.</strong> {statement}</p>{_tiles(result, in_readers_unit)}</header>'
        f'<main id="content" tabindex="-1">{"".join(parts)}</main>'
        '<footer class="soft"><p>Made by privopt from the files in its folder; no network needed.</p></footer>',
    )
