"""The frame of every report, and the figures, tables and sections inside it.

A page is a single HTML file without external resources, so it works offline and no server learns who reads it. The
markup comes from templates in this package, which escape all text.
"""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from shlex import quote
from typing import Any, Final

import attrs

from privopt.arrays import Figure
from privopt.declare.notebook import format_digits, format_text
from privopt.declare.schema import ProblemHeading
from privopt.declare.toml_text import exact_text
from privopt.interfaces import Result
from privopt.interfaces.reporting import Section
from privopt.interfaces.result import SQUARED
from privopt.registry import registry
from privopt.report.promise_text import claim, exposed_to, limits, trust
from privopt.report.templates import Markup, render
from privopt.report.theme import make_narrow, svg
from privopt.report.words import explain_words

__all__ = ["drawing", "figure_section", "page", "pair_section", "table", "table_section"]


MAX_WHOLE_TABLE: Final = 100
"""The maximum number of rows for which a table is shown in full."""

MAX_EPSILON_CHARACTERS: Final = 8
"""The maximum number of characters in an epsilon that is shown exactly as given."""

FIRST_ROWS: Final = 50
"""The number of rows shown if a table has more than :data:`MAX_WHOLE_TABLE` rows."""

UNPROTECTED: Final = "Treat it like the secret data itself."
"""The sentence shown for a release that is not private, in place of the sentence about whom to trust."""

RATIONAL: Final = re.compile(r"-?\d+/0*[1-9]\d*", re.ASCII)
"""Matches a ratio of integers in a certificate's notes, unless its denominator is 0."""

WHOLE_NUMBER: Final = re.compile(r"(?<![\w.,])\d{4,15}(?![\w,]|\.\d)", re.ASCII)
"""Matches a whole number of 4 to 15 digits that stands alone rather than in a decimal or a name."""


def figure_section(
    title: str, figure: Figure, lead: str = "", *, narrow: Figure | None = None, for_experts: bool = False
) -> Section:
    """Return a section with a title, a lead sentence and a figure.

    If ``narrow`` is given, it replaces the figure on phones.
    """
    return Section(title=title, lead=lead, html=drawing(title, figure, narrow=narrow), for_experts=for_experts)


def drawing(title: str, figure: Figure, caption: str = "", *, narrow: Figure | None = None) -> Markup:
    """Return a figure's markup, which contains one drawing for wide pages and another for phones.

    Args:
        title: The figure's name for screen readers.
        figure: The figure. It is modified by :func:`make_narrow` unless ``narrow`` is given.
        caption: A sentence to put below the figure.
        narrow: The figure for phones, if it cannot be derived from ``figure``.
    """
    # The wide drawing comes first, because make_narrow changes the figure.
    drawings = [svg(figure, title), svg(narrow or make_narrow(figure), title, name="narrow")]
    return render("privopt.report/figure.html", drawings=drawings, caption=caption)


def pair_section(title: str, drawings: Sequence[Markup], lead: str = "") -> Section:
    """Return a section that shows figures side by side on wide screens.

    ``drawings`` are results of :func:`drawing`, and ``lead`` is the sentence above them.
    """
    return Section(title=title, lead=lead, html=render("privopt.report/pair.html", parts=drawings))


def table_section(
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    lead: str = "",
    *,
    total: int | None = None,
    file: str = "",
    for_experts: bool = False,
) -> Section:
    """Return a section with a title, a lead sentence and a table.

    Args:
        title: The section's title, which is also the table's name for screen readers.
        header: The column names.
        rows: The rows.
        lead: The sentence above the table.
        total: The total number of rows, if ``rows`` contains only the first ones.
        file: The name of the file in the release folder that contains all rows, or an empty string if there is none.
        for_experts: Whether the section belongs to the part of the page for experts.
    """
    html = table(title, header, rows, total=total, file=file)
    return Section(title=title, lead=lead, html=html, for_experts=for_experts)


