"""Register the core's own roles, notions, solvers, checks of kinds and project templates, as a plugin does."""

from collections.abc import Sequence

from privopt.specs import CheckSpec, KindSpec, RoleSpec, TemplateSpec, hookimpl


@hookimpl
def privopt_roles() -> Sequence[RoleSpec]:
    """Return the roles that any plugin may bring kinds of."""
    return [
        RoleSpec(name="notion", base="privopt.interfaces:PrivacyConstraint", summary="a notion of privacy"),
        RoleSpec(name="solver", base="privopt.backends.base:Backend", summary="a solver of compiled models"),
        RoleSpec(name="decomposer", base="privopt.interfaces:Decomposer", summary="a way to split a compiled model"),
    ]


@hookimpl
def privopt_kinds() -> Sequence[KindSpec]:
    """Return the notions that belong to no plugin, and the solvers."""
    rows = [
        ("notion", "pure-dp", "privopt.interfaces.notions:PureDP", "epsilon-DP between neighbouring inputs"),
        ("notion", "local-dp", "privopt.interfaces.notions:LocalDP", "epsilon-DP of each sender's own report"),
        ("notion", "zcdp", "privopt.interfaces.gaussian:ZCDP", "rho-zero-concentrated DP between neighbouring inputs"),
        (
            "notion",
            "approx-dp",
            "privopt.interfaces.gaussian:ApproxDP",
            "(epsilon, delta)-DP between neighbouring inputs",
        ),
        ("notion", "none", "privopt.interfaces.notions:NoGuarantee", "no privacy: for comparison"),
        ("solver", "cbc", "privopt.backends.cbc:Cbc", "COIN-OR CBC, in a process of its own"),
        ("solver", "highs", "privopt.backends.highs:Highs", "HiGHS"),
    ]
    return [KindSpec(role=role, name=name, target=target, summary=summary) for role, name, target, summary in rows]


@hookimpl
def privopt_checks() -> Sequence[CheckSpec]:
    """Return the checks of solvers."""
    names = ("optimum", "integers", "infeasible")
    return [CheckSpec(role="solver", name=name, target=f"privopt.testing.backends:{name}") for name in names]


@hookimpl
def privopt_templates() -> Sequence[TemplateSpec]:
    """Return the kinds of project that need no other plugin."""
    own = ("example.toml", "mechanism.py", "kit.py")
    return [
        TemplateSpec(
            name="noise",
            package="privopt.command",
            files=(*own, "people.txt"),
            notion="pure-dp",
            method="laplace",
            does="discrete Laplace noise",
        ),
        TemplateSpec(
            name="selection",
            package="privopt.command",
            files=(*own, "votes.csv"),
            notion="pure-dp",
            method="exponential",
            does="the exponential mechanism",
        ),
    ]
