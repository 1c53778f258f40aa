"""Both sides as commands: a location's line, the server's folder, a ledger between rounds."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.mentions import assert_mentions
from helpers.secret_values import PROPERTY, SENTINEL, VALUES, run_command
from hypothesis import given
from hypothesis import strategies as st

from privopt import Ledger
from privopt.errors import InputError
from privopt.files.durable_log import DurableLog
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_fl_linear import messages
from privopt_fl_linear.command import cli
from privopt_fl_linear.messages import (
    APPLICATION_ID,
    Message,
    draw_report,
    format_epsilon,
    parse_epsilon,
    read_messages,
    repeat_or_draw,
)

SITES = "id,x,y,facility_cost\na,0,0,.2\nb,1,0,.3\nc,0,1,.2\n"


def run(*arguments, stdin=None):
    return CliRunner().invoke(cli, [str(a) for a in arguments], input=stdin)


def report_location(folder, location, clients, *, round_="1", epsilon="0.5", extra_options=()):
    """Ask a location, and add the line that it sends to LOCATION.jsonl."""
    options = ("--round", round_, "--epsilon", epsilon, "--kept", folder / f"{location}.sent", *extra_options)
    completed = run("report", "--location", location, "--clients", clients, *options)
    with (folder / f"{location}.jsonl").open("a") as file:
        file.write(completed.stdout)
    return completed


def sent(path):
    """Return the messages that a file of messages sent holds."""
    with DurableLog(path, name="file of messages sent", mark=APPLICATION_ID) as log:
        return log.texts()


@pytest.fixture
def round_one(tmp_path):
    for location, clients in (("a", 20), ("b", 3), ("c", 0)):
        completed = report_location(tmp_path, location, clients)
        assert completed.exit_code == 0, completed.output
        assert set(json.loads(completed.stdout)) == {"format", "location", "round", "epsilon", "noise", "noisy_clients"}
    (tmp_path / "sites.csv").write_text(SITES)
    return tmp_path


def collect_files(folder, *extra_options, files=("a", "b", "c"), target="server"):
    paths = [folder / f"{name}.jsonl" for name in files]
    return run("collect", *paths, "--sites", folder / "sites.csv", "--out", folder / target, *extra_options)


def test_ignores_mark_before_first_message(round_one):
    path = round_one / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert collect_files(round_one).exit_code == 0


def test_invalid_lines_are_not_quoted(round_one):
    (round_one / "a.jsonl").write_text("id,clients\nsecretville,8123\n")
    completed = collect_files(round_one)
    assert completed.exit_code == 2
    assert_mentions(completed.output, "a.jsonl: line 2", "got text that is not a message")
    assert not {"secretville", "8123"} & set(completed.output.replace(",", " ").split())


def test_messages_lead_from_counts_to_capacities(round_one):
    completed = collect_files(round_one)
    assert completed.exit_code == 0, completed.output
    rows = [line.split(",") for line in (round_one / "server" / "locations.csv").read_text().splitlines()]
    assert rows[0] == ["id", "x", "y", "facility_cost", "noisy_clients"]
    sent = {name: json.loads((round_one / f"{name}.jsonl").read_text())["noisy_clients"] for name in "abc"}
    assert {row[0]: int(row[-1]) for row in rows[1:]} == sent
    release = solve("fl-linear", round_one / "server" / "problem.toml", round_one / "out", Options())
    assert release.result.guarantee.kind == "local-dp"
    assert release.result.guarantee.epsilon == Fraction(1, 2)
    assert verify(round_one / "out").verdict == "declared"
    assert collect_files(round_one).exit_code == 2  # the folder is there


def test_round_is_drawn_once(tmp_path):
    first = report_location(tmp_path, "a", 20)
    repeated = report_location(tmp_path, "a", 2000)
    assert repeated.stdout == first.stdout
    assert "same message is sent again" in repeated.stderr
    other_round = report_location(tmp_path, "a", 20, round_="2")
    assert json.loads(other_round.stdout)["round"] == "2"
    assert sent(tmp_path / "a.sent") == [first.stdout.strip(), other_round.stdout.strip()]
    changed_epsilon = report_location(tmp_path, "a", 20, epsilon="0.6")
    assert changed_epsilon.exit_code == 2
    assert "epsilon 1/2" in changed_epsilon.stderr


@pytest.mark.parametrize("kept_option", ["nowhere/k.jsonl", "."])
def test_writes_sent_messages_to_a_usable_file(tmp_path, kept_option):
    completed = run(
        "report", "--location", "a", "--clients", 3, "--round", "1", "--epsilon", "1", "--kept", tmp_path / kept_option
    )
    assert completed.exit_code == 2
    assert str(tmp_path / kept_option) in completed.stderr
    assert "Traceback" not in completed.stderr
    assert not completed.stdout


def test_sites_allow_mark_and_blanks(round_one):
    (round_one / "sites.csv").write_bytes(
        b"\xef\xbb\xbf" + SITES.replace("id,", " id ,").replace("b,", " b ,").encode()
    )
    completed = collect_files(round_one)
    assert completed.exit_code == 0, completed.output
    assert "\nb," in (round_one / "server" / "locations.csv").read_text()
    for name in ("sites.csv/x", "a.jsonl"):
        completed = collect_files(round_one, target=name)
        assert completed.exit_code == 2, completed.output
        assert "--out" in completed.stderr
    assert not [path for path in round_one.iterdir() if path.name.startswith(".")]


def test_blanks_around_ids_draw_nothing_new(tmp_path):
    first = report_location(tmp_path, "a", 20, extra_options=("--ledger", tmp_path / "book"))
    sent_messages = sent(tmp_path / "a.sent")
    for location, round_ in (("a ", "1"), (" a", "1 "), ("a", " 1")):
        options = ("--kept", tmp_path / "a.sent", "--epsilon", "0.5", "--ledger", tmp_path / "book")
        repeated = run("report", "--location", location, "--round", round_, "--clients", 20, *options)
        assert repeated.stdout == first.stdout
        assert "same message is sent again" in repeated.stderr
    assert sent(tmp_path / "a.sent") == sent_messages == [first.stdout.strip()]
    assert repeat_or_draw(tmp_path / "a.sent", " a ", 20, Fraction(1, 2), " 1")[1] is False
    assert run("report", "--location", " ", "--round", "1", "--clients", 1, *options).exit_code == 2


@pytest.mark.parametrize(
    ("noise", "counts"), [("discrete", (2 * 10**12, -(2 * 10**12))), ("continuous", (2e12, -2e12))]
)
def test_collect_takes_what_solve_takes(round_one, noise, counts):
    for name in "abc":
        path = round_one / f"{name}.jsonl"
        path.write_text(path.read_text().replace('"discrete"', f'"{noise}"'))
    path, head = round_one / "b.jsonl", (round_one / "b.jsonl").read_text().rpartition(":")[0]
    for number, count in enumerate(counts):
        path.write_text(f"{head}: {count}}}\n")
        completed = collect_files(round_one, target=f"server{number}")
        assert completed.exit_code == 0, completed.output
        solve("fl-linear", round_one / f"server{number}" / "problem.toml", round_one / f"out{number}", Options())
        path.write_text(f"{head}: {count + (1 if count > 0 else -1)}}}\n")
        completed = collect_files(round_one, target="other")
        assert completed.exit_code == 2
        assert_mentions(completed.stderr, "b.jsonl: line 1", "got text that is not a message", "noisy_clients", "2e+12")
    path.write_text(head + ": " + "9" * 5000 + "}\n")
    assert_mentions(collect_files(round_one).stderr, "b.jsonl: line 1", "too many digits")


def test_concurrent_reports_draw_once(tmp_path):
    def draw(_):
        return repeat_or_draw(tmp_path / "kept", "a", 5, Fraction(1, 10), "1")

    with ThreadPoolExecutor(8) as pool:
        reports = list(pool.map(draw, range(16)))
    assert len({message.to_line() for message, _ in reports}) == 1
    assert sum(is_drawn for _, is_drawn in reports) == 1


def test_rounds_are_charged_before_drawing(tmp_path):
    book = tmp_path / "a.ledger"
    with Ledger(book) as ledger:
        ledger.set_limit(1)
    for round_, code in (("1", 0), ("1", 0), ("2", 0), ("3", 2)):
        completed = report_location(tmp_path, "a", 20, round_=round_, extra_options=("--ledger", book))
        assert completed.exit_code == code, completed.output
    assert "budget spent" in completed.stderr
    assert len(sent(tmp_path / "a.sent")) == 2  # nothing was drawn for round 3
    with Ledger(book) as ledger:
        account = ledger.account("a")
        ledger.check()
    assert (account.spent, account.left) == (1, 0)


def test_count_from_standard_input_is_never_quoted(tmp_path):
    options = ("--location", "a", "--epsilon", "1", "--round", "1", "--kept", tmp_path / "k")
    assert run("report", "--clients", "-", *options, stdin="7\n").exit_code == 0
    for invalid_count in ("-7", "seven", "1e3", str(10**13)):
        completed = run("report", "--clients", invalid_count, *options)
        assert completed.exit_code == 2
        assert invalid_count not in completed.output


@pytest.mark.parametrize("epsilon", ["0", "-1", "1/3", "nan", "1e3", "9999999", "0.00000000001", "", "0.1x"])
def test_refuses_invalid_budgets(epsilon, tmp_path):
    assert report_location(tmp_path, "a", 1, epsilon=epsilon).exit_code == 2
    assert not (tmp_path / "a.sent").exists()


@given(st.integers(1, 10**9), st.integers(0, 9))
def test_decimals_round_trip(digits, places):
    epsilon = Fraction(digits, 10**places)
    if Fraction(1, 10**10) <= epsilon <= 10**6:
        assert parse_epsilon(format_epsilon(epsilon)) == epsilon


GOOD = (
    '{"format":"privopt-fl-linear/1","location":"a","round":"1","epsilon":"0.5","noise":"discrete","noisy_clients":3}'
)


@pytest.mark.parametrize(
    "line",
    [
        "", "x", "[]", "{}", "null", GOOD.replace("/1", "/2"), GOOD.replace('"a"', "3"), GOOD.replace('"0.5"', "0.5"),
        GOOD.replace("0.5", "1/0"), GOOD.replace("discrete", "none"), GOOD.replace(":3", ":3.5"),
        GOOD.replace(":3", ":true"), GOOD.replace(":3", ":NaN"), GOOD.replace(":3", ':"3"'),
        GOOD.replace("}", ',"clients":3}'), "[" * 100_000,
    ],
)  # fmt: skip
def test_refuses_invalid_messages(line, tmp_path):
    (tmp_path / "m").write_text(f"{GOOD}\n{line or '{'}\n")
    with pytest.raises(InputError, match="line 2"):
        read_messages([tmp_path / "m"])
    completed = run("collect", tmp_path / "m", "--sites", tmp_path / "m", "--out", tmp_path / "out")
    assert completed.exit_code == 2
    assert "Traceback" not in completed.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("junk", "location"), [(b"\xff\xfe\n", "UTF-16"), (GOOD.encode() + b"\n\xe9\n", "row 2")])
def test_refuses_files_that_are_not_text(junk, location, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(junk)
    (tmp_path / "sites.csv").write_text(SITES)
    completed = collect_files(tmp_path, files=("a",))
    assert completed.exit_code == 2, completed.output
    assert location in completed.stderr
    assert "UTF-8" in completed.stderr
    assert "Traceback" not in completed.output
    options = ("--location", "a", "--epsilon", "1", "--round", "1", "--kept", tmp_path / "k")
    assert run("report", "--clients", "-", *options, stdin=b"\xff\n").exit_code == 2


def test_refuses_and_keeps_other_files(tmp_path):
    (tmp_path / "a.sent").write_text(GOOD)
    completed = report_location(tmp_path, "a", 20)
    assert completed.exit_code == 2
    assert "a.sent" in completed.stderr
    assert (tmp_path / "a.sent").read_text() == GOOD
    (tmp_path / "sites.csv").write_text(SITES)
    report_location(tmp_path, "b", 3)
    completed = run("collect", tmp_path / "b.sent", "--sites", tmp_path / "sites.csv", "--out", tmp_path / "out")
    assert completed.exit_code == 2
    assert_mentions(completed.stderr, "b.sent", "lines that report printed", "--kept")


def test_message_is_kept_before_it_is_returned(tmp_path, monkeypatch):
    def fails(*_):
        raise OSError("no entropy")

    with monkeypatch.context() as patch:
        patch.setattr(messages, "draw_report", fails)
        with pytest.raises(OSError, match="no entropy"):
            repeat_or_draw(tmp_path / "k", "a", 20, Fraction(1, 2), "1")
    assert sent(tmp_path / "k") == []
    message, is_drawn = repeat_or_draw(tmp_path / "k", "a", 20, Fraction(1, 2), "1")
    assert is_drawn
    assert sent(tmp_path / "k") == [message.to_line()]


@pytest.mark.parametrize(
    ("change", "keywords"),
    [
        (('"round":"1"', '"round":"2"'), "round 2"),
        (('"0.5"', '"0.6"'), "epsilon 3/5"),
        (("discrete", "continuous"), "noise continuous"),
        ((":3}", ":4}"), "reports that differ"),
    ],
)
def test_messages_of_a_collection_must_agree(change, keywords, tmp_path):
    (tmp_path / "m").write_text(f"{GOOD}\n{GOOD}\n{GOOD.replace(*change)}\n")
    with pytest.raises(InputError, match=keywords):
        read_messages([tmp_path / "m"])


def test_sites_and_messages_must_match(round_one):
    silent = collect_files(round_one, files=("a", "b"))
    assert silent.exit_code == 2
    assert "report of c" in silent.stderr
    without_missing = collect_files(round_one, "--leave-out", files=("a", "b"))
    assert without_missing.exit_code == 0
    assert "omitted: 1 site that sent nothing" in without_missing.stderr
    assert "c," not in (round_one / "server" / "locations.csv").read_text()
    for text, keywords in (
        (SITES.replace("b,", "d,"), "b, which sent a report"),
        (SITES + "a,5,5,.1\n", "a again"),
        (SITES.replace("id,", "name,"), "a column id"),
        ("id,clients\na,3\n", "none of counts"),
    ):
        (round_one / "sites.csv").write_text(text)
        completed = collect_files(round_one, target="other")
        assert completed.exit_code == 2
        assert keywords in completed.stderr
        assert not (round_one / "other").exists()


def test_reports_have_their_stated_noise():
    sent = np.array([draw_report("a", 10, Fraction(1), "1").noisy for _ in range(4000)])
    ratio = math.exp(-1.0)
    variance = 2 * ratio / (1 - ratio) ** 2
    assert abs(sent.mean() - 10) < 5 * math.sqrt(variance / 4000)
    assert abs(sent.var() / variance - 1) < 0.25
    continuous = draw_report("a", 10, Fraction(1), "1", "continuous")
    assert isinstance(continuous.noisy, float)
    assert Message.from_line(continuous.to_line()) == continuous


@pytest.mark.parametrize("form", ["--clients={} {}", "--clients {} {}", "--clients=3 {}", "--{}", "--clientz {}"])
@PROPERTY
@given(value=VALUES.filter(lambda value: "\0" not in value))
def test_wrong_arguments_of_report_are_not_repeated(tmp_path_factory, form, value):
    options = ("--location", "a", "--epsilon", "1", "--round", "1", "--kept", tmp_path_factory.mktemp("kept") / "k")
    code, shown = run_command(cli, "report", *(word.format(value) for word in form.split()), *options)
    assert code == 2
    assert SENTINEL not in shown
