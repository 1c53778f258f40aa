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


def is_same_figure(shown_text, measured_text):
    """Whether a figure of README is the measured one, to the digits that README has."""
    digits = len(re.sub(r"^0*\.?0*|\.", "", re.sub(r"[^\d.]", "", shown_text)))
    return float(f"{number(measured_text):.{digits}g}") == number(shown_text)


def test_readme_map_matches_the_city_page():
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    city = {(row[0], row[1]): row for row in rows("docs/benchmarks/city.md") if len(row) == 8}
    street = city["2,032 Rome street nodes, 3 per km", "optimal-lp --gap 1e-2"]
    time_and_memory = re.search(r"2,032 street nodes of Rome\b.*? in (\S+) s with (\S+) GB", text)
    assert time_and_memory is not None
    assert is_same_figure(time_and_memory[1], street[2])
    assert is_same_figure(time_and_memory[2], street[3])


def test_csv_of_the_solvers_is_their_table(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "bench"))
    import draw_measured

    table_rows = draw_measured.solver_rows()
    assert len(table_rows) > 50
    assert draw_measured.TABLE.read_text("utf-8") == draw_measured.csv_text(table_rows)
