"""Tables of counts as offices publish them, with labels, flags, years, codes and several measures: no count leaks."""

from __future__ import annotations

import csv
import random
import tomllib
from itertools import product

import pytest
from helpers.command import run
from hypothesis import given, settings
from hypothesis import strategies as st

NAMES = (
    *("Anzahl", "Effectif", "Liczba", "OBS_VALUE", "n", "pop", "antal", "Ludność", "lukumäärä", "Personen", "Kiekis"),
    *("Népesség", "Население", "Πληθυσμός", "BEV_INSG", "v", "X", "P0010001", "Stand", "col5", "k", "Zensus2021"),
)
SEXES = (("F", "M"), ("1", "2"), ("Frauen", "Männer"), ("Kobiety", "Mężczyźni"), ("W", "M", "X"), ())
AGES = (
    ("0-14", "15-64", "65+"),
    ("1", "2", "3", "4"),
    ("0", "10", "20", "30", "40", "50", "60", "70", "80"),
    ("A00", "A01"),
    (),
)
YEARS = (("2021",), ("2019", "2020", "2021"), ("2021-Q1",), ())
MEASURES = ("deaths", "Haushalte", "births", "m2", "OBS_VALUE_2")


@st.composite
def ordinary_tables(draw):
    """Return the header, rows, name of the count and names of other measures of a table of counts."""
    sexes, ages, years = draw(st.sampled_from(SEXES)), draw(st.sampled_from(AGES)), draw(st.sampled_from(YEARS))
    levels, areas = draw(st.integers(1, 3)), draw(st.integers(1, 20))
    has_label, has_flag, has_constants, has_index = (draw(st.booleans()) for _ in range(4))
    size, round_to = draw(st.sampled_from([3, 6, 20, 300, 5000])), draw(st.sampled_from([1, 1, 3, 5, 10]))
    missing = draw(st.sampled_from(["", "", "one", "zeros", "some"]))
    name = draw(st.sampled_from(NAMES))
    measures = draw(st.lists(st.sampled_from(MEASURES), max_size=2, unique=True))
    chance = random.Random(draw(st.integers(0, 10**6)))
    columns = {f"level_{level}": None for level in range(1, levels + 1)}
    regions = [
        ("DE", f"DE{area % 4}", f"DE{area % 4}{area:02d}")[:levels] for area in range(areas if levels > 1 else 1)
    ]
    columns |= {"sex": None} if sexes else {}
    columns |= {"age": None} if ages else {}
    columns |= {"age label": None} if ages and has_label else {}
    columns |= {"TIME_PERIOD": None} if years else {}
    rows = []
    for region, sex, age, year in product(dict.fromkeys(regions), sexes or ("",), ages or ("",), years or ("",)):
        cells = [*region, *filter(None, [sex, age, f"label {age}" if age and has_label else "", year])]
        value = int(chance.expovariate(1 / size)) // round_to * round_to
        rows.append(
            [*cells, *(["A", "0"] if has_constants else []), str(value)]
            + [str(int(value * chance.random())) for _ in measures]
            + ([chance.choice(["", "", "p", "e"])] if has_flag else [])
        )
    if missing == "one" and len(rows) > 2:
        rows.pop(chance.randrange(len(rows)))
    position = len(rows[0]) - 1 - len(measures) - has_flag
    if missing == "zeros":
        rows = [row for row in rows if row[position] != "0"]
    if missing == "some":
        rows = [row for row in rows if chance.random() > 0.2]
    header = [*columns, *(["FREQ", "DECIMALS"] if has_constants else []), name, *measures, *(["OBS_FLAG"] * has_flag)]
    if has_index:
        header, rows = ["", *header], [[str(number), *row] for number, row in enumerate(rows)]
    return header, rows, name, measures


def write_table(path, header, rows):
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


def draft(folder, header, rows, *options):
    """Draft a problem; return its exit code, messages, and the keys of [hierarchy], {} if there is none."""
    table, problem = write_table(folder / "t.csv", header, rows), folder / "p.toml"
    done = run("init", "hierarchical-tables", "--points", table, "--out", problem, "--force", *options)
    hierarchy = tomllib.loads(problem.read_text())["hierarchy"] if done.exit_code == 0 else {}
    assert done.exit_code in (0, 2), done.output
    assert (done.exit_code == 0) == problem.exists()
    return done.exit_code, done.output, hierarchy


