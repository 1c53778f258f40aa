"""Abilities: a mechanism has one by defining its member, and the kit names members that are nearly one."""

from inspect import getdoc, signature
from typing import Any

import pytest

from privopt.errors import StoppedError
from privopt.interfaces import Mechanism, SolveContext, abilities
from privopt.interfaces.abilities import ABILITIES, check_memory, member_of
from privopt.registry import registry
from privopt.testing.near_misses import misspelt_abilities

MECHANISMS = registry().mechanisms


class Plain(Mechanism[Any, Any]):
    problem_class = release_class = object

    def privacy(self, problem, method): ...
    def utility(self, problem, method): ...
    def solve(self, problem, context): ...


def test_base_class_has_seven_members_and_no_ability():
    methods = [name for name, value in vars(Mechanism).items() if callable(value) and not name.startswith("_")]
    assert len(methods) <= 7, methods
    assert [ability for ability in ABILITIES if isinstance(Plain(), ability)] == []


@pytest.mark.parametrize("ability", ABILITIES, ids=lambda ability: ability.__name__)
def test_member_defines_the_ability(ability):
    able = type("Able", (Plain,), {member_of(ability): lambda self, *arguments: None})()
    assert isinstance(able, ability)
    assert [other_ability for other_ability in ABILITIES if isinstance(able, other_ability)] == [ability]


def test_every_ability_documents_its_absence():
    protocols = [value for value in vars(abilities).values() if getattr(value, "_is_runtime_protocol", False)]
    assert [value for value in protocols if value.__module__ == abilities.__name__] == list(ABILITIES)
    undocumented = [
        a.__name__ for a in ABILITIES if a is not abilities.AdvisesMemory and "Without this ability, " not in getdoc(a)
    ]
    assert undocumented == []


@pytest.mark.parametrize("name", MECHANISMS)
def test_shipped_mechanisms_have_valid_signatures(name):
    mechanism = MECHANISMS[name].load()
    assert misspelt_abilities(type(mechanism)) == []
    for ability in ABILITIES:
        member = getattr(ability, member_of(ability), None)
        if isinstance(mechanism, ability) and callable(member):
            expected = list(signature(member).parameters.values())[1:]
            actual = list(signature(getattr(mechanism, member_of(ability))).parameters.values())
            assert [(p.name, p.kind) for p in actual] == [(p.name, p.kind) for p in expected], ability


@pytest.mark.parametrize(
    "name", ["warning", "detail", "byte_needed", "public_file", "audits_", "plans", "checkProblem"]
)
def test_kit_names_nearly_matching_members(name):
    [sentence] = misspelt_abilities(type("Careless", (Plain,), {name: lambda self: None}))
    assert f"Careless.{name} " in sentence


@pytest.mark.parametrize("name", ["cost", "_warning", "noisy_counts", "search", "matrix", "solve", "privacy"])
def test_kit_accepts_other_members(name):
    assert misspelt_abilities(type("Careful", (Plain,), {name: lambda self: None})) == []


def test_kit_accepts_members_beside_the_ability():
    body = {"warnings": lambda self, problem, release, result: (), "warning": lambda self: ""}
    assert misspelt_abilities(type("Careful", (Plain,), body)) == []


@pytest.mark.parametrize(("advice", "expected"), [("take fewer", "take fewer"), ("", "GB")])
def test_refuses_unfit_problems_with_advice(advice, expected):
    body = {"bytes_needed": lambda self, problem, method: 1e15, "memory_advice": lambda self, problem: advice}
    context = SolveContext(method="solve", memory=1e6)
    with pytest.raises(StoppedError, match=expected):
        check_memory(type("Large", (Plain,), body)(), None, context)
    check_memory(Plain(), None, context)
