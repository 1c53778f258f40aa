"""`--drop` and `--hash`: ids of people leave the table or become keyed hashes, and a note names those that stay."""

import hashlib
import json

import polars as pl
import pytest
from helpers.charging import BY_ID, run_command, table
from hypothesis import given
from hypothesis import strategies as st

import privopt as po
from privopt.declare.name_forms import fold_subject_name
from privopt.errors import UsageError
from privopt.ledger.charge import Charge
from privopt.ledger.ledger import Ledger
from privopt.ledger.subject_names import Names, derive_column_key, hash_name
from privopt_tables.apply import apply
from privopt_tables.options import ApplyOptions


def run_apply(town, tmp_path, *options, rows=("anna,p0", "bert,p1", "anna,p2"), out="o.csv"):
    rows = table(tmp_path / "t.csv", rows)
    code, _, err = run_command("apply", town, rows, "--id", "place", "--out", tmp_path / out, *options)
    return code, err, pl.read_csv(tmp_path / out) if (tmp_path / out).exists() else None


@pytest.mark.parametrize("ledger", [[], ["--ledger", "l", "--subject", "who"]])
def test_drops_a_column_after_its_subjects_are_charged(town, tmp_path, monkeypatch, ledger):
    monkeypatch.chdir(tmp_path)
    code, err, output = run_apply(town, tmp_path, "--drop", "who", *ledger)
    assert code == 0, err
    assert output.columns == ["report", "report_x", "report_y"]
    assert "in clear" not in err
    if ledger:
        assert [account.spent for account in Ledger(tmp_path / "l").accounts()] == [1, 0.5]


def test_hashes_follow_the_key_and_not_the_ledgers_names(town, tmp_path):
    key = tmp_path / "key"
    charged = ["--ledger", tmp_path / "l", "--subject", "who", "--hash-subjects", key, "--hash", "who"]
    code, err, output = run_apply(town, tmp_path, *charged)
    assert code == 0, err
    hashes = output["who"].to_list()
    assert output.columns[0] == "who"
    assert hashes[0] == hashes[2] != hashes[1]
    assert "anna" not in err
    assert key.read_text().strip() not in err
    # Neither a hash without the key, nor the name under which the ledger charges.
    named = {hashlib.sha256(b"anna").hexdigest()[:32], *(a.subject[:32] for a in Ledger(tmp_path / "l").accounts())}
    assert hashes[0] not in named
    # The key's file alone gives the same hashes, so that another night's table can be joined.
    _, _, same = run_apply(town, tmp_path, "--hash", "who", "--hash-key", key, out="same.csv")
    assert same["who"].to_list() == hashes
    _, _, different = run_apply(town, tmp_path, "--hash", "who", "--hash-key", tmp_path / "new", out="new.csv")
    assert not {*different["who"]} & {*hashes}
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0


