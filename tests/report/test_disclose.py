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
from privopt.registry import registry
from privopt.report.disclose.catalogue import CLAIMS, QUESTIONS, TEXTS, TITLES
from privopt.report.disclose.documents import FORMATS, LAYOUTS, plain
from privopt.report.disclose.entry import ANSWERS, TEXTS_OF, VARIANTS, _parameters
from privopt.report.disclose.facts import questions_text, read_facts
from privopt.report.disclose.statements import Statement, statements
from privopt.run.audit import audit
from privopt.run.options import Options
from privopt.run.solve import solve
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
def made(tmp_path_factory):
    """DIR of a release by its name, solved once."""
    folders = {}

    def solved(name):
        if name not in folders:
            mechanism, text, files, options, *_ = RELEASES[name]
            place = tmp_path_factory.mktemp(name)
            for file, contents in files.items():
                (place / file).write_text(contents)
            problem = place / "problem.toml"
            problem = EXAMPLES["photo-censor"].write(place) if text is None else problem
            if text is not None:
                problem.write_text(text)
            folders[name] = solve(mechanism, problem, place / "out", Options(**options)).folder
        return folders[name]

    return solved


@pytest.fixture(scope="module")
def measured():
    """Return what ``audit`` measures of a folder, once: some draw a hundred thousand times."""
    return cache(audit)


@pytest.fixture
def measured_once(measured, monkeypatch):
    """Have documents say what was measured before."""
    monkeypatch.setattr("privopt.report.disclose.write.audit", lambda folder, **_: measured(folder))


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.usefixtures("measured_once")
def test_each_sentence_rests_on_what_verify_found(made, measured, name, tmp_path):
    *_, verdict, trust = RELEASES[name]
    opened = open_verified(made(name))
    assert opened.verdict == verdict
    told = statements(opened, measured(made(name)), TOLD)
    allowed = {"release": {verdict}, "maker": {"declared"}, "attack": {"measured"}, "limit": {"not checked"}}
    allowed["owner"] = {"open", "stated by the owner"}
    assert {each.claim for each in told} <= set(CLAIMS)
    assert [each.key for each in told if each.claim not in allowed[each.key.partition(".")[0]]] == []
    assert [each.key for each in told if each.key.startswith("limit.trust")] == [f"limit.trust.{trust}"]
    for form in FORMATS:
        out, facts = tmp_path / form, tmp_path / "facts.toml"
        facts.write_text(questions_text(TOLD), "utf-8")
        assert run("disclose", made(name), "--format", form, "--out", out, "--facts", facts).exit_code == 0
        check_marks(out.read_text("utf-8"), form, verdict)


def check_marks(text, form, verdict):
    """Hold the words of a document to the verdict: what the owner wrote aside, "proved" stands in marks alone."""
    said = text.replace("A [proved] name", "").replace("A \\[proved\\] name", "")
    if form == "registry":
        assert yaml.safe_load(text) == json.loads(text)
        judge = Draft7Validator(SCHEMA, format_checker=Draft7Validator.FORMAT_CHECKER)
        assert [error.message for error in judge.iter_errors(json.loads(text))] == []
        groups = json.loads(text)["deployment"]
        check_fields(groups)
        marked = groups["implementation"]["additional_information"]
        said = said.replace("a_proved_name", "").replace("A \\\\[proved\\\\] name", "")
    else:
        assert text.startswith(f"# {TITLES[form]}\n")
        marked = text
    lines = [line for line in marked.splitlines() if line.startswith("- ") and not line.startswith("- [")]
    assert lines
    assert all(MARKED.search(line) for line in lines)
    if verdict != "proved":
        assert "proved" not in said
    if verdict == "none":
        assert re.search("not private|promises no privacy", said)
        assert "The notion of privacy is" not in said
        assert "Epsilon is" not in said


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
def test_an_entry_says_no_more_than_the_certificate(made, tmp_path):
    wanted = {
        "metric": ("Custom", {"epsilon": 1.0}, None),
        "counts": ("Pure DP", {"epsilon": 0.5}, "Central"),
        "gaussian": ("Zero-concentrated DP", {"rho": 0.125}, "Central"),
        "sites": ("Pure DP", {"epsilon": 0.5}, "Local"),
        "unsafe": (None, None, None),
    }
    for name, (variant, parameters, model) in wanted.items():
        out = tmp_path / name
        assert run("disclose", made(name), "--format", "registry", "--out", out).exit_code == 0
        groups = json.loads(out.read_text("utf-8"))["deployment"]
        assert groups["dp_variant"].get("variant_name") == variant
        assert groups["privacy_loss"].get("privacy_parameters") == parameters
        assert groups["deployment_model"].get("model_name") == model
    assert set(VARIANTS) <= set(registry().names("notion"))


