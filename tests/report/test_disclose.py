"""What an office files: each sentence has the claim it rests on, and none says more than ``verify`` does."""

import json
import re
import shutil
import tomllib
from functools import cache

import pytest
import yaml
from helpers.command import run
from helpers.examples import EXAMPLES
from helpers.mended_sums import edit
from helpers.registry_schema import BASIC, SCHEMA
from helpers.toys import grid_text
from jsonschema import Draft7Validator

from privopt.errors import InputError
from privopt.interfaces.cost import Cost
from privopt.ledger.charge import Charge
from privopt.ledger.cost_of_report import cost_of
from privopt.ledger.ledger import Ledger
from privopt.registry import registry
from privopt.report.disclose.catalogue import CLAIMS, QUESTIONS, TEXTS, TITLES
from privopt.report.disclose.documents import FORMATS, LAYOUTS, escape_markdown
from privopt.report.disclose.entry import ANSWERS, TEXTS_OF, VARIANTS, _list_parameters
from privopt.report.disclose.facts import questions_text, read_facts
from privopt.report.disclose.statements import Statement, statements
from privopt.run.audit import audit
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import open_verified

MARKED = re.compile(rf"(?<!\\)\[({'|'.join(CLAIMS)})\]$")

SITES = "id,x,y,facility_cost,clients\na,0,0,1,5\nb,1,0,2,6\nc,9,9,1,7\nd,9,8,1,4\n"
LOCATED = '[locations]\npoints = "p.csv"\n[privacy]\nepsilon = 0.5\n'
GROUPS = "level_1,level_2,size,groups\nLand,A,1,40\nLand,A,2,7\nLand,B,1,30\nLand,B,3,2\n"
COUNTED = '[hierarchy]\ncounts = "c.csv"\nsizes = 4\n[privacy]\nepsilon = 0.5\n'
GAUSSIAN = COUNTED.replace("epsilon = 0.5", 'kind = "zcdp"\nrho = 0.125')
USERS = '[lr-geo]\nusers = "all"\nradius = 2.5\nobfuscation_radius = 3.0\nexponential_beyond = 1.0\n'
SMALL = grid_text(2, 2)
RELEASES = {
    "metric": ("optimal-lp", SMALL, {}, {}, "proved", "drawn"),
    "everywhere": ("optimal-lp", SMALL.replace("[utility]", "everywhere = true\n[utility]"), {}, {}, "proved", "drawn"),
    "predictive": ("predictive", SMALL + "[predictive]\ngood_within = 4.0\n", {}, {}, "proved", "drawn"),
    "counts": ("hierarchical-dp", COUNTED, {"c.csv": GROUPS}, {}, "declared", "central"),
    "sites": ("fl-linear", LOCATED, {"p.csv": SITES}, {}, "declared", "local"),
    "album": ("photo-censor", None, {}, {}, "proved", "named"),
    "gaussian": ("hierarchical-dp", GAUSSIAN, {"c.csv": GROUPS}, {}, "declared", "central"),
    "users": ("lr-geo", SMALL + USERS, {}, {"solver": "highs"}, "proved", "drawn"),
    "unsafe": ("fl-linear", LOCATED, {"p.csv": SITES}, {"method": "optimal", "allow_unsafe": True}, "none", "none"),
    "seeded": ("hierarchical-dp", COUNTED, {"c.csv": GROUPS}, {"seed": 3}, "none", "none"),
}

TOLD = {
    "name": "A [proved] name",
    "curator": "The town",
    "curator_type": "Government",
    "purpose": "Where to build racks",
    "description": "Reports of rides",
    "product": "Dataset",
    "region": "A town",
    "published": "2026-05-01",
    "authors": "Its clerk",
}
"""What the registry cannot do without."""


@pytest.fixture(scope="module")
def solved_folders(tmp_path_factory):
    """DIR of a release by its name, solved once."""
    folders = {}

    def solve_once(name):
        if name not in folders:
            mechanism, text, files, options, *_ = RELEASES[name]
            workspace = tmp_path_factory.mktemp(name)
            for file, contents in files.items():
                (workspace / file).write_text(contents)
            problem = workspace / "problem.toml"
            problem = EXAMPLES["photo-censor"].write(workspace) if text is None else problem
            if text is not None:
                problem.write_text(text)
            folders[name] = solve(mechanism, problem, workspace / "out", Options(**options)).folder
        return folders[name]

    return solve_once


@pytest.fixture(scope="module")
def audit_once():
    """Return what ``audit`` measures of a folder, once: some draw a hundred thousand times."""
    return cache(audit)