def test_note_names_ids_that_stay_in_clear(town, tmp_path):
    _, err, _ = run_apply(town, tmp_path)
    assert "in clear" not in err
    _, err, _ = run_apply(town, tmp_path, "--ledger", tmp_path / "l", "--subject", "who", "--force")
    assert "note: column who looks like a person's id and stays in clear" in err
    rows = tmp_path / "riders.csv"
    rows.write_text("rider_id,passenger_count,place\na,2,p0\n")
    _, _, err = run_command("apply", town, rows, "--id", "place", "--out", tmp_path / "r.csv")
    assert "column rider_id looks like" in err
    assert "passenger_count" not in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hash", "who"], "--hash must be used with --hash-key KEYFILE"),
        (["--hash", "who", "--ledger", "l", "--subject", "who"], "--hash must be used with --hash-key KEYFILE"),
        (["--hash-key", "k"], "--hash-key must be given with --hash COLUMN"),
        (["--drop", "whom"], "--drop must name columns of the table, got whom"),
        (["--hash", "whom", "--hash-key", "k"], "--hash must name columns of the table, got whom"),
        (["--hash", "place", "--hash-key", "k"], "--hash must name columns that stay, got the secret's place"),
        (["--drop", "who", "--hash", "who", "--hash-key", "k"], "--drop and --hash must name different columns"),
        (["--drop", "who", "--keep", "who"], "--drop and --keep must name different columns"),
        (["--hash", "who", "--hash-key", "t.csv"], "--hash-key t.csv must be a file of its own"),
    ],
)
def test_refuses_options_that_would_leave_an_id_in_clear(town, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    code, err, output = run_apply(town, tmp_path, *options)
    assert (code, output) == (2, None)
    assert message in err
    assert not (tmp_path / "k").exists()
    assert not (tmp_path / "l").exists()


def test_lists_have_no_hash_and_nobody_is_charged(town, tmp_path):
    pl.DataFrame({"who": [["a"], ["b"]], "place": ["p0", "p1"], "by": ["a", "b"]}).write_parquet(tmp_path / "t.parquet")
    charge = Charge(ledger=tmp_path / "l", subject="by")
    options = ApplyOptions(charge=charge, hashed=("who",), hash_key=tmp_path / "k")
    with pytest.raises(po.PrivoptError, match=r"column who: expected text or numbers"):
        apply(town, tmp_path / "t.parquet", tmp_path / "o.csv", BY_ID, options)
    assert not (tmp_path / "l").exists()


def test_batch_with_another_hashed_column_is_another_batch(town, tmp_path):
    options = ["--ledger", tmp_path / "l", "--subject", "who", "--batch", "b", "--hash", "who", "--hash-key"]
    code, err, output = run_apply(town, tmp_path, *options, tmp_path / "k")
    assert code == 0, err
    assert len(set(output["who"])) == 2


@pytest.mark.parametrize("library", ["polars", "pandas", "pyarrow", "dict"])
def test_release_apply_drops_and_hashes(town, tmp_path, library):
    columns = {"place": ["p0", "p1", "p0"], "rider": ["007", None, "7"], "mail": ["a@b", "c@d", "e@f"]}
    frame = pl.DataFrame(columns)
    source = {"polars": frame, "pandas": frame.to_pandas(), "pyarrow": frame.to_arrow(), "dict": columns}[library]
    with pytest.warns(po.PrivoptWarning) as warnings:
        output = po.open(town).apply(source, id="place", drop=["mail"], hash=["rider"], hash_key=tmp_path / "key")
    output = pl.DataFrame(output)
    assert output.columns[:2] == ["rider", "report"]
    first, gap, last = output["rider"].to_list()
    assert (first, gap) == (last, None)  # two spellings of one name, as the ledger counts them
    messages = "".join(str(warning.message) for warning in warnings)
    assert "hashed under a key" in messages
    assert "in clear" not in messages
    with pytest.raises(UsageError, match="hash must be used with hash_key"):
        po.open(town).apply(source, id="place", hash=["rider"])


def test_ledger_in_python_brings_its_key(town, tmp_path):
    rows = {"place": ["p0", "p1"], "rider": ["ann", "bob"]}
    with Ledger(tmp_path / "l", key=tmp_path / "key") as ledger:
        with pytest.warns(po.PrivoptWarning):
            output = po.open(town).apply(rows, id="place", ledger=ledger, subject="rider", hash=["rider"])
        assert output["rider"] == [hash_name(ledger.column_key(), name) for name in ("ann", "bob")]
    with Ledger(tmp_path / "plain") as ledger, pytest.raises(UsageError, match="a ledger that hashes its subjects"):
        po.open(town).apply(rows, id="place", ledger=ledger, subject="rider", hash=["rider"])
    with Ledger(tmp_path / "plain") as ledger, pytest.raises(UsageError, match="must hash its subjects under a key"):
        ledger.column_key()


@given(
    first=st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1),
    second=st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1),
    key=st.binary(min_size=32, max_size=32),
)
def test_equal_hashes_are_equal_subjects(first, second, key):
    is_one = fold_subject_name(first) == fold_subject_name(second)
    assert (hash_name(key, first) == hash_name(key, second)) == is_one
    # The derived key is another one than the ledger's.
    assert hash_name(derive_column_key(key), first) != Names(key=key).of("a" + first)[:32]
    assert hash_name(derive_column_key(key), first) != hash_name(key, first)


