"""What an office files: each sentence has the claim it rests on, and none says more than ``verify`` does."""

import json
import re
import shutil
import tomllib

import pytest
from helpers.command import run
from helpers.examples import EXAMPLES
from helpers.mended_sums import edit
from helpers.toys import grid_text

from privopt.errors import InputError
from privopt.report.disclose.catalogue import CLAIMS, QUESTIONS, TEXTS, TITLES
from privopt.report.disclose.documents import FORMATS, LAYOUTS, REGISTRY, plain
from privopt.report.disclose.facts import questions_text, read_facts
from privopt.report.disclose.statements import statements
from privopt.run.audit import audit
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import open_verified

pytestmark = pytest.mark.xdist_group("disclose")

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


FORM = {
    "basic": "name data_curators description intended_use data_product_type data_product_region data_product_sector "
    "publication_date",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details number_of_privacy_units privacy_parameters "
    "privacy_parameters_details",
    "deployment_model": "model_name model_name_details trust_assumptions actors release_type release_type_details "
    "data_source_type data_source_type_details access_type access_type_details",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms composition post_processing justification "
    "utility additional_information",
    "administrative": "evidence_sources status registry_authors tier",
}
"""Groups and fields of a record, as the registry's own template has them (opendp/deployments-registry-data, 2026)."""

LEFT_TO_THE_OWNER = {
    *("number_of_privacy_units", "release_type_details", "data_source_type", "data_source_type_details"),
    *("access_type", "access_type_details", "status", "registry_authors", "tier"),
}


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


@pytest.mark.parametrize("name", RELEASES)
def test_each_sentence_rests_on_what_verify_found(made, name, tmp_path):
    *_, verdict, trust = RELEASES[name]
    opened = open_verified(made(name))
    assert opened.verdict == verdict
    told = statements(opened, audit(made(name)), {"name": "A [proved] name"})
    allowed = {"release": {verdict}, "maker": {"declared"}, "attack": {"measured"}, "limit": {"not checked"}}
    allowed["owner"] = {"open", "stated by the owner"}
    assert {each.claim for each in told} <= set(CLAIMS)
    assert [each.key for each in told if each.claim not in allowed[each.key.partition(".")[0]]] == []
    assert [each.key for each in told if each.key.startswith("limit.trust")] == [f"limit.trust.{trust}"]
    for form in FORMATS:
        out, facts = tmp_path / form, tmp_path / "facts.toml"
        facts.write_text('name = "A [proved] name"\n')
        assert run("disclose", made(name), "--format", form, "--out", out, "--facts", facts).exit_code == 0
        check_marks(out.read_text("utf-8"), form, verdict)


def check_marks(text, form, verdict):
    """Hold the words of a document to the verdict: what the owner wrote aside, "proved" stands in marks alone."""
    said = text.replace("A [proved] name", "").replace("A \\[proved\\] name", "")
    if form == "registry":
        entry = json.loads(text)
        groups = entry["deployment"]
        assert {group: set(fields) for group, fields in groups.items()} == {
            group: set(fields.split()) - LEFT_TO_THE_OWNER for group, fields in FORM.items()
        }
        fields = [each for group in groups.values() for field in group.values() for each in field]
        assert {each["claim"] for each in fields} == set(entry["claims"])
        assert all((each["value"] is None) == (each["claim"] == "open") for each in fields)
        assert groups["basic"]["name"] == [{"value": "A [proved] name", "claim": "stated by the owner"}]
    else:
        assert text.startswith(f"# {TITLES[form]}\n")
        lines = [line for line in text.splitlines() if line.startswith("- ") and not line.startswith("- [")]
        assert lines
        assert all(re.search(rf"(?<!\\)\[({'|'.join(CLAIMS)})\]$", line) for line in lines)
    if verdict != "proved":
        assert "proved" not in said
    if verdict == "none":
        assert re.search("not private|promises no privacy", said)
        assert "The notion of privacy is" not in said
        assert "Epsilon is" not in said


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
    keys = [key for rows in (*REGISTRY.values(), *LAYOUTS.values()) for starts in rows.values() for key in starts]
    known = {*TEXTS, *(f"owner.{name}" for name in QUESTIONS)}
    assert [key for key in keys if not any(each == key or each.startswith(f"{key}.") for each in known)] == []
    placed = {each for each in known if any(each == key or each.startswith(f"{key}.") for key in keys)}
    assert known - placed == {"owner.answer", "owner.open"}
    assert [key for key, text in TEXTS.items() if "prove" in text] == []
    assert {title for rows in LAYOUTS.values() for title in rows} <= set(TITLES)


def test_a_value_cannot_forge_a_mark_or_a_line():
    assert plain("a\n\n# b [proved] <script> `privopt verify`") == "a # b \\[proved\\] \\<script\\> `privopt verify`"
