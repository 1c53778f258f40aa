"""Public files are no function of how a secret file was written, nor of the secret but through its noise.

Over every mechanism with additive noise, every method with a guarantee: copies of a secret table in another order and
another form of the same numbers give the same public bytes under the same seed; neighbouring inputs give the same
public bytes where the noise makes their noisy values the same.
"""

from __future__ import annotations

import csv
import io
import json
import random

import numpy as np
import polars as pl
import pytest
from helpers.mended_sums import edit

from privopt.errors import UsageError
from privopt.files.release_folder import PRIVATE, SUMS, dump_json
from privopt.report.write_report import write_geo, write_report
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.testing import GeneratedProblem, npy_bytes

# --- the same table, written otherwise ------------------------------------------------------------------


def _cell(text, chance):
    """Return a number or name, as another program may write it."""
    if text.isdigit() and str(int(text)) == text and chance.random() < 0.3:
        text += ".0"
    elif text.replace(".", "", 1).isdigit() and "." in text and chance.random() < 0.3:
        text += "000"
    return f" {text}" if chance.random() < 0.1 else text


def rewrite_table(
    table, chance, order=None, numbers=("size", "groups", "quantity", "count", "clients", "x", "y", "lat", "lon")
):
    """Rewrite a CSV: rows and columns in another order, quotes, a BOM or CRLF, and an unread column."""
    header, *rows = csv.reader(io.StringIO(table.decode()))
    rows = [rows[index] for index in (order if order is not None else chance.sample(range(len(rows)), len(rows)))]
    columns = chance.sample(range(len(header)), len(header))
    number = {index for index, name in enumerate(header) if name in numbers}
    lines = [[header[index] for index in columns] + ["remark"]]
    lines += [
        [_cell(row[c], chance) if c in number else row[c] for c in columns] + [str(n)] for n, row in enumerate(rows)
    ]
    text = io.StringIO()
    quoting = chance.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
    csv.writer(text, quoting=quoting, lineterminator=chance.choice(["\n", "\r\n"])).writerows(lines)
    return chance.choice([b"", b"\xef\xbb\xbf"]) + text.getvalue().encode()


def export_again(problem, chance):
    """Write the problem with its secret table sorted by the secret, or shuffled, zeros omitted; a matrix follows."""
    name = next(name for name in problem.files if name.endswith(".csv"))
    header, *rows = csv.reader(io.StringIO(problem.files[name].decode()))
    order = chance.sample(range(len(rows)), len(rows))
    if header[-1] == "groups" and chance.random() < 0.5:  # absent pairs are 0; a region stays by some row
        first_rows = {tuple(rows[row_number][:-2]): row_number for row_number in order}.values()
        order = [row_number for row_number in order if rows[row_number][-1] != "0" or row_number in first_rows]
    if chance.random() < 0.5:  # as GROUP BY writes it
        order.sort(key=lambda row_number: int(rows[row_number][-1] or 0), reverse=chance.random() < 0.5)
    problem = problem.with_file(name, rewrite_table(problem.files[name], chance, order))
    for matrix in (name for name in problem.files if name.endswith(".npy")):
        values = np.load(io.BytesIO(problem.files[matrix]))[np.ix_(order, order)]
        problem = problem.with_file(matrix, npy_bytes(np.asfortranarray(values)))
    return problem


# --- what may be published --------------------------------------------------------------------------------


def public_state(folder):
    """Mode and contents of everything outside private/, times aside."""
    state_by_name = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.split("/")[0] == PRIVATE:
            continue
        contents = path.read_bytes() if path.is_file() else None
        if name == "result.json":
            result = json.loads(contents)
            assert result.pop("time")
            contents = dump_json(result)
        elif name == SUMS:
            contents = [line for line in contents.decode().splitlines() if not line.endswith("  result.json")]
        state_by_name[name] = path.stat().st_mode, contents
    return state_by_name