def table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[Any]], *, total: int | None = None, file: str = ""
) -> Markup:
    """Return a table's markup, which shows all rows if there are at most 100, and otherwise the first 50.

    If some rows are not shown, the table says so and offers a search box and a CSV download for all of ``rows``, which
    are embedded in the page. On narrow screens, the rows of a wide table become lists. Non-integers below 1,000 are
    shown with three significant digits, and larger ones without decimals.

    Args:
        title: The table's name for screen readers.
        header: The column names.
        rows: The rows.
        total: The total number of rows, if ``rows`` contains only the first ones. The default is the length of
            ``rows``.
        file: The name of the file in the release folder that contains all rows, or an empty string if there is none.
    """
    cell_rows = [tuple(row) for row in rows]
    is_long = len(cell_rows) > MAX_WHOLE_TABLE
    shown_rows = [
        [format_text(value, 3) for value in row] for row in (cell_rows[:FIRST_ROWS] if is_long else cell_rows)
    ]
    total = max(total or 0, len(cell_rows))
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([header, *cell_rows])
    return render(
        "privopt.report/table.html",
        title=title,
        header=header,
        rows=shown_rows,
        # All cells of a column are aligned alike, even a text such as "none" among numbers.
        numeric=[any(_is_number(row[column]) for row in cell_rows) for column in range(len(header))],
        width_class=_width_class(header, shown_rows),
        is_whole=not is_long and total == len(cell_rows),
        total=total,
        count=len(cell_rows),
        file=file,
        csv=base64.b64encode(stream.getvalue().encode()).decode(),
        csv_name=re.sub(r"\W+", "-", title.lower()).strip("-"),
    )


def _width_class(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the CSS class for a table that is too wide for some screens, or an empty string for other tables.

    On those screens, report.css shows the rows of a table with this class as lists.
    """
    # A column is at least as wide as its longest word, plus a gap of two characters.
    widths = [
        2 + max(len(word) for text in (name, *(row[column] for row in rows)) for word in (*_words(text), ""))
        for column, name in enumerate(header)
    ]
    # About 44 characters fit on a screen that is 390 pixels wide, and 80 on one of 768 pixels.
    return "lists many" if sum(widths) > 80 else "lists" if sum(widths) > 44 else ""


def _words(text: str) -> list[str]:
    """Split a string where a line may break, and truncate each part to 24 characters."""
    # A position such as (x 0.3 km, y 0 km) counts as one word. Words with more than 24 characters, such as paths, can
    # break anywhere.
    return [word[:24] for word in re.findall(r"\([^()]*\d[^()]*\)|\S+", text)]


def _is_number(value: Any) -> bool:
    """Return whether a value is a number. Tables align numbers to the right."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)  # True is an int in Python


def _judge(result: Result) -> tuple[str, str]:
    """Return the text and CSS class of the badge that says how far the guarantee has been proved."""
    # The mark takes precedence, because noise from a seed is not private, whatever was proved.
    if result.mark:
        return result.mark, "bad"
    if result.certificate.evidence == "declared":
        return "checked, except that noise was really drawn", ""
    if exposed := exposed_to(result):
        return f"proved, but not against {exposed}", "warm"
    return "proved on the release", "good"


def _add_decimals(value: object) -> object:
    """Return a value with an approximate decimal value added to each ratio of integers, as in ``"1/3 (0.333333)"``.

    Whole numbers in strings get thousands separators. Lists are processed recursively, and other values are returned
    unchanged.
    """
    if isinstance(value, (list, tuple)):
        return [_add_decimals(inner) for inner in value]
    if not isinstance(value, str):
        return value
    if RATIONAL.fullmatch(value):
        numerator, denominator = map(Decimal, value.split("/"))
        return f"{numerator:,}/{denominator:,} ({format_digits(float(numerator / denominator), 6)})"
    return WHOLE_NUMBER.sub(lambda number: f"{int(number.group()):,}", value)


def _format_certificate(result: Result) -> dict[str, Any]:
    """Return the values of the guarantee and its certificate as text, keyed by their labels on the page.

    Values of any type are formatted, because someone may have tampered with the folder.
    """
    certificate, guarantee = result.certificate, result.guarantee
    epsilon = guarantee.epsilon
    rows: dict[str, Any] = {
        "kind": guarantee.kind,
        "epsilon": None if epsilon is None else f"{format_text(float(epsilon))} {format_text(guarantee.unit)}",
        "scope": guarantee.scope or "see the statement above",
        "holds": certificate.holds,
        "evidence": certificate.evidence,
        "worst found": certificate.worst,
        "allowed": certificate.allowed,
        "conditions checked": certificate.checked,
        "arithmetic": _add_decimals(certificate.arithmetic),
    }
    # The certificate's other values depend on the privacy notion, and are labelled with their keys.
    notes = {"rests_on": certificate.rests_on, **certificate.notes}
    rows |= {name.replace("_", " "): _add_decimals(value) for name, value in notes.items() if value != ""}
    return {name: format_text(value) for name, value in rows.items()}


def _describe_mechanism(result: Result) -> str:
    """Return a sentence with the mechanism's name and summary."""
    summary = registry().get(result.mechanism).spec.summary
    # A name such as LR-Geo keeps its capitals.
    if summary[1:2].islower():
        summary = summary[0].lower() + summary[1:]
    return f"Made by {result.mechanism}{f': {summary}' if summary else ''}."


def _is_fit(result: Result) -> bool:
    """Return whether the loss is a sum of squared distances to noisy values, which measures fit rather than error."""
    return result.objective.unit.endswith(SQUARED)


def _format_epsilon(epsilon: Fraction) -> str:
    """Format epsilon as it was given, or rounded up to three significant digits if that form is long or a ratio.

    >>> _format_epsilon(Fraction("0.1666")), _format_epsilon(Fraction(1, 3))
    ('0.1666', '0.334')
    """
    # Readers multiply epsilon by the number of releases, so the shown value must not be below the true one.
    text = exact_text(epsilon)
    if len(text) <= MAX_EPSILON_CHARACTERS and "/" not in text:
        return text
    digits = Context(prec=3, rounding=ROUND_CEILING)
    return format_digits(float(digits.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))))


