"""The frame of every report: claim, certificate, loss, body, provenance. Works offline, prints, light and dark."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Section", "figure_section", "page", "shown", "svg", "table_section"]


@frozen(kw_only=True)
class Section:
    """A part of a report's body.

    Attributes:
        title: heading.
        html: ready markup; everything in it that came from files must have been escaped.
        lead: one or two sentences that say what is to be seen, as plain text.
    """

    title: str
    html: str
    lead: str = ""


STYLE: Final = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--paper:#fff;--card:#f6f8fa;--line:#d0d7de;--mark:#0b5cad;
--good:#1a6d32;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa7b4;--paper:#0d1117;--card:#161b22;--line:#30363d;
--mark:#6cb6ff;--good:#57c46f;--bad:#ff8a80}}
*{box-sizing:border-box}body{font:16px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:0}
main,header,footer{max-width:62rem;margin:0 auto;padding:1rem 1.25rem}h1{font-size:1.6rem;margin:.6rem 0}
h2{font-size:1.2rem;margin:1.6rem 0 .4rem}p{max-width:48rem}.lead{font-size:1.1rem}
.badge{display:inline-block;padding:.15rem .6rem;border:1px solid currentColor;border-radius:1rem;font-weight:600}
.good{color:var(--good)}.bad{color:var(--bad)}.soft{color:var(--soft)}
section{border-top:1px solid var(--line);padding-bottom:.5rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);padding-bottom:.3rem}th,td{text-align:left;padding:.25rem .9rem .25rem 0;
border-bottom:1px solid var(--line);vertical-align:top}td.n{text-align:right}.scroll{overflow-x:auto}
figure{margin:.6rem 0;background:#fff;color:#1b1f24;border:1px solid var(--line);border-radius:.4rem;padding:.4rem;
overflow-x:auto}figure svg{max-width:100%;height:auto}figcaption{color:#57606a;font-size:.9rem}
code,pre{font-family:ui-monospace,monospace;font-size:.9rem}pre{background:var(--card);border:1px solid var(--line);
border-radius:.4rem;padding:.7rem;overflow-x:auto}a{color:var(--mark)}.skip{position:absolute;left:-999px}
.skip:focus{left:1rem;top:1rem;background:var(--paper);padding:.5rem}select,button{font:inherit;color:inherit;
background:var(--card);border:1px solid var(--line);border-radius:.4rem;padding:.3rem .5rem}
:focus-visible{outline:3px solid var(--mark);outline-offset:2px}.grid{display:flex;flex-wrap:wrap;gap:1.2rem}
@media print{body{background:#fff;color:#000}.noprint{display:none}section{break-inside:avoid}}
"""


def shown(value: Any) -> str:
    """A figure for people, escaped: nine digits, thousands parted, none where there is none."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.9g}"
    return escape(str(value))


def svg(figure: Figure, title: str) -> str:
    """A matplotlib figure as inline SVG that a screen reader can name."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    stream = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        FigureCanvasSVG(figure).print_svg(stream, metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    unique = re.sub(r"\W+", "-", title.lower())
    text = re.sub(r'(id="|url\(#|xlink:href="#)', lambda found: found.group(1) + unique + "-", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(title, quote=True)}"', 1)


def figure_section(title: str, figure: Figure, lead: str = "") -> Section:
    """A section that shows one figure."""
    return Section(title=title, lead=lead, html=f"<figure>{svg(figure, title)}</figure>")


