"""Tables of traces: whose rows, in which order, what is charged, what is refused."""

import json
import shutil
from datetime import datetime
from fractions import Fraction

import narwhals as nw
import numpy as np
import polars as pl
import pytest
from helpers.command import run
from helpers.mended_sums import edit, mend, rewrite
from helpers.toys import grid_text

import privopt
from privopt.declare.table_files import TableSource
from privopt.errors import InputError, UsageError
from privopt.estimate.count_reports import count_tables
from privopt.estimate.estimate_tables import channel_of
from privopt.numbers.sampling import seeded
from privopt_tables.trace_rows import Tracer, ranks_of

PROBLEM = (
    grid_text(3, 3)
    + """[predictive]
good_within = 4.0
threshold_epsilon = 1.0
test_epsilon = 1.0
"""
)
FIRST, SEGMENT = Fraction(1), Fraction(4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("traces")
    (place / "problem.toml").write_text(PROBLEM)
    done = run("solve", "predictive", place / "problem.toml", "--out", place / "out", "--quiet")
    assert done.exit_code == 0, done.output
    return place / "out"


def table(tmp_path, rows, name="in.csv"):
    pl.DataFrame(rows, schema=["who", "when", "id"], orient="row").write_csv(tmp_path / name)
    return tmp_path / name


def applied(folder, source, *options, code=0):
    out = source.with_name("out.csv")
    done = run("apply", folder, source, "--id", "id", "--out", out, "--force", *options)
    assert done.exit_code == code, done.output
    return done, (pl.read_csv(out, infer_schema_length=None) if code == 0 else None)


def rows_of(count=60):
    return [(f"p{n % 3}", n, "r0c0" if n < 50 else "r2c2") for n in range(count)]


def test_a_subject_keeps_reports_and_the_table_says_which(folder, tmp_path):
    done, out = applied(folder, table(tmp_path, rows_of()), "--subject", "who")
    assert out.columns == ["who", "when", "report", "report_x", "report_y", "kept", "report_first"]
    for _, part in out.group_by("who", maintain_order=True):
        kept, reports = part["kept"].to_list(), part["report"].to_list()
        assert not kept[0]
        assert all(reports[n] == reports[n - 1] for n in range(1, len(kept)) if kept[n])
        assert sum(kept) > len(kept) // 2
    assert "epsilon 1 per km for the first, 4 per km for each segment" in done.stderr
    said = " ".join(done.stderr.split())
    assert "one that has not ended tells 1.0 per km" in said
    assert " mm " not in said


def test_positions_say_what_rounding_adds(tmp_path):
    text = (
        grid_text(2, 2, epsilon=0.5).replace("[privacy]", "[privacy]\neverywhere = true")
        + "[predictive]\ngood_within = 1.0\n"
    )
    (tmp_path / "problem.toml").write_text(text)
    privopt.solve("predictive", tmp_path / "problem.toml").save(tmp_path / "out")
    pl.DataFrame({"who": ["a", "a"], "x": [0.2, 0.3], "y": [0.1, 0.1]}).write_csv(tmp_path / "in.csv")
    arguments = ["apply", tmp_path / "out", tmp_path / "in.csv", "--x=x", "--y=y", "--subject=who"]
    done = run(*arguments, "--out", tmp_path / "out.csv")
    said = " ".join(done.stderr.split())
    assert done.exit_code == 0, done.output
    assert "in that segment, which counts 2 mm more than it is where the two differ" in said
    assert "positions as they are read, to the millimetre" in said


def test_the_order_is_that_of_time(folder, tmp_path):
    rows = rows_of(30)
    _, out = applied(folder, table(tmp_path, rows[::-1]), "--subject", "who", "--time", "when")
    assert out["when"].to_list() == [when for _, when, _ in rows[::-1]]
    first = out.sort("when").group_by("who", maintain_order=True).first()
    assert not first["kept"].any()
    assert out["kept"].any()


@pytest.mark.filterwarnings("ignore::privopt.PrivoptWarning")
def test_a_total_ends_with_refusal(folder, tmp_path):
    text = PROBLEM + "total = 5.0\n"
    (tmp_path / "problem.toml").write_text(text)
    release = privopt.solve("predictive", tmp_path / "problem.toml")
    places = ["r0c0", "r2c2"] * 60
    made = release.apply({"who": ["a"] * 120, "id": places}, id="id", subject="who", seed=3)
    fresh = [n for n in range(120) if made["report"][n] is not None and not made["kept"][n]]
    assert len(fresh) == 2
    assert made["report"][fresh[-1] + 1 :] == [None] * (119 - fresh[-1])


def test_a_ledger_is_charged_by_segment(folder, tmp_path):
    source = table(tmp_path, [*rows_of(), ("p0", 99, "nowhere"), (None, 3, "r0c0")])
    ledger = tmp_path / "phones.ledger"
    done, out = applied(folder, source, "--subject", "who", "--ledger", str(ledger), "--json")
    told = json.loads(done.stdout)
    assert told["refused"] == {"unknown id": 1, "no subject": 1}
    with privopt.Ledger(ledger) as book:
        for name in ("p0", "p1", "p2"):
            own = out.filter(pl.col("who") == name)
            fresh = own.filter(~pl.col("kept") & pl.col("report").is_not_null()).height
            spent = Fraction(book.account(name).spent)
            ended = not own["kept"][-1] and own["report"][-1] is not None
            assert spent == FIRST + SEGMENT * (fresh - 1 + (not ended))


def test_a_ledger_refuses_before_a_segment_begins(folder, tmp_path):
    ledger = tmp_path / "phones.ledger"
    with privopt.Ledger(ledger) as book:
        book.set_limit("4.5")
    source = table(tmp_path, [("a", n, "r0c0") for n in range(9)])
    done, out = applied(folder, source, "--subject", "who", "--ledger", str(ledger), "--json")
    assert json.loads(done.stdout)["refused"] == {"budget spent": 8}
    assert out["report"].null_count() == 8
    with privopt.Ledger(ledger) as book:
        assert Fraction(book.account("a").spent) == FIRST


def test_a_trace_has_one_subject_however_it_is_written(folder, tmp_path):
    key, ledger = tmp_path / "key", tmp_path / "phones.ledger"
    with privopt.Ledger(ledger, key=key) as book:
        book.set_limit("1.5")
        book.charge("007", privopt.Cost(epsilon=1, unit="per km as the crow flies"))
    rows = [(who, n, "r0c0") for n, who in enumerate(["007", "007.0", "\ufeff7", "b"])]
    options = ["--subject", "who", "--ledger", str(ledger), "--hash-subjects", str(key), "--json"]
    done, out = applied(folder, table(tmp_path, rows), *options)
    assert json.loads(done.stdout)["refused"] == {"budget spent": 3}
    assert out["report"].is_null().to_list() == [True, True, True, False]


@pytest.mark.filterwarnings("ignore::privopt.PrivoptWarning")
def test_charges_are_no_function_of_positions_but_through_reports(folder, tmp_path):
    """Two tables that differ in the secret alone, drawn from the same entropy, as long as their reports are alike."""
    names = ["a"] * 40
    release = privopt.open(folder)
    for seed in range(5):
        made = [
            release.apply({"who": names, "id": places}, id="id", subject="who", seed=seed)
            for places in (["r0c0"] * 40, ["r0c0"] * 39 + ["nowhere"])
        ]
        assert made[0]["report"][:39] == made[1]["report"][:39]
        assert made[0]["kept"][:39] == made[1]["kept"][:39]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--subject must name the column of subjects"),
        (["--subject", "nobody"], "column nobody: expected a column that says whose each row is, got no such column"),
        (["--subject", "id"], "column id: expected a column that says whose each row is, got the secret"),
        (
            ["--subject", "who", "--time", "never"],
            "column never: expected a column that says when each row was, got no such column",
        ),
        (["--subject", "who", "--sticky", "--ledger", "x.ledger"], "sticky must be omitted"),
    ],
)
def test_what_makes_no_sense_is_refused(folder, tmp_path, options, said):
    options = [str(tmp_path / each) if each.endswith(".ledger") else each for each in options]
    done, _ = applied(folder, table(tmp_path, rows_of()), *options, code=2)
    assert said in done.stderr
    assert not (tmp_path / "out.csv").exists()