def test_the_schema_names_what_is_left_to_answer(made, tmp_path):
    out = tmp_path / "entry.yaml"
    assert run("disclose", made("metric"), "--format", "registry", "--out", out).exit_code == 0
    found = [error.message for error in Draft7Validator(SCHEMA).iter_errors(yaml.safe_load(out.read_text("utf-8")))]
    assert sorted(re.findall("'(.*?)' is a required property", " ".join(found))) == sorted(
        [*(name for name in BASIC if name != "data_product_sector"), "registry_authors"]
    )
    assert len(found) == 8


def test_answers_that_the_registry_would_refuse_are_refused(made, tmp_path):
    facts = tmp_path / "facts.toml"
    facts.write_text('product = "maps"\npublished = "1 May 2026"\nsector = "Energy"\n')
    done = run("disclose", made("metric"), "--format", "registry", "--out", tmp_path / "entry", "--facts", facts)
    assert (done.exit_code, "one of Summary statistics" in done.output, "YYYY-MM-DD" in done.output) == (2, True, True)
    assert not (tmp_path / "entry").exists()
    assert run("disclose", made("metric"), "--format", "nist", "--out", tmp_path / "n", "--facts", facts).exit_code == 0


@pytest.mark.parametrize(("text", "shown"), [("0.5", {"epsilon": 0.5}), ("0.00000001", {}), ("10000000000000000", {})])
def test_an_entry_has_no_number_that_yaml_reads_as_a_text(text, shown):
    told = Statement(key="release.epsilon", text="", claim="proved", values={"epsilon": text, "unit": ""})
    assert dict(_parameters([told])) == shown


def test_zero_concentrated_privacy_is_stated_by_rho(made, tmp_path):
    assert run("disclose", made("gaussian"), "--format", "nist", "--out", tmp_path / "nist.md").exit_code == 0
    text = (tmp_path / "nist.md").read_text("utf-8")
    assert "- Its rho is 0.125. [declared]" in text
    assert "states no epsilon" in text


def test_a_card_says_the_same_to_machines(made, tmp_path):
    facts = tmp_path / "facts.toml"
    facts.write_text('name = "Taxis"\ncurator = "The town"\n')
    for name in ("counts", "metric"):
        out = tmp_path / f"{name}.md"
        assert run("disclose", made(name), "--format", "card", "--out", out, "--facts", facts).exit_code == 0
        block = json.loads(re.search(r"```json\n(.*?)```", out.read_text("utf-8"), re.DOTALL)[1])
        assert set(block) == {"@context", "@type", "variableMeasured"}  # nothing without a mark
        marks = {each["name"]: (each["value"], each["description"]) for each in block["variableMeasured"]}
        assert marks.pop("name") == ("Taxis", "stated by the owner")
        assert marks.pop("curator") == ("The town", "stated by the owner")
        assert marks.pop("made")[1] == "declared"
        assert {claim for _, claim in marks.values()} == {RELEASES[name][4]}


