"""policy-dp: privacy by a policy that says which answers must be hard to tell apart (Blowfish)."""

from privopt.specs import (
    CheckSpec,
    CommandSpec,
    KindSpec,
    MechanismSpec,
    MethodSpec,
    NameSpec,
    RoleSpec,
    TemplateSpec,
    TraitSpec,
    hookimpl,
)


@hookimpl
def privopt_mechanisms():
    """Return the mechanism."""
    return [
        MechanismSpec(
            name="policy-response",
            target="policy_dp.mechanism:PolicyResponse",
            guarantee="policy-dp",
            summary="one answer to a question, the less likely the farther the policy sets it from the truth",
            source="He, Machanavajjhala, Ding, SIGMOD 2014; McSherry, Talwar, FOCS 2007",
            methods=[MethodSpec(name="exponential", summary="probabilities in proportion to exp(-epsilon d / 2)")],
        )
    ]


@hookimpl
def privopt_roles():
    """Return the role of policies: other packages may bring kinds of their own."""
    return [RoleSpec(name="policy", base="policy_dp.policies:Policy", summary="which answers must be alike")]


@hookimpl
def privopt_kinds():
    """Return two policies and the notion."""
    rows = [
        ("policy", "steps", "policies:Steps", "the more alike the fewer answers stand between them"),
        ("policy", "blocks", "policies:Blocks", "answers of one block are alike, those of two are not"),
        (
            "notion",
            "policy-dp",
            "notion:PolicyDP",
            "odds of answers that the policy sets d apart: at most exp(epsilon d)",
        ),
    ]
    return [
        KindSpec(role=role, name=name, target=f"policy_dp.{path}", summary=summary)
        for role, name, path, summary in rows
    ]


@hookimpl
def privopt_commands():
    """Return the command that says what a policy hides."""
    return [CommandSpec(name="policy", target="policy_dp.command:policy", summary="Say what a policy hides.")]


@hookimpl
def privopt_names():
    """Return ``privopt.policy_problem``."""
    return [NameSpec(name="policy_problem", target="policy_dp.mechanism:policy_problem")]


@hookimpl
def privopt_checks():
    """Return the kit's check of releases of answers, and that of policies."""
    return [
        TraitSpec(name="answers", missing="the release holds no answers", target="policy_dp.kit:holds_answers"),
        CheckSpec(name="policy-kept", target="policy_dp.kit:policy_kept"),
        CheckSpec(role="policy", name="is-a-distance", target="policy_dp.kit:is_a_distance"),
    ]


@hookimpl
def privopt_templates():
    """Return the kind of project whose mechanism answers under a policy."""
    return [
        TemplateSpec(
            name="policy",
            package="policy_dp",
            files=("example.toml", "mechanism.py", "kit.py"),
            notion="policy-dp",
            method="mixed",
            does="the exponential mechanism mixed with an answer at random",
            needs=("policy-dp",),
        )
    ]
