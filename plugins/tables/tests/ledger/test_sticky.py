"""`apply` with a ledger and `--sticky`: reports that are kept, each place charged once."""

import json
import shutil
import sqlite3
import stat

import numpy as np
import polars as pl
import pytest
from helpers.charging import BY_ID, BY_PLACE, charged, made, said, table
from hypothesis import given, settings
from hypothesis import strategies as st

import privopt as po
from privopt.errors import DoesNotHoldError, InputError, StoppedError, UsageError
from privopt.ledger.charge import Charge
from privopt.ledger.kept_reports import KeptReports
from privopt.ledger.ledger import Ledger
from privopt.numbers import TOTAL
from privopt.run.solve import solve
from privopt_tables.apply import apply
from privopt_tables.options import ApplyOptions
from privopt_tables.rows.by_position import PositionProtector


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory):
    folder = tmp_path_factory.mktemp("everywhere")
    return solve("optimal-lp", made(folder, "everywhere = true"), folder / "out").folder


def sticky(town, rows, out, ledger, **more):
    return apply(town, rows, out, BY_ID, ApplyOptions(charge=Charge(ledger=ledger, subject="who", sticky=True), **more))


def test_a_place_is_reported_the_same_ever_after_and_charged_once(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0", "anna,p5", "anna,p0", "bert,p0", "anna,p0"] * 20)
    found = set()
    for day in range(3):
        done = sticky(town, rows, tmp_path / f"o{day}.csv", tmp_path / "l")
        out = pl.read_csv(tmp_path / f"o{day}.csv")
        assert out["sticky"].all()
        again = out.with_columns(pl.read_csv(rows)["place"])
        found |= set(again.select("who", "place", "report").rows())
    assert len(found) == 3
    assert sorted(name for name, _ in charged(tmp_path / "l")) == ["anna", "anna", "bert"]
    assert "not protected is which of its visits were to the same place" in done.sequence


def test_nothing_is_shared_between_places_or_subjects(town, tmp_path):
    """Fresh draws each: reports of many subjects at one place vary as the row does."""
    rows = table(tmp_path / "t.csv", [f"s{n},p5" for n in range(400)])
    sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    assert pl.read_csv(tmp_path / "o.csv")["report"].n_unique() > 6


def test_a_refused_place_is_refused_again_and_known_ones_are_not(town, tmp_path):
    said("budget", tmp_path / "l", "--set", "1")
    rows = table(tmp_path / "t.csv", ["anna,p0", "anna,p1", "anna,p2", "anna,p0", "anna,p2"])
    done = sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    assert done.refused == {"budget spent": 2}
    assert pl.read_csv(tmp_path / "o.csv")["report"].is_null().to_list() == [False, False, True, False, True]


VISITS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), min_size=1, max_size=10)