@pytest.fixture
def measured_once(audit_once, monkeypatch):
    """Have documents say what was measured before."""
    monkeypatch.setattr("privopt.report.disclose.write.audit", lambda folder, **_: audit_once(folder))


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.usefixtures("measured_once")
def test_each_sentence_rests_on_its_evidence(solved_folders, audit_once, name, tmp_path):
    *_, verdict, trust = RELEASES[name]
    release = open_verified(solved_folders(name))
    assert release.verdict == verdict
    all_statements = statements(release, audit_once(solved_folders(name)), TOLD)
    allowed_claims = {"release": {verdict}, "maker": {"declared"}, "attack": {"measured"}, "limit": {"not checked"}}
    allowed_claims["owner"] = {"open", "stated by the owner"}
    allowed_claims["ledger"] = {"recorded"}
    assert {statement.claim for statement in all_statements} <= set(CLAIMS)
    assert [
        statement.key
        for statement in all_statements
        if statement.claim not in allowed_claims[statement.key.partition(".")[0]]
    ] == []
    assert [statement.key for statement in all_statements if statement.key.startswith("limit.trust")] == [
        f"limit.trust.{trust}"
    ]
    for form in FORMATS:
        output_path, facts = tmp_path / form, tmp_path / "facts.toml"
        facts.write_text(questions_text(TOLD), "utf-8")
        assert (
            run("disclose", solved_folders(name), "--format", form, "--out", output_path, "--facts", facts).exit_code
            == 0
        )
        check_marks(output_path.read_text("utf-8"), form, verdict)


def check_marks(text, form, verdict):
    """Hold the words of a document to the verdict: what the owner wrote aside, "proved" stands in marks alone."""
    unquoted = text.replace("A [proved] name", "").replace("A \\[proved\\] name", "")
    if form == "registry":
        assert yaml.safe_load(text) == json.loads(text)
        judge = Draft7Validator(SCHEMA, format_checker=Draft7Validator.FORMAT_CHECKER)
        assert [error.message for error in judge.iter_errors(json.loads(text))] == []
        groups = json.loads(text)["deployment"]
        check_fields(groups)
        section = groups["implementation"]["additional_information"]
        unquoted = unquoted.replace("a_proved_name", "").replace("A \\\\[proved\\\\] name", "")
    else:
        assert text.startswith(f"# {TITLES[form]}\n")
        section = text
    lines = [line for line in section.splitlines() if line.startswith("- ") and not line.startswith("- [")]
    assert lines
    assert all(MARKED.search(line) for line in lines)
    if verdict != "proved":
        assert "proved" not in unquoted
    if verdict == "none":
        assert re.search("not private|promises no privacy", unquoted)
        assert "The notion of privacy is" not in unquoted
        assert "Epsilon is" not in unquoted


def check_fields(groups):
    """Each text of an entry has its mark, and what has none is named with what it rests on."""
    rests = groups["implementation"]["additional_information"]
    for group, fields in groups.items():
        for name, value in fields.items():
            if name == "additional_information" or (group, name) in {
                ("administrative", "status"),
                ("administrative", "tier"),
            }:
                continue
            if isinstance(value, str) and value.startswith("- "):
                assert all(MARKED.search(line) for line in value.splitlines())
            else:
                assert re.search(rf"- .*`{group}\.{name}`.* \[({'|'.join(CLAIMS)})\]", rests)


@pytest.mark.usefixtures("measured_once")
def test_entry_claims_no_more_than_the_certificate(solved_folders, tmp_path):
    expected_entries = {
        "metric": ("Custom", {"epsilon": 1.0}, None),
        "counts": ("Pure DP", {"epsilon": 0.5}, "Central"),
        "gaussian": ("Zero-concentrated DP", {"rho": 0.125}, "Central"),
        "sites": ("Pure DP", {"epsilon": 0.5}, "Local"),
        "unsafe": (None, None, None),
    }
    for name, (variant, parameters, model) in expected_entries.items():
        output_folder = tmp_path / name
        assert run("disclose", solved_folders(name), "--format", "registry", "--out", output_folder).exit_code == 0
        groups = json.loads(output_folder.read_text("utf-8"))["deployment"]
        assert groups["dp_variant"].get("variant_name") == variant
        assert groups["privacy_loss"].get("privacy_parameters") == parameters
        assert groups["deployment_model"].get("model_name") == model
    assert set(VARIANTS) <= set(registry().names("notion"))


