"""Tables of a statistical office from its residents: docs/used-for/census-table.md as one script.

``python docs/used-for/census.py [--small] [--out FOLDER]``. The numbers of people of the upper levels are published
exactly, all else under zCDP with rho .1. What is published is then checked against the truth without privopt: regions
and tables must add up, exact numbers must be exact, and intervals must contain the true counts. For comparison, each
county's cells get noise of their own and are added up.

The full size has 2.8 million persons of the counties of five states (PRIVOPT_DATA, US Census Bureau 2019) by 19
ages and 2 sexes; the small one 36,000 of 6 districts by 4 ages and 2 sexes. Ages and sexes are invented.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
from job import data_path, main, privopt
from numpy.typing import NDArray

RHO = 0.1
STATES = ("Connecticut", "Maine", "New Hampshire", "Vermont", "Hawaii")


def read_counties() -> dict[tuple[str, str], int]:
    """Return a third of the number of people of each county of some states, by state and county.

    Names of counties include the state, because three of these counties have a namesake in another state.
    """
    with data_path("us_counties", "co_est2019.csv").open() as stream:
        return {
            (row["STNAME"], f"{row['CTYNAME']} ({row['STNAME']})"): int(row["POPESTIMATE2019"]) // 3
            for row in csv.DictReader(stream)
            if row["SUMLEV"] == "50" and row["STNAME"] in STATES
        }


def write_people(folder: Path, *, small: bool) -> None:
    """Write the secret counts (people.csv), the public regions (regions.csv) and the problem (census.toml)."""
    rng = np.random.default_rng(2019)
    sizes = {(f"S{number // 3}", f"D{number}"): 6_000 for number in range(6)} if small else read_counties()
    ages = [f"a{number:02d}" for number in range(4 if small else 19)]
    shares = rng.dirichlet(np.full(2 * len(ages), 8.0))
    lines = []
    for (state, county), people in sizes.items():
        counts = rng.multinomial(people, rng.dirichlet(400 * shares))
        lines += [
            f"Land,{state},{county},{age},{sex},{count}"
            for (age, sex), count in zip([(age, sex) for age in ages for sex in ("f", "m")], counts, strict=True)
        ]
    (folder / "people.csv").write_text("\n".join(["level_1,level_2,level_3,age,sex,count", *lines]) + "\n")
    regions = [f"Land,{state},{county}" for state, county in sizes]
    (folder / "regions.csv").write_text("\n".join(["level_1,level_2,level_3", *regions]) + "\n")
    names = ", ".join(f'"{age}"' for age in ages)
    (folder / "census.toml").write_text(
        'title = "Residents by age and sex"\n'
        '[hierarchy]\nregions = "regions.csv"\nrecords = "people.csv"  # secret\nexact = ["level_2"]\n'
        f'[hierarchy.attributes]\nage = [{names}]\nsex = ["f", "m"]\n'
        '[hierarchy.tables.age]\nby = ["age"]\n[hierarchy.tables.age_sex]\nby = ["age", "sex"]\n'
        f'[privacy]\nkind = "zcdp"\nrho = {RHO}\n'
    )


def count_truth(folder: Path) -> dict[tuple[str, ...], int]:
    """Return the true count of each region (at all levels) by age, and by age and sex."""
    counts: dict[tuple[str, ...], int] = defaultdict(int)
    with (folder / "people.csv").open() as stream:
        for row in csv.DictReader(stream):
            for level in ("level_1", "level_2", "level_3"):
                counts[row[level], row["age"]] += int(row["count"])
                counts[row[level], row["age"], row["sex"]] += int(row["count"])
    return dict(counts)  # an unknown region is an error


def add_up_noise(folder: Path, truth: dict[tuple[str, ...], int]) -> NDArray[np.float64]:
    """Return the absolute errors of the states' counts by age and sex if noisy counts of counties were added up.

    The promise is the release's own: the values of one person are replaced by others. Of the cells of one table, one
    then loses 1 and one gains 1, which is 2 in squares, so normal noise of variance 2 / (2 rho) has rho-zCDP.
    """
    rng = np.random.default_rng(0)
    with (folder / "regions.csv").open() as stream:
        state_by_county = {row["level_3"]: row["level_2"] for row in csv.DictReader(stream)}
    errors: dict[tuple[str, ...], float] = defaultdict(float)
    for region, *cell in truth:
        if region in state_by_county and len(cell) == 2:
            errors[state_by_county[region], *cell] += rng.normal(0, RHO**-0.5)
    return np.abs(list(errors.values()))


def run_job(folder: Path, *, small: bool) -> dict[str, float]:
    """Publish the tables, check them, and return mean errors in people and the share of intervals that hold."""
    write_people(folder, small=small)
    privopt(folder, "plan", "hierarchical-tables", "census.toml")
    privopt(folder, "solve", "hierarchical-tables", "census.toml", "--out", "published", "--quiet")
    privopt(folder, "verify", "published", "--quiet")
    privopt(folder, "report", "published", "--quiet")
    truth = count_truth(folder)
    states = _read_column(folder / "regions.csv", "level_2")
    published: dict[tuple[str, ...], int] = {}
    held, parents = [], {}
    for table, columns in (("age", ["age"]), ("age_sex", ["age", "sex"])):
        with (folder / "published" / "tables" / f"{table}.csv").open() as stream:
            for row in csv.DictReader(stream):
                key = (row["region"], *(row[column] for column in columns))
                published[key] = int(row["count"])
                parents[row["region"]] = row["parent"]
                held.append(int(row["low"]) <= truth[key] <= int(row["high"]))
    errors = {key: abs(count - truth[key]) for key, count in published.items()}
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (region, *cell), count in published.items():
        if len(cell) == 1:
            totals[region][0] += count
            totals[region][1] += truth[region, *cell]
    state_errors = [error for key, error in errors.items() if key[0] in states and len(key) == 3]
    return {
        "people": totals["Land"][1],
        "sums_that_differ": _count_broken_sums(published, parents),
        "exact_numbers_that_differ": sum(totals[region][0] != totals[region][1] for region in [*states, "Land"]),
        "intervals_held": float(np.mean(held)),
        "state_error": float(np.mean(state_errors)),
        "state_error_of_added_noise": float(add_up_noise(folder, truth).mean()),
        "county_error": float(np.mean([e for k, e in errors.items() if k[0] not in {*states, "Land"} and len(k) == 3])),
    }


def _read_column(path: Path, column: str) -> set[str]:
    """Return the values of a column of a CSV file."""
    with path.open() as stream:
        return {row[column] for row in csv.DictReader(stream)}


def _count_broken_sums(published: dict[tuple[str, ...], int], parents: dict[str, str]) -> int:
    """Return how many counts are not the sums of the counts of their parts: of regions, and of sexes.

    Args:
        published: The counts by region, age and (in one table) sex.
        parents: The region that contains each region; empty for the largest one.
    """
    sums: dict[tuple[str, ...], int] = defaultdict(int)
    for key, count in published.items():
        if parents[key[0]]:
            sums[("regions", parents[key[0]], *key[1:])] += count
        if len(key) == 3:
            sums[("sexes", *key[:2])] += count
    return sum(published[key[1:]] != count for key, count in sums.items())


if __name__ == "__main__":
    main(__doc__, run_job)
