"""Names in two Unicode forms are one name everywhere; names that differ in what no one sees are warned of."""

import itertools
import json
import unicodedata

import polars as pl
import pytest
from helpers.command import run
from helpers.mentions import assert_mentions
from hypothesis import given
from hypothesis import strategies as st

import privopt as po
from privopt import checker
from privopt.declare.frames import table_of
from privopt.declare.name_forms import find_look_alikes, normal_form, show_invisible
from privopt.declare.schema import File
from privopt.declare.tables import read_lines
from privopt.errors import InputError

COMPOSED, DECOMPOSED = "Zürich", "Zu\u0308rich"
HEAD = '[distance]\nkind = "haversine"\n[privacy]\nepsilon = 2.0\n[utility]\nkind = "distance"\n'
ACCENTED = st.text(alphabet="aeuoZ\u0308\u0301\u00e9\u212b\u1100\u1161\u00fc", min_size=1, max_size=6)


def write_points(folder, *ids):
    rows = "".join(f"{name},45,{7 + number / 100}\n" for number, name in enumerate(ids))
    (folder / "p.csv").write_text("id,lat,lon\n" + rows, "utf-8")
    (folder / "p.toml").write_text('[records]\npoints = "p.csv"\n' + HEAD, "utf-8")
    return folder / "p.toml"


@given(st.lists(ACCENTED, min_size=1, max_size=8), st.sampled_from(["NFC", "NFD", "NFKD"]))
def test_text_of_a_table_is_normalised(texts, form):
    normalised = [unicodedata.normalize(form, text) for text in texts]
    lines = "\n".join([f'"{unicodedata.normalize(form, "Ünit")}"', *(f'"{text}"' for text in normalised)]) + "\n"
    frame = table_of(File(name="t.csv", path=None, kept=lines.encode()))
    assert frame.columns == ["Ünit"]
    assert frame["Ünit"].to_list() == [normal_form(text) for text in normalised]


def test_lines_of_ids_are_normalised():
    file = File(name="ids.txt", path=None, kept=f"{DECOMPOSED}\nBern\n".encode())
    assert read_lines(file).tolist() == [COMPOSED, "Bern"]
    assert file.seen.instead == f"{COMPOSED}\nBern\n".encode()
    with pytest.raises(InputError, match="again"):
        read_lines(File(name="ids.txt", path=None, kept=f"{DECOMPOSED}\n{COMPOSED}\n".encode()))


@pytest.mark.parametrize(("written", "requested"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)])
def test_record_is_equal_in_either_form(tmp_path, written, requested):
    problem = write_points(tmp_path, written, "Bern")
    assert run("solve", "exponential", problem, "--out", tmp_path / "o", "--quiet").exit_code == 0
    assert COMPOSED in (tmp_path / "o/problem/p.csv").read_text("utf-8")
    assert run("sample", tmp_path / "o", "--input", requested).exit_code == 0
    (tmp_path / "t.csv").write_text(f"Ort{requested},n\n{requested},1\nBern,2\n", "utf-8")
    column = "Ort" + written
    completed = run("apply", tmp_path / "o", tmp_path / "t.csv", "--id", column, "--out", tmp_path / "s.csv")
    assert (completed.exit_code, "unknown" in completed.output) == (0, False), completed.output
    reports = pl.read_csv(tmp_path / "s.csv")
    assert reports["report"].null_count() == 0
    (tmp_path / "r.csv").write_text(f"report\n{requested}\nBern\n", "utf-8")
    sampled = run("estimate", tmp_path / "o", tmp_path / "r.csv", "--out", tmp_path / "est", "--quiet")
    assert sampled.exit_code == 0, sampled.output
    release = po.open(tmp_path / "o")
    assert release.sample(requested)[0] in (COMPOSED, "Bern")
    assert release.apply({"n": [1], column: [requested]}, id="Ort" + requested) is not None


