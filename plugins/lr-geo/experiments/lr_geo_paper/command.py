"""Reproduce Tables 1 and 2 and Figures 6, 9a, 9b, 10a, 10b, 11, 12 and 13 of the paper, and a table over Rome."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import evolve, field, frozen

from experiments import pictures as drawing
from experiments.command import Study, say
from experiments.tables import Row, Sheet
from lr_geo_paper import matching
from lr_geo_paper.cities import Settings, grid, rome
from lr_geo_paper.pictures import PICTURES
from lr_geo_paper.trials import METHODS, Workshop, trial

__all__ = ["STUDY", "Plan", "main"]

MEASURED: Final = (
    "seconds",
    "cpu",
    "limited",
    "cost",
    "epsilon",
    "gv_ratio",
    "gv_error",
    "lower",
    "value",
    "upper",
    "ratio",
    "lr_set",
)
"""Columns of results, see :func:`lr_geo_paper.trials.trial`."""

EVERY: Final = 1331
"""Number of cells of Rome that are published."""

SIGNS: Final = {"cells": "K", "radius": "Gamma"}
"""The paper's symbols for columns."""


@frozen(kw_only=True)
class Plan:
    """The maps, settings and limits of a run.

    Attributes:
        out: Folder of tables and pictures.
        rome: Folder of Rome's published cells. None for even grids.
        limit: Processor seconds that a row of a table may take.
        stretch: Seconds on the clock for each processor second, above 1 on a shared machine.
        draws: Number of random draws of the users.
        cells: Numbers of cells in Tables 1 and 2.
        grids: Numbers of cells on a side of Figure 9a's grids.
        map_cells: Numbers of cells in the table over Rome.
        epsilons: Epsilons per km in the table over Rome.
        users: Numbers of users in Figures 9b, 11 and 12.
        gammas: Radii Gamma in km of Figure 10a.
        ranges: Radii r_obf in km of a figure that the paper does not have.
        sides: Side lengths in km of the reference table's cells in Figures 10b and 13.
        matrices: Number of uploaded matrices in Figure 13.
        city: Number of cells in the figures that do not vary it.
        settings: The settings that a figure does not vary.
    """

    out: Path
    rome: Path | None = None
    limit: float = 120.0
    stretch: float = 1.0
    draws: int = 3
    cells: tuple[int, ...] = (100, 200, 300, 400)
    grids: tuple[int, ...] = (10, 15, 20, 25, 30, 35, 40)
    map_cells: tuple[int, ...] = (100, 200, 300, 400, 900, 1331)
    epsilons: tuple[str, ...] = ("1.0", "2.0", "5.0", "10.0")
    users: tuple[int, ...] = (2, 4, 6, 8, 10)
    gammas: tuple[float, ...] = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
    ranges: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0, 6.0)
    sides: tuple[float, ...] = (0.05, 0.075, 0.1, 0.125, 0.15, 0.175, 0.2, 0.225, 0.25, 0.275)
    matrices: int = 100
    city: int = 400
    settings: Settings = field(factory=lambda: Settings(epsilon="10.0"))

    def workshop(self, cells: int, seed: int | None = None) -> Workshop:
        """Return the map of the given number of cells.

        Args:
            cells: Number of cells.
            seed: Seed of random cells of Rome. None for Rome's first cells. A grid has no random cells.
        """
        if self.rome is None:
            # The grid's rows: the largest divisor up to the square root, so that it is nearly square.
            rows = next(r for r in range(int(cells**0.5), 0, -1) if cells % r == 0)
            return Workshop(
                self.out / "maps" / f"grid{cells}",
                lambda settings, folder: grid(folder, rows, cells // rows, 0.45, settings, kind="travel-cost"),
            )
        source = self.rome
        return Workshop(
            self.out / "maps" / f"rome{cells}{'' if seed is None else f'-{seed}'}",
            lambda settings, folder: rome(source, folder, cells, settings, seed=seed),
        )


def _users(count: int, draw: int = 0) -> str:
    """Return the key ``users`` for a number of random users as TOML text. ``draw`` is the seed."""
    return f"{{ random = {count}, seed = {draw} }}"


def _record(
    plan: Plan,
    sheet: Sheet,
    key: dict[str, Any],
    earlier: Sequence[str],
    workshop: Workshop,
    settings: Settings,
    *,
    bounds: bool = False,
) -> None:
    """Run a trial and add its row to a table, unless the table has the row.

    If an earlier row of the same method exceeded the limit, for example on a smaller map, the trial is not run, and its
    row refers to the earlier one.

    Args:
        plan: The limits.
        sheet: The table.
        key: The columns that identify the row, with the name of the method.
        earlier: Columns of the key that an earlier row must share so that its limit counts.
        workshop: The map.
        settings: Users, radii and epsilon.
        bounds: Whether to compute the bounds of Theorems 4.6 and 4.7.
    """
    name = key["method"]

    def make() -> list[Row]:
        """Run the trial, or return a row that names the setting at which the limit was exceeded before."""
        say(", ".join(f"{part} {value}" for part, value in key.items()))
        earlier_rows = sheet.where(method=name, **{part: key[part] for part in earlier})
        stopped_rows = [row for row in earlier_rows if row["seconds"].startswith(">")]
        if not stopped_rows:
            return [trial(workshop, name, settings, plan.limit, bounds=bounds, stretch=plan.stretch)]
        # The last column of the key that is neither shared nor a repetition is the one that the table varies.
        swept = next(part for part in reversed(key) if part not in (*earlier, "method", "draw"))
        swept_value = f"{SIGNS.get(swept, swept)} = {stopped_rows[0][swept]}"
        return [{"seconds": f"{stopped_rows[0]['seconds'].split(' (')[0]} (already at {swept_value})"}]

    sheet.once(key, make)


def tables(plan: Plan) -> None:
    """Write Tables 1 and 2: seconds and cost by method and number K of cells."""
    sheet = Sheet(plan.out / "tables.csv", ("method", "cells", "draw"), MEASURED)
    for cells in plan.cells:
        workshop = plan.workshop(cells)
        for name in METHODS:
            for draw in range(plan.draws):
                settings = evolve(plan.settings, users=_users(4, draw))
                key = {"method": name, "cells": cells, "draw": draw}
                _record(plan, sheet, key, (), workshop, settings, bounds=name in ("LR-Geo", "LR-Geo-F"))


def compare_paper_settings(plan: Plan) -> None:
    """Write Tables 1 and 2 in further settings of the paper: r_obf of 4 km, its cost reference table, random cells.

    Random cells are farther apart, so gamma and r_exp grow with their distance. Otherwise no pair would be required.
    """
    columns = ("setting", "cells", "method", "draw")
    sheet = Sheet(plan.out / "paper.csv", columns, MEASURED)
    wide_settings = evolve(plan.settings, obfuscation_radius=4.0)
    for cells in plan.cells:
        # The distance of random cells, as a multiple of that of all cells.
        spacing = (EVERY / cells) ** 0.5
        far_settings = evolve(
            wide_settings,
            within=0.8 * spacing,
            exponential_beyond=min(4.0, spacing),
            radius=max(wide_settings.radius, 1.6 * spacing),
        )
        choices = {"4 km": (wide_settings, False), "4 km, table": (evolve(wide_settings, reference_cell_km=0.1), False)}
        if plan.rome is not None:
            choices["4 km, random cells"] = (far_settings, True)
        for setting, (settings, scattered) in choices.items():
            for draw in range(plan.draws):
                workshop = plan.workshop(cells, seed=draw if scattered else None)
                for name in METHODS:
                    # Only LR-Geo's methods use the reference table. The simplex method is left out here.
                    if name != "LP, simplex" and not ("table" in setting and not name.startswith("LR-Geo")):
                        key = {"setting": setting, "cells": cells, "method": name, "draw": draw}
                        draw_settings = evolve(settings, users=_users(4, draw))
                        _record(plan, sheet, key, ("setting",), workshop, draw_settings)


def city_table(plan: Plan) -> None:
    """Run every method on growing parts of the map, for several epsilons."""
    sheet = Sheet(plan.out / "city.csv", ("method", "cells", "epsilon_asked"), MEASURED)
    workshops = {cells: plan.workshop(cells) for cells in plan.map_cells}
    for epsilon in reversed(plan.epsilons):
        for cells, workshop in workshops.items():
            for name in METHODS:
                settings = evolve(plan.settings, epsilon=epsilon)
                key = {"method": name, "cells": cells, "epsilon_asked": epsilon}
                _record(plan, sheet, key, ("epsilon_asked",), workshop, settings, bounds=name == "LR-Geo")


def rounds(plan: Plan) -> None:
    """Write Figure 6: bounds by round, starting from the exponential form as in the paper."""
    sheet = Sheet(plan.out / "rounds.csv", ("round",), ("seconds", "lower", "upper"))
    if not sheet.rows:
        settings = evolve(plan.settings, epsilon=plan.epsilons[0])
        sheet.add(*matching.bounds_by_round(plan.workshop(100), settings, plan.stretch * plan.limit))


def even_grids(plan: Plan) -> None:
    """Write Figure 9a: seconds on even grids of K cells."""
    sheet = Sheet(plan.out / "grids.csv", ("method", "cells", "draw"), MEASURED)
    for side_cells in plan.grids:
        workshop = evolve(plan, rome=None).workshop(side_cells * side_cells)
        for draw in range(plan.draws):
            key = {"method": "LR-Geo", "cells": side_cells * side_cells, "draw": draw}
            settings = evolve(plan.settings, users=_users(4, draw))
            _record(plan, sheet, key, ("draw",), workshop, settings)


def _sweep(
    plan: Plan,
    name: str,
    column: str,
    values: Sequence[float],
    change: Callable[[Any], dict[str, Any]],
    *,
    users: int | None = 4,
    earlier: str = "draw",
    bounds: bool = False,
) -> None:
    """Run LR-Geo on the city's map for several values of one setting.

    Args:
        plan: The map, the limits and the other settings.
        name: Name of the table.
        column: Column of the setting.
        values: Values of the setting.
        change: Returns the changed attributes of :class:`Settings` for a value.
        users: Number of users. None if the setting is the number of users.
        earlier: Column that an earlier row must share so that its exceeded limit counts (:func:`_record`).
        bounds: Whether to compute the bounds of Theorems 4.6 and 4.7.
    """
    sheet = Sheet(plan.out / f"{name}.csv", ("method", "cells", column, "draw"), MEASURED)
    workshop = plan.workshop(plan.city)
    for value in values:
        for draw in range(plan.draws):
            key = {"method": "LR-Geo", "cells": plan.city, column: value, "draw": draw}
            users_drawn = _users(int(value) if users is None else users, draw)
            _record(
                plan,
                sheet,
                key,
                (earlier,),
                workshop,
                evolve(plan.settings, users=users_drawn, **change(value)),
                bounds=bounds,
            )


def more_users(plan: Plan) -> None:
    """Write Figures 9b, 11 and 12: seconds, and how far rows of different users violate Geo-Ind."""
    _sweep(plan, "users", "users", plan.users, lambda _: {}, users=None, earlier="users")


def larger_sets(plan: Plan) -> None:
    """Write Figure 10a: the approximation ratio by Gamma."""
    _sweep(plan, "gamma", "radius", plan.gammas, lambda radius: {"radius": radius}, users=2, bounds=True)


def coarser_tables(plan: Plan) -> None:
    """Write Figure 10b: the approximation ratio by the cell size of the cost reference table."""
    _sweep(plan, "side", "side", plan.sides, lambda side_km: {"reference_cell_km": side_km}, bounds=True)


def wider_ranges(plan: Plan) -> None:
    """Write the cost by r_obf, which the paper does not show, at an epsilon at which outputs beyond it matter."""
    _sweep(plan, "range", "range", plan.ranges, lambda reach: {"epsilon": "2.0", "obfuscation_radius": reach})


def exponents(plan: Plan) -> None:
    """Compare the exponent f = 1 with the paper's 1/2."""
    parts = ("epsilon_asked", "exponent", "draw")
    sheet = Sheet(plan.out / "exponents.csv", ("method", "cells", *parts), MEASURED)
    workshop = plan.workshop(plan.city)
    for epsilon in plan.epsilons:
        for exponent in (1.0, 0.5):
            for draw in range(plan.draws):
                key_columns = {"epsilon_asked": epsilon, "exponent": exponent, "draw": draw}
                key = {"method": "LR-Geo", "cells": plan.city, **key_columns}
                settings = evolve(plan.settings, epsilon=epsilon, exponent=exponent, users=_users(4, draw))
                _record(plan, sheet, key, parts, workshop, settings)


def matched_rows(plan: Plan) -> None:
    """Write Figure 13 (section 4.7): the number of rows of the table from which an uploaded coefficient may come."""
    sheet = Sheet(plan.out / "matched.csv", ("side",), matching.COLUMNS)
    workshop = plan.workshop(max(plan.map_cells))
    for side_km in plan.sides:
        sheet.once({"side": side_km}, lambda: [matching.match_rows(workshop, plan.settings, side_km, plan.matrices)])  # noqa: B023


PARTS: Final[dict[str, Callable[[Plan], None]]] = {
    "rounds": rounds,
    "tables": tables,
    "paper": compare_paper_settings,
    "users": more_users,
    "grids": even_grids,
    "gamma": larger_sets,
    "side": coarser_tables,
    "matched": matched_rows,
    "exponents": exponents,
    "range": wider_ranges,
    "city": city_table,
}


def _plan(arguments: Namespace) -> Plan:
    """Return the plan for the options of the command line: quick, usual, or the paper's own size."""
    usual = Plan(out=arguments.out, rome=arguments.rome, stretch=arguments.stretch)
    full = arguments.size == "full"
    if arguments.size != "quick":
        return evolve(
            usual,
            limit=arguments.limit or (1800.0 if full else usual.limit),
            draws=arguments.draws or (10 if full else usual.draws),
        )
    return evolve(
        usual,
        limit=arguments.limit or 5.0,
        draws=arguments.draws or 1,
        cells=(16, 25),
        grids=(4, 6),
        map_cells=(16, 36),
        epsilons=("5.0",),
        users=(2, 3),
        gammas=(1.0, 2.0),
        ranges=(1.0, 2.0),
        sides=(0.1, 0.2),
        matrices=5,
        city=36,
        settings=Settings(epsilon="5.0", radius=1.0, exponential_beyond=0.5, obfuscation_radius=1.0),
    )


def _options(parser: ArgumentParser) -> None:
    """Add the options of this study to the parser of the command line."""
    parser.add_argument("--rome", type=Path, help="folder of Rome's published cells; default: even grids")
    parser.add_argument("--limit", type=float, help="processor seconds a cell may take (120; --full 1800)")
    parser.add_argument("--stretch", type=float, default=1.0, help="seconds on the clock for each, on a busy machine")
    parser.add_argument("--draws", type=int, help="draws of users (3; --full 10)")


STUDY: Final = Study(
    plugin="lr-geo",
    about=__doc__ or "",
    parts=PARTS,
    plan=_plan,
    draw=lambda plan: drawing.draw(plan.out, PICTURES),
    options=_options,
    fixed=("size", "rome", "limit", "stretch"),
)
main: Final = STUDY.run