def test_schema_names_what_is_unanswered(solved_folders, tmp_path):
    output_folder = tmp_path / "entry.yaml"
    assert run("disclose", solved_folders("metric"), "--format", "registry", "--out", output_folder).exit_code == 0
    messages = [
        error.message for error in Draft7Validator(SCHEMA).iter_errors(yaml.safe_load(output_folder.read_text("utf-8")))
    ]
    assert sorted(re.findall("'(.*?)' is a required property", " ".join(messages))) == sorted(
        [*(name for name in BASIC if name != "data_product_sector"), "registry_authors"]
    )
    assert len(messages) == 8


def test_refuses_answers_that_the_registry_refuses(solved_folders, tmp_path):
    facts = tmp_path / "facts.toml"
    facts.write_text('product = "maps"\npublished = "1 May 2026"\nsector = "Energy"\n')
    completed = run(
        "disclose", solved_folders("metric"), "--format", "registry", "--out", tmp_path / "entry", "--facts", facts
    )
    assert (completed.exit_code, "one of Summary" in completed.output, "YYYY-MM-DD" in completed.output) == (
        2,
        True,
        True,
    )
    assert not (tmp_path / "entry").exists()
    assert (
        run(
            "disclose", solved_folders("metric"), "--format", "nist", "--out", tmp_path / "n", "--facts", facts
        ).exit_code
        == 0
    )


@pytest.mark.parametrize(
    ("text", "parameters"), [("0.5", {"epsilon": 0.5}), ("0.00000001", {}), ("10000000000000000", {})]
)
def test_entry_has_no_ambiguous_numbers(text, parameters):
    statement = Statement(key="release.epsilon", text="", claim="proved", values={"epsilon": text, "unit": ""})
    assert dict(_list_parameters([statement])) == parameters


def test_states_zcdp_by_rho(solved_folders, tmp_path):
    assert run("disclose", solved_folders("gaussian"), "--format", "nist", "--out", tmp_path / "nist.md").exit_code == 0
    text = (tmp_path / "nist.md").read_text("utf-8")
    assert "rho is 0.125." in text
    assert "states no epsilon" in text


def test_card_has_the_same_in_json_ld(solved_folders, tmp_path):
    facts = tmp_path / "facts.toml"
    facts.write_text('name = "Taxis"\ncurator = "The town"\n')
    for name in ("counts", "metric"):
        output_folder = tmp_path / f"{name}.md"
        assert (
            run(
                "disclose", solved_folders(name), "--format", "card", "--out", output_folder, "--facts", facts
            ).exit_code
            == 0
        )
        block = json.loads(re.search(r"```json\n(.*?)```", output_folder.read_text("utf-8"), re.DOTALL)[1])
        assert set(block) == {"@context", "@type", "variableMeasured"}  # nothing without a mark
        marks = {
            variable["name"]: (variable["value"], variable["description"]) for variable in block["variableMeasured"]
        }
        assert marks.pop("name") == ("Taxis", "stated by the owner")
        assert marks.pop("curator") == ("The town", "stated by the owner")
        assert marks.pop("made")[1] == "declared"
        assert {claim for _, claim in marks.values()} == {RELEASES[name][4]}


def test_problem_file_name_is_declared_by_its_maker(tmp_path):
    name = "it was proved that nobody can be found.toml"
    (tmp_path / name).write_text(SMALL)
    folder = solve("exponential", tmp_path / name, tmp_path / "out").folder
    all_statements = statements(open_verified(folder), audit(folder), {})
    [naming_statement] = [statement for statement in all_statements if name in statement.text]
    assert (naming_statement.key, naming_statement.claim, f'"{name}"' in naming_statement.text) == (
        "maker.domain",
        "declared",
        True,
    )


@pytest.mark.parametrize("name", ["metric", "everywhere", "predictive", "counts", "sites", "album"])
def test_refuses_forged_folder_and_writes_nothing(solved_folders, tmp_path, name):
    """Its sums are made again, so that only what is claimed betrays it."""
    forgeries = [lambda result: result["objective"].update(value=result["objective"]["value"] + 1)]
    if name != "album":
        forgeries.append(lambda result: result["guarantee"].update(epsilon=0.1, epsilon_text="0.1"))
    for number, forgery in enumerate(forgeries):
        folder = shutil.copytree(solved_folders(name), tmp_path / f"forged{number}")
        edit(folder, forgery)
        completed = run("disclose", folder, "--format", "dpia", "--out", tmp_path / "dpia.md")
        assert (completed.exit_code, "does not hold" in completed.output) == (1, True), completed.output
        assert not (tmp_path / "dpia.md").exists()