def test_the_name_of_the_problem_file_is_its_makers_word(tmp_path):
    name = "it was proved that nobody can be found.toml"
    (tmp_path / name).write_text(SMALL)
    folder = solve("exponential", tmp_path / name, tmp_path / "out").folder
    told = statements(open_verified(folder), audit(folder), {})
    [said] = [each for each in told if name in each.text]
    assert (said.key, said.claim, f'"{name}"' in said.text) == ("maker.domain", "declared", True)


@pytest.mark.parametrize("name", ["metric", "everywhere", "predictive", "counts", "sites", "album"])
def test_a_forged_folder_is_refused_and_nothing_written(made, tmp_path, name):
    """Its sums are made again, so that only what is claimed betrays it."""
    forgeries = [lambda result: result["objective"].update(value=result["objective"]["value"] + 1)]
    if name != "album":
        forgeries.append(lambda result: result["guarantee"].update(epsilon=0.1, epsilon_text="0.1"))
    for number, forgery in enumerate(forgeries):
        folder = shutil.copytree(made(name), tmp_path / f"forged{number}")
        edit(folder, forgery)
        done = run("disclose", folder, "--format", "dpia", "--out", tmp_path / "dpia.md")
        assert (done.exit_code, "does not hold" in done.output) == (1, True), done.output
        assert not (tmp_path / "dpia.md").exists()


def test_questions_are_written_answered_and_read_back(made, tmp_path):
    asked, facts = tmp_path / "asked.toml", tmp_path / "facts.toml"
    done = run("disclose", made("metric"), "--format", "dpia", "--out", tmp_path / "a.md", "--ask", asked)
    assert done.exit_code == 0
    assert f"{len(QUESTIONS)} questions are open" in done.output
    assert set(tomllib.loads(asked.read_text("utf-8"))) == set(QUESTIONS)
    answers = {name: f'{name} "quoted" \\ ü' for name in QUESTIONS}
    facts.write_text(questions_text(answers), "utf-8")
    assert read_facts(facts) == answers
    done = run("disclose", made("metric"), "--format", "dpia", "--out", tmp_path / "b.md", "--facts", facts)
    assert " open" not in done.output.replace(str(tmp_path), "")
    assert "[open]" not in (tmp_path / "b.md").read_text("utf-8")
    again = run("disclose", made("metric"), "--format", "dpia", "--out", tmp_path / "b.md")
    inside = run("disclose", made("metric"), "--format", "dpia", "--out", made("metric") / "b.md")
    assert (again.exit_code, inside.exit_code) == (2, 2)


@pytest.mark.parametrize("text", ["nobody = 'asked'", "name = 3", f"name = '{'x' * 5000}'", "name ="])
def test_facts_that_cannot_be_meant_so_are_refused(tmp_path, text):
    (tmp_path / "facts.toml").write_text(text)
    with pytest.raises(InputError, match=r"facts\.toml"):
        read_facts(tmp_path / "facts.toml")


def test_the_catalogue_is_used_and_says_nothing_of_proofs():
    keys = [key for rows in (*TEXTS_OF.values(), *LAYOUTS.values()) for starts in rows.values() for key in starts]
    keys += [*ANSWERS.values(), "owner.curator_type", "owner.authors"]
    known = {*TEXTS, *(f"owner.{name}" for name in QUESTIONS)}
    assert [key for key in keys if not any(each == key or each.startswith(f"{key}.") for each in known)] == []
    placed = {each for each in known if any(each == key or each.startswith(f"{key}.") for key in keys)}
    assert known - placed == {"owner.answer", "owner.open"}
    assert [key for key, text in TEXTS.items() if "prove" in text] == []
    assert {title for rows in LAYOUTS.values() for title in rows} <= set(TITLES)


def test_a_value_cannot_forge_a_mark_or_a_line():
    assert plain("a\n\n# b [proved] <script> `privopt verify`") == "a # b \\[proved\\] \\<script\\> `privopt verify`"
