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
from privopt.numbers.sampling import make_source
from privopt_tables.trace_rows import Tracer, rank_times

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
    workspace = tmp_path_factory.mktemp("traces")
    (workspace / "problem.toml").write_text(PROBLEM)
    completed = run("solve", "predictive", workspace / "problem.toml", "--out", workspace / "out", "--quiet")
    assert completed.exit_code == 0, completed.output
    return workspace / "out"


def table(tmp_path, rows, name="in.csv"):
    pl.DataFrame(rows, schema=["who", "when", "id"], orient="row").write_csv(tmp_path / name)
    return tmp_path / name


def apply_trace(folder, source, *options, code=0):
    output = source.with_name("out.csv")
    completed = run("apply", folder, source, "--id", "id", "--out", output, "--force", *options)
    assert completed.exit_code == code, completed.output
    return completed, (pl.read_csv(output, infer_schema_length=None) if code == 0 else None)


def rows_of(count=60):
    return [(f"p{n % 3}", n, "r0c0" if n < 50 else "r2c2") for n in range(count)]


def test_subject_keeps_reports_and_table_says_which(folder, tmp_path):
    completed, output = apply_trace(folder, table(tmp_path, rows_of()), "--subject", "who")
    assert output.columns == ["who", "when", "report", "report_x", "report_y", "kept", "report_first"]
    for _, part in output.group_by("who", maintain_order=True):
        is_kept, reports = part["kept"].to_list(), part["report"].to_list()
        assert not is_kept[0]
        assert all(reports[n] == reports[n - 1] for n in range(1, len(is_kept)) if is_kept[n])
        assert sum(is_kept) > len(is_kept) // 2
    assert "epsilon 1 per" in completed.stderr
    stderr = " ".join(completed.stderr.split())
    assert "costs 1.0 per" in stderr
    assert " mm " not in stderr


def test_positions_say_what_rounding_adds(tmp_path):
    text = (
        grid_text(2, 2, epsilon=0.5).replace("[privacy]", "[privacy]\neverywhere = true")
        + "[predictive]\ngood_within = 1.0\n"
    )
    (tmp_path / "problem.toml").write_text(text)
    privopt.solve("predictive", tmp_path / "problem.toml").save(tmp_path / "out")
    pl.DataFrame({"who": ["a", "a"], "x": [0.2, 0.3], "y": [0.1, 0.1]}).write_csv(tmp_path / "in.csv")
    arguments = ["apply", tmp_path / "out", tmp_path / "in.csv", "--x=x", "--y=y", "--subject=who"]
    completed = run(*arguments, "--out", tmp_path / "out.csv")
    stderr = " ".join(completed.stderr.split())
    assert completed.exit_code == 0, completed.output
    assert "2 mm more" in stderr
    assert "to the millimetre" in stderr


def test_order_is_that_of_time(folder, tmp_path):
    rows = rows_of(30)
    _, output = apply_trace(folder, table(tmp_path, rows[::-1]), "--subject", "who", "--time", "when")
    assert output["when"].to_list() == [moment for _, moment, _ in rows[::-1]]
    first = output.sort("when").group_by("who", maintain_order=True).first()
    assert not first["kept"].any()
    assert output["kept"].any()


@pytest.mark.filterwarnings("ignore::privopt.PrivoptWarning")
def test_total_ends_with_refusal(folder, tmp_path):
    text = PROBLEM + "total = 5.0\n"
    (tmp_path / "problem.toml").write_text(text)
    release = privopt.solve("predictive", tmp_path / "problem.toml")
    places = ["r0c0", "r2c2"] * 60
    result = release.apply({"who": ["a"] * 120, "id": places}, id="id", subject="who", seed=3)
    fresh_rows = [n for n in range(120) if result["report"][n] is not None and not result["kept"][n]]
    assert len(fresh_rows) == 2
    assert result["report"][fresh_rows[-1] + 1 :] == [None] * (119 - fresh_rows[-1])


def test_ledger_is_charged_by_segment(folder, tmp_path):
    source = table(tmp_path, [*rows_of(), ("p0", 99, "nowhere"), (None, 3, "r0c0")])
    ledger = tmp_path / "phones.ledger"
    completed, output = apply_trace(folder, source, "--subject", "who", "--ledger", str(ledger), "--json")
    summary = json.loads(completed.stdout)
    assert summary["refused"] == {"unknown id": 1, "no subject": 1}
    with privopt.Ledger(ledger) as book:
        for name in ("p0", "p1", "p2"):
            own_rows = output.filter(pl.col("who") == name)
            fresh_count = own_rows.filter(~pl.col("kept") & pl.col("report").is_not_null()).height
            spent_epsilon = Fraction(book.account(name).spent)
            has_ended = not own_rows["kept"][-1] and own_rows["report"][-1] is not None
            assert spent_epsilon == FIRST + SEGMENT * (fresh_count - 1 + (not has_ended))


