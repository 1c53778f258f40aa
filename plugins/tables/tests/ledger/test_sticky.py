"""`apply` with a ledger and `--sticky`: reports that are kept, each place charged once."""

import json
import shutil
import sqlite3
import stat

import numpy as np
import polars as pl
import pytest
from helpers.charging import BY_ID, BY_PLACE, read_charges, run_command, table, write_town
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
    return solve("optimal-lp", write_town(folder, "everywhere = true"), folder / "out").folder


def apply_sticky(town, rows, output_path, ledger, **extra_options):
    return apply(
        town,
        rows,
        output_path,
        BY_ID,
        ApplyOptions(charge=Charge(ledger=ledger, subject="who", sticky=True), **extra_options),
    )


def test_place_keeps_its_report_and_is_charged_once(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0", "anna,p5", "anna,p0", "bert,p0", "anna,p0"] * 20)
    known_reports = set()
    for day in range(3):
        summary = apply_sticky(town, rows, tmp_path / f"o{day}.csv", tmp_path / "l")
        output = pl.read_csv(tmp_path / f"o{day}.csv")
        assert output["sticky"].all()
        reports_with_place = output.with_columns(pl.read_csv(rows)["place"])
        known_reports |= set(reports_with_place.select("who", "place", "report").rows())
    assert len(known_reports) == 3
    assert sorted(name for name, _ in read_charges(tmp_path / "l")) == ["anna", "anna", "bert"]
    assert "visits were to" in summary.sequence


def test_places_and_subjects_share_nothing(town, tmp_path):
    """Fresh draws each: reports of many subjects at one place vary as the row does."""
    rows = table(tmp_path / "t.csv", [f"s{n},p5" for n in range(400)])
    apply_sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    assert pl.read_csv(tmp_path / "o.csv")["report"].n_unique() > 6


def test_refused_place_stays_refused(town, tmp_path):
    run_command("budget", tmp_path / "l", "--set", "1")
    rows = table(tmp_path / "t.csv", ["anna,p0", "anna,p1", "anna,p2", "anna,p0", "anna,p2"])
    summary = apply_sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    assert summary.refused == {"budget spent": 2}
    assert pl.read_csv(tmp_path / "o.csv")["report"].is_null().to_list() == [False, False, True, False, True]


VISITS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), min_size=1, max_size=10)


