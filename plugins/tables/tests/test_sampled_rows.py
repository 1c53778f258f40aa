"""`apply` takes whatever can draw: a release without a matrix that samples for itself."""

import sys
from collections import Counter

import numpy as np
import polars as pl
import pytest
from helpers.charging import read_charges, run_command
from scipy.stats import chisquare

import privopt as po
from privopt.command.new import new_plugin
from privopt.errors import UsageError
from privopt.ledger.charge import Charge
from privopt.registry import Registered, registry, using
from privopt.run.solve import solve
from privopt.run.verify import open_verified
from privopt_tables.apply import apply, apply_in_memory
from privopt_tables.options import ApplyOptions
from privopt_tables.secret_columns import Secret


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    """DIR of a new plugin that adds noise to a place on a line, and the registry that knows it."""
    folder = new_plugin("acme-line", tmp_path_factory.mktemp("acme"), "sampler")
    sys.path.insert(0, str(folder / "src"))
    import acme_line

    [spec] = acme_line.privopt_mechanisms()
    with using(registry().replace(Registered(spec=spec, plugin="acme-line", version="0.1.0"))):
        yield solve("acme-line", folder / "example.toml", folder / "out").folder
    sys.path.remove(str(folder / "src"))


def test_reports_follow_the_channel(line, tmp_path):
    release_folder = open_verified(line)
    channel = release_folder.release.channel()
    ids = np.resize([channel.inputs[0], channel.inputs[1], "nowhere", None], 12_000).tolist()
    pl.DataFrame({"n": range(12_000), "place": ids}).write_csv(tmp_path / "t.csv")
    summary = apply(line, tmp_path / "t.csv", tmp_path / "o.csv", Secret.of(id="place"))
    assert summary.to_json() == {"rows": 12_000, "reported": 6_000, "refused": {"unknown id": 6_000}}
    output = pl.read_csv(tmp_path / "o.csv", schema_overrides={"report": pl.String})
    assert output.columns == ["n", "report"]
    assert output["n"].to_list() == list(range(12_000))
    for row in (0, 1):
        counts = Counter(output["report"][row::4].to_list())
        report_counts = np.array([counts[name] for name in channel.outputs])
        likely = channel.probabilities[row] * report_counts.sum()
        is_likely = likely > 5
        observed, expected = report_counts[is_likely], likely[is_likely]
        if not is_likely.all():
            observed, expected = (
                np.append(observed, report_counts[~is_likely].sum()),
                np.append(expected, likely[~is_likely].sum()),
            )
        assert chisquare(observed, expected).pvalue > 1e-6
    assert output["report"][2::4].is_null().all()


def test_each_row_is_charged_before_drawing(line, tmp_path):
    pl.DataFrame({"who": ["anna"] * 5 + ["bert"], "place": ["0", "1", "x", "1", "0", "0"]}).write_csv(
        tmp_path / "t.csv"
    )
    epsilon = open_verified(line).result.guarantee.epsilon
    run_command("budget", tmp_path / "book", "--set", str(3 * epsilon))
    apply_options = ApplyOptions(charge=Charge(ledger=tmp_path / "book", subject="who"))
    summary = apply(line, tmp_path / "t.csv", tmp_path / "o.csv", Secret.of(id="place"), apply_options)
    assert summary.refused == {"unknown id": 1, "budget spent": 2}
    assert Counter(name for name, _ in read_charges(tmp_path / "book")) == {"anna": 3, "bert": 1}


def test_protects_tables_in_python(line):
    release, frame = po.open(line), pl.DataFrame({"n": range(50), "place": ["0", "1"] * 25})
    result = release.apply(frame, id="place")
    assert result.columns == ["n", "report"]
    assert set(result["report"]) <= set(release.opened.release.records)
    for options, words in (({"x": "n", "y": "place"}, "must be id"), ({"id": "place", "seed": 1}, "has no matrix")):
        with pytest.raises(UsageError, match=words):
            release.apply(frame, **options)


def test_in_memory_and_where_a_matrix_is_needed(line, tmp_path):
    release_folder = open_verified(line)
    result, _ = apply_in_memory(release_folder, {"place": ["0"] * 2_500}, {"id": "place"}, ApplyOptions())
    assert len(result["report"]) == 2_500
    for options in ({"seed": 1}, {"max_snap": 1.0}):
        with pytest.raises(UsageError, match="draws for itself"):
            apply_in_memory(release_folder, {"place": ["0"]}, {"id": "place"}, ApplyOptions(**options))
    with pytest.raises(UsageError, match="got a position"):
        apply_in_memory(release_folder, {"x": [0.0], "y": [0.0]}, {"x": "x", "y": "y"}, ApplyOptions())
    table = {"s": ["0", "1"], "e": ["1", "x"]}
    result, _ = apply_in_memory(release_folder, table, {}, ApplyOptions(positions={"start": ["s"], "end": ["e"]}))
    assert list(result) == ["start_report", "end_report"]
    assert [report is None for name in result for report in result[name]] == [False, True] * 2