def table_section(title: str, header: Sequence[str], rows: Iterable[Sequence[Any]], lead: str = "") -> Section:
    """A section that shows one table."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    body = "".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in rows)
    html = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title, quote=True)}">'
    html += f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    return Section(title=title, lead=lead, html=html)


def _cell(value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"<td{' class=n' if number else ''}>{shown(value)}</td>"


def _facts(caption: str, rows: Mapping[str, Any]) -> str:
    body = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{value}</td></tr>' for name, value in rows.items())
    return f"<table><caption>{escape(caption)}</caption><tbody>{body}</tbody></table>"


def _verdict(result: Mapping[str, Any]) -> str:
    certificate, guarantee = result["certificate"], result["guarantee"]
    if guarantee.get("seeded"):
        return '<span class="badge bad">seeded, not private</span>'
    if certificate["holds"] is None:
        return '<span class="badge bad">no privacy guarantee</span>'
    return '<span class="badge good">certified</span>'


def _certificate(result: Mapping[str, Any]) -> Section:
    certificate, guarantee = result["certificate"], result["guarantee"]
    epsilon = "none" if guarantee["epsilon"] is None else f"{shown(guarantee['epsilon'])} {shown(guarantee['unit'])}"
    rows = {
        "kind": shown(guarantee["kind"]),
        "epsilon": epsilon,
        "scope": shown(guarantee["scope"] or "see the statement above"),
        "holds": shown(certificate["holds"]),
        "worst found": shown(certificate["worst"]),
        "allowed": shown(certificate["allowed"]),
        "conditions checked": shown(certificate["checked"]),
        "arithmetic": shown(certificate["arithmetic"]),
    }
    known = {"holds", "kind", "worst", "allowed", "checked", "arithmetic"}
    rows |= {name.replace("_", " "): shown(value) for name, value in certificate.items() if name not in known}
    lead = (
        "What was measured on the release itself, after everything was rounded. Not checked: what the sender reveals "
        "elsewhere, and a second release of the same secret, which spends epsilon again."
    )
    return Section(title="Certificate", lead=lead, html=_facts("measured in exact arithmetic", rows))


def _objective(result: Mapping[str, Any]) -> Section:
    objective = result["objective"]
    unit = shown(objective["unit"])
    rows = {"of what was released": f"{shown(objective['value'])} {unit}"}
    if objective["lower_bound"] is None:
        rows["proved bound"] = "none"
    else:
        rows["proved bound"] = f"{shown(objective['lower_bound'])} {unit}"
        rows["gap"] = shown(objective["gap"])
    rows["status"] = shown(result["status"])
    return Section(title="Loss and bound", html=_facts("expected, under the problem's prior", rows))


def _provenance(result: Mapping[str, Any]) -> Section:
    seed = "" if result["seed"] is None else f" --seed {result['seed']}"
    command = (
        f"privopt solve {result['mechanism']} problem/{result['problem']['file']} --method {result['method']}{seed} "
        "--out again\nprivopt verify ."
    )
    rows = {
        "privopt": shown(result["privopt"]),
        "plugin": f"{shown(result['plugin']['name'])} {shown(result['plugin']['version'])}",
        "solver": ", ".join(
            f"{shown(k)}: {shown(v)}" for k, v in result["solver"].items() if not isinstance(v, (dict, list))
        ),
        "problem": f"{shown(result['problem']['file'])}, SHA-256 {shown(result['problem']['sha256'])}",
        "seed": shown(result["seed"]),
        "seconds": ", ".join(f"{shown(k)} {v:.2f}" for k, v in result["time"].items()),
    }
    html = _facts("where it came from", rows) + f"<h3>To reproduce and to check</h3><pre>{escape(command)}</pre>"
    return Section(title="Provenance", html=html)


def page(result: Mapping[str, Any], body: Sequence[Section], *, truth: bool = False) -> str:
    """The whole report as one HTML document."""
    title = f"{result['mechanism']}: {result['guarantee']['kind']}"
    sections = [_objective(result), *body, _certificate(result), _provenance(result)]
    parts = []
    for number, section in enumerate(sections):
        lead = f"<p>{escape(section.lead)}</p>" if section.lead else ""
        parts.append(
            f'<section aria-labelledby="s{number}"><h2 id="s{number}">{escape(section.title)}</h2>'
            f"{lead}{section.html}</section>"
        )
    note = '<p class="bad">This page compares with the secrets: keep it in private/.</p>' if truth else ""
    statement = escape(result["guarantee"].get("statement") or "No statement.")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head><body>"
        '<a class="skip" href="#content">Skip to the content</a>'
        f"<header><h1>{escape(result['mechanism'])} {_verdict(result)}</h1>{note}"
        f'<p class="lead">{statement}</p></header><main id="content">{"".join(parts)}</main>'
        '<footer class="soft"><p>Made by privopt from the files beside it; no network needed.</p></footer>'
        "</body></html>\n"
    )