def test_ledger_refuses_before_a_segment(folder, tmp_path):
    ledger = tmp_path / "phones.ledger"
    with privopt.Ledger(ledger) as book:
        book.set_limit("4.5")
    source = table(tmp_path, [("a", n, "r0c0") for n in range(9)])
    completed, output = apply_trace(folder, source, "--subject", "who", "--ledger", str(ledger), "--json")
    assert json.loads(completed.stdout)["refused"] == {"budget spent": 8}
    assert output["report"].null_count() == 8
    with privopt.Ledger(ledger) as book:
        assert Fraction(book.account("a").spent) == FIRST


def test_spellings_of_a_subject_are_one_trace(folder, tmp_path):
    key, ledger = tmp_path / "key", tmp_path / "phones.ledger"
    with privopt.Ledger(ledger, key=key) as book:
        book.set_limit("1.5")
        book.charge("007", privopt.Cost(epsilon=1, unit="per km as the crow flies"))
    rows = [(name, n, "r0c0") for n, name in enumerate(["007", "007.0", "\ufeff7", "b"])]
    options = ["--subject", "who", "--ledger", str(ledger), "--hash-subjects", str(key), "--json"]
    completed, output = apply_trace(folder, table(tmp_path, rows), *options)
    assert json.loads(completed.stdout)["refused"] == {"budget spent": 3}
    assert output["report"].is_null().to_list() == [True, True, True, False]


@pytest.mark.filterwarnings("ignore::privopt.PrivoptWarning")
def test_charges_depend_on_positions_only_by_reports(folder, tmp_path):
    """Two tables that differ in the secret alone, drawn from the same entropy, as long as their reports are alike."""
    names = ["a"] * 40
    release = privopt.open(folder)
    for seed in range(5):
        results = [
            release.apply({"who": names, "id": places}, id="id", subject="who", seed=seed)
            for places in (["r0c0"] * 40, ["r0c0"] * 39 + ["nowhere"])
        ]
        assert results[0]["report"][:39] == results[1]["report"][:39]
        assert results[0]["kept"][:39] == results[1]["kept"][:39]


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        ([], "column of subjects"),
        (["--subject", "nobody"], "column nobody: expected"),
        (["--subject", "id"], "column id: expected"),
        (
            ["--subject", "who", "--time", "never"],
            "column never: expected",
        ),
        (["--subject", "who", "--sticky", "--ledger", "x.ledger"], "sticky must be"),
    ],
)
def test_refuses_contradictory_options(folder, tmp_path, options, keywords):
    options = [str(tmp_path / word) if word.endswith(".ledger") else word for word in options]
    completed, _ = apply_trace(folder, table(tmp_path, rows_of()), *options, code=2)
    assert keywords in completed.stderr
    assert not (tmp_path / "out.csv").exists()


def test_other_releases_have_no_time(tmp_path):
    (tmp_path / "problem.toml").write_text(PROBLEM.split("[predictive]")[0])
    release = privopt.solve("exponential", tmp_path / "problem.toml")
    with pytest.raises(UsageError, match="time must have"):
        release.apply({"who": ["a"], "when": [1], "id": ["r0c0"]}, id="id", subject="who", time="when")


def test_names_rows_without_a_time(folder, tmp_path):
    source = table(tmp_path, [("a", 1, "r0c0"), ("a", None, "r0c0")])
    completed, _ = apply_trace(folder, source, "--subject", "who", "--time", "when", code=2)
    assert "in.csv: row 3" in completed.stderr


def test_estimates_use_one_report_of_each_subject(folder, tmp_path):
    source = table(tmp_path, rows_of())
    apply_trace(folder, source, "--subject", "who")
    arguments = ["estimate", str(folder), str(tmp_path / "out.csv"), "--out", str(tmp_path / "shares.csv")]
    refusal = run(*arguments)
    assert refusal.exit_code == 2
    assert "of a subject" in refusal.stderr
    completed = run(*arguments, "--subject", "who", "--json")
    assert completed.exit_code == 0, completed.output
    assert json.loads(completed.stdout)["n"] == 3


def forge_prediction(folder, copy, **changed_arrays):
    """Return a copy whose test has other numbers, sums and all."""
    return rewrite(shutil.copytree(folder, copy), "prediction.npz", **changed_arrays)


