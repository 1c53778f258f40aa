"""Tables of reports: whole up to a hundred rows; above, the first fifty, their number, a CSV and a search."""

import base64
import csv
import io
import re

import pytest

from privopt.report.page import FIRST_ROWS, MAX_WHOLE_TABLE, table
from privopt.report.templates import render


def csv_of(html):
    """Return the rows of the CSV that a table's link contains."""
    data = re.search(r'href="data:text/csv;charset=utf-8;base64,([^"]+)"', html)[1]
    return list(csv.reader(io.StringIO(base64.b64decode(data).decode())))


def make_rows(count):
    return [(f'place "{n}", east', n, n / 7) for n in range(count)]


HEADER = ("place", "people", "share")


@pytest.mark.parametrize("count", [0, 1, MAX_WHOLE_TABLE])
def test_up_to_a_hundred_rows_are_shown_whole(count):
    html = table("Places", HEADER, make_rows(count))
    assert html.count("<tr>") == 1 + count
    assert " rows" not in html
    assert "search" not in render("privopt.report/document.html", title="Page", body=html).split("</style>")[1]


def test_longer_table_says_how_many_rows_it_hides():
    html = table("Places", HEADER, make_rows(540))
    assert html.count("<tr>") == 1 + FIRST_ROWS
    assert f"{FIRST_ROWS} of 540 rows" in html
    rows = csv_of(html)
    assert (len(rows), tuple(rows[0]), rows[540]) == (541, HEADER, ['place "539", east', "539", "77.0"])


def test_table_of_the_first_rows_alone_names_the_file_of_all():
    html = table("Places", HEADER, make_rows(60), total=3_000, file="tables/<age>.csv")
    assert "60 of 3,000 rows" in html
    assert "have the first 60" in html
    assert "tables/&lt;age&gt;.csv has all" in html


def test_wide_tables_become_lists_on_narrow_screens():
    assert 'class=""' in table("Places", HEADER, make_rows(3))
    wide = table("Pairs", [f"a long name {n}" for n in range(8)], [[12.5] * 8])
    assert 'class="lists"' in wide
    assert wide.count('data-label="a long name 3"') == 1
    # A position is not broken, so that it needs a line of its own.
    assert 'class="lists"' in table(
        "Pairs", ["place", "place", "km"], [["a (x 0.3 km, y 0.6 km)", "b (x 0.3 km, y 0.9 km)", 1.0]]
    )
    assert 'class="lists many"' in table("Pairs", [f"extraordinary {n}" for n in range(8)], [[12.5] * 8])


def test_cells_of_a_column_are_aligned_alike():
    html = table("Noise", ["scale", "share"], [["none", "5 %"], [6_250.0, "95 %"]])
    assert '<th scope="col" class=n>scale</th><th scope="col">share</th>' in html
    assert html.count('data-label="scale" class=n') == 2
    assert "95\u00a0%" in html
