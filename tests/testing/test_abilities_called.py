"""Every member that an author may write is called by a check of the kit: each ability, and each hook of a plugin."""

import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import pytest
from attrs import evolve
from faults.counts import COUNTS, RightCounts, count_problem
from helpers.kits import BRIEF
from hypothesis import strategies as st

from privopt.interfaces import abilities as protocols
from privopt.interfaces.abilities import ABILITIES, member_of
from privopt.interfaces.plan import Plan
from privopt.registry import discover, using
from privopt.specs import GROUP, Hooks
from privopt.testing import run_check, subject

CHECK_BY_ABILITY = {
    protocols.ChecksProblem: "solves",
    protocols.NeedsMemory: "solves",
    protocols.AdvisesMemory: "abilities",
    protocols.ChoosesMethod: "abilities",
    protocols.ChoosesNotion: "solves",
    protocols.TakesKinds: "abilities",
    protocols.DescribesReading: "abilities",
    protocols.PublishesFiles: "solves",
    protocols.CopiesFiles: "abilities",
    protocols.Reopens: "round-trip",
    protocols.ProvesBound: "round-trip",
    protocols.StatesProof: "round-trip",
    protocols.BoundsChosen: "round-trip",
    protocols.SolvesProgram: "round-trip",
    protocols.StatesDetails: "round-trip",
    protocols.Warns: "solves",
    protocols.Explains: "solves",
    protocols.Plans: "abilities",
    protocols.Audits: "abilities",
    protocols.AuditsOverTime: "abilities",
    protocols.HasChannel: "reach",
    protocols.VariesEpsilon: "abilities",
    protocols.Drafts: "abilities",
}
"""The check that calls each ability. The tests below show that it does."""

CALLS: list[str] = []
"""The members that were called, in order."""


def record(name: str, answer: Callable[..., Any]) -> Any:
    """Return a method that records its call and returns what ``answer`` returns."""

    def method(self, *arguments: Any, **options: Any) -> Any:
        CALLS.append(name)
        return answer(self, *arguments, **options)

    return method


def record_reading(name: str, value: object) -> Any:
    """Return an attribute that records who reads it, but not the test ``isinstance`` of typing."""

    def read(self) -> object:
        if sys._getframe(1).f_globals["__name__"] != "typing":
            CALLS.append(name)
        return value

    return property(read)


def write_draft(self, table: Any, out: Any, *, force: bool, **options: Any) -> list[str]:
    from privopt.files.new_folder import check_file

    check_file(out, force=force)
    out.write_text('[counts]\ntable = "people.csv"\nids = "ids.csv"\n')
    return ["add epsilon"]


ANSWERS: dict[str, Any] = {
    "check_problem": lambda self, problem, method: None,
    "bytes_needed": lambda self, problem, method: 1.0,
    "memory_advice": lambda self, problem: "take fewer places",
    "own_method": lambda self, declared: None,
    "notion": lambda self, problem, method: None,
    "takes": lambda self, role, name: True,
    "reading": lambda self, declared: "places",
    "public_files": lambda self, problem, release: {},
    "reopen": lambda self, declared, file, folder: (
        problem := self.load(declared, file),
        self.release_class.read(folder, problem),
    ),
    "proved_bound": lambda self, problem, release, result, folder: -1e9,
    "bound_over": lambda self, problem, folder: None,
    "details": lambda self, problem, release, method, recorded: {"copies": {}},
    "warnings": lambda self, problem, release, result: ["few places"],
    "meaning": lambda self, problem, release, result: ["Noise hides one person."],
    "plan": lambda self, declared, file, context: Plan(
        method=context.method, budget="epsilon", unit="people", basis="the noise's spread", parts=("all",), errors={}
    ),
    "audit": lambda self, problem, release, result: {},
    "over_time": lambda self, problem, release, result, reports: None,
    "channel": lambda self, problem, release: release.channel(),
    "at_epsilon": lambda self, problem, epsilon: evolve(
        problem, declared=evolve(problem.declared, privacy=evolve(problem.declared.privacy, epsilon=epsilon))
    ),
    "draft": write_draft,
}
"""What the abilities of the mechanism below return, by member."""

ATTRIBUTES = {"copies": True, "bound_is_proof": True, "programs": True}


class Able(RightCounts):
    """Has every ability, and records the members that are called."""

    def solve(self, problem: Any, context: Any) -> Any:
        return evolve(
            super().solve(problem, context),
            lower_bound=-1e9,
            details={"lp": {"value": 1.0, "lower_bound": 1.0, "gap": 0.0}},
        )


for _name, _answer in ANSWERS.items():
    setattr(Able, _name, record(_name, _answer))
for _name, _value in ATTRIBUTES.items():
    setattr(Able, _name, record_reading(_name, _value))


@pytest.fixture(scope="module")
def calls_by_check():
    """Return the members that each check of the table called."""
    profile = evolve(COUNTS, problems=st.just(count_problem((3, 5), "1.0")))
    kit_subject = subject(Able, guarantee="local-dp", profile=profile)
    called: dict[str, set[str]] = {}
    for check in dict.fromkeys(CHECK_BY_ABILITY.values()):
        CALLS.clear()
        result = run_check(check, kit_subject, how=BRIEF)
        assert result.status != "failed", result
        called[check] = set(CALLS)
    kit_subject.close()
    return called


def test_table_has_every_ability():
    assert set(CHECK_BY_ABILITY) == set(ABILITIES)
    assert {member_of(ability) for ability in ABILITIES} == {*ANSWERS, *ATTRIBUTES}