@pytest.mark.parametrize("examples", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_charges_of_kept_reports_are_a_function_of_the_pattern_alone(town, examples):
    """Which visits share a place decides, not which place it is: one of them may even be none."""
    folder = town.parent / "patterns"

    @settings(max_examples=examples)
    @given(VISITS, st.permutations(range(4)))
    def alike(visits, other):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        left = []
        for side, names in (("one", ["p0", "p1", "p2", "nowhere"]), ("two", [f"p{n + 4}" for n in other])):
            rows = table(folder / f"{side}.csv", [f"{who},{names[place]}" for who, place in visits])
            with Ledger(folder / side) as ledger:
                ledger.set_limit(1)
            try:
                sticky(town, rows, folder / f"{side}-out.csv", folder / side)
            except UsageError:  # no row could be reported
                assert not (folder / f"{side}-out.csv").exists()
            left.append([(who, cost.epsilon) for who, cost in charged(folder / side)])
        assert left[0] == left[1]

    alike()


def test_positions_have_fixed_cells_where_the_release_holds_everywhere(everywhere, tmp_path):
    rows = ["anna,1.01,1.02", "anna,0.98,0.99", "anna,1.02,1.01", "anna,2.9,0.1", "anna,1.0,1.0"]
    charge = Charge(ledger=tmp_path / "l", subject="who", sticky=True)
    for day in range(2):
        source = table(tmp_path / "t.csv", rows, "who,x,y")
        apply(everywhere, source, tmp_path / f"o{day}.csv", BY_PLACE, ApplyOptions(charge=charge))
    days = [pl.read_csv(tmp_path / f"o{day}.csv")["report"].to_list() for day in range(2)]
    assert days[0] == days[1]
    assert len({days[0][n] for n in (0, 1, 2, 4)}) == 1
    assert len(charged(tmp_path / "l")) == 2


def test_kept_reports_are_their_owners_alone_and_name_nobody(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0", "bert,p11"])
    stores = []
    for name in ("l", "m"):
        sticky(town, rows, tmp_path / f"{name}.csv", tmp_path / name)
        folder = tmp_path / f"{name}.sticky"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
        raw = (folder / "reports").read_bytes()
        assert not any(text in raw for text in (b"anna", b"bert", b"p0", b"p11"))
        connection = sqlite3.connect(folder / "reports")
        stores.append({place for (place,) in connection.execute("SELECT place FROM reports")})
        connection.close()
    assert stores[0].isdisjoint(stores[1])  # a key of its own each
    (tmp_path / "l.sticky").chmod(0o755)
    with pytest.raises(UsageError, match=r"l\.sticky must have mode 0700, got 0755"):
        sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")


def test_a_subject_is_forgotten_and_then_charged_anew(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0", "bert,p0"])
    sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    with Ledger(tmp_path / "l") as ledger, KeptReports(ledger) as kept:
        before = kept.connection(make=False).execute("SELECT place FROM reports").fetchall()
    code, _, err = said("budget", tmp_path / "l", "--forget", "anna")
    assert (code, "1 kept reports of anna removed" in err) == (0, True)
    raw = (tmp_path / "l.sticky" / "reports").read_bytes()
    assert sum(place in raw for (place,) in before) == 1
    sticky(town, rows, tmp_path / "o2.csv", tmp_path / "l")
    assert sorted(name for name, _ in charged(tmp_path / "l")) == ["anna", "anna", "bert"]
    assert said("budget", tmp_path / "none", "--forget", "anna")[0] == 2


def test_names_that_are_hashed_are_forgotten_under_their_key_alone(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0", "bert,p0"])
    charge = Charge(ledger=tmp_path / "l", subject="who", sticky=True, key=tmp_path / "key")
    apply(town, rows, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=charge))
    code, _, err = said("budget", tmp_path / "l", "--forget", "anna")
    assert (code, "expected hmac-sha256" in err) == (2, True)
    options = ["--hash-subjects", tmp_path / "key"]
    code, _, err = said("budget", tmp_path / "l", "--forget", "anna", *options)
    assert (code, "1 kept reports of anna removed" in err) == (0, True)
    found = json.loads(said("budget", tmp_path / "l", "--subject", "anna", "--json", *options)[1])
    assert found["subjects"] == [{"subject": "anna", "spent": "0.5", "left": None, "reports": 1}]


def test_a_run_that_ends_between_charge_and_report_charges_again(town, tmp_path, monkeypatch):
    """A crash costs budget, never privacy: the report that was never kept is never published."""
    rows = table(tmp_path / "t.csv", ["anna,p0"])

    def ends(self, frame, first, rows):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PositionProtector, "_draw_reports", ends)
        with pytest.raises(StoppedError):
            sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    assert len(charged(tmp_path / "l")) == 1
    sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    assert len(charged(tmp_path / "l")) == 2


def test_a_changed_store_of_reports_ends_with_1(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0"])
    sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    path = tmp_path / "l.sticky" / "reports"
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 4096)
    with pytest.raises(DoesNotHoldError, match="changed"):
        sticky(town, rows, tmp_path / "o2.csv", tmp_path / "l")


def test_estimates_of_repeated_reports_ask_whose_they_are(town, tmp_path):
    rows = table(tmp_path / "t.csv", [f"s{n % 30},p{n % 30 % 3}" for n in range(90)])
    sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    code, _, err = said("estimate", town, tmp_path / "o.csv", "--out", tmp_path / "e.csv")
    assert (
        code,
        "column sticky: expected the subject of each report (--subject), so that one of each counts, "
        "got reports that repeat" in err,
    ) == (2, True)
    code, out, _ = said("estimate", town, tmp_path / "o.csv", "--out", tmp_path / "e.csv", "--subject", "who", "--json")
    assert (code, json.loads(out)["n"]) == (0, 30)


def off_by(release, reports, truth):
    """Return km from the truth to the best guess from all reports of each subject, taken for independent."""
    chances = np.log(np.maximum(release.weights.astype(np.float64) / TOTAL, 1e-300))
    number = {name: place for place, name in enumerate(release.outputs.tolist())}
    counts = np.zeros((len(truth), len(number)))
    for who, report in reports.rows():
        counts[who, number[report]] += 1
    at = np.array([[float(part) for part in name[1:].split("c")] for name in release.records.tolist()]) / 4
    return np.hypot(*(at[(counts @ chances.T).argmax(axis=1)] - at[truth]).T)


def test_a_thousand_kept_reports_tell_what_one_tells_and_fresh_ones_tell_the_place(tmp_path):
    """At 2 per km on cells of 250 m: fresh reports are found to the cell, kept ones stay a kilometre off."""
    (tmp_path / "p.toml").write_text(
        "[records]\ngrid = { rows = 13, cols = 13, cell_km = 0.25 }\n[distance]\nkind = 'euclidean'\n"
        "[privacy]\nepsilon = 2.0\n[utility]\nkind = 'distance'\n"
    )
    folder = solve("exponential", tmp_path / "p.toml", tmp_path / "out").folder
    release = po.open(folder).opened.release
    rng = np.random.default_rng(5)
    truth = rng.integers(0, 169, 12)
    visits = pl.DataFrame({"who": np.repeat(np.arange(12), 1000), "place": np.repeat(release.records[truth], 1000)})
    visits.write_csv(tmp_path / "t.csv")
    found = {}
    for name in ("fresh", "kept"):
        charge = Charge(ledger=tmp_path / name, subject="who", sticky=name == "kept")
        apply(folder, tmp_path / "t.csv", tmp_path / f"{name}.csv", BY_ID, ApplyOptions(charge=charge))
        reports = pl.read_csv(tmp_path / f"{name}.csv").select("who", "report")
        found[name] = off_by(release, reports, truth)
        found[f"one {name}"] = off_by(release, reports.group_by("who", maintain_order=True).first(), truth)
    assert (found["fresh"] < 0.05).mean() > 0.9
    np.testing.assert_array_equal(found["kept"], found["one kept"])
    assert np.median(found["kept"]) > 0.5
    assert len(charged(tmp_path / "kept")) == 12


def copied(tmp_path, name, to):
    """Copy a ledger as it is, for a backup."""
    with Ledger(tmp_path / name) as ledger:
        ledger.connection(make=False).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(tmp_path / name, tmp_path / to)


def test_kept_reports_of_another_ledger_are_bad_input(town, tmp_path):
    """What one ledger charged, a new one at its place did not."""
    rows = table(tmp_path / "t.csv", ["anna,p0"])
    sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    for path in tmp_path.glob("l*"):
        if path.is_file():
            path.unlink()
    for _ in range(2):
        with pytest.raises(
            InputError, match=r"l\.sticky: expected those of .*l,.*, got kept reports of another ledger"
        ):
            sticky(town, rows, tmp_path / "o2.csv", tmp_path / "l")
    assert charged(tmp_path / "l") == []
    assert said("budget", tmp_path / "l", "--forget", "anna")[0] == 2


def test_a_report_whose_charge_a_backup_lacks_is_charged_before_it_is_repeated(town, tmp_path):
    said("budget", tmp_path / "l", "--set", "1")
    copied(tmp_path, "l", "backup")
    rows = table(tmp_path / "t.csv", ["anna,p0", "anna,p1"])
    sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    for path in (tmp_path / "l-wal", tmp_path / "l-shm"):
        path.unlink(missing_ok=True)
    shutil.copy(tmp_path / "backup", tmp_path / "l")
    other = table(tmp_path / "u.csv", ["bert,p3"])
    sticky(town, other, tmp_path / "o2.csv", tmp_path / "l")  # entries of those numbers are others now
    sticky(town, rows, tmp_path / "o3.csv", tmp_path / "l")
    assert (tmp_path / "o3.csv").read_text() == (tmp_path / "o.csv").read_text()
    assert [name for name, _ in charged(tmp_path / "l")] == ["bert", "anna", "anna"]
    sticky(town, rows, tmp_path / "o4.csv", tmp_path / "l")
    assert len(charged(tmp_path / "l")) == 3


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE reports SET report = report + 1",
        "UPDATE reports SET report = 99999",
        "UPDATE reports SET report = 'text'",
        "UPDATE reports SET report = 0.5",
        "UPDATE reports SET entry = 1",
        "UPDATE reports SET charge = 'none'",
        "UPDATE reports SET seal = x'00'",
        "UPDATE reports SET seal = 7",
        "UPDATE ledger SET beginning = x'00'",
        "DELETE FROM ledger",
    ],
)
def test_a_changed_row_of_kept_reports_does_not_hold(town, tmp_path, change):
    rows = table(tmp_path / "t.csv", ["anna,p0"])
    sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    connection = sqlite3.connect(tmp_path / "l.sticky" / "reports")
    connection.execute(change)
    connection.commit()
    connection.close()
    options = ["--id", "place", "--ledger", tmp_path / "l", "--subject", "who", "--sticky"]
    code, _, err = said("apply", town, rows, *options, "--out", tmp_path / "o2.csv")
    assert (code, "changed" in err) == (1, True)
    assert not (tmp_path / "o2.csv").exists()
