"""The command line to the letter of its contract: streams, exit codes, no traceback, nothing written on faults."""

import json

import pytest
from helpers.toys import TOY, write_toy


def test_json_prints_one_document_only(program, toy, tmp_path, result_of):
    """With CBC; what HiGHS prints test_native_output.py keeps away."""
    output_folder = tmp_path / "out"
    completed = program(
        "solve", "optimal-lp", toy, "--out", output_folder, "--method", "full", "--solver", "cbc", "--json"
    )
    assert completed.returncode == 0, completed.stderr
    assert json.loads(completed.stdout) == result_of(output_folder)
    assert "loss" in completed.stderr


def test_quiet_prints_nothing(privopt, toy, tmp_path):
    completed = privopt("solve", "exponential", toy, "--out", tmp_path / "out", "--quiet")
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")


def test_verify_and_sample(privopt, solved_toy, tmp_path):
    completed = privopt("verify", solved_toy)
    assert completed.returncode == 0
    assert "holds" in completed.stdout
    completed = privopt("sample", solved_toy, "--input", "p1", "-n", "7")
    assert completed.returncode == 0
    assert len(completed.stdout.splitlines()) == 7
    assert set(completed.stdout.split()) <= {f"p{i}" for i in range(5)}
    assert privopt("sample", solved_toy, "--input", "p1").stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["solve", "optimal-pl", "{toy}", "--out", "{out}"], "optimal-lp"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--method", "fulll"], "full"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--solver", "gurobi"], "cbc"),
        (["solve", "optimal-lp", "{toy}"], "--out"),
        (["solve", "optimal-lp", "{nowhere}", "--out", "{out}"], "file not found"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--gap", "-1"], "above 0"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--gap", "nan"], "above 0"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--time-limit", "0"], "above 0"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--jobs", "0"], "1"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--seed", "x"], "integer"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--resume"], "--resume"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--executor", "ftp://x"], "executor"),
        (["solve", "optimal-lp", "{toy}", "--out", "{toy}/deep/out"], "not a folder"),
        (["verify", "{nowhere}"], "no such folder"),
        (["sample", "{nowhere}", "--input", "p1"], "no such folder"),
        (["audit", "{solved}/problem"], "no SHA256SUMS"),
        (["sample", "{solved}", "--input", "p9"], "record"),
        (["sample", "{solved}", "--input", "p1", "-n", "0"], "1"),
        (["describe", "nothing-like-it"], "no mechanism"),
        (["no-such-command"], "no-such-command"),
    ],
)
def test_bad_usage_exits_2_and_writes_nothing(privopt, toy, solved_toy, tmp_path, arguments, word):
    places = {"toy": toy, "out": tmp_path / "out", "nowhere": tmp_path / "nowhere", "solved": solved_toy}
    completed = privopt(*(argument.format(**places) for argument in arguments))
    assert completed.returncode == 2, completed
    assert word in completed.stderr
    assert "Traceback" not in completed.stderr
    assert completed.stdout == ""
    assert not (tmp_path / "out").exists()


def test_bad_input_has_a_line_for_each_fault(privopt, tmp_path):
    problem = write_toy(tmp_path / "toy", text=TOY.replace("0.9", "-0.9").replace('"prior.csv"', '"gone.csv"'))
    completed = privopt("solve", "exponential", problem, "--out", tmp_path / "out", "--quiet")
    assert completed.returncode == 2
    lines = completed.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("problem.toml: privacy.epsilon: expected")
    assert lines[1].startswith("problem.toml: utility.prior: expected")


def test_stop_with_nothing_feasible_exits_5(program, tmp_path):
    text = '[records]\ngrid = {rows = 12, cols = 12, cell_km = 1.0}\n[distance]\nkind = "euclidean"\n'
    (tmp_path / "p.toml").write_text(text + '[privacy]\nepsilon = 0.7\n[utility]\nkind = "distance"\n')
    completed = program(
        "solve", "optimal-lp", tmp_path / "p.toml", "--out", tmp_path / "out", "--method", "full", "--time-limit", "1"
    )
    assert completed.returncode in (4, 5), completed
    assert (completed.returncode == 4) == (tmp_path / "out").exists()
    assert "Traceback" not in completed.stderr


