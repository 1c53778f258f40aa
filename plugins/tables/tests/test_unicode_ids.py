"""Canonically equivalent names are one in every command of tables; names alike but for unseen characters are told."""

import json
import unicodedata

import polars as pl
import pytest
from helpers.charging import run_command
from helpers.lake import run_tally
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import privopt as po
from privopt.run.solve import solve
from privopt.run.verify import open_verified
from privopt_tables.apply import apply_in_memory
from privopt_tables.options import ApplyOptions

PROBLEM = '[records]\npoints = "points.csv"\n[distance]\nkind = "haversine"\n[privacy]\nepsilon = 2.0\n'
MARKED = "ÀéîõüçñǍșţḧḳőŕẃẏźģĩůÅΆΐЙйԷがぱ한글ẛ̣ḍ̇ậῷ"
"""Letters whose decomposed form is another sequence of characters."""

NAMES = st.lists(
    st.text(st.sampled_from([*MARKED, *"abz"]), min_size=1, max_size=6).filter(lambda text: not text.isascii()),
    min_size=3,
    max_size=5,
    unique_by=lambda text: unicodedata.normalize("NFC", text),
).filter(lambda names: all(text == text.strip() for text in names))
FORMS = st.sampled_from(["NFC", "NFD"])


def town(folder, names, form):
    """Return DIR of places of these names, written in a form."""
    rows = [f"{unicodedata.normalize(form, name)},45,{7 + 0.01 * k}" for k, name in enumerate(names)]
    (folder / "points.csv").write_text("\n".join(["id,lat,lon", *rows]) + "\n", "utf-8")
    (folder / "p.toml").write_text(PROBLEM + '[utility]\nkind = "distance"\n')
    return solve("exponential", folder / "p.toml", folder / "out").folder


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=NAMES, stored=FORMS, written=FORMS)
def test_ids_columns_and_subjects_are_one_in_all_their_forms(tmp_path_factory, names, stored, written):
    folder = tmp_path_factory.mktemp("forms")
    release = town(folder, names, stored)
    cells = [unicodedata.normalize(form, name) for name in names for form in ("NFC", "NFD")]
    column, other, subject = (unicodedata.normalize(written, name) for name in ("Plätze", "Größe", "Käufer"))
    subjects = [unicodedata.normalize(form, "Zoë") for _ in names for form in ("NFC", "NFD")]
    for ending in ("csv", "parquet"):
        table = pl.DataFrame({column: cells, other: cells, "n": range(len(cells)), subject: subjects})
        path, out, book = (folder / name for name in (f"t.{ending}", f"s.{ending}", f"{ending}.book"))
        table.write_csv(path) if ending == "csv" else table.write_parquet(path)
        # The other form than that of the table, and one of the two ways to name a column of ids.
        form = "NFC" if written == "NFD" else "NFD"
        asked, kept, whom = (unicodedata.normalize(form, name) for name in ("Plätze", "Größe", "Käufer"))
        way = ["--id", asked] if ending == "csv" else ["--position", f"p={asked}"]
        code, text, err = run_command(
            *("apply", release, path, "--out", out, *way, "--keep", kept, "--subject", whom, "--ledger", book),
            *("--json", "--quiet"),
        )
        assert code == 0, err
        assert json.loads(text)["refused"] == {}
        with po.Ledger(book) as ledger:
            assert [account.subject for account in ledger.accounts()] == [unicodedata.normalize("NFC", "Zoë")]
    for name in cells:
        assert run_command("sample", release, "--input", name)[0] == 0
    copies = [unicodedata.normalize(form, name) for name in names for form in ("NFD", "NFC")]
    pl.DataFrame({column: cells * 8, other: copies * 8}).write_csv(folder / "many.csv")
    arguments = ("apply", release, folder / "many.csv", "--out", folder / "d.csv", "--id", column, "--json")
    code, text, err = run_command(*arguments)
    assert json.loads(text)["dropped"] == [unicodedata.normalize("NFC", "Größe")], err


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=NAMES, stored=FORMS, written=FORMS)
def test_partitions_take_columns_and_ids_in_all_their_forms(tmp_path_factory, names, stored, written):
    pa = pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("parts")
    release = po.open(town(folder, names, stored))
    cells = [unicodedata.normalize(form, name) for name in names for form in ("NFC", "NFD")]
    column, subject = (unicodedata.normalize(written, name) for name in ("Plätze", "Käufer"))
    table = pa.table({column: cells, subject: ["Zoë"] * len(cells), "é": list(range(len(cells)))})
    asked = {
        "id": "Plätze",
        "subject": unicodedata.normalize("NFD", "Käufer"),
        "row": unicodedata.normalize("NFD", "é"),
    }
    with release.batch("b", ledger=folder / "book", **asked) as batch:
        plan = batch.charge(run_tally(batch.tally, table.to_batches()))
        made = pa.Table.from_batches(release.map_arrow(iter(table.to_batches()), plan))
        assert plan.schema(table.schema) == made.schema
    assert made.column_names[:2] == [unicodedata.normalize("NFC", "Käufer"), "é"]
    assert made["report"].null_count == 0


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_init_takes_equivalent_ids_for_one(form, tmp_path):
    names = [unicodedata.normalize("NFC", "Zürich"), unicodedata.normalize(form, "Zürich"), "Bern"]
    rows = [f"{name},45,{7 + 0.01 * k}" for k, name in enumerate(names)]
    (tmp_path / "t.csv").write_text("\n".join(["id,lat,lon", *rows]) + "\n", "utf-8")
    code, _, err = run_command(
        "init", "exponential", "--points", tmp_path / "t.csv", "--id", "id", "--out", tmp_path / "p.toml"
    )
    assert code == 2
    assert "row 3" in err


UNSEEN = ["\u200b", "\u00ad", "\u2060", "\ufeff", "\u200e", "\ufe0f"]


@pytest.mark.parametrize("sign", UNSEEN)
def test_names_alike_but_for_unseen_characters_are_told(sign, tmp_path):
    rows = [f"{name},45,{7 + 0.01 * k}" for k, name in enumerate(["Zürich", f"Zür{sign}ich", "Bern"])]
    (tmp_path / "t.csv").write_text("\n".join(["id,lat,lon", *rows]) + "\n", "utf-8")
    init = ["init", "exponential", "--points", tmp_path / "t.csv", "--id", "id", "--out", tmp_path / "p.toml"]
    code, _, err = run_command(*init)
    assert code == 0, err
    assert "look alike" in err
    assert f"U+{ord(sign):04X}" in err
    folder = town(tmp_path, ["Zürich", "Bern", "Chur"], "NFC")
    table = {"spot": [f"Zür{sign}ich", "Bern", f"Be{sign}rn", "Basel"]}
    _, notes = apply_in_memory(open_verified(folder), table, {"id": "spot"}, ApplyOptions())
    assert any("column spot: 2 rows" in note and "no one sees" in note for note in notes), notes
    assert not any("rich" in note for note in notes)
