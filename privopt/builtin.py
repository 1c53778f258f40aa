"""The core's own plugin, which registers roles, kinds, commands, checks and project templates."""

from collections.abc import Sequence

from privopt.specs import COMMAND_GROUPS, CheckSpec, CommandSpec, KindSpec, NameSpec, RoleSpec, TemplateSpec, hookimpl


@hookimpl
def privopt_roles() -> Sequence[RoleSpec]:
    """Return the core's roles (privacy notions, solvers and decomposers), for which plugins can register kinds."""
    return [
        RoleSpec(name="notion", base="privopt.interfaces:PrivacyConstraint", summary="a notion of privacy"),
        RoleSpec(name="solver", base="privopt.backends.base:Backend", summary="a solver of compiled models"),
        RoleSpec(name="decomposer", base="privopt.interfaces:Decomposer", summary="a way to split a compiled model"),
    ]


@hookimpl
def privopt_kinds() -> Sequence[KindSpec]:
    """Return the kinds registered by the core: several privacy notions, several solvers and a decomposer."""
    # The role, name, target and summary of each kind. Users write the names after --solver and in the problem file.
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
    """Return the checks for registered solvers and decomposers, and the ``reach`` check for added noise.

    The other checks for mechanisms are listed in the conformance kit itself, so they are not registered here.
    """
    # For each role, the module that contains the checks, and the checks' names, which are also their functions' names.
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
def privopt_names() -> Sequence[NameSpec]:
    """Return the names that the core adds to the ``privopt`` package. Plugins cannot register any of them."""
    import privopt

    homes = {name: f"privopt.{home}" for name, home in privopt._HOMES.items()}
    return [NameSpec(name=name, target=target) for name, target in homes.items()]


@hookimpl
def privopt_commands() -> Sequence[CommandSpec]:
    """Return the core's commands, in the order in which ``privopt --help`` lists them."""
    make, check, use, publish, author = COMMAND_GROUPS
    city = "docs/examples/city/problem.toml"
    reference = "docs/reference/command-line.md"
    # The name, group, summary, example and documentation page of each command.
    rows = [
        ("list", make, "List the installed mechanisms.", "list", reference),
        ("describe", make, "Describe the problem file of a mechanism.", "describe MECHANISM", reference),
        (
            "plan",
            make,
            "Predict errors before epsilon is chosen.",
            "plan MECHANISM problem.toml",
            "docs/used-for/census-table.md",
        ),
        (
            "solve",
            make,
            "Solve a problem and write a certified release.",
            f"solve MECHANISM {city} --out city",
            "docs/tutorials/ten-minutes.md",
        ),
        ("verify", check, "Check every claim of a release again.", "verify city", "docs/explanation/guarantees.md"),
        (
            "audit",
            check,
            "Measure what an attacker learns from a release.",
            "audit city",
            "docs/explanation/guarantees.md",
        ),
        (
            "checker",
            check,
            "Write a program that checks releases without privopt.",
            "checker --out check.pyz",
            "docs/explanation/guarantees.md",
        ),
        ("sample", use, "Draw reports of one secret.", "sample city --input 2-3 -n 5", reference),
        (
            "estimate",
            use,
            "Estimate how many people are where, from reports.",
            "estimate city reports.csv --out shares.csv",
            "docs/how-to/estimate.md",
        ),
        (
            "budget",
            use,
            "Show what people have spent, and set limits.",
            "budget my.ledger --set 12 --per day --zone Europe/Rome",
            "docs/how-to/report-again.md",
        ),
        ("report", publish, "Write a report as one page that works offline.", "report city", "docs/how-to/reports.md"),
        (
            "disclose",
            publish,
            "Write what offices file about a release.",
            "disclose city --format dpia --out dpia.md",
            "docs/how-to/data-protection.md",
        ),
        ("sign", publish, "Sign a release with an OpenSSH key.", "sign city ~/.ssh/id_ed25519", reference),
        (
            "new",
            author,
            "Write a plugin project whose tests pass.",
            "new acme-mech",
            "docs/tutorials/write-a-plugin.md",
        ),
        (
            "check",
            author,
            "Test a mechanism with the conformance kit.",
            "check MECHANISM",
            "docs/tutorials/write-a-plugin.md",
        ),
    ]
    # Commands are defined in privopt.command.cli, except for those in these modules. The function for ``list`` is
    # called ``list_`` so as not to hide Python's list.
    modules = dict.fromkeys(("sample", "audit", "report", "sign"), "release_commands")
    modules |= {name: name for name in ("budget", "disclose", "estimate")}
    return [
        CommandSpec(
            name=name,
            target=f"privopt.command.{modules.get(name, 'cli')}:{'list_' if name == 'list' else name}",
            summary=summary,
            group=group,
            example=f"privopt {example}",
            page=page,
        )
        for name, group, summary, example, page in rows
    ]


@hookimpl
def privopt_templates() -> Sequence[TemplateSpec]:
    """Return the project templates for ``privopt new`` that do not need other plugins."""
    common_files = ("example.toml", "mechanism.py", "kit.py")
    return [
        TemplateSpec(
            name="noise",
            package="privopt.command",
            files=(*common_files, "people.txt"),
            notion="pure-dp",
            method="laplace",
            does="discrete Laplace noise",
        ),
        TemplateSpec(
            name="selection",
            package="privopt.command",
            files=(*common_files, "votes.csv"),
            notion="pure-dp",
            method="exponential",
            does="the exponential mechanism",
        ),
    ]
