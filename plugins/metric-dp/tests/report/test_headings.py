"""What a problem calls itself: a title, a purpose and the reader's unit stand in reports, and change no figure."""

import hashlib
import json
import re
import shutil
import tomllib

import numpy as np
import pytest
from helpers.command import run
from helpers.examples import EXAMPLES
from helpers.mended_sums import is_refused, mend
from helpers.mentions import assert_mentions
from helpers.toys import grid_text

import privopt as po
from privopt import checker
from privopt.declare.notebook import format_digits
from privopt.declare.schema import File, ProblemHeading
from privopt.declare.toml import load_problem, read_heading
from privopt.errors import InputError
from privopt.registry import registry
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.task import read_problem
from privopt.run.verify import verify
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem

TITLE, PURPOSE = "Vans of <b>two</b> towns", "Where vans stop, for the \u00e9tat & its offices."
HEAD = f'title = "{TITLE}"\npurpose = "{PURPOSE}"\n'
PER_KM = 'per_km = { cost = 0.8, unit = "<i>minutes" }\n'


@pytest.fixture(scope="module")
def titled_release(tmp_path_factory):
    """Solve a problem with all three keys."""
    folder = tmp_path_factory.mktemp("told")
    (folder / "p.toml").write_text(HEAD + grid_text(2, 2) + PER_KM, "utf-8")
    return solve("exponential", folder / "p.toml", folder / "out")


@pytest.mark.usefixtures("undrawn")
def test_report_shows_title_purpose_and_unit(titled_release):
    page = write_report(titled_release.folder).read_text("utf-8")
    escaped_title = "Vans of &lt;b&gt;two&lt;/b&gt; towns"
    assert f"<title>{escaped_title}</title>" in page
    assert f"<h1>{escaped_title}</h1>" in page
    purpose = "<p>Where vans stop, for the \u00e9tat &amp; its offices.</p>"
    assert page.index("<h1>") < page.index(purpose) < page.index(">exponential, from p.toml</p>")
    loss = titled_release.result.objective.value
    sentence = f"It costs {format_digits(loss)} km on average: {format_digits(0.8 * loss)} <i>minutes."
    assert titled_release.meaning[-1] == sentence
    assert sentence.replace("<", "&lt;").replace(">", "&gt;") in page
    assert_mentions(page, f"{format_digits(0.8 * loss)} &lt;i&gt;minutes <small>= {format_digits(loss)} km")
    assert "loss (&lt;i&gt;minutes)</th>" in page


COMMAND = re.compile(r"<pre[^>]*>privopt (apply DIR [^\n]+)\nprivopt (budget LEDGER)</pre>")


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("told", "X,Y,SUBJECT\n1,0,ann\n"),
        ("optimal-lp", "LAT,LON,SUBJECT\n41.9,12.45,ann\n"),
        ("words", "TEXT,SUBJECT\ntool1 river2,ann\n"),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_report_is_of_no_table_and_names_the_command(name, table, titled_release, example, tmp_path):
    folder = shutil.copytree(titled_release.folder if name == "told" else example(name), tmp_path / "out")
    page = write_report(folder).read_text("utf-8")
    assert "it has not seen your data" in page
    (tmp_path / "TABLE.csv").write_text(table)
    files = {"DIR": folder, **{name: tmp_path / name for name in ("TABLE.csv", "PROTECTED.csv", "LEDGER")}}
    for command in COMMAND.search(page).groups():
        completed = run(*(str(files.get(word, word)) for word in command.split()))
        assert completed.exit_code == 0, completed.output
    assert "ann" in completed.output  # whose budget it was


@pytest.mark.parametrize("name", ["fl-linear", "hierarchical-dp", "photo-censor"])
def test_report_states_the_price_of_noise(name, report):
    page = report(name).read_text("utf-8")
    assert (">Budget</h2>" in page) == (name != "photo-censor")
    epsilon = {"fl-linear": "epsilon 0.1 of everyone", "hierarchical-dp": "epsilon 0.002 of everyone"}.get(name, "<h1>")
    assert epsilon in page
    assert "describes the release" not in page