@pytest.mark.parametrize(
    ("name", "make", "keywords"),
    [
        ("rates", lambda rates: rates * np.array([[1, 1], [2, 1]]), "prediction.npz: test:"),
        ("rates", lambda rates: rates // np.array([[2, 1], [1, 1]]), "prediction.npz: threshold: not"),
        ("level", lambda level: level * 1000, "prediction.npz: level: not"),
        ("steps", np.zeros_like, "prediction.npz: steps: not"),
    ],
)
def test_changed_test_does_not_hold(folder, tmp_path, name, make, keywords):
    completed = run("verify", forge_prediction(folder, tmp_path / "copy", **{name: make}))
    assert completed.exit_code == 1
    assert keywords in completed.output


@pytest.mark.parametrize("name", ["good_within", "threshold_noise", "test_noise", "unit"])
def test_stated_test_follows_from_the_problem(folder, tmp_path, name):
    changed_value = {name: "mile" if name == "unit" else 99.0}
    copy = edit(shutil.copytree(folder, tmp_path / "copy"), lambda r: r["details"]["prediction"].update(changed_value))
    completed = run("verify", copy)
    assert completed.exit_code == 1
    assert f"details.prediction.{name}" in completed.output


def test_near_pairs_have_their_own_promise(folder, tmp_path):
    """A folder that was solved for all pairs cannot pass for one of near pairs."""
    near_problem = PROBLEM.replace("epsilon = 1.0\n[utility]", "epsilon = 1.0\nneighbours_within = 1.0\n[utility]")
    (tmp_path / "near.toml").write_text(near_problem)
    guarantee = privopt.solve("predictive", tmp_path / "near.toml").guarantee
    assert (guarantee.scope, guarantee.extra["neighbours_within"]) == ("neighbours", 1.0)
    assert "each within 1" in guarantee.statement
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "problem" / "problem.toml").write_text(near_problem)
    mend(copy)
    completed = run("verify", copy)
    assert completed.exit_code == 1
    assert "guarantee.scope" in completed.output


def test_first_report_is_marked_and_estimated(folder, tmp_path):
    """Newest rows first: which of the others are fresh depends on what came before, so they tell less, and biased."""
    rows = [(f"p{n % 40}", n, "r0c0" if n < 40 else "r2c2") for n in range(800)]
    _, output = apply_trace(folder, table(tmp_path, rows[::-1]), "--subject", "who", "--time", "when")
    first = output.filter("report_first")
    assert sorted(first["when"].to_list()) == list(range(40))
    assert not first["kept"].any()
    channel = channel_of(privopt.open(folder).opened)
    parts = [nw.from_native(part, eager_only=True) for part in (output[:300], output[300:])]
    source = TableSource(name="out.csv", columns=tuple(output.columns), batches=lambda: iter(parts))
    counted = count_tables([(channel, source)], column="report", subject="who")[0]
    names = list(channel.outputs)
    assert counted.counts.tolist() == [first["report"].to_list().count(name) for name in names]
    assert counted.repeated == output["report"].count() - 40


def test_first_report_is_marked_in_any_order(folder):
    release = privopt.open(folder)
    opened_release = release.opened
    tracer = Tracer.of(opened_release.release, opened_release.problem.data, "who", None, make_source(4))
    frame = nw.from_native(pl.DataFrame({"who": ["a", None, "b", "a", "c", "b"]}), eager_only=True)
    records = np.array([-1, 0, 1, 2, -1, 3])
    reason = np.where(records < 0, 0, -1)
    marks = [tracer.draw_reports(frame, records, reason)[2].tolist() for _ in range(2)]
    assert marks == [[False, False, True, True, False, False], [False] * 6]


@pytest.mark.parametrize("change", ["dropped", "else"])
def test_refuses_traces_without_the_mark(folder, tmp_path, change):
    apply_trace(folder, table(tmp_path, rows_of()), "--subject", "who")
    table_written = pl.read_csv(tmp_path / "out.csv")
    table_written = (
        table_written.drop("report_first")
        if change == "dropped"
        else table_written.with_columns(report_first=pl.lit("yes"))
    )
    table_written.write_csv(tmp_path / "out.csv")
    arguments = ["estimate", str(folder), str(tmp_path / "out.csv"), "--out", str(tmp_path / "shares.csv")]
    completed = run(*arguments, "--subject", "who")
    assert completed.exit_code == 2
    assert "report_first" in completed.stderr


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
    assert np.argsort(rank_times(column), kind="stable").tolist() == order


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
def test_names_times_without_an_order(times, row):
    with pytest.raises(InputError, match=f"row {row + 1}, column when") as excinfo:
        rank_times(nw.from_native(pl.Series("when", times), series_only=True))
    assert str(times[row - 1]) not in str(excinfo.value).partition("got ")[2]
