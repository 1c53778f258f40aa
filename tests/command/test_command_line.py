"""The command line to the letter of its contract: streams, exit codes, no traceback, nothing written on faults."""

import json

import pytest
from helpers.toys import TOY, write_toy


def test_json_prints_one_document_and_nothing_else(program, toy, tmp_path, result_of):
    """With CBC; what HiGHS prints test_native_output.py keeps away."""
    out = tmp_path / "out"
    done = program("solve", "optimal-lp", toy, "--out", out, "--method", "full", "--solver", "cbc", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == result_of(out)
    assert "loss" in done.stderr


def test_quiet_says_nothing(privopt, toy, tmp_path):
    done = privopt("solve", "exponential", toy, "--out", tmp_path / "out", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_verify_and_sample(privopt, solved_toy, tmp_path):
    done = privopt("verify", solved_toy)
    assert done.returncode == 0
    assert "holds" in done.stdout
    done = privopt("sample", solved_toy, "--input", "p1", "-n", "7")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 7
    assert set(done.stdout.split()) <= {f"p{i}" for i in range(5)}
    assert privopt("sample", solved_toy, "--input", "p1").stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["solve", "optimal-pl", "{toy}", "--out", "{out}"], "optimal-lp"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--method", "fulll"], "full"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--solver", "gurobi"], "cbc"),
        (["solve", "optimal-lp", "{toy}"], "--out"),
        (["solve", "optimal-lp", "{nowhere}", "--out", "{out}"], "no such file"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--gap", "-1"], "above 0"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--gap", "nan"], "above 0"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--time-limit", "0"], "above 0"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--jobs", "0"], "1"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--seed", "x"], "integer"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--resume"], "--resume"),
        (["solve", "optimal-lp", "{toy}", "--out", "{out}", "--executor", "ftp://x"], "executor"),
        (["solve", "optimal-lp", "{toy}", "--out", "{toy}/deep/out"], "is not a folder"),
        (["verify", "{nowhere}"], "no such folder"),
        (["sample", "{nowhere}", "--input", "p1"], "no such folder"),
        (["audit", "{solved}/problem"], "expected a folder that privopt solve has written, got no SHA256SUMS in it"),
        (["sample", "{solved}", "--input", "p9"], "record"),
        (["sample", "{solved}", "--input", "p1", "-n", "0"], "1"),
        (["describe", "nothing-like-it"], "no mechanism"),
        (["no-such-command"], "no-such-command"),
    ],
)
def test_bad_usage_is_exit_code_2_with_a_line_and_nothing_written(privopt, toy, solved_toy, tmp_path, arguments, word):
    places = {"toy": toy, "out": tmp_path / "out", "nowhere": tmp_path / "nowhere", "solved": solved_toy}
    done = privopt(*(argument.format(**places) for argument in arguments))
    assert done.returncode == 2, done
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "out").exists()


def test_bad_input_names_each_fault_on_a_line_of_its_own(privopt, tmp_path):
    problem = write_toy(tmp_path / "toy", text=TOY.replace("0.9", "-0.9").replace('"prior.csv"', '"gone.csv"'))
    done = privopt("solve", "exponential", problem, "--out", tmp_path / "out", "--quiet")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(
        "problem.toml: privacy.epsilon: expected a number above 0 (per unit of distance), got -0.9"
    )
    assert lines[1].startswith(
        "problem.toml: utility.prior: expected a file, its path relative to the problem file, got 'gone.csv'"
    )


def test_a_stop_with_nothing_feasible_is_exit_code_5(program, tmp_path):
    text = '[records]\ngrid = {rows = 12, cols = 12, cell_km = 1.0}\n[distance]\nkind = "euclidean"\n'
    (tmp_path / "p.toml").write_text(text + '[privacy]\nepsilon = 0.7\n[utility]\nkind = "distance"\n')
    done = program(
        "solve", "optimal-lp", tmp_path / "p.toml", "--out", tmp_path / "out", "--method", "full", "--time-limit", "1"
    )
    assert done.returncode in (4, 5), done
    assert (done.returncode == 4) == (tmp_path / "out").exists()
    assert "Traceback" not in done.stderr