@pytest.mark.usefixtures("undrawn")
def test_heading_changes_no_figure(titled_release, tmp_path):
    (tmp_path / "p.toml").write_text(grid_text(2, 2))
    bare = solve("exponential", tmp_path / "p.toml", tmp_path / "out")
    assert bare.result.objective == titled_release.result.objective
    assert verify(titled_release.folder).verdict == "proved"
    assert checker.check(titled_release.folder, str) == 0
    page = write_report(bare.folder).read_text("utf-8")
    assert "<title>exponential, from p.toml</title>" in page
    assert page.count("exponential, from p.toml") == 2


@pytest.mark.parametrize("name", ["words", "lr-geo", "fl-linear", "hierarchical-dp", "photo-censor"])
def test_every_mechanism_accepts_a_heading(name, tmp_path):
    example = EXAMPLES[name]
    path = example.write(tmp_path / "problem")
    path.write_text(HEAD + path.read_text("utf-8"), "utf-8")
    mechanism = registry().get(example.mechanism).load()
    assert read_problem(mechanism, path) is not None
    assert read_heading(mechanism.problem_class, File.read(path)) == ProblemHeading(title=TITLE, purpose=PURPOSE)


def test_problem_in_memory_accepts_a_heading(tmp_path):
    tables = tomllib.loads(grid_text(2, 2) + PER_KM)
    memory_problem = po.problem(title=TITLE, purpose=PURPOSE, **tables)
    assert read_heading(MetricProblem, memory_problem.source) == ProblemHeading(title=TITLE, purpose=PURPOSE)
    assert load_problem(MetricProblem, memory_problem.source).utility.per_km.cost == 0.8


FAULTS = {
    "title": ("title = 3", 'title = ""', 'title = "a\\nb"', f'title = "{"a" * 201}"', 'title = "\u202etxt"'),
    "purpose": ("purpose = true", 'purpose = " "'),
    "utility.per_km": ("3", '"minutes"'),
    "utility.per_km.cost": (
        *(f'{{ cost = {cost}, unit = "m" }}' for cost in ("0", "-1", "inf", "true")),
        '{ unit = "m" }',
    ),
    "utility.per_km.unit": ("{ cost = 1 }", '{ cost = 1, unit = "" }'),
    "utility.per_km.more": ('{ cost = 1, unit = "m", more = 1 }',),
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in FAULTS.items() for value in values])
def test_names_wrong_heading_by_file_and_key(key, value, titled_release, tmp_path):
    is_utility = key.startswith("utility")
    text = grid_text(2, 2) + f"per_km = {value}\n" if is_utility else f"{value}\n" + grid_text(2, 2)
    (tmp_path / "p.toml").write_text(text, "utf-8")
    with pytest.raises(InputError) as refusal:
        load_problem(MetricProblem, tmp_path / "p.toml")
    assert [(fault.file, fault.where) for fault in refusal.value.faults] == [("p.toml", key)]
    forged_folder = shutil.copytree(titled_release.folder, tmp_path / "forged")
    (forged_folder / "problem" / "p.toml").write_text(text, "utf-8")
    result = json.loads((forged_folder / "result.json").read_text("utf-8"))
    result["problem"]["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (forged_folder / "result.json").write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    assert is_refused(mend(forged_folder))
    assert checker.check(forged_folder, str) == 2


def test_loss_not_in_km_has_no_price(tmp_path):
    text = '[records]\ncount = 2\n[distance]\nkind = "matrix"\nmatrix = "d.npy"\n[privacy]\nepsilon = 1\n'
    np.save(tmp_path / "d.npy", 1.0 - np.eye(2))
    (tmp_path / "p.toml").write_text(text + '[utility]\nkind = "distance"\n' + PER_KM)
    with pytest.raises(InputError, match=r"utility.per_km: .*units of distance"):
        MetricInstance.of(load_problem(MetricProblem, tmp_path / "p.toml"), "p.toml")
