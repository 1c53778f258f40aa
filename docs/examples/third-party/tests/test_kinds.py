"""The distance, the loss, the notion, the solver and the decomposer, each with mechanisms of other authors."""

import itertools
import json

import pytest
from click.testing import CliRunner

from privopt.command.cli import cli
from privopt.errors import InputError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify

WORDS = ["".join(letters) for letters in itertools.product("ab", repeat=3)]


def solve_words(folder, mechanism, *, privacy="epsilon = 0.7", **options):
    """Solve the eight words of three letters by a mechanism, verify the folder, and return its result.json."""
    (folder / "words.csv").write_text("id\n" + "\n".join(WORDS) + "\n")
    file = folder / "words.toml"
    file.write_text(
        '[records]\npoints = "words.csv"\n[distance]\nkind = "hamming"\n'
        f'[privacy]\n{privacy}\n[utility]\nkind = "squared-distance"\n'
    )
    output_folder = folder / f"{mechanism}-{options.get('method')}-{options.get('solver')}"
    solve(mechanism, file, output_folder, Options(**options))
    verdict = verify(output_folder)
    assert verdict.verdict == "proved", verdict.complaints
    return json.loads((output_folder / "result.json").read_text())


@pytest.mark.parametrize("mechanism", ["optimal-lp", "exponential", "bd-mdp"])
def test_metric_mechanisms_accept_distance_and_loss(tmp_path, mechanism):
    result = solve_words(tmp_path, mechanism)
    assert result["guarantee"]["unit"] == "per letter"
    assert result["objective"]["unit"] == "letter^2"


def test_solver_matches_highs(tmp_path):
    own_result, highs_result = (
        solve_words(tmp_path, "optimal-lp", method="full", solver=name) for name in ("clarabel", "highs")
    )
    assert own_result["objective"]["value"] == pytest.approx(highs_result["objective"]["value"], rel=1e-5)
    assert own_result["objective"]["gap"] < 1e-5


def test_decomposer_is_a_method(tmp_path):
    """With a certificate and a bound of its own, and the optimum that the mechanism's own methods find."""
    own_result, benders_result = (
        solve_words(tmp_path, "bd-mdp", method=name, solver="highs") for name in ("lazy-rows", "full")
    )
    assert (own_result["solver"]["name"], own_result["asked"]["solver"]) == ("lazy-rows", "highs")
    assert own_result["objective"]["value"] == pytest.approx(benders_result["objective"]["value"], rel=1e-5)
    assert own_result["objective"]["gap"] < 1e-4
    [part] = own_result["details"]["told"]["parts"]
    assert part["rows"] < part["rows_of_the_whole"]
    assert "lazy-rows" in CliRunner().invoke(cli, ["describe", "bd-mdp"]).output


def test_notion_has_its_certificate_and_costs_less(tmp_path):
    pure = solve_words(tmp_path, "optimal-lp", method="full", solver="highs")
    notion = 'kind = "approximate-metric-dp"\nepsilon = 0.7\ndelta = 0.01'
    approximate = solve_words(tmp_path, "optimal-lp", privacy=notion, method="full", solver="clarabel")
    assert approximate["guarantee"]["delta"] == 0.01
    assert 0.009 < approximate["certificate"]["worst"] <= 0.01
    assert approximate["objective"]["value"] < 0.99 * pure["objective"]["value"]


def test_names_notion_that_a_method_refuses(tmp_path):
    notion = 'kind = "approximate-metric-dp"\nepsilon = 0.7\ndelta = 0.01'
    with pytest.raises(InputError, match="cannot take"):
        solve_words(tmp_path, "optimal-lp", privacy=notion)
