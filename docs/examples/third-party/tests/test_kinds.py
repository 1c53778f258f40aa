"""The distance, the loss, the notion, the solver and the decomposer, each under mechanisms that others made."""

import itertools
import json

import pytest
from click.testing import CliRunner

from privopt.command.cli import cli
from privopt.errors import InputError
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify

WORDS = ["".join(letters) for letters in itertools.product("ab", repeat=3)]


def solved(folder, mechanism, *, privacy="epsilon = 0.7", **options):
    """result.json of the eight words of three letters under a mechanism; the folder verifies."""
    (folder / "words.csv").write_text("id\n" + "\n".join(WORDS) + "\n")
    file = folder / "words.toml"
    file.write_text(
        '[records]\npoints = "words.csv"\n[distance]\nkind = "hamming"\n'
        f'[privacy]\n{privacy}\n[utility]\nkind = "squared-distance"\n'
    )
    out = folder / f"{mechanism}-{options.get('method')}-{options.get('solver')}"
    solve(mechanism, file, out, Options(**options))
    verdict = verify(out)
    assert verdict.verdict == "proved", verdict.complaints
    return json.loads((out / "result.json").read_text())


@pytest.mark.parametrize("mechanism", ["optimal-lp", "exponential", "bd-mdp"])
def test_every_metric_mechanism_takes_the_distance_and_the_loss(tmp_path, mechanism):
    result = solved(tmp_path, mechanism)
    assert result["guarantee"]["unit"] == "per letter"
    assert result["objective"]["unit"] == "letter^2"


def test_the_solver_finds_what_highs_finds(tmp_path):
    ours, theirs = (solved(tmp_path, "optimal-lp", method="full", solver=name) for name in ("clarabel", "highs"))
    assert ours["objective"]["value"] == pytest.approx(theirs["objective"]["value"], rel=1e-5)
    assert ours["objective"]["gap"] < 1e-5


def test_the_decomposer_is_a_method_of_a_mechanism_that_decomposes(tmp_path):
    """With a certificate and a bound of its own, and the optimum that the mechanism's own methods find."""
    ours, theirs = (solved(tmp_path, "bd-mdp", method=name, solver="highs") for name in ("lazy-rows", "full"))
    assert (ours["solver"]["name"], ours["asked"]["solver"]) == ("lazy-rows", "highs")
    assert ours["objective"]["value"] == pytest.approx(theirs["objective"]["value"], rel=1e-5)
    assert ours["objective"]["gap"] < 1e-4
    [part] = ours["details"]["told"]["parts"]
    assert part["rows"] < part["rows_of_the_whole"]
    assert "lazy-rows" in CliRunner().invoke(cli, ["describe", "bd-mdp"]).output


def test_the_notion_brings_its_own_certificate_and_costs_less(tmp_path):
    pure = solved(tmp_path, "optimal-lp", method="full", solver="highs")
    notion = 'kind = "approximate-metric-dp"\nepsilon = 0.7\ndelta = 0.01'
    approximate = solved(tmp_path, "optimal-lp", privacy=notion, method="full", solver="clarabel")
    assert approximate["guarantee"]["delta"] == 0.01
    assert 0.009 < approximate["certificate"]["worst"] <= 0.01
    assert approximate["objective"]["value"] < 0.99 * pure["objective"]["value"]


def test_a_method_that_cannot_take_the_notion_refuses_it_by_name(tmp_path):
    notion = 'kind = "approximate-metric-dp"\nepsilon = 0.7\ndelta = 0.01'
    with pytest.raises(InputError, match="cannot take"):
        solved(tmp_path, "optimal-lp", privacy=notion)
