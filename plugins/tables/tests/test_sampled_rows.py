"""`apply` takes whatever can draw: a release without a matrix that samples for itself."""

import sys
from collections import Counter

import numpy as np
import polars as pl
import pytest
from helpers.charging import charged, said
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


def test_reports_are_as_likely_as_the_channel_says(line, tmp_path):
    opened = open_verified(line)
    channel = opened.release.channel()
    ids = np.resize([channel.inputs[0], channel.inputs[1], "nowhere", None], 12_000).tolist()
    pl.DataFrame({"n": range(12_000), "place": ids}).write_csv(tmp_path / "t.csv")
    done = apply(line, tmp_path / "t.csv", tmp_path / "o.csv", Secret.of(id="place"))
    assert done.to_json() == {"rows": 12_000, "reported": 6_000, "refused": {"unknown id": 6_000}}
    out = pl.read_csv(tmp_path / "o.csv", schema_overrides={"report": pl.String})
    assert out.columns == ["n", "report"]
    assert out["n"].to_list() == list(range(12_000))
    for row in (0, 1):
        counts = Counter(out["report"][row::4].to_list())
        found = np.array([counts[name] for name in channel.outputs])
        likely = channel.probabilities[row] * found.sum()
        some = likely > 5
        drawn, expected = found[some], likely[some]
        if not some.all():
            drawn, expected = np.append(drawn, found[~some].sum()), np.append(expected, likely[~some].sum())
        assert chisquare(drawn, expected).pvalue > 1e-6
    assert out["report"][2::4].is_null().all()


def test_each_row_is_charged_before_it_is_drawn(line, tmp_path):
    pl.DataFrame({"who": ["anna"] * 5 + ["bert"], "place": ["0", "1", "x", "1", "0", "0"]}).write_csv(
        tmp_path / "t.csv"
    )
    epsilon = open_verified(line).result.guarantee.epsilon
    said("budget", tmp_path / "book", "--set", str(3 * epsilon))
    asked = ApplyOptions(charge=Charge(ledger=tmp_path / "book", subject="who"))
    done = apply(line, tmp_path / "t.csv", tmp_path / "o.csv", Secret.of(id="place"), asked)
    assert done.refused == {"unknown id": 1, "budget spent": 2}
    assert Counter(name for name, _ in charged(tmp_path / "book")) == {"anna": 3, "bert": 1}


def test_the_release_in_python_protects_tables(line):
    release, frame = po.open(line), pl.DataFrame({"n": range(50), "place": ["0", "1"] * 25})
    made = release.apply(frame, id="place")
    assert made.columns == ["n", "report"]
    assert set(made["report"]) <= set(release.opened.release.records)
    for more, words in (({"x": "n", "y": "place"}, "must be id"), ({"id": "place", "seed": 1}, "has no matrix")):
        with pytest.raises(UsageError, match=words):
            release.apply(frame, **more)


def test_in_memory_and_what_takes_a_matrix(line, tmp_path):
    opened = open_verified(line)
    made, _ = apply_in_memory(opened, {"place": ["0"] * 2_500}, {"id": "place"}, ApplyOptions())
    assert len(made["report"]) == 2_500
    for more in ({"seed": 1}, {"max_snap": 1.0}):
        with pytest.raises(UsageError, match="this release draws for itself, and has no matrix"):
            apply_in_memory(opened, {"place": ["0"]}, {"id": "place"}, ApplyOptions(**more))
    with pytest.raises(UsageError, match="must be id, got a position: this release draws for its records"):
        apply_in_memory(opened, {"x": [0.0], "y": [0.0]}, {"x": "x", "y": "y"}, ApplyOptions())
    table = {"s": ["0", "1"], "e": ["1", "x"]}
    made, _ = apply_in_memory(opened, table, {}, ApplyOptions(positions={"start": ["s"], "end": ["e"]}))
    assert list(made) == ["start_report", "end_report"]
    assert [report is None for name in made for report in made[name]] == [False, True] * 2