def _main_figures(result: Result, in_readers_unit: Callable[[float], str]) -> list[tuple[str, ...]]:
    """Return the report's main metrics, each as a tuple (label, number, unit) or (label, number, unit, note).

    Args:
        result: The parsed result.json.
        in_readers_unit: A function that formats a loss in the unit that the problem defines for readers, such as
            minutes, or returns an empty string if there is no such unit. The formatted loss is shown first.
    """
    objective, guarantee = result.objective, result.guarantee

    def format_loss(value: float) -> tuple[str, str]:
        """Return a loss and its unit as two strings.

        If the problem defines a unit for readers, the first string is the loss in that unit, and the second is the loss
        in the original unit.
        """
        unit = objective.unit_after(value)
        text, reader_text = format_digits(value), in_readers_unit(value)
        return (reader_text, f"= {text} {unit}") if reader_text else (text, unit)

    figures: list[tuple[str, ...]] = []
    if guarantee.epsilon is not None:
        figures.append(("epsilon", _format_epsilon(guarantee.epsilon), guarantee.unit))
    if _is_fit(result):
        return figures
    figures.append((objective.measured_quantity, *format_loss(objective.value)))
    if objective.lower_bound is not None:
        # The bound may cover only releases over the outputs that the mechanism chose.
        note = "over the outputs chosen" if objective.bound_over == "chosen" else ""
        figures.append(("least possible (proved)", *format_loss(objective.lower_bound), note))
    return figures


def _solver_figures(result: Result) -> list[tuple[str, ...]]:
    """Return the solver's metrics (loss, bound, gap, time) in the form of :func:`_main_figures`, with more digits."""
    objective = result.objective
    value, bound = objective.value, objective.lower_bound

    def format_number(number: float) -> str:
        """Format a loss or bound with six significant digits, or as a whole number if it is between 1e6 and 1e15."""
        return f"{number:,.0f}" if 1e6 <= abs(number) < 1e15 else f"{number:,.6g}"

    figures: list[tuple[str, ...]] = [(objective.measured_quantity, format_number(value), objective.unit_after(value))]
    # For a fit to noisy values, no bound is shown, because it bounds the distance to the noisy values, not the errors.
    if not _is_fit(result):
        if bound is not None:
            figures.append(("proved bound", format_number(bound), objective.unit_after(bound)))
        # The solver reported this bound, but the folder does not prove it.
        elif result.told_bound is not None:
            told_bound = result.told_bound
            note = "not proved by the files"
            figures.append(("bound by the solver", format_number(told_bound), objective.unit_after(told_bound), note))
        else:
            figures.append(("proved bound", "none", ""))
        if objective.gap is not None:
            figures.append(("gap", format_text(objective.gap, 2), ""))
    checked, seconds = format_text(result.certificate.checked), format_digits(result.time.total)
    figures.append(("checked", checked, "condition" if checked == "1" else "conditions"))
    return [*figures, ("time", seconds, "second" if seconds == "1" else "seconds")]


