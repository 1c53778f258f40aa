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


def test_the_base_class_has_seven_public_members_and_no_ability():
    methods = [name for name, value in vars(Mechanism).items() if callable(value) and not name.startswith("_")]
    assert len(methods) <= 7, methods
    assert [ability for ability in ABILITIES if isinstance(Plain(), ability)] == []


@pytest.mark.parametrize("ability", ABILITIES, ids=lambda ability: ability.__name__)
def test_a_mechanism_has_an_ability_by_defining_its_member(ability):
    able = type("Able", (Plain,), {member_of(ability): lambda self, *arguments: None})()
    assert isinstance(able, ability)
    assert [other for other in ABILITIES if isinstance(able, other)] == [ability]


def test_every_ability_says_what_happens_without_it_and_is_listed():
    protocols = [value for value in vars(abilities).values() if getattr(value, "_is_runtime_protocol", False)]
    assert [value for value in protocols if value.__module__ == abilities.__name__] == list(ABILITIES)
    undocumented = [
        a.__name__ for a in ABILITIES if a is not abilities.AdvisesMemory and "Without it:" not in getdoc(a)
    ]
    assert undocumented == []


@pytest.mark.parametrize("name", MECHANISMS)
def test_shipped_mechanisms_define_abilities_with_the_arguments_that_are_asked_for(name):
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
def test_the_kit_names_a_member_that_nearly_matches(name):
    [sentence] = misspelt_abilities(type("Careless", (Plain,), {name: lambda self: None}))
    assert f"Careless.{name} " in sentence


@pytest.mark.parametrize("name", ["cost", "_warning", "noisy_counts", "search", "matrix", "solve", "privacy"])
def test_the_kit_takes_other_members_as_they_are(name):
    assert misspelt_abilities(type("Careful", (Plain,), {name: lambda self: None})) == []


def test_a_member_beside_the_ability_itself_is_taken_as_it_is():
    body = {"warnings": lambda self, problem, release, result: (), "warning": lambda self: ""}
    assert misspelt_abilities(type("Careful", (Plain,), body)) == []


@pytest.mark.parametrize(("advice", "expected"), [("take fewer", "take fewer"), ("", "GB")])
def test_a_problem_that_does_not_fit_is_refused_with_advice(advice, expected):
    body = {"bytes_needed": lambda self, problem, method: 1e15, "memory_advice": lambda self, problem: advice}
    context = SolveContext(method="solve", memory=1e6)
    with pytest.raises(StoppedError, match=expected):
        check_memory(type("Large", (Plain,), body)(), None, context)
    check_memory(Plain(), None, context)