def test_questions_round_trip(solved_folders, tmp_path):
    questions, facts = tmp_path / "asked.toml", tmp_path / "facts.toml"
    done = run("disclose", solved_folders("metric"), "--format", "dpia", "--out", tmp_path / "a.md", "--ask", questions)
    assert done.exit_code == 0
    assert f"{len(QUESTIONS)} open questions: " in done.output
    assert set(tomllib.loads(questions.read_text("utf-8"))) == set(QUESTIONS)
    answers = {name: f'{name} "quoted" \\ ü' for name in QUESTIONS}
    facts.write_text(questions_text(answers), "utf-8")
    assert read_facts(facts) == answers
    done = run("disclose", solved_folders("metric"), "--format", "dpia", "--out", tmp_path / "b.md", "--facts", facts)
    assert " open" not in done.output.replace(str(tmp_path), "")
    assert "[open]" not in (tmp_path / "b.md").read_text("utf-8")
    completed = run("disclose", solved_folders("metric"), "--format", "dpia", "--out", tmp_path / "b.md")
    inside_run = run(
        "disclose", solved_folders("metric"), "--format", "dpia", "--out", solved_folders("metric") / "b.md"
    )
    assert (completed.exit_code, inside_run.exit_code) == (2, 2)


@pytest.mark.parametrize("text", ["nobody = 'asked'", "name = 3", f"name = '{'x' * 5000}'", "name ="])
def test_refuses_invalid_facts(tmp_path, text):
    (tmp_path / "facts.toml").write_text(text)
    with pytest.raises(InputError, match=r"facts\.toml"):
        read_facts(tmp_path / "facts.toml")


def test_catalogue_is_used_and_mentions_no_proofs():
    keys = [key for rows in (*TEXTS_OF.values(), *LAYOUTS.values()) for starts in rows.values() for key in starts]
    keys += [*ANSWERS.values(), "owner.curator_type", "owner.authors"]
    known_keys = {*TEXTS, *(f"owner.{name}" for name in QUESTIONS)}
    assert [
        key for key in keys if not any(known_key == key or known_key.startswith(f"{key}.") for known_key in known_keys)
    ] == []
    placed = {
        known_key
        for known_key in known_keys
        if any(known_key == key or known_key.startswith(f"{key}.") for key in keys)
    }
    assert known_keys - placed == {"owner.answer", "owner.open"}
    assert [key for key, text in TEXTS.items() if "prove" in text] == []
    assert {title for rows in LAYOUTS.values() for title in rows} <= set(TITLES)


def test_value_cannot_forge_a_mark_or_a_line():
    assert (
        escape_markdown("a\n\n# b [proved] <script> `privopt verify`")
        == "a # b \\[proved\\] \\<script\\> `privopt verify`"
    )


@pytest.fixture
def rider_ledger(solved_folders, tmp_path):
    """Return a ledger with a key and a limit: three reports of the toy grid's release, and one charge by hand."""
    opened = open_verified(solved_folders("metric"))
    cost = cost_of(opened.folder, opened.result, opened.relation, "nightly")
    with Ledger(tmp_path / "riders.ledger", key=tmp_path / "key") as ledger:
        ledger.set_limit(8, hours=720)
        for subject in ("anna", "anna", "bert"):
            ledger.charge(subject, cost)
        ledger.charge("bert", Cost(epsilon="0.25", unit=cost.unit, purpose="by hand"))
    return tmp_path / "riders.ledger"


@pytest.mark.parametrize("form", FORMATS)
def test_papers_read_the_ledger(solved_folders, rider_ledger, tmp_path, form):
    facts = tmp_path / "facts.toml"
    facts.write_text(questions_text(TOLD), "utf-8")
    words = ["--format", form, "--out", tmp_path / "paper", "--ledger", rider_ledger, "--facts", facts]
    completed = run("disclose", solved_folders("metric"), *words)
    assert completed.exit_code == 0, completed.output
    assert "budget" not in completed.stderr.partition("open: ")[2].split(";")[0]
    paper = (tmp_path / "paper").read_text()
    for sentence in (
        "Its ledger says about epsilon: each subject may spend 8",
        "It counts 4 charges in epsilon, of 2 subjects; the most that one of them has spent is 2",
        "Its ledger has 3 charges for reports of this release.",
    ):
        assert sentence in paper
    assert "recorded" in paper
    for secret in ("anna", "bert", (tmp_path / "key").read_text().strip()):
        assert secret not in paper + completed.output