def test_two_forms_of_one_id_are_duplicates(tmp_path):
    completed = run("solve", "exponential", write_points(tmp_path, COMPOSED, DECOMPOSED), "--out", tmp_path / "o")
    assert (completed.exit_code, "again" in completed.output) == (2, True)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_roads_and_priors_accept_either_form(tmp_path, form):
    write_points(tmp_path, DECOMPOSED, "Bern", COMPOSED.upper())
    names = [unicodedata.normalize(form, name) for name in (COMPOSED, "Bern", COMPOSED.upper())]
    roads = "".join(f"{a},{b},1.5\n" for a, b in itertools.pairwise(names))
    (tmp_path / "r.csv").write_text("from,to,km\n" + roads, "utf-8")
    (tmp_path / "q.csv").write_text("id,p\n" + "".join(f"{name},0.25\n" for name in names), "utf-8")
    (tmp_path / "q.toml").write_text(
        '[records]\npoints = "p.csv"\n[distance]\nkind = "graph"\nedges = "r.csv"\n[privacy]\nepsilon = 1.0\n'
        '[utility]\nkind = "distance"\nprior = "q.csv"\n'
    )
    completed = run("solve", "optimal-lp", tmp_path / "q.toml", "--out", tmp_path / "o", "--quiet")
    assert completed.exit_code in (0, 2), completed.output
    assert "no such node" not in completed.output
    assert "of a record" not in completed.output


@pytest.mark.parametrize(("column", "cell"), [*itertools.product(["NFC", "NFD", "NFKD"], ["NFC", "NFD"])])
def test_problem_columns_accept_either_form(tmp_path, column, cell):
    names = {key: unicodedata.normalize(column, f"{COMPOSED} {key}") for key in ("id", "lat", "lon")}
    header = ",".join(unicodedata.normalize(cell, name) for name in names.values())
    (tmp_path / "p.csv").write_text(f"{header}\n{unicodedata.normalize(cell, COMPOSED)},45,7\nBern,45,7.01\n", "utf-8")
    columns = "".join(f'{key} = "{name}"\n' for key, name in names.items())
    (tmp_path / "p.toml").write_text(f'[records]\npoints = "p.csv"\n[records.columns]\n{columns}{HEAD}', "utf-8")
    assert run("solve", "exponential", tmp_path / "p.toml", "--out", tmp_path / "o", "--quiet").exit_code == 0
    assert run("verify", tmp_path / "o").exit_code == 0
    lines = []
    assert checker.check(tmp_path / "o", write_line=lines.append) == 0, lines


@pytest.mark.parametrize("method", ["exponential", "optimal-lp"])
@pytest.mark.parametrize("table", ["records", "outputs"])
def test_warns_of_ids_that_look_alike(tmp_path, table, method):
    write_points(tmp_path, "Bern", "Zug")
    (tmp_path / "alike.csv").write_text("id,lat,lon\nThun,45,7\nTh\u200bun,45,7.01\n", "utf-8")
    points = {"records": "p.csv", "outputs": "p.csv", table: "alike.csv"}
    tables = "".join(f'[{name}]\npoints = "{file}"\n' for name, file in points.items())
    (tmp_path / "p.toml").write_text(tables + HEAD, "utf-8")
    completed = run("solve", method, tmp_path / "p.toml", "--out", tmp_path / "o")
    assert completed.exit_code == 0, completed.output
    assert_mentions(completed.stderr, "'Thun'", "'Th<U+200B>un'")
    assert completed.stderr.count("look alike") == 1


@pytest.mark.parametrize("unseen", ["\u200b", "\u200e", "\u00ad", "\u2060", "\ufe0f"])
def test_names_that_look_alike_are_shown(tmp_path, unseen):
    completed = run("solve", "exponential", write_points(tmp_path, "Bern", f"Be{unseen}rn"), "--out", tmp_path / "o")
    assert completed.exit_code == 0
    assert_mentions(completed.stderr, "'Bern'", f"'Be<U+{ord(unseen):04X}>rn'")
    assert json.loads((tmp_path / "o/result.json").read_text())


@given(st.text(alphabet="ab \u00a0\u200b\u00adé", max_size=5), st.text(alphabet="ab \u00a0\u200b\u00adé", max_size=5))
def test_look_alikes_are_those_that_print_alike(a, b):
    def visible(text):
        return " ".join(text.replace("\u200b", "").replace("\u00ad", "").split())

    a, b = a.strip(), b.strip()
    assert bool(find_look_alikes([a, b])) == (a != b and visible(a) == visible(b))
    assert "\u200b" not in show_invisible(a)