@pytest.mark.parametrize("examples", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_charges_depend_only_on_the_visit_pattern(town, examples):
    """Which visits share a place decides, not which place it is: one of them may even be none."""
    folder = town.parent / "patterns"

    @settings(max_examples=examples)
    @given(VISITS, st.permutations(range(4)))
    def check_pattern(visits, other_places):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        charge_lists = []
        for variant, names in (("one", ["p0", "p1", "p2", "nowhere"]), ("two", [f"p{n + 4}" for n in other_places])):
            rows = table(folder / f"{variant}.csv", [f"{name},{names[number]}" for name, number in visits])
            with Ledger(folder / variant) as ledger:
                ledger.set_limit(1)
            try:
                apply_sticky(town, rows, folder / f"{variant}-out.csv", folder / variant)
            except UsageError:  # no row could be reported
                assert not (folder / f"{variant}-out.csv").exists()
            charge_lists.append([(name, cost.epsilon) for name, cost in read_charges(folder / variant)])
        assert charge_lists[0] == charge_lists[1]

    check_pattern()


def test_positions_have_fixed_cells_everywhere(everywhere, tmp_path):
    rows = ["anna,1.01,1.02", "anna,0.98,0.99", "anna,1.02,1.01", "anna,2.9,0.1", "anna,1.0,1.0"]
    charge = Charge(ledger=tmp_path / "l", subject="who", sticky=True)
    for day in range(2):
        source = table(tmp_path / "t.csv", rows, "who,x,y")
        apply(everywhere, source, tmp_path / f"o{day}.csv", BY_PLACE, ApplyOptions(charge=charge))
    days = [pl.read_csv(tmp_path / f"o{day}.csv")["report"].to_list() for day in range(2)]
    assert days[0] == days[1]
    assert len({days[0][n] for n in (0, 1, 2, 4)}) == 1
    assert len(read_charges(tmp_path / "l")) == 2


def test_stored_reports_are_private_and_nameless(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0", "bert,p11"])
    stores = []
    for name in ("l", "m"):
        apply_sticky(town, rows, tmp_path / f"{name}.csv", tmp_path / name)
        folder = tmp_path / f"{name}.sticky"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
        raw = (folder / "reports").read_bytes()
        assert not any(text in raw for text in (b"anna", b"bert", b"p0", b"p11"))
        connection = sqlite3.connect(folder / "reports")
        stores.append({place_key for (place_key,) in connection.execute("SELECT place FROM reports")})
        connection.close()
    assert stores[0].isdisjoint(stores[1])  # a key of its own each
    (tmp_path / "l.sticky").chmod(0o755)
    with pytest.raises(UsageError, match=r"0700.*0755"):
        apply_sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")


def test_forgotten_subject_is_charged_again(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0", "bert,p0"])
    apply_sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    with Ledger(tmp_path / "l") as ledger, KeptReports(ledger) as reports:
        place_keys = reports.connection(make=False).execute("SELECT place FROM reports").fetchall()
    code, _, err = run_command("budget", tmp_path / "l", "--forget", "anna")
    assert (code, "1 kept report of" in err) == (0, True)
    raw = (tmp_path / "l.sticky" / "reports").read_bytes()
    assert sum(place_key in raw for (place_key,) in place_keys) == 1
    apply_sticky(town, rows, tmp_path / "o2.csv", tmp_path / "l")
    assert sorted(name for name, _ in read_charges(tmp_path / "l")) == ["anna", "anna", "bert"]
    assert run_command("budget", tmp_path / "none", "--forget", "anna")[0] == 2


def test_hashed_names_are_forgotten_with_their_key(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0", "bert,p0"])
    charge = Charge(ledger=tmp_path / "l", subject="who", sticky=True, key=tmp_path / "key")
    apply(town, rows, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=charge))
    code, _, err = run_command("budget", tmp_path / "l", "--forget", "anna")
    assert (code, "expected hmac-sha256" in err) == (2, True)
    options = ["--hash-subjects", tmp_path / "key"]
    code, _, err = run_command("budget", tmp_path / "l", "--forget", "anna", *options)
    assert (code, "1 kept report of" in err) == (0, True)
    budget = json.loads(run_command("budget", tmp_path / "l", "--subject", "anna", "--json", *options)[1])
    assert budget["subjects"] == [{"subject": "anna", "spent": "0.5", "left": None, "reports": 1}]


def test_crash_after_a_charge_charges_again(town, tmp_path, monkeypatch):
    """A crash costs budget, never privacy: the report that was never kept is never published."""
    rows = table(tmp_path / "t.csv", ["anna,p0"])

    def raise_interrupt(self, frame, first, rows):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PositionProtector, "_draw_reports", raise_interrupt)
        with pytest.raises(StoppedError):
            apply_sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    assert len(read_charges(tmp_path / "l")) == 1
    apply_sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    assert len(read_charges(tmp_path / "l")) == 2


def test_changed_store_exits_1(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0"])
    apply_sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    path = tmp_path / "l.sticky" / "reports"
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 4096)
    with pytest.raises(DoesNotHoldError, match="changed"):
        apply_sticky(town, rows, tmp_path / "o2.csv", tmp_path / "l")


def test_estimates_of_repeated_reports_need_subjects(town, tmp_path):
    rows = table(tmp_path / "t.csv", [f"s{n % 30},p{n % 30 % 3}" for n in range(90)])
    apply_sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    code, _, err = run_command("estimate", town, tmp_path / "o.csv", "--out", tmp_path / "e.csv")
    assert (code, "column sticky" in err, "--subject" in err) == (2, True, True)
    code, output, _ = run_command(
        "estimate", town, tmp_path / "o.csv", "--out", tmp_path / "e.csv", "--subject", "who", "--json"
    )
    assert (code, json.loads(output)["n"]) == (0, 30)


def guess_errors(release, reports, truth):
    """Return km from the truth to the best guess from all reports of each subject, taken for independent."""
    chances = np.log(np.maximum(release.weights.astype(np.float64) / TOTAL, 1e-300))
    number = {name: index for index, name in enumerate(release.outputs.tolist())}
    counts = np.zeros((len(truth), len(number)))
    for subject, report in reports.rows():
        counts[subject, number[report]] += 1
    output_cells = np.array([[float(part) for part in name[1:].split("c")] for name in release.records.tolist()]) / 4
    return np.hypot(*(output_cells[(counts @ chances.T).argmax(axis=1)] - output_cells[truth]).T)


def test_sticky_reports_do_not_reveal_the_place(tmp_path):
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
    errors_by_name = {}
    for name in ("fresh", "kept"):
        charge = Charge(ledger=tmp_path / name, subject="who", sticky=name == "kept")
        apply(folder, tmp_path / "t.csv", tmp_path / f"{name}.csv", BY_ID, ApplyOptions(charge=charge))
        reports = pl.read_csv(tmp_path / f"{name}.csv").select("who", "report")
        errors_by_name[name] = guess_errors(release, reports, truth)
        errors_by_name[f"one {name}"] = guess_errors(
            release, reports.group_by("who", maintain_order=True).first(), truth
        )
    assert (errors_by_name["fresh"] < 0.05).mean() > 0.9
    np.testing.assert_array_equal(errors_by_name["kept"], errors_by_name["one kept"])
    assert np.median(errors_by_name["kept"]) > 0.5
    assert len(read_charges(tmp_path / "kept")) == 12


def copy_ledger(tmp_path, name, to):
    """Copy a ledger as it is, for a backup."""
    with Ledger(tmp_path / name) as ledger:
        ledger.connection(make=False).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(tmp_path / name, tmp_path / to)


def test_refuses_reports_of_another_ledger(town, tmp_path):
    """What one ledger charged, a new one at its place did not."""
    rows = table(tmp_path / "t.csv", ["anna,p0"])
    apply_sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    for path in tmp_path.glob("l*"):
        if path.is_file():
            path.unlink()
    for _ in range(2):
        with pytest.raises(InputError, match=r"l\.sticky: .*another ledger"):
            apply_sticky(town, rows, tmp_path / "o2.csv", tmp_path / "l")
    assert read_charges(tmp_path / "l") == []
    assert run_command("budget", tmp_path / "l", "--forget", "anna")[0] == 2


def test_uncharged_report_is_charged_before_repetition(town, tmp_path):
    run_command("budget", tmp_path / "l", "--set", "1")
    copy_ledger(tmp_path, "l", "backup")
    rows = table(tmp_path / "t.csv", ["anna,p0", "anna,p1"])
    apply_sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    for path in (tmp_path / "l-wal", tmp_path / "l-shm"):
        path.unlink(missing_ok=True)
    shutil.copy(tmp_path / "backup", tmp_path / "l")
    second_table = table(tmp_path / "u.csv", ["bert,p3"])
    apply_sticky(town, second_table, tmp_path / "o2.csv", tmp_path / "l")  # entries of those numbers are others now
    apply_sticky(town, rows, tmp_path / "o3.csv", tmp_path / "l")
    assert (tmp_path / "o3.csv").read_text() == (tmp_path / "o.csv").read_text()
    assert [name for name, _ in read_charges(tmp_path / "l")] == ["bert", "anna", "anna"]
    apply_sticky(town, rows, tmp_path / "o4.csv", tmp_path / "l")
    assert len(read_charges(tmp_path / "l")) == 3


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
def test_changed_stored_report_does_not_hold(town, tmp_path, change):
    rows = table(tmp_path / "t.csv", ["anna,p0"])
    apply_sticky(town, rows, tmp_path / "o.csv", tmp_path / "l")
    connection = sqlite3.connect(tmp_path / "l.sticky" / "reports")
    connection.execute(change)
    connection.commit()
    connection.close()
    options = ["--id", "place", "--ledger", tmp_path / "l", "--subject", "who", "--sticky"]
    code, _, err = run_command("apply", town, rows, *options, "--out", tmp_path / "o2.csv")
    assert (code, "changed" in err) == (1, True)
    assert not (tmp_path / "o2.csv").exists()
