"""Nine places of a town for tests of engines, and how often each report is expected."""

import polars as pl

import privopt as po
from privopt.numbers import TOTAL
from privopt_tables.released_matrix import ReleasedMatrix

PLACES = {f"p{n}": (45.0 + 0.01 * (n // 3), 7.0 + 0.012 * (n % 3)) for n in range(9)}
TRIPS = 3000
COLUMNS = {"subject": "who", "row": "trip", "lat": "lat", "lon": "lon", "keep": ("place",)}
"""Arguments of ``batch``; the column ``place`` names each row's record, by which tests count reports."""
NOTES = "ignore::privopt.api.released.PrivoptWarning"


def coordinates_of(places):
    return {end: [coordinates[axis] for coordinates in places.values()] for axis, end in enumerate(("lat", "lon"))}


def expected_reports(release, places):
    """(9,) the expected numbers of each report over draws for some places, given how many of each."""
    matrix = release.opened.release
    rows = {name: row for row, name in enumerate(matrix.records.tolist())}
    shares = sum(count * (matrix.weights[rows[place]] / TOTAL) for place, count in places.items())
    return dict(zip(matrix.outputs.tolist(), shares, strict=True))


def run_tally(tally, part):
    """Run the first pass over a partition; in any process."""
    import pyarrow

    return pyarrow.Table.from_batches(tally(iter(part)))


def run_reports(plan, part):
    """Run the second pass."""
    import pyarrow

    return pyarrow.Table.from_batches(ReleasedMatrix.map_arrow(iter(part), plan))


def charges(folder):
    """Check the whole ledger; return what each subject has spent, and in how many charges."""
    with po.Ledger(folder / "book") as ledger:
        ledger.check()
        return {account.subject: (account.spent, account.reports) for account in ledger.accounts()}


def reports_by_id(tables):
    """Return the report of each row by its id; a row that comes twice must have the same one."""
    reports = {}
    for row, report in pl.concat(map(pl.from_arrow, tables)).select("trip", "report").iter_rows():
        assert reports.setdefault(row, report) == report
    return reports