def solve_problem(mechanism, method, problem, folder, **options):
    path = problem.write(folder / "given")
    return solve(mechanism, path, folder / "out", Options(method=method, force=True, **options)).folder


LOCATIONS = "id,lat,lon,facility_cost,opening_cost,clients\n" + "".join(
    f"{name},{41 + n % 3 / 10},{12 + n % 4 / 10},0.{1 + n % 2},0.5,{clients}\n"
    for n, (name, clients) in enumerate([("b", 3), ("é", 0), ("a", 7), ("B", 3), ("10", 40), ("9", 5), ("Z", 0)])
)
SERVED = '[locations]\npoints = "locations.csv"\n[privacy]\nepsilon = 1.0\n'


@pytest.mark.parametrize("drop", ["", "opening_cost"])
def test_row_order_reveals_nothing_of_locations(tmp_path, drop):
    """Ties by cost and distance, delta chosen by the noise, ids beyond ASCII; report and map too."""
    rows = [row.split(",") for row in LOCATIONS.splitlines()]
    kept_columns = [column for column, name in enumerate(rows[0]) if name != drop]
    table = "".join(",".join(row[column] for column in kept_columns) + "\n" for row in rows).encode()
    problem = GeneratedProblem(toml=SERVED, files={"locations.csv": table})
    states = []
    for number in range(2):
        exported = export_again(problem, random.Random(number)) if number else problem
        folder = solve_problem("fl-linear", "reconnection", exported, tmp_path / str(number), seed=1)
        states.append((public_state(folder), *_report_and_map(folder)))
    assert states[0] == states[1]
    names = [row.split(b",")[0].decode() for row in states[0][0]["connections.csv"][1].splitlines()[1:]]
    assert names == sorted(rows[column][0] for column in range(1, 8)) == ["10", "9", "B", "Z", "a", "b", "é"]


def _report_and_map(folder):
    """Report and map of a folder whose times are made equal, so that they are of one make."""
    edit(folder, lambda r: r.update(time=dict.fromkeys(r["time"], 1.0)))
    report = write_report(folder).read_bytes()
    try:
        return report, write_geo(folder, folder.parent / "map.geojson").read_bytes()
    except UsageError:
        return report, b"no map"


UNITS = '[hierarchy]\nunits = "units.csv"\nsizes = 3\n[privacy]\nepsilon = 1.0\n'


@pytest.mark.parametrize("method", ["cumulative-smoothed", "hierarchical-dp"])
def test_row_order_reveals_nothing_of_units(tmp_path, method):
    people = [
        ("US", state, unit, 1) for state, units in (("NY", "aab"), ("GA", "ccdee"), ("AK", "f")) for unit in units
    ]
    table = "level_1,level_2,unit,quantity\n" + "".join(",".join(map(str, row)) + "\n" for row in people)
    problem = GeneratedProblem(toml=UNITS, files={"units.csv": table.encode()})
    states = []
    for number in range(2):
        exported = problem
        if number:
            exported = problem.with_file("units.csv", rewrite_table(table.encode(), random.Random(number)))
        folder = solve_problem("hierarchical-dp", method, exported, tmp_path / str(number), seed=1)
        states.append((public_state(folder), *_report_and_map(folder)))
    assert states[0] == states[1]
    frame = pl.read_csv(table.encode()).sample(fraction=1.0, shuffle=True, seed=1)
    frame.with_columns(pl.col("quantity").cast(pl.Float64)).write_parquet(tmp_path / "units.parquet")
    (tmp_path / "problem.toml").write_text(UNITS.replace("units.csv", "units.parquet"))
    output_folder = solve(
        "hierarchical-dp", tmp_path / "problem.toml", tmp_path / "out", Options(method=method, seed=1)
    ).folder
    for name in ("release.csv", "noisy.npz"):
        assert public_state(output_folder)[name] == states[0][0][name]
    regions = [row.split(b",")[0].decode() for row in states[0][0]["release.csv"][1].splitlines()[1:]]
    assert regions == sorted(regions)
