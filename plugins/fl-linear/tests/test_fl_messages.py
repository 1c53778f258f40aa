"""Both sides as commands: a location's line, the server's folder, a ledger between rounds."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from privopt import Ledger
from privopt.errors import InputError
from privopt.files.durable_log import DurableLog
from privopt.run.options import Options
from privopt.run.solve import solve
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


def run(*arguments, given=None):
    return CliRunner().invoke(cli, [str(a) for a in arguments], input=given)


def ask(folder, location, clients, *, round_="1", epsilon="0.5", more=()):
    """Ask a location, and add the line that it sends to LOCATION.jsonl."""
    options = ("--round", round_, "--epsilon", epsilon, "--kept", folder / f"{location}.sent", *more)
    done = run("report", "--location", location, "--clients", clients, *options)
    with (folder / f"{location}.jsonl").open("a") as file:
        file.write(done.stdout)
    return done


def sent(path):
    """Return the messages that a file of messages sent holds."""
    with DurableLog(path, name="file of messages sent", mark=APPLICATION_ID) as log:
        return log.texts()


@pytest.fixture
def round_one(tmp_path):
    for location, clients in (("a", 20), ("b", 3), ("c", 0)):
        done = ask(tmp_path, location, clients)
        assert done.exit_code == 0, done.output
        assert set(json.loads(done.stdout)) == {"format", "location", "round", "epsilon", "noise", "noisy_clients"}
    (tmp_path / "sites.csv").write_text(SITES)
    return tmp_path


def gather(folder, *more, files=("a", "b", "c"), out="server"):
    paths = [folder / f"{name}.jsonl" for name in files]
    return run("collect", *paths, "--sites", folder / "sites.csv", "--out", folder / out, *more)


def test_a_mark_before_the_first_message_is_none_of_it(round_one):
    path = round_one / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert gather(round_one).exit_code == 0


def test_lines_that_are_no_messages_are_not_quoted(round_one):
    (round_one / "a.jsonl").write_text("id,clients\nsecretville,8123\n")
    done = gather(round_one)
    assert done.exit_code == 2
    assert "a.jsonl: line 2: expected a message of a location, got no message" in done.output
    assert not {"secretville", "8123"} & set(done.output.replace(",", " ").split())


def test_from_counts_to_capacities_through_messages_alone(round_one):
    done = gather(round_one)
    assert done.exit_code == 0, done.output
    rows = [line.split(",") for line in (round_one / "server" / "locations.csv").read_text().splitlines()]
    assert rows[0] == ["id", "x", "y", "facility_cost", "noisy_clients"]
    sent = {name: json.loads((round_one / f"{name}.jsonl").read_text())["noisy_clients"] for name in "abc"}
    assert {row[0]: int(row[-1]) for row in rows[1:]} == sent
    solved = solve("fl-linear", round_one / "server" / "problem.toml", round_one / "out", Options())
    assert solved.result.guarantee.kind == "local-dp"
    assert solved.result.guarantee.epsilon == Fraction(1, 2)
    assert verify(round_one / "out").verdict == "declared"
    assert gather(round_one).exit_code == 2  # the folder is there


def test_a_round_is_drawn_once(tmp_path):
    first = ask(tmp_path, "a", 20)
    again = ask(tmp_path, "a", 2000)
    assert again.stdout == first.stdout
    assert "the same message again" in again.stderr
    other = ask(tmp_path, "a", 20, round_="2")
    assert json.loads(other.stdout)["round"] == "2"
    assert sent(tmp_path / "a.sent") == [first.stdout.strip(), other.stdout.strip()]
    changed = ask(tmp_path, "a", 20, epsilon="0.6")
    assert changed.exit_code == 2
    assert "epsilon 1/2" in changed.stderr


@pytest.mark.parametrize("kept", ["nowhere/k.jsonl", "."])
def test_messages_are_kept_in_a_file_that_can_be_written(tmp_path, kept):
    done = run("report", "--location", "a", "--clients", 3, "--round", "1", "--epsilon", "1", "--kept", tmp_path / kept)
    assert done.exit_code == 2
    assert str(tmp_path / kept) in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_sites_may_have_a_mark_and_blanks_and_the_folder_comes_whole(round_one):
    (round_one / "sites.csv").write_bytes(
        b"\xef\xbb\xbf" + SITES.replace("id,", " id ,").replace("b,", " b ,").encode()
    )
    done = gather(round_one)
    assert done.exit_code == 0, done.output
    assert "\nb," in (round_one / "server" / "locations.csv").read_text()
    for out in ("sites.csv/x", "a.jsonl"):
        done = gather(round_one, out=out)
        assert done.exit_code == 2, done.output
        assert "--out" in done.stderr
    assert not [path for path in round_one.iterdir() if path.name.startswith(".")]


def test_blanks_around_a_location_or_round_draw_nothing_new(tmp_path):
    first = ask(tmp_path, "a", 20, more=("--ledger", tmp_path / "book"))
    kept = sent(tmp_path / "a.sent")
    for location, round_ in (("a ", "1"), (" a", "1 "), ("a", " 1")):
        options = ("--kept", tmp_path / "a.sent", "--epsilon", "0.5", "--ledger", tmp_path / "book")
        again = run("report", "--location", location, "--round", round_, "--clients", 20, *options)
        assert again.stdout == first.stdout
        assert "the same message again" in again.stderr
    assert sent(tmp_path / "a.sent") == kept == [first.stdout.strip()]
    assert repeat_or_draw(tmp_path / "a.sent", " a ", 20, Fraction(1, 2), " 1")[1] is False
    assert run("report", "--location", " ", "--round", "1", "--clients", 1, *options).exit_code == 2


@pytest.mark.parametrize(
    ("noise", "counts"), [("discrete", (2 * 10**12, -(2 * 10**12))), ("continuous", (2e12, -2e12))]
)
def test_a_message_is_taken_by_collect_exactly_if_solve_takes_it(round_one, noise, counts):
    for name in "abc":
        path = round_one / f"{name}.jsonl"
        path.write_text(path.read_text().replace('"discrete"', f'"{noise}"'))
    path, head = round_one / "b.jsonl", (round_one / "b.jsonl").read_text().rpartition(":")[0]
    for number, count in enumerate(counts):
        path.write_text(f"{head}: {count}}}\n")
        done = gather(round_one, out=f"server{number}")
        assert done.exit_code == 0, done.output
        solve("fl-linear", round_one / f"server{number}" / "problem.toml", round_one / f"out{number}", Options())
        path.write_text(f"{head}: {count + (1 if count > 0 else -1)}}}\n")
        done = gather(round_one, out="other")
        assert done.exit_code == 2
        assert (
            "b.jsonl: line 1: expected a message of a location, "
            "got no message (noisy_clients is not between -2e+12 and 2e+12)" in done.stderr
        )
    path.write_text(head + ": " + "9" * 5000 + "}\n")
    assert (
        "b.jsonl: line 1: expected a message of a location, got no message (a whole number of too many digits)"
        in gather(round_one).stderr
    )


def test_two_at_once_draw_once(tmp_path):
    def draw(_):
        return repeat_or_draw(tmp_path / "kept", "a", 5, Fraction(1, 10), "1")

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(draw, range(16)))
    assert len({message.to_line() for message, _ in found}) == 1
    assert sum(drawn for _, drawn in found) == 1


def test_rounds_are_charged_before_they_are_drawn(tmp_path):
    book = tmp_path / "a.ledger"
    with Ledger(book) as ledger:
        ledger.set_limit(1)
    for round_, code in (("1", 0), ("1", 0), ("2", 0), ("3", 2)):
        done = ask(tmp_path, "a", 20, round_=round_, more=("--ledger", book))
        assert done.exit_code == code, done.output
    assert "budget spent" in done.stderr
    assert len(sent(tmp_path / "a.sent")) == 2  # nothing was drawn for round 3
    with Ledger(book) as ledger:
        account = ledger.account("a")
        ledger.check()
    assert (account.spent, account.left) == (1, 0)


def test_the_count_may_come_by_standard_input_and_is_never_quoted(tmp_path):
    options = ("--location", "a", "--epsilon", "1", "--round", "1", "--kept", tmp_path / "k")
    assert run("report", "--clients", "-", *options, given="7\n").exit_code == 0
    for wrong in ("-7", "seven", "1e3", str(10**13)):
        done = run("report", "--clients", wrong, *options)
        assert done.exit_code == 2
        assert wrong not in done.output


@pytest.mark.parametrize("epsilon", ["0", "-1", "1/3", "nan", "1e3", "9999999", "0.00000000001", "", "0.1x"])
def test_budgets_that_are_none(epsilon, tmp_path):
    assert ask(tmp_path, "a", 1, epsilon=epsilon).exit_code == 2
    assert not (tmp_path / "a.sent").exists()


@given(st.integers(1, 10**9), st.integers(0, 9))
def test_decimals_come_back(digits, places):
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
def test_what_is_no_message(line, tmp_path):
    (tmp_path / "m").write_text(f"{GOOD}\n{line or '{'}\n")
    with pytest.raises(InputError, match="line 2"):
        read_messages([tmp_path / "m"])
    done = run("collect", tmp_path / "m", "--sites", tmp_path / "m", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "Traceback" not in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("junk", "place"), [(b"\xff\xfe\n", "UTF-16"), (GOOD.encode() + b"\n\xe9\n", "row 2")])
def test_files_that_are_no_text(junk, place, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(junk)
    (tmp_path / "sites.csv").write_text(SITES)
    done = gather(tmp_path, files=("a",))
    assert done.exit_code == 2, done.output
    assert place in done.stderr
    assert "UTF-8" in done.stderr
    assert "Traceback" not in done.output
    options = ("--location", "a", "--epsilon", "1", "--round", "1", "--kept", tmp_path / "k")
    assert run("report", "--clients", "-", *options, given=b"\xff\n").exit_code == 2


def test_files_that_hold_something_else_are_refused_and_left(tmp_path):
    (tmp_path / "a.sent").write_text(GOOD)
    done = ask(tmp_path, "a", 20)
    assert done.exit_code == 2
    assert "a.sent" in done.stderr
    assert (tmp_path / "a.sent").read_text() == GOOD
    (tmp_path / "sites.csv").write_text(SITES)
    ask(tmp_path, "b", 3)
    done = run("collect", tmp_path / "b.sent", "--sites", tmp_path / "sites.csv", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert (
        "b.sent: expected the lines that report printed, in a text file, got a file of messages sent (--kept)"
        in done.stderr
    )


def test_a_message_is_kept_before_it_is_returned_and_a_draw_that_fails_keeps_nothing(tmp_path, monkeypatch):
    def fails(*_):
        raise OSError("no entropy")

    with monkeypatch.context() as patch:
        patch.setattr(messages, "draw_report", fails)
        with pytest.raises(OSError, match="no entropy"):
            repeat_or_draw(tmp_path / "k", "a", 20, Fraction(1, 2), "1")
    assert sent(tmp_path / "k") == []
    message, drawn = repeat_or_draw(tmp_path / "k", "a", 20, Fraction(1, 2), "1")
    assert drawn
    assert sent(tmp_path / "k") == [message.to_line()]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('"round":"1"', '"round":"2"'), "round 2"),
        (('"0.5"', '"0.6"'), "epsilon 3/5"),
        (("discrete", "continuous"), "noise continuous"),
        ((":3}", ":4}"), "two reports that differ"),
    ],
)
def test_messages_of_one_collection_agree(change, said, tmp_path):
    (tmp_path / "m").write_text(f"{GOOD}\n{GOOD}\n{GOOD.replace(*change)}\n")
    with pytest.raises(InputError, match=said):
        read_messages([tmp_path / "m"])


def test_sites_and_messages_that_do_not_fit(round_one):
    silent = gather(round_one, files=("a", "b"))
    assert silent.exit_code == 2
    assert "no report of c" in silent.stderr
    left = gather(round_one, "--leave-out", files=("a", "b"))
    assert left.exit_code == 0
    assert "1 sites sent nothing" in left.stderr
    assert "c," not in (round_one / "server" / "locations.csv").read_text()
    for text, said in (
        (SITES.replace("b,", "d,"), "b, which sent a report"),
        (SITES + "a,5,5,.1\n", "a again"),
        (SITES.replace("id,", "name,"), "a column id"),
        ("id,clients\na,3\n", "none of counts"),
    ):
        (round_one / "sites.csv").write_text(text)
        done = gather(round_one, out="other")
        assert done.exit_code == 2
        assert said in done.stderr
        assert not (round_one / "other").exists()


def test_reports_have_the_noise_that_they_state():
    sent = np.array([draw_report("a", 10, Fraction(1), "1").noisy for _ in range(4000)])
    ratio = math.exp(-1.0)
    variance = 2 * ratio / (1 - ratio) ** 2
    assert abs(sent.mean() - 10) < 5 * math.sqrt(variance / 4000)
    assert abs(sent.var() / variance - 1) < 0.25
    real = draw_report("a", 10, Fraction(1), "1", "continuous")
    assert isinstance(real.noisy, float)
    assert Message.from_line(real.to_line()) == real