def test_papers_say_what_a_rotated_ledger_does_not_count(solved_folders, tmp_path):
    """Sums that were carried over name no release, so nobody may read that nothing was drawn from it."""
    opened, path = open_verified(solved_folders("metric")), tmp_path / "riders.ledger"
    with Ledger(path) as ledger:
        for _ in range(3):
            ledger.charge("anna", cost_of(opened.folder, opened.result, opened.relation, "nightly"))
        assert ledger.archive is None
        assert ledger.rotate().archive == ledger.archive
    words = ["--format", "card", "--out", tmp_path / "card", "--ledger", path]
    completed = run("disclose", solved_folders("metric"), *words)
    assert completed.exit_code == 0, completed.output
    card = (tmp_path / "card").read_text()
    assert "It continues a ledger that was archived" in card
    assert "No charge of its ledger" not in card


def test_papers_count_noise_that_was_charged_before_it_was_drawn(tmp_path):
    (tmp_path / "c.csv").write_text(GROUPS)
    (tmp_path / "p.toml").write_text(COUNTED)
    charge = Charge(ledger=tmp_path / "survey.ledger", subject="households")
    folder = solve("hierarchical-dp", tmp_path / "p.toml", tmp_path / "out", Options(charged=charge)).folder
    completed = run(
        "disclose", folder, "--format", "card", "--out", tmp_path / "card", "--ledger", tmp_path / "survey.ledger"
    )
    assert completed.exit_code == 0, completed.output
    card = (tmp_path / "card").read_text()
    assert "Its ledger has 1 charge for noise that was drawn to solve the problem of this release." in card
    assert "No charge of its ledger" not in card
    assert "households" not in card


def test_changed_or_missing_ledger_is_refused(solved_folders, rider_ledger, tmp_path):
    contents = rider_ledger.read_bytes()
    rider_ledger.write_bytes(contents.replace(b"nightly", b"nightlx"))
    words = ["--format", "dpia", "--out", tmp_path / "paper", "--ledger"]
    assert run("disclose", solved_folders("metric"), *words, rider_ledger).exit_code == 1
    assert run("disclose", solved_folders("metric"), *words, tmp_path / "no.ledger").exit_code == 2
    assert not (tmp_path / "paper").exists()


@pytest.mark.parametrize("form", ["nist", "dpia", "card"])
def test_papers_have_the_figures_of_audit_over_time(solved_folders, tmp_path, form):
    folder = solved_folders("metric")
    assert run("disclose", folder, "--format", form, "--out", tmp_path / "paper").exit_code == 0
    figures = json.loads(run("audit", folder, "--over-time", "50", "--json").stdout)
    medians = [f"{median:.3g}" for median in figures["over_time"]["likelihood"]["fresh"]["median"]]
    paper = (tmp_path / "paper").read_text()
    assert "who sees 1, 10 or 50 reports of one place" in paper
    assert f"is off by {medians[0]}, {medians[1]} or {medians[2]} km in the median" in paper
    if form != "nist":
        stated = float(re.search(r"epsilon is at least ([\d.]+)\.", paper)[1])
        assert 0 <= figures["statistical"]["epsilon_lower"] - stated < 1e-3


@pytest.mark.parametrize(("distance", "words"), [("graph", "by road"), ("euclidean", "as the crow flies")])
def test_each_proved_sentence_on_kilometres_says_along_what(tmp_path, distance, words):
    """Within 0.3 km by road there are far fewer places than within a circle of 0.3 km, which a reader would draw."""
    (tmp_path / "points.csv").write_text("id,x,y\na,0,0\nb,0,1\nc,1,1\n")
    (tmp_path / "roads.csv").write_text("from,to,km\na,b,1\nb,c,1\n")
    edges = 'edges = "roads.csv"\n' * (distance == "graph")
    (tmp_path / "p.toml").write_text(
        f'[records]\npoints = "points.csv"\n[distance]\nkind = "{distance}"\n{edges}'
        '[privacy]\nepsilon = 2\n[utility]\nkind = "distance"\n'
    )
    folder = solve("exponential", tmp_path / "p.toml", tmp_path / "out").folder
    sentences = {statement.key: statement.text for statement in statements(open_verified(folder), audit(folder), {})}
    for key in ("release.verdict.proved", "release.epsilon", "release.unit.drawn", "release.statement"):
        assert f"km {words}" in sentences[key], key
    # Without other words, kilometres are those of a straight line.
    assert ("by road a report is at most twice as likely" in sentences["release.promise"]) == (distance == "graph")