def test_other_releases_have_no_time(tmp_path):
    (tmp_path / "problem.toml").write_text(PROBLEM.split("[predictive]")[0])
    release = privopt.solve("exponential", tmp_path / "problem.toml")
    with pytest.raises(UsageError, match="time must have"):
        release.apply({"who": ["a"], "when": [1], "id": ["r0c0"]}, id="id", subject="who", time="when")


def test_rows_without_a_time_are_named(folder, tmp_path):
    source = table(tmp_path, [("a", 1, "r0c0"), ("a", None, "r0c0")])
    done, _ = applied(folder, source, "--subject", "who", "--time", "when", code=2)
    assert "in.csv: row 3" in done.stderr


def test_estimates_take_one_report_of_each_subject(folder, tmp_path):
    source = table(tmp_path, rows_of())
    applied(folder, source, "--subject", "who")
    ask = ["estimate", str(folder), str(tmp_path / "out.csv"), "--out", str(tmp_path / "shares.csv")]
    refused = run(*ask)
    assert refused.exit_code == 2
    assert "repeat the last of a subject" in refused.stderr
    done = run(*ask, "--subject", "who", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["n"] == 3


def forged(folder, copy, **changed):
    """Return a copy whose test has other numbers, sums and all."""
    return rewrite(shutil.copytree(folder, copy), "prediction.npz", **changed)


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("rates", lambda rates: rates * np.array([[1, 1], [2, 1]]), "prediction.npz: test:"),
        ("rates", lambda rates: rates // np.array([[2, 1], [1, 1]]), "prediction.npz: threshold: not what"),
        ("level", lambda level: level * 1000, "prediction.npz: level: not what the problem gives"),
        ("steps", np.zeros_like, "prediction.npz: steps: not what the problem gives"),
    ],
)
def test_a_changed_test_does_not_hold(folder, tmp_path, name, make, said):
    done = run("verify", forged(folder, tmp_path / "copy", **{name: make}))
    assert done.exit_code == 1
    assert said in done.output