def test_json_has_its_counts_alone(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0"])
    options = ["--id", "place", "--out", tmp_path / "o.csv", "--drop", "who", "--json"]
    code, output, _ = run_command("apply", town, rows, *options)
    assert (code, json.loads(output)) == (0, {"rows": 1, "reported": 1, "refused": {}})


def test_no_subjects_name_in_a_ledger_is_the_derived_key():
    key = bytes(range(32))
    for name in ("privopt column", "\0privopt column"):
        try:
            ledger_name = Names(key=key).of(name)
        except UsageError:
            continue
        assert ledger_name != derive_column_key(key).hex()


def test_column_named_twice_is_hashed_once_and_blank_ids_stay_empty(town, tmp_path):
    rows = {"place": ["p0", "p1", "p2"], "rider": ["ann", "\u200b", " "]}
    with pytest.warns(po.PrivoptWarning):
        output = po.open(town).apply(rows, id="place", hash=["rider", "rider"], hash_key=tmp_path / "k")
    key = derive_column_key(bytes.fromhex((tmp_path / "k").read_text()))
    assert output["rider"] == [hash_name(key, "ann"), None, None]


def test_note_says_that_hashed_places_can_be_linked(town, tmp_path):
    rows = tmp_path / "t.csv"
    rows.write_text("rider,home_station,copy,place\na,s1,p0,p0\nb,s1,p1,p1\n")
    hashed = ["--hash", "home_station", "--hash", "copy", "--hash-key", tmp_path / "k"]
    code, _, err = run_command("apply", town, rows, "--id", "place", "--out", tmp_path / "o.csv", *hashed)
    assert code == 0, err
    assert "column home_station: named like places, and equal hashes show" in err
    # Two rows are too few to drop a copy of the secret.
    assert "column copy is hashed, and equal to what is protected" in err
    lines = [f"r,s{number % 3},p{number % 3},p{number % 3}" for number in range(60)]
    rows.write_text("rider,home_station,copy,place\n" + "\n".join(lines) + "\n")
    code, _, err = run_command("apply", town, rows, "--id", "place", "--out", tmp_path / "p.csv", *hashed)
    assert "column copy was dropped" in err
    # So the note on hashes is not about the dropped column.
    assert "column home_station: hashed under a key" in err
    assert "column copy is hashed" not in err


def test_subjects_that_state_the_secret_stay_with_a_warning(town, tmp_path):
    rows = [f"guest {number} of p{number % 3},p{number % 3}" for number in range(60)]
    charged = ["--ledger", tmp_path / "l", "--subject", "who"]
    code, err, output = run_apply(town, tmp_path, *charged, rows=rows)
    assert code == 0, err
    assert "column who stays and states the secret" in err
    assert output["who"][4] == "guest 4 of p1"
    assert len([*Ledger(tmp_path / "l").accounts()]) == 60
    for number, options in enumerate((["--drop", "who"], ["--hash", "who", "--hash-key", tmp_path / "k"])):
        code, err, _ = run_apply(town, tmp_path, *charged, *options, rows=rows, out=f"{number}.csv")
        assert code == 0, err
        assert "states the secret" not in err


def test_key_inside_the_release_is_refused(town, tmp_path):
    rows = {"place": ["p0"], "rider": ["ann"]}
    with pytest.raises(UsageError, match=r"hash_key .* lies in"):
        po.open(town).apply(rows, id="place", hash=["rider"], hash_key=town / "key")
    assert not (town / "key").exists()


def test_hashes_follow_the_rows_of_a_frame_with_another_index(town, tmp_path):
    frame = pl.DataFrame({"place": ["p0", "p1", "p2"], "rider": ["a", "b", "a"]}).to_pandas().iloc[::-1]
    with pytest.warns(po.PrivoptWarning):
        output = po.open(town).apply(frame, id="place", hash=["rider"], hash_key=tmp_path / "k")
    first, second, third = output["rider"].tolist()
    assert first == third != second
    assert output.index.tolist() == [2, 1, 0]