@pytest.mark.parametrize("ability", ABILITIES, ids=lambda ability: ability.__name__)
def test_check_calls_the_ability(ability, calls_by_check):
    assert member_of(ability) in calls_by_check[CHECK_BY_ABILITY[ability]]


PLUGIN = """
from privopt import specs
from privopt.specs import hookimpl

SEEN = set()
TARGET = "acme_hooks:"


def __getattr__(name):  # what the registry imports
    if name.startswith("_"):
        raise AttributeError(name)
    SEEN.add(name)
    if name == "Mechanism":
        from faults.counts import RightCounts

        return RightCounts
    if name == "Kind":
        from privopt_metric_dp.problem.loss_kinds import DistanceLoss

        return DistanceLoss
    if name == "command":
        import click

        return click.Command("acme")
    return {"Role": type("Role", (), {}), "trait": lambda release: False}.get(name, print)


@hookimpl
def privopt_mechanisms():
    method = specs.MethodSpec(name="solve", summary="noise")
    return [
        specs.MechanismSpec(
            name="acme", target=TARGET + "Mechanism", guarantee="local-dp", summary="noise", methods=[method]
        )
    ]


@hookimpl
def privopt_kinds():
    return [specs.KindSpec(role="loss", name="acme", target=TARGET + "Kind", summary="a loss")]


@hookimpl
def privopt_roles():
    return [specs.RoleSpec(name="acme-role", base=TARGET + "Role", summary="a role")]


@hookimpl
def privopt_commands():
    return [specs.CommandSpec(name="acme", target=TARGET + "command", summary="Do it.")]


@hookimpl
def privopt_names():
    return [specs.NameSpec(name="acme_name", target=TARGET + "name")]


@hookimpl
def privopt_templates():
    return [
        specs.TemplateSpec(
            name="acme", package="acme_templates", files=(), notion="local-dp", method="solve", does="noise"
        )
    ]


@hookimpl
def privopt_checks():
    return [
        specs.TraitSpec(name="acme", missing="the release is not Acme's", target=TARGET + "trait"),
        specs.CheckSpec(name="acme", role="loss", target=TARGET + "check"),
    ]


@hookimpl
def privopt_handle(release):
    SEEN.add("handle")
    return None


@hookimpl
def privopt_released(release, problem):
    SEEN.add("released")
"""
"""A distribution with every hook. It records what is imported of it, and the calls of the last two hooks."""

SEEN_BY_HOOK = {
    "privopt_mechanisms": "Mechanism",
    "privopt_kinds": "Kind",
    "privopt_roles": "Role",
    "privopt_commands": "command",
    "privopt_names": "name",
    "privopt_templates": "templates",
    "privopt_checks": "check",
    "privopt_handle": "handle",
    "privopt_released": "released",
}
"""What the check ``hooks`` imports or calls by each hook."""


@pytest.fixture
def acme(tmp_path, monkeypatch):
    """Install the distribution; return a registry with it, and a function that runs the check on its mechanism."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(source: str = PLUGIN) -> tuple[Any, Any]:
        (tmp_path / "acme_hooks.py").write_text(source)
        (tmp_path / "acme_templates" / "templates" / "acme").mkdir(parents=True)
        (tmp_path / "acme_templates" / "__init__.py").write_text(
            "import acme_hooks\nacme_hooks.SEEN.add('templates')\n"
        )
        info = tmp_path / "acme-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\nacme = acme_hooks\n")
        for module in ("acme_hooks", "acme_templates"):
            monkeypatch.delitem(sys.modules, module, raising=False)
        with_acme = discover(entry_points(group=GROUP))
        profile = evolve(COUNTS, problems=st.just(count_problem((3, 5), "1.0")))
        with using(with_acme):
            kit_subject = subject("acme", profile=profile) if "acme" in with_acme.mechanisms else None
            result = None if kit_subject is None else run_check("hooks", kit_subject, how=BRIEF)
        return result, sys.modules["acme_hooks"].SEEN

    return install


def test_check_uses_every_hook(acme):
    hooks = [name for name in vars(Hooks) if name.startswith(f"{GROUP}_")]
    assert set(SEEN_BY_HOOK) == set(hooks)
    result, seen = acme()
    assert result.status == "passed", result
    assert set(SEEN_BY_HOOK.values()) <= seen


@pytest.mark.parametrize(
    ("correct", "wrong", "words"),
    [
        ('return click.Command("acme")', "return print", "expected a click.Command"),
        ('"Role": type("Role", (), {})', '"Role": 3', "must be a class"),
        ("lambda release: False", "lambda release: None", "expected True or False"),
        ("files=()", "files=('x.py',)", "x.py.txt is not in the templates"),
        ("return DistanceLoss", "return int", "must be a privopt LossKind"),
        ('TARGET + "name"', '"acme_hooks.absent:name"', "cannot be loaded"),
        ('SEEN.add("handle")\n    return None', "return 3", "privopt_handle: acme:acme: expected a class or None"),
        ('SEEN.add("released")', "release.absent", "privopt_released: acme:acme: AttributeError"),
        ('name="acme_name"', 'name="solve"', "is registered by both"),
    ],
)
def test_check_finds_a_wrong_hook(correct, wrong, words, acme):
    assert correct in PLUGIN
    result, _ = acme(PLUGIN.replace(correct, wrong))
    assert result.status == "failed"
    assert words in result.reason


def test_hook_of_another_distribution_accuses_nobody(acme, tmp_path):
    (tmp_path / "other_hooks.py").write_text(
        "from privopt.specs import hookimpl\n\n\n@hookimpl\ndef privopt_handle(release):\n    return release.absent\n"
    )
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nother = other_hooks\n")
    result, seen = acme()
    assert result.status == "passed", result
    assert "handle" in seen