@settings(max_examples=60)
@given(ordinary_tables())
def test_no_measure_of_an_ordinary_table_is_an_attribute(tmp_path_factory, table):
    """If all true counts are 0, another measure that is called so may be taken, but none is published."""
    header, rows, name, measures = table
    if not rows:
        return
    code, output, hierarchy = draft(tmp_path_factory.mktemp("t"), header, rows)
    if code:
        assert "--count" in output or "--total" in output, output
        return
    assert not {name, *measures} & {*hierarchy["attributes"]}, (header, rows)
    varies = len({row[header.index(name)] for row in rows}) > 1
    assert hierarchy["count"] == name or not varies, (header, rows)


@pytest.mark.parametrize(("name", "ages"), list(zip(NAMES[:16], 4 * AGES[:4], strict=True)))
def test_a_usual_name_needs_no_question(tmp_path, name, ages):
    chance = random.Random(name)
    header = ["level_1", "level_2", "sex", "age", "age label", "TIME_PERIOD", "FREQ", name, "OBS_FLAG"]
    rows = [
        ["DE", f"DE{area}", sex, age, f"label {age}", "2021", "A", chance.randrange(400), chance.choice(["", "p"])]
        for area, sex, age in product(range(9), ("F", "M"), ages)
    ]
    code, output, hierarchy = draft(tmp_path, header, rows)
    assert (code, hierarchy.get("count")) == (0, name), output


@pytest.mark.parametrize("values", [[3, 4], [5, 5, 4], [7, 7, 7, 2], [1, 0, 0, 0, 2, 1, 0, 0, 1]])
def test_a_short_table_of_one_region_is_asked_about(tmp_path, values):
    rows = [["DE", f"group {number}", value] for number, value in enumerate(values)]
    code, output, _ = draft(tmp_path, ["level_1", "branch", "v"], rows)
    assert (code, "column v" in output) == (2, True), output


def test_a_long_table_of_one_region_is_asked_about(tmp_path):
    """Neither texts nor ages that differ in each row are ids of individuals unless they are called so."""
    chance = random.Random(1)
    for keys in ([str(age) for age in range(101)], [f"branch {number}" for number in range(101)]):
        rows = [["DE", key, chance.randrange(9)] for key in keys]
        code, output, _ = draft(tmp_path, ["level_1", "kind", "v"], rows)
        assert (code, "column v" in output) == (2, True), output
        (tmp_path / "p.toml").unlink(missing_ok=True)


def test_districts_of_one_name_in_two_provinces_are_two(tmp_path):
    header = ["level_1", "level_2", "level_3", "sex", "count"]
    rows = [["US", state, "Springfield", sex, n] for state, n in (("Ohio", 40), ("Maine", 900)) for sex in "FM"]
    assert draft(tmp_path, header, rows)[0] == 0
    completed = run("solve", "hierarchical-tables", tmp_path / "p.toml", "--out", tmp_path / "o")
    assert completed.exit_code == 0, completed.output
    with (tmp_path / "o" / "tables" / "people.csv").open() as stream:
        people = {row["region"]: int(row["count"]) for row in csv.DictReader(stream)}
    assert abs(people["Ohio/Springfield"] - 80) < 60
    assert abs(people["Maine/Springfield"] - 1800) < 60


@given(
    rows=st.integers(8, 60),
    column=st.sampled_from(["name", "birthdate", "email", "Geburtsdatum", "street"]),
    repeats=st.integers(0, 3),
)
@settings(max_examples=15)
def test_values_that_identify_persons_stay_secret(tmp_path_factory, rows, column, repeats):
    folder = tmp_path_factory.mktemp("persons")
    cells = [f"value-{number}" for number in range(rows - repeats)] + ["value-0"] * repeats
    with (folder / "persons.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["level_1", "level_2", column, "sex"])
        writer.writerows(["NL", "AB"[row % 2], cell, "mf"[row % 2]] for row, cell in enumerate(cells))
    problem = folder / "problem.toml"
    completed = run("init", "hierarchical-tables", "--points", folder / "persons.csv", "--out", problem)
    assert completed.exit_code == 0, completed.output
    assert column in completed.output
    assert "value-" not in problem.read_text() + completed.output
    assert list(tomllib.loads(problem.read_text())["hierarchy"]["attributes"]) == ["sex"]