def _format_commands(result: Result) -> str:
    """Return two commands to run in the release folder, one to solve the problem again and one to verify the release.

    The solve command includes all options that can change its result.
    """
    applied = result.asked
    # The values in ``asked`` were validated when result.json was read. Those in ``told`` were not, so if someone
    # tampered with the folder, this can be any JSON value.
    jobs = result.details.told.get("jobs")
    options = [
        ("jobs", jobs if type(jobs) is int and jobs > 0 else None),
        ("time-limit", applied.time_limit),
        ("memory", applied.memory),
        ("seed", result.seed),
    ]
    option_text = "".join(f" --{name} {value!r}" for name, value in options if value is not None)
    # The printed command must work, and solve rejects methods without a guarantee unless --allow-unsafe is given.
    entry = registry().get(result.mechanism)
    unsafe = " --allow-unsafe" if entry.spec.asks(entry.method(result.method)) else ""
    return (
        f"privopt solve {result.mechanism} {quote('problem/' + result.problem.file)} --method {result.method} "
        f"--solver {quote(applied.solver)} --gap {applied.gap!r}{option_text}{unsafe} "
        "--out again\nprivopt verify ."
    )


def _is_fact(value: object) -> bool:
    """Return whether a value from ``solver`` in result.json can be shown on one line.

    This excludes None, mappings, lists and blank strings.
    """
    return value is not None and not isinstance(value, (dict, list)) and str(value).strip() != ""


def _describe_origin(result: Result) -> dict[str, Any]:
    """Return facts about how the release was made, by label: versions, method, solver, problem file, seed and times."""
    # ``solver`` is not verified, so if someone tampered with the folder, its values can have any type.
    versions = result.solver.get("versions")
    solver = {key: value for key, value in result.solver.items() if _is_fact(value)}
    seconds = ", ".join(f"{name} {format_digits(value)}" for name, value in attrs.asdict(result.time).items())
    made_with = None
    if isinstance(versions, dict):
        made_with = ", ".join(
            f"{format_text(name)} {format_text(value)}" for name, value in versions.items() if _is_fact(value)
        )
    return {
        "privopt": result.privopt,
        "plugin": f"{format_text(result.plugin.name)} {format_text(result.plugin.version)}",
        "method": result.method,
        "status": result.status_in_words,
        # Rows with the value None are left out.
        "solver": ", ".join(f"{format_text(name)}: {format_text(value)}" for name, value in solver.items()) or None,
        "made with": made_with or None,
        "problem": f"{format_text(result.problem.file)}, SHA-256 {format_text(result.problem.sha256)}",
        "seed": "none: noise, if there is any, is from the operating system" if result.seed is None else result.seed,
        "seconds": f"{seconds} (repair and verify run within solve too)",
    }


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
    """Return the whole report as a single HTML document.

    Args:
        result: The parsed result.json.
        body: The mechanism's sections.
        headline: Sentences about the published data, their error and an attacker's gain. If empty, the page begins with
            the guarantee.
        heading: The problem's title and purpose. If there is no title, the heading consists of the names of the
            mechanism and the problem file.
        truth: Whether any sections compare the release with the secrets. If so, the page says to keep it private.
        absent: The names of secret files that are missing from the release folder.
        warnings: Sentences that every user of the release should read.
        in_readers_unit: A function that formats a loss in the unit that the problem defines for readers, or returns an
            empty string if there is no such unit.
    """
    # The mechanism and the file serve as the heading if the problem has no title. Otherwise, they are shown below it.
    made_by = f"{result.mechanism}, from {result.problem.file}"
    verdict, badge = _judge(result)
    for_everyone = [section for section in body if not section.for_experts]
    promise, trusted = claim(result), UNPROTECTED if result.mark else trust(result)
    return render(
        "privopt.report/page.html",
        title=heading.title or made_by,
        made_by=made_by,
        heading=heading,
        headline=headline,
        claim=promise,
        guarantee=result.guarantee,
        verdict=verdict,
        badge=badge,
        trust=trusted,
        truth=truth,
        absent=absent,
        warnings=warnings,
        sections=for_everyone,
        words=explain_words([headline, promise, result.guarantee.statement, trusted], for_everyone),
        for_experts=[section for section in body if section.for_experts],
        main_figures=_main_figures(result, in_readers_unit),
        about=_describe_mechanism(result),
        solver_figures=_solver_figures(result),
        limits=limits(result),
        certificate=_format_certificate(result),
        provenance=_describe_origin(result),
        commands=_format_commands(result),
    )
