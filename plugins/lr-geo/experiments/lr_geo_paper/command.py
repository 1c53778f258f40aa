"""The paper's experiments from one command: ``python plugins/lr-geo/experiments --out FOLDER``.

Tables 1 and 2, Figures 6, 9a, 9b, 10a, 10b, 11, 12 and 13, and a table over Rome, as CSV and pictures. ``--rome`` names
the folder of Rome's published cells; without it even grids take their place. Rows are written as they are found, and a
run that is started again goes on behind them. ``--quick`` takes minutes off everything, ``--full`` is the paper's size
(10 draws of users, 1800 s).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import evolve, field, frozen

from lr_geo_paper import matching, pictures
from lr_geo_paper.cities import Settings, grid, rome
from lr_geo_paper.ledger import Ledger
from lr_geo_paper.trials import METHODS, Workshop, trial
from privopt.errors import PrivoptError

__all__ = ["EXPERIMENTS", "Plan", "main"]

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

SIGNS: Final = {"cells": "K", "radius": "Gamma"}


@frozen(kw_only=True)
class Plan:
    """How much to do.

    Attributes:
        out: folder of CSV and pictures.
        rome: Rome's published cells; None for even grids.
        limit: processor seconds a cell of a table may take.
        stretch: seconds on the clock for each of them, where the machine is shared.
        draws: of users.
        cells: of Tables 1 and 2; grids: sides of Figure 9a's; map_cells: of the table over Rome.
        epsilons: of the table over Rome, per km.
        users: of Figures 9b, 11 and 12; gammas, sides, ranges: of Figures 10a and 10b, and r_obf of one of our own.
        matrices: uploaded in Figure 13.
        city: cells of the figures that do not vary them.
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

    def workshop(self, cells: int) -> Workshop:
        """The map of so many cells."""
        if self.rome is None:
            rows = next(r for r in range(int(cells**0.5), 0, -1) if cells % r == 0)
            return Workshop(
                self.out / "maps" / f"grid{cells}",
                lambda settings, folder: grid(folder, rows, cells // rows, 0.45, settings, kind="travel-cost"),
            )
        source = self.rome
        return Workshop(
            self.out / "maps" / f"rome{cells}", lambda settings, folder: rome(source, folder, cells, settings)
        )


def _users(count: int, draw: int = 0) -> str:
    return f"{{ random = {count}, seed = {draw} }}"


def _record(
    plan: Plan,
    ledger: Ledger,
    key: dict[str, Any],
    earlier: Sequence[str],
    workshop: Workshop,
    settings: Settings,
    *,
    bounds: bool = False,
) -> None:
    """Run a cell, unless its row is there, or the limit was broken on a smaller map with the same ``earlier`` parts."""
    if ledger.has(*key.values()):
        return
    print(", ".join(f"{part} {value}" for part, value in key.items()), file=sys.stderr, flush=True)
    name = key["method"]
    broken = [row for row in ledger.rows if row["method"] == name and row["seconds"].startswith(">")]
    same = [row for row in broken if all(row[part] == str(key[part]) for part in earlier)]
    if same:
        swept = next(part for part in reversed(key) if part not in (*earlier, "method", "draw"))
        at = f"{SIGNS.get(swept, swept)} = {same[0][swept]}"
        ledger.add(**key, seconds=f"{same[0]['seconds'].split(' (')[0]} (already at {at})")
        return
    ledger.add(**key, **trial(workshop, name, settings, plan.limit, bounds=bounds, stretch=plan.stretch))


def tables(plan: Plan) -> None:
    """Tables 1 and 2: seconds and cost by method and K."""
    ledger = Ledger(plan.out / "tables.csv", ("method", "cells", "draw", *MEASURED), keys=3)
    for cells in plan.cells:
        workshop = plan.workshop(cells)
        for name in METHODS:
            for draw in range(plan.draws):
                settings = evolve(plan.settings, users=_users(4, draw))
                key = {"method": name, "cells": cells, "draw": draw}
                _record(plan, ledger, key, (), workshop, settings, bounds=name in ("LR-Geo", "LR-Geo-F"))


def city_table(plan: Plan) -> None:
    """Every method on growing pieces of the map, for several epsilons."""
    ledger = Ledger(plan.out / "city.csv", ("method", "cells", "epsilon_asked", *MEASURED), keys=3)
    workshops = {cells: plan.workshop(cells) for cells in plan.map_cells}
    for epsilon in reversed(plan.epsilons):
        for cells, workshop in workshops.items():
            for name in METHODS:
                settings = evolve(plan.settings, epsilon=epsilon)
                key = {"method": name, "cells": cells, "epsilon_asked": epsilon}
                _record(plan, ledger, key, ("epsilon_asked",), workshop, settings, bounds=name == "LR-Geo")


def rounds(plan: Plan) -> None:
    """Figure 6: bounds by round, from the exponential form alone, as the paper begins."""
    path = plan.out / "rounds.csv"
    if path.is_file():
        return
    ledger = Ledger(path, ("round", "seconds", "lower", "upper"), keys=1)
    for number, (seconds, lower, upper) in enumerate(matching.bounds_by_round(plan.workshop(100), plan)):
        ledger.add(round=number, seconds=seconds, lower=lower, upper=upper)


def even_grids(plan: Plan) -> None:
    """Figure 9a: seconds on even grids of K cells."""
    ledger = Ledger(plan.out / "grids.csv", ("method", "cells", "draw", *MEASURED), keys=3)
    for side in plan.grids:
        workshop = evolve(plan, rome=None).workshop(side * side)
        for draw in range(plan.draws):
            key = {"method": "LR-Geo", "cells": side * side, "draw": draw}
            settings = evolve(plan.settings, users=_users(4, draw))
            _record(plan, ledger, key, ("draw",), workshop, settings)


def more_users(plan: Plan) -> None:
    """Figures 9b, 11 and 12: seconds, and what rows of different users violate."""
    columns = ("method", "cells", "users", "draw", *MEASURED)
    ledger, workshop = Ledger(plan.out / "users.csv", columns, keys=4), plan.workshop(plan.city)
    for users in plan.users:
        for draw in range(plan.draws):
            key = {"method": "LR-Geo", "cells": plan.city, "users": users, "draw": draw}
            settings = evolve(plan.settings, users=_users(users, draw))
            _record(plan, ledger, key, ("users",), workshop, settings)


def larger_sets(plan: Plan) -> None:
    """Figure 10a: the approximation ratio by Gamma."""
    columns = ("method", "cells", "radius", "draw", *MEASURED)
    ledger, workshop = Ledger(plan.out / "gamma.csv", columns, keys=4), plan.workshop(plan.city)
    for radius in plan.gammas:
        for draw in range(plan.draws):
            key = {"method": "LR-Geo", "cells": plan.city, "radius": radius, "draw": draw}
            settings = evolve(plan.settings, radius=radius, users=_users(2, draw))
            _record(plan, ledger, key, ("draw",), workshop, settings, bounds=True)


def coarser_tables(plan: Plan) -> None:
    """Figure 10b: the approximation ratio by the cell of the cost reference table."""
    columns = ("method", "cells", "side", "draw", *MEASURED)
    ledger, workshop = Ledger(plan.out / "side.csv", columns, keys=4), plan.workshop(plan.city)
    for side in plan.sides:
        for draw in range(plan.draws):
            key = {"method": "LR-Geo", "cells": plan.city, "side": side, "draw": draw}
            settings = evolve(plan.settings, reference_cell_km=side, users=_users(4, draw))
            _record(plan, ledger, key, ("draw",), workshop, settings, bounds=True)


def exponents(plan: Plan) -> None:
    """f = 1 beside the paper's 1/2."""
    columns = ("method", "cells", "epsilon_asked", "exponent", "draw", *MEASURED)
    ledger, workshop = Ledger(plan.out / "exponents.csv", columns, keys=5), plan.workshop(plan.city)
    for epsilon in plan.epsilons:
        for exponent in (1.0, 0.5):
            for draw in range(plan.draws):
                made = {"epsilon_asked": epsilon, "exponent": exponent, "draw": draw}
                key = {"method": "LR-Geo", "cells": plan.city, **made}
                settings = evolve(plan.settings, epsilon=epsilon, exponent=exponent, users=_users(4, draw))
                _record(plan, ledger, key, tuple(made), workshop, settings)


def wider_ranges(plan: Plan) -> None:
    """Cost by r_obf, at an epsilon where what falls outside it matters; the paper has no such figure."""
    columns = ("method", "cells", "range", "draw", *MEASURED)
    ledger, workshop = Ledger(plan.out / "range.csv", columns, keys=4), plan.workshop(plan.city)
    for reach in plan.ranges:
        for draw in range(plan.draws):
            key = {"method": "LR-Geo", "cells": plan.city, "range": reach, "draw": draw}
            settings = evolve(plan.settings, epsilon="2.0", obfuscation_radius=reach, users=_users(4, draw))
            _record(plan, ledger, key, ("draw",), workshop, settings)


def matched_rows(plan: Plan) -> None:
    """Figure 13 and section 4.7: rows of the table that an uploaded coefficient may come from."""
    ledger = Ledger(plan.out / "matched.csv", ("side", *matching.COLUMNS), keys=1)
    workshop = plan.workshop(max(plan.map_cells))
    for side in plan.sides:
        if not ledger.has(side):
            ledger.add(side=side, **matching.matched(workshop, plan.settings, side, plan.matrices))


EXPERIMENTS: Final[dict[str, Callable[[Plan], None]]] = {
    "rounds": rounds,
    "tables": tables,
    "users": more_users,
    "grids": even_grids,
    "gamma": larger_sets,
    "side": coarser_tables,
    "matched": matched_rows,
    "exponents": exponents,
    "range": wider_ranges,
    "city": city_table,
}


def _plan(chosen: argparse.Namespace) -> Plan:
    if chosen.quick:
        return Plan(
            out=chosen.out,
            rome=chosen.rome,
            limit=chosen.limit or 5.0,
            draws=chosen.draws or 1,
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
    full = Plan(out=chosen.out, rome=chosen.rome)
    return evolve(
        full,
        limit=chosen.limit or (1800.0 if chosen.full else full.limit),
        stretch=chosen.stretch,
        draws=chosen.draws or (10 if chosen.full else full.draws),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="python plugins/lr-geo/experiments", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of CSV files and pictures; rows in it are kept")
    parser.add_argument("--rome", type=Path, help="folder of Rome's published cells; left out: even grids")
    parser.add_argument("--limit", type=float, help="processor seconds a cell may take (120; --full 1800)")
    parser.add_argument("--stretch", type=float, default=1.0, help="seconds on the clock for each, on a busy machine")
    parser.add_argument("--draws", type=int, help="draws of users (3; --full 10)")
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, metavar="NAME", help=", ".join(EXPERIMENTS))
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a minute's worth, for tests")
    size.add_argument("--full", action="store_true", help="the paper's draws and limits")
    chosen = parser.parse_args(arguments)
    plan = _plan(chosen)
    try:
        for name in chosen.only or EXPERIMENTS:
            EXPERIMENTS[name](plan)
            pictures.draw(plan.out)
    except PrivoptError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
