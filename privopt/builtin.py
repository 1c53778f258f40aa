"""Register the core's own roles, kinds, commands, checks and project templates, as a plugin does."""

from collections.abc import Sequence

from privopt.specs import CheckSpec, CommandSpec, KindSpec, RoleSpec, TemplateSpec, hookimpl


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
    """Return the notions that belong to no plugin, the solvers and the decomposer."""
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
        ("decomposer", "benders", "privopt.decompose.benders:Benders", "Benders decomposition, many cuts a round"),
    ]
    return [KindSpec(role=role, name=name, target=target, summary=summary) for role, name, target, summary in rows]


@hookimpl
def privopt_checks() -> Sequence[CheckSpec]:
    """Return the checks of solvers, of decomposers and of the noise of counts."""
    modules = {
        "solver": ("privopt.testing.backends", ("optimum", "integers", "infeasible")),
        "decomposer": ("privopt.testing.decomposers", ("whole", "infeasible")),
    }
    checks = [
        CheckSpec(role=role, name=name, target=f"{module}:{name}")
        for role, (module, names) in modules.items()
        for name in names
    ]
    return [*checks, CheckSpec(name="reach", target="privopt.testing.checks.reach:reach")]


@hookimpl
def privopt_commands() -> Sequence[CommandSpec]:
    """Return the core's commands that are imported only when they are called."""
    summaries = {
        "budget": "Show what subjects have spent, exactly; every entry of the ledger is checked.",
        "disclose": "Write what an office files about a release that holds, each sentence with the...",
        "estimate": "Estimate shares of the records from reports, with intervals.",
    }
    return [
        CommandSpec(name=name, target=f"privopt.command.{name}:{name}", summary=summary)
        for name, summary in summaries.items()
    ]


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