def test_verify_is_exit_code_1_where_a_sum_does_not_hold(privopt, toy, tmp_path):
    privopt("solve", "exponential", toy, "--out", tmp_path / "out")
    path = tmp_path / "out" / "problem" / "prior.csv"
    path.write_text(path.read_text().replace("p0", "p9", 1))
    done = privopt("verify", tmp_path / "out")
    assert done.returncode == 1
    assert "prior.csv" in done.stderr


@pytest.mark.parametrize("mechanism", ["optimal-lp", "exponential", "planar-laplace", "const-opt"])
def test_describe_tells_keys_units_methods_and_source(privopt, mechanism):
    done = privopt("describe", mechanism)
    assert done.returncode == 0
    for word in ("privacy.epsilon", "per unit of distance", "Methods", "default", "Source", "metric-dp"):
        assert word in done.stdout


def test_odd_locales_and_clocks_change_nothing(program, privopt, toy, tmp_path):
    done = program(
        "solve", "exponential", toy, "--out", tmp_path / "out", LC_ALL="C", LANG="tr_TR.ISO-8859-9", TZ="Asia/Kathmandu"
    )
    assert done.returncode == 0, done.stderr
    assert privopt("verify", tmp_path / "out").returncode == 0


def test_a_phase_that_is_told_once_is_shown_after_two_seconds(capfd, monkeypatch):
    import time

    from privopt.command import terminal
    from privopt.command.terminal import progress_display

    began, seen = time.monotonic(), ""
    with progress_display(quiet=False) as tell:
        tell("model of 3 x 3", 0, None, None)
        while "model of 3 x 3" not in seen and time.monotonic() < began + 60:
            time.sleep(0.05)
            seen = capfd.readouterr().err
    assert "model of 3 x 3" in seen
    assert time.monotonic() > began + 1.9
    monkeypatch.setattr(terminal, "SECONDS_BEFORE_PROGRESS", 60.0)  # whatever else runs here, this is sooner
    with progress_display(quiet=False) as tell:
        tell("brief", 0, None, None)
    assert capfd.readouterr().err == ""


def test_ids_are_utf8_in_a_locale_that_knows_ascii_alone(program, privopt, tmp_path):
    problem = write_toy(tmp_path / "toy")
    for path in problem.parent.iterdir():
        path.write_text(path.read_text("utf-8").replace("p1", "Ō1 ф"), "utf-8")
    privopt("solve", "exponential", problem, "--out", tmp_path / "out")
    ascii_alone = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = program("sample", tmp_path / "out", "--input", "Ō1 ф", **ascii_alone)
    assert done.returncode == 0, done.stderr


def test_draws_are_held_a_block_at_a_time_and_written_in_whole_lines(solved_toy, monkeypatch, capsysbinary):
    from privopt.api import draws
    from privopt.command import cli, terminal
    from privopt_metric_dp.matrix.release import MatrixRelease

    asked, written, sample, echo = [], [], MatrixRelease.sample, terminal.click.echo

    def noted(release, input_id, count=1, **more):
        asked.append(count)
        return sample(release, input_id, count, **more)

    monkeypatch.setattr(draws, "BLOCK_DRAWS", 3_000)
    monkeypatch.setattr(MatrixRelease, "sample", noted)
    monkeypatch.setattr(terminal.click, "echo", lambda text="", **more: (written.append(text), echo(text, **more)))
    with pytest.raises(SystemExit) as ended:
        cli.cli.main(["sample", str(solved_toy), "--input", "p1", "-n", "7000"])
    assert not ended.value.code
    assert asked == [3_000, 3_000, 1_000]
    assert all(len(text) < terminal.ATOMIC_PIPE_BYTES for text in written)
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert len(lines) == 7_000
    assert set(lines) <= {f"p{i}" for i in range(5)}