@pytest.mark.parametrize("name", ["good_within", "threshold_noise", "test_noise", "unit"])
def test_what_is_told_of_the_test_is_what_the_problem_gives(folder, tmp_path, name):
    other = {name: "mile" if name == "unit" else 99.0}
    copy = edit(shutil.copytree(folder, tmp_path / "copy"), lambda r: r["details"]["prediction"].update(other))
    done = run("verify", copy)
    assert done.exit_code == 1
    assert f"details.prediction.{name}" in done.output


def test_near_pairs_alone_have_a_promise_of_their_own(folder, tmp_path):
    """A folder that was solved for all pairs cannot pass for one of near pairs."""
    near = PROBLEM.replace("epsilon = 1.0\n[utility]", "epsilon = 1.0\nneighbours_within = 1.0\n[utility]")
    (tmp_path / "near.toml").write_text(near)
    guarantee = privopt.solve("predictive", tmp_path / "near.toml").guarantee
    assert (guarantee.scope, guarantee.extra["neighbours_within"]) == ("neighbours", 1.0)
    assert "chains of records, each within 1 of the next" in guarantee.statement
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "problem" / "problem.toml").write_text(near)
    mend(copy)
    done = run("verify", copy)
    assert done.exit_code == 1
    assert "guarantee.scope" in done.output


