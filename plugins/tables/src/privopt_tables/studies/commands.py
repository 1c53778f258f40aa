"""The commands that prepare a release: init, curve and explore.

This module only defines the options and rejects incompatible ones. The commands are implemented in other modules of the
package, which are imported only when a command runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privopt.command.completion import MECHANISM
from privopt.command.exit_codes import (
    DONE,
    GAP,
    JOBS,
    PATH,
    QUIET,
    SOLVER,
    STOPPED_FEASIBLE,
    TIME_LIMIT,
    handle_errors,
    positive,
    utf8,
)
from privopt.command.program import say_result
from privopt.command.terminal import progress_display, remark, show_step
from privopt.errors import UsageError, number_of

if TYPE_CHECKING:
    from privopt_tables.studies.curve import Curves
else:
    Curves = Any

__all__ = ["curve", "explore", "init"]


@click.command()
@click.argument("mechanism", type=MECHANISM)
@click.option("--points", type=PATH, metavar="FILE", help="Places, or positions.")
@click.option("--roads", type=PATH, metavar="FILE", help="Table from,to,km between the places.")
@click.option("--osm", type=PATH, metavar="FILE", help="Instead: streets of an .osm or .osm.pbf file.")
@click.option(
    "--vectors", type=PATH, metavar="FILE", help="Instead: vectors of words: .npy, or GloVe's or word2vec's text."
)
@click.option("--lat", metavar="COLUMN", callback=utf8, help="With --points: latitudes, in degrees; with --lon.")
@click.option("--lon", metavar="COLUMN", callback=utf8, help="With --points: longitudes, in degrees; with --lat.")
@click.option("--id", "id_", metavar="COLUMN", callback=utf8, help="With --points: ids, of public places.")
@click.option("--geometry", metavar="COLUMN", callback=utf8, help="With --points: positions in one column.")
@click.option("--ids", type=PATH, metavar="FILE", help="With --vectors: the words, a line each.")
@click.option("--box", metavar="S,W,N,E", help="Only the streets inside, in degrees.")
@click.option("--walk", is_flag=True, help="Footways too, and every street in both directions.")
@click.option("--bends", is_flag=True, help="Keep nodes that merely bend a street.")
@click.option("--ferries", is_flag=True, help="Take the lines of ferries too.")
@click.option(
    "--one-way", is_flag=True, help="The loss is travel along one-way streets; places without a way back are left out."
)
@click.option("--count", metavar="COLUMN", help="Of a table of counts: how many individuals a row counts.")
@click.option("--persons", is_flag=True, help="Every row is one individual, although a column looks like counts.")
@click.option("--total", "totals", multiple=True, metavar="COLUMN=VALUE", help="A total, whose rows are not read.")
@click.option("--keep-totals", is_flag=True, help="Values that look like totals are categories like any other.")
@click.option("--out", type=PATH, required=True, metavar="PROBLEM.toml", help="File to write.")
@click.option("--within", type=float, callback=positive, metavar="KM", help="Hide people this close to one another.")
@click.option(
    "--factor", type=float, default=4.0, show_default=True, metavar="F", help="Change of odds there, at most."
)
@QUIET
@click.option("--force", is_flag=True, help="Replace PROBLEM.toml.")
@handle_errors
def init(
    mechanism: str,
    points: Path | None,
    roads: Path | None,
    osm: Path | None,
    vectors: Path | None,
    lat: str | None,
    lon: str | None,
    id_: str | None,
    geometry: str | None,
    ids: Path | None,
    box: str | None,
    walk: bool,
    bends: bool,
    ferries: bool,
    one_way: bool,
    count: str | None,
    persons: bool,
    totals: tuple[str, ...],
    keep_totals: bool,
    out: Path,
    within: float | None,
    factor: float,
    quiet: bool,
    force: bool,
) -> None:
    """Write a commented problem file from a table of places or positions, from OpenStreetMap, or from word vectors."""
    from privopt.interfaces.abilities import Drafts
    from privopt.registry import registry
    from privopt_tables.studies import draft_problem
    from privopt_tables.studies.draft_columns import ColumnChoice
    from privopt_tables.studies.draft_words import init_words
    from privopt_tables.studies.street_map import box_area, read_streets

    # This is checked here, because click cannot require exactly one of several options.
    if sum(source is not None for source in (points, osm, vectors)) != 1:
        raise UsageError("init takes --points, --osm or --vectors, one of the three")
    choice = ColumnChoice(lat=lat, lon=lon, id=id_, point=geometry)
    has_choice = choice != ColumnChoice()
    # Options that the chosen source would ignore are rejected, because whoever passes them expects an effect.
    if has_choice and points is None:
        raise UsageError("--lat, --lon, --id and --geometry go with --points: they name its columns")
    individual_values = {"count": count, "persons": persons, "totals": totals, "keep_totals": keep_totals}
    individual_options: dict[str, Any] = {name: value for name, value in individual_values.items() if value}
    if ids is not None and vectors is None:
        raise UsageError("--ids must be given with --vectors: it names their rows")
    with progress_display(quiet=quiet) as progress:
        show_step(progress, f"reading {points or osm or vectors}")
        if vectors is not None:
            if any((roads, box, walk, bends, ferries, one_way, within is not None)):
                raise UsageError(
                    "--vectors takes --ids and no places, streets or distances: epsilon follows from ranks"
                )
            for line in init_words(mechanism, vectors, ids, out, force=force).notes:
                remark(f"{out}: {line}")
            return
        # Word vectors are handled above. The remaining cases need the class of the mechanism.
        loaded_mechanism = registry().get(mechanism).load()
        # Mechanisms for tables of individuals draft their own problem files.
        if isinstance(loaded_mechanism, Drafts):
            if points is None or has_choice or roads is not None or within is not None:
                raise UsageError(
                    f"init {mechanism} takes --points, the table of individuals, and no positions, roads or distances"
                )
            for line in loaded_mechanism.draft(points, out, force=force, **individual_options):
                remark(f"{out}: {line}")
            return
        if individual_options:
            raise UsageError("--count, --persons, --total and --keep-totals go with tables of individuals")
        if points is not None:
            if any((box is not None, walk, bends, ferries, one_way)):
                raise UsageError("--box, --walk, --bends, --ferries and --one-way go with --osm")
            drafted = draft_problem.init(
                mechanism, points, out, roads=roads, within=within, factor=factor, force=force, choice=choice
            )
        else:
            assert osm is not None  # exactly one of the three is given, and the other two are handled above
            if roads is not None:
                raise UsageError("--roads goes with --points; --osm brings its own")
            if one_way and walk:
                raise UsageError("--one-way and --walk exclude one another: on foot, every street leads both ways")
            area = None if box is None else box_area(box)
            streets = read_streets(osm, area=area, walk=walk, bends=bends, ferries=ferries, one_way=one_way)
            drafted = draft_problem.init_from_map(
                mechanism, streets, out, source=osm, within=within, factor=factor, force=force
            )
        for line in drafted.notes:
            remark(f"{out}: {line}")


@click.command()
@click.argument("problem", metavar="PROBLEM.toml", type=PATH)
@click.option("--mechanisms", required=True, metavar="A,B", help="Names of mechanisms, with commas between.")
@click.option("--epsilon", required=True, metavar="LO:HI:N", help="N values from LO to HI, geometric.")
@click.option(
    "--out",
    type=PATH,
    required=True,
    metavar="FILE.csv",
    help="Table to write, a row as soon as it is found; after a kill the same command goes on from it.",
)
@click.option("--report", type=PATH, metavar="FILE.html", help="Also one page, works offline.")
@click.option("--figures", type=PATH, metavar="FOLDER", help="Also the pictures, as SVG, PDF and PNG.")
@click.option("--latex", type=PATH, metavar="FILE", help="Also the table for LaTeX; needs no package.")
@GAP
@SOLVER
@JOBS
@TIME_LIMIT
@click.option("--json", "as_json", is_flag=True, help="The files that were written and the notes, as one object.")
@QUIET
@click.option("--force", is_flag=True, help="Begin again; replace FILE.csv and the others.")
@handle_errors
def curve(
    problem: Path,
    mechanisms: str,
    epsilon: str,
    out: Path,
    report: Path | None,
    figures: Path | None,
    latex: Path | None,
    as_json: bool,
    quiet: bool,
    force: bool,
    gap: float | None,
    solver: str,
    jobs: int | None,
    time_limit: float | None,
) -> int:
    """Compare mechanisms by their loss and proved bound over a range of epsilons."""
    from privopt.run.task import Options
    from privopt_tables.studies.curve_page import write_curves

    with progress_display(quiet=quiet, limit=time_limit) as progress:
        options = Options(gap=gap, solver=solver, jobs=jobs, time_limit=time_limit, force=force, progress=progress)
        curves = write_curves(
            problem,
            _split_names(mechanisms),
            epsilon,
            out,
            report,
            options,
            lambda line: remark(f"note: {line}"),
            figures=figures,
            latex=latex,
        )
    for line in curves.notes:
        remark(f"note: {line}")
    if curves.stopped_count:
        remark(f"note: {_describe_stop(curves)}; {out} keeps the others, and the same command goes on from them")
    if as_json:
        # Only files that were asked for are listed.
        paths = {"curves": out, "report": report, "figures": figures, "latex": latex}
        written = {name: str(path) for name, path in paths.items() if path is not None}
        say_result({**written, "notes": list(curves.notes), "stopped": curves.stopped_count}, "", as_json=True)
    return STOPPED_FEASIBLE if curves.stopped_count else DONE


@click.command()
@click.argument("problem", metavar="PROBLEM.toml", type=PATH)
@click.option("--out", type=PATH, metavar="FILE.html", help="Page to write; default: PROBLEM-explore.html, here.")
@click.option("--mechanisms", default="optimal-lp", show_default=True, metavar="A,B", help="With commas between.")
@click.option("--epsilon", metavar="LO:HI:N", help="N values; default: 9, a fourth to four times the problem's.")
@GAP
@SOLVER
@JOBS
@TIME_LIMIT
@QUIET
@click.option("--force", is_flag=True, help="Replace FILE.html.")
@handle_errors
def explore(
    problem: Path,
    out: Path | None,
    mechanisms: str,
    epsilon: str | None,
    gap: float | None,
    solver: str,
    jobs: int | None,
    time_limit: float | None,
    quiet: bool,
    force: bool,
) -> int:
    """Write a single-page tool for choosing epsilon: sliders for who is protected, how strongly, and at what loss."""
    from privopt.run.task import Options
    from privopt_tables.studies.curve_page import write_curves

    out = out or Path(f"{problem.stem}-explore.html")
    with progress_display(quiet=quiet, limit=time_limit) as progress:
        options = Options(gap=gap, solver=solver, jobs=jobs, time_limit=time_limit, force=force, progress=progress)
        mechanism_names = _split_names(mechanisms)
        curves = write_curves(
            problem, mechanism_names, epsilon, None, out, options, lambda line: remark(f"note: {line}")
        )
    if curves.stopped_count:
        remark(
            f"note: {_describe_stop(curves)}; {out} shows the others; --force with more time, or --gap 0.01, finds all"
        )
    say_result({"page": str(out)}, str(out), as_json=False)
    return STOPPED_FEASIBLE if curves.stopped_count else DONE


def _describe_stop(curves: Curves) -> str:
    """Return a clause that states how many points are missing or unfinished because of a limit or an interruption."""
    return f"stopped early, {curves.stopped_count} of {number_of(len(curves.points), 'point')} missing or unfinished"


def _split_names(text: str) -> list[str]:
    """Split a comma-separated list of names, stripping whitespace and dropping empty names."""
    return [name.strip() for name in text.split(",") if name.strip()]
