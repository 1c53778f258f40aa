"""README's figures are those of the benchmark pages: each stands in one place, where its command writes it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def rows(page):
    """Rows of all tables of a page, as lists of cells."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    return [[cell.strip() for cell in line[1:].rstrip("|").split("|")] for line in lines if line.startswith("| ")]


def number(text):
    return float(re.sub(r"[^\d.e-]", "", text))


def same(shown, measured):
    """Whether a figure of README is the measured one, to the digits that README has."""
    digits = len(re.sub(r"^0*\.?0*|\.", "", re.sub(r"[^\d.]", "", shown)))
    return float(f"{number(measured):.{digits}g}") == number(shown)


def test_readmes_table_is_that_of_the_solvers():
    head, *shown = [row for row in rows("README.md") if row[0] == "cells" or re.fullmatch(r"[\d,]+", row[0])]
    columns = {"privopt": "privopt auto", "CBC": "CBC dual"}
    measured = {(row[0], row[1]): row[2] for row in rows("docs/benchmarks.md") if len(row) == 10}
    compared = 0
    for cells, epsilon, *seconds in shown:
        for name, figure in zip(head[2:], seconds, strict=False):
            if figure:
                found = measured[f"{cells} cells, 8nb, e = {epsilon}", columns.get(name, name)]
                assert same(figure, found), (cells, epsilon, name, figure, found)
                compared += 1
    assert compared >= 13


def test_readmes_maps_are_those_of_the_city_page():
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    city = {(row[0], row[1]): row for row in rows("docs/benchmarks/city.md") if len(row) == 8}
    street, limited = (
        city["2,032 Rome street nodes, 3 per km", "optimal-lp --gap 1e-2"],
        city["the same", "optimal-lp --gap 1e-2 --time-limit 60"],
    )
    cells = city["900 Rome cells, 1 per km", "optimal-lp --gap 1e-2"]
    found = re.search(r"2,032 street nodes of Rome .*? in (\S+) s and (\S+) GB", text)
    assert found is not None
    assert same(found[1], street[2])
    assert same(found[2], street[3])
    found = re.search(r"loses (\.\d+) of the exponential's; 900 cells in (\S+) s", text)
    assert found is not None
    assert same(found[1], str(number(limited[4]) / number(city["the same", "exponential"][4])))
    assert same(found[2], cells[2])