def test_the_first_report_in_time_is_marked_and_estimated_alone(folder, tmp_path):
    """Newest rows first: which of the others are fresh depends on what came before, so they tell less, and biased."""
    rows = [(f"p{n % 40}", n, "r0c0" if n < 40 else "r2c2") for n in range(800)]
    _, out = applied(folder, table(tmp_path, rows[::-1]), "--subject", "who", "--time", "when")
    first = out.filter("report_first")
    assert sorted(first["when"].to_list()) == list(range(40))
    assert not first["kept"].any()
    channel = channel_of(privopt.open(folder).opened)
    parts = [nw.from_native(part, eager_only=True) for part in (out[:300], out[300:])]
    source = TableSource(name="out.csv", columns=tuple(out.columns), batches=lambda: iter(parts))
    found = count_tables([(channel, source)], column="report", subject="who")[0]
    names = list(channel.outputs)
    assert found.counts.tolist() == [first["report"].to_list().count(name) for name in names]
    assert found.repeated == out["report"].count() - 40


def test_the_first_report_of_a_subject_is_marked_once_however_the_table_is_read(folder):
    release = privopt.open(folder)
    opened = release.opened
    tracer = Tracer.of(opened.release, opened.problem.data, "who", None, seeded(4))
    frame = nw.from_native(pl.DataFrame({"who": ["a", None, "b", "a", "c", "b"]}), eager_only=True)
    records = np.array([-1, 0, 1, 2, -1, 3])
    reason = np.where(records < 0, 0, -1)
    marks = [tracer.reports(frame, records, reason)[2].tolist() for _ in range(2)]
    assert marks == [[False, False, True, True, False, False], [False] * 6]


@pytest.mark.parametrize("change", ["dropped", "else"])
def test_tables_of_traces_without_the_mark_are_refused(folder, tmp_path, change):
    applied(folder, table(tmp_path, rows_of()), "--subject", "who")
    out = pl.read_csv(tmp_path / "out.csv")
    out = out.drop("report_first") if change == "dropped" else out.with_columns(report_first=pl.lit("yes"))
    out.write_csv(tmp_path / "out.csv")
    ask = ["estimate", str(folder), str(tmp_path / "out.csv"), "--out", str(tmp_path / "shares.csv")]
    done = run(*ask, "--subject", "who")
    assert done.exit_code == 2
    assert "report_first" in done.stderr


@pytest.mark.parametrize(
    ("times", "order"),
    [
        ([1700000000000000001, 1700000000000000000], [1, 0]),
        (["9", "10", "-1"], [2, 0, 1]),
        (["2026-01-01T00:00:00.000000002Z", "2026-01-01T00:00:00.000000001Z"], [1, 0]),
        (["2026-01-01T10:00:00+02:00", "2026-01-01T09:00:00Z"], [0, 1]),
        (["2026-02-01", "2026-01-01 23:00"], [1, 0]),
        ([datetime(2026, 2, 1), datetime(2026, 1, 1)], [1, 0]),
        ([2.5, -1.0], [1, 0]),
    ],
)
def test_times_are_ranked_exactly(times, order):
    column = nw.from_native(pl.Series("when", times), series_only=True)
    assert np.argsort(ranks_of(column), kind="stable").tolist() == order


@pytest.mark.parametrize(
    ("times", "row"),
    [
        (["9:00", "10:00"], 1),
        (["10:00", "09:00"], 1),
        (["1", "2026-01-01"], 2),
        (["2026-01-01T10:00", "2026-01-01T10:00Z"], 2),
        (["2026-01-01", "2026-02-30"], 2),
        (["1", "1.5"], 2),
        ([1.0, float("nan")], 2),
    ],
)
def test_times_without_an_order_are_named(times, row):
    with pytest.raises(InputError, match=f"table: row {row + 1}, column when: expected"):
        ranks_of(nw.from_native(pl.Series("when", times), series_only=True))