def test_verify_exits_1_on_a_wrong_checksum(privopt, toy, tmp_path):
    privopt("solve", "exponential", toy, "--out", tmp_path / "out")
    path = tmp_path / "out" / "problem" / "prior.csv"
    path.write_text(path.read_text().replace("p0", "p9", 1))
    completed = privopt("verify", tmp_path / "out")
    assert completed.returncode == 1
    assert "prior.csv" in completed.stderr


@pytest.mark.parametrize("mechanism", ["optimal-lp", "exponential", "planar-laplace", "const-opt"])
def test_describe_shows_keys_methods_and_source(privopt, mechanism):
    completed = privopt("describe", mechanism)
    assert completed.returncode == 0
    for word in ("privacy.epsilon", "per unit of distance", "Methods", "default", "Source", "metric-dp"):
        assert word in completed.stdout


def test_locales_and_clocks_change_nothing(program, privopt, toy, tmp_path):
    completed = program(
        "solve", "exponential", toy, "--out", tmp_path / "out", LC_ALL="C", LANG="tr_TR.ISO-8859-9", TZ="Asia/Kathmandu"
    )
    assert completed.returncode == 0, completed.stderr
    assert privopt("verify", tmp_path / "out").returncode == 0


def test_phase_is_shown_after_two_seconds(capfd, monkeypatch):
    import time

    from privopt.command import terminal
    from privopt.command.terminal import progress_display

    start_seconds, output_seen = time.monotonic(), ""
    with progress_display(quiet=False) as tell:
        tell("model of 3 x 3", 0, None, None)
        # only a guard against hanging
        while "model of 3 x 3" not in output_seen and time.monotonic() < start_seconds + 600:
            time.sleep(0.05)
            output_seen = capfd.readouterr().err
    assert "model of 3 x 3" in output_seen
    assert time.monotonic() > start_seconds + 1.9
    monkeypatch.setattr(terminal, "SECONDS_BEFORE_PROGRESS", 60.0)  # whatever else runs here, this is sooner
    with progress_display(quiet=False) as tell:
        tell("brief", 0, None, None)
    assert capfd.readouterr().err == ""


def test_ids_are_utf8_in_ascii_locales(program, privopt, tmp_path):
    problem = write_toy(tmp_path / "toy")
    for path in problem.parent.iterdir():
        path.write_text(path.read_text("utf-8").replace("p1", "Ō1 ф"), "utf-8")
    privopt("solve", "exponential", problem, "--out", tmp_path / "out")
    ascii_alone = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    completed = program("sample", tmp_path / "out", "--input", "Ō1 ф", **ascii_alone)
    assert completed.returncode == 0, completed.stderr


def test_draws_are_printed_in_blocks_of_lines(solved_toy, monkeypatch, capsysbinary):
    from privopt.api import draws
    from privopt.command import cli, terminal
    from privopt_metric_dp.matrix.release import MatrixRelease

    sample_counts, printed, sample, echo = [], [], MatrixRelease.sample, terminal.click.echo

    def record_and_sample(release, input_id, count=1, **options):
        sample_counts.append(count)
        return sample(release, input_id, count, **options)

    monkeypatch.setattr(draws, "BLOCK_DRAWS", 3_000)
    monkeypatch.setattr(MatrixRelease, "sample", record_and_sample)
    monkeypatch.setattr(
        terminal.click, "echo", lambda text="", **options: (printed.append(text), echo(text, **options))
    )
    with pytest.raises(SystemExit) as excinfo:
        cli.cli.main(["sample", str(solved_toy), "--input", "p1", "-n", "7000"])
    assert not excinfo.value.code
    assert sample_counts == [3_000, 3_000, 1_000]
    assert all(len(text) < terminal.ATOMIC_PIPE_BYTES for text in printed)
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert len(lines) == 7_000
    assert set(lines) <= {f"p{i}" for i in range(5)}
