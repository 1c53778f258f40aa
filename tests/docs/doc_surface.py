"""The public surface as the documentation lists it: commands and options, hooks, Python names and signatures.

``python.md`` is what readers meet: ``po.*``, the modelling language, what a plugin registers and the kit, with types
and an anchor for each name. ``python-modules.md`` lists every public module, for authors of plugins, and
``house.md`` every file, for those who change the code.

The listings are between ``<!-- made: WHAT -->`` and ``<!-- end -->``. ``python tests/docs/doc_surface.py`` writes them
again, and a test fails where they are not what the code says.
"""

from __future__ import annotations

import ast
import contextlib
import enum
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from doc_blocks import blocks

from privopt.command.cli import cli
from privopt.specs import Hooks

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
FIRST = [
    "privopt_metric_dp.api.problem_parts",
    "privopt.declare.problems_in_memory",
    "privopt.api.released",
    "privopt_tables.released_matrix",
    "privopt.sql",
    "privopt.interfaces.cost",
    "privopt.ledger.ledger",
    "privopt.ledger.entries",
    "privopt.ledger.accounts",
    "privopt.files.durable_log",
    "privopt.specs",
    "privopt.interfaces",
    "privopt.interfaces.abilities",
    "privopt.interfaces.reporting",
    "privopt.errors",
    "privopt.declare",
    "privopt.declare.tables",
    "privopt.declare.columns",
    "privopt.files.archive",
    "privopt_metric_dp.problem.declared",
    "privopt_metric_dp.problem.declared",
    "privopt_metric_dp.problem.data",
    "privopt_metric_dp.mechanisms.base",
    "privopt_metric_dp.mechanisms.answer",
    "privopt_metric_dp.matrix.release",
    "privopt_metric_dp.matrix.privacy",
    "privopt_metric_dp.matrix.certify",
    "privopt_metric_dp.problem.loss_kinds",
    "privopt_metric_dp.matrix.expected_loss",
    "privopt_metric_dp.space.places",
    "privopt_metric_dp.space.distance_table",
    "privopt.interfaces.notions",
    "privopt.interfaces.additive",
    "privopt.dsl",
    "privopt.numbers.noise",
    "privopt.numbers",
    "privopt.numbers.sampling",
    "privopt.backends.base",
    "privopt.execution",
    "privopt.report",
    "privopt_metric_dp.attacks.matrix_figures",
    "privopt.numbers.binomial",
    "privopt.testing",
    "privopt_metric_dp.kit",
    "privopt.registry",
    "privopt.run.solve",
    "privopt.run.task",
    "privopt.run.verify",
]
"""What a plugin's author needs, in the order in which it is met."""


FURTHER = [
    "privopt.backends",
    "privopt.checker.compare",
    "privopt.checker.exact",
    "privopt.checker.files",
    "privopt.command.cli",
    "privopt.command.exit_codes",
    "privopt.command.new",
    "privopt.command.program",
    "privopt.command.terminal",
    "privopt.decompose.benders",
    "privopt.decompose.split",
    "privopt.dsl.form",
    "privopt.execution.clock",
    "privopt.numbers.exp_log_bounds",
    "privopt_metric_dp.proof.make_proof",
    "privopt_metric_dp.report.figures",
    "privopt_metric_dp.solvers",
    "privopt_metric_dp.space.metrics",
    "privopt_metric_dp.space.pairs",
    "privopt_metric_dp.space.roads",
    "privopt.run.attack_channel",
    "privopt.run.audit",
    "privopt.files.release_folder",
    "privopt.report.write_report",
    "privopt_tables.apply",
    "privopt_tables.apply_parts",
    "privopt_tables.studies.curve",
    "privopt_tables.secret_columns",
    "privopt.testing.noise",
    "privopt_metric_dp.kit.strategies",
]
"""What a script may want besides. Other modules are the house's own, though plugins of the house use some of them."""

PACKAGES = {
    name: Path(str(import_module(name).__file__)).parent for name in {m.partition(".")[0] for m in FIRST + FURTHER}
}
"""Packages whose names are listed, and their folders."""


def hidden_imports(path: Path) -> Iterator[str]:
    """Yield what a file imports of privopt, or of another plugin than its own, that is not public there."""
    for module, name in imports(path):
        is_public = not name or name in public_names(file_of(module))
        is_own_package = module.partition(".")[0] in path.parts
        if not is_own_package and (not is_public or any(part.startswith("_") for part in module.split("."))):
            yield f"{module}.{name}"


def unlisted_imports(path: Path) -> Iterator[str]:
    """Yield what a file imports of privopt that is not listed under the module that it is imported from."""
    for module, name in imports(path):
        if module not in ("privopt", *FIRST, *FURTHER) or (name and name not in public_names(file_of(module))):
            yield f"{module}.{name}" if name else module


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of each name that a file imports from a module of privopt or of metric DP.

    The name of a module that is imported whole is empty; a page's Python blocks are its code.
    """
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        text = "\n".join(block.code for block in blocks(text, path.name) if block.language == "python")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.partition(".")[0] in PACKAGES)
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES:
            module = node.module or ""
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                is_module = alias.name not in public_names(file_of(module)) and file_of(inner).is_file()
                yield (inner, "") if is_module else (module, alias.name)


def file_of(module: str) -> Path:
    """Where a module stands."""
    package, *inner = module.split(".")
    path = PACKAGES[package].joinpath(*inner)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def public_names(path: Path) -> list[str]:
    """Return the ``__all__`` of a file; where it has none, the names that it gives and that no underscore begins."""
    body = ast.parse(path.read_text("utf-8")).body
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            names: list[str] = ast.literal_eval(node.value)  # type: ignore[attr-defined]
            return names
    return [name for node in body for name in names_given(node) if not name.startswith("_")]


def names_given(node: ast.stmt) -> list[str]:
    """Names that a statement at the top of a file gives."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


# --- Python names --------------------------------------------------------------------------------------


def parameters(callable_: Any) -> str:
    """Names, kinds and plain defaults of parameters; annotations are left to the docstrings."""
    try:
        signature = inspect.signature(getattr(callable_, "py_func", callable_))
    except (TypeError, ValueError):
        return "(...)"
    parts, keyword_only = [], False
    for name, parameter in signature.parameters.items():
        if name in ("self", "cls"):
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts, keyword_only = [*parts, f"*{name}"], True
        elif parameter.kind is parameter.VAR_KEYWORD:
            parts.append(f"**{name}")
        else:
            if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
                parts, keyword_only = [*parts, "*"], True
            parts.append(name + default(parameter))
    return f"({', '.join(parts)})"


def default(parameter: inspect.Parameter) -> str:
    """``=value`` where it is plain, ``=...`` where it is not."""
    value = parameter.default
    if value is parameter.empty:
        return ""
    is_plain = value is None or type(value) in (bool, int, float, str)
    return f"={value!r}" if is_plain else "=..."


def first_line(documented: Any) -> str:
    """First sentence of a docstring."""
    text = (inspect.getdoc(documented) or "").split("\n\n")[0]
    return " ".join(text.split())


def rows(module: str) -> Iterator[tuple[str, str]]:
    """Yield (what it is, what it says of itself) of every public name of a module, and of the parts of its classes."""
    home = import_module(module)
    for name in sorted(home.__all__):
        member_object = getattr(home, name)
        if not isinstance(member_object, type):
            callable_ = callable(member_object) and hasattr(
                getattr(member_object, "py_func", member_object), "__name__"
            )
            signature_text = parameters(member_object) if callable_ else constant(member_object)
            yield f"{name}{signature_text}", first_line(member_object) if callable_ else ""
            continue
        if issubclass(member_object, enum.Enum):
            yield f"enum {name}: {', '.join(member.name for member in member_object)}", first_line(member_object)
            continue
        yield f"class {name}{parameters(member_object)}", first_line(member_object)
        if (getattr(member_object, "__module__", "") or "").startswith("privopt"):
            yield from parts_of(member_object)


def constant(value: Any) -> str:
    """`` = value`` where it is short."""
    value_text = repr(value)
    return f" = {value_text}" if type(value) in (int, float, str, tuple) and len(value_text) < 60 else ""


def parts_of(cls: type) -> Iterator[tuple[str, str]]:
    """Public methods and properties of a class's own body."""
    for name, member in vars(cls).items():
        if name.startswith("_"):
            continue
        inner = getattr(member, "__func__", None) or getattr(member, "func", None)
        if isinstance(member, property):
            yield f"    .{name}", first_line(member)
        elif inspect.isfunction(member):
            yield f"    .{name}{parameters(member)}", first_line(member)
        elif inspect.isfunction(inner):
            entry = f"    .{name}" if hasattr(member, "attrname") else f"    .{name}{parameters(inner)}"
            yield entry, first_line(inner)


def listing(module: str) -> str:
    """One module as a section."""
    home = import_module(module)
    lines = [f"### {module}", "", first_line(home), "", "```text"]
    for entry, says in rows(module):
        lines += [entry, f"{' ' * (len(entry) - len(entry.lstrip()) + 8)}{says}"] if says else [entry]
    return "\n".join([*lines, "```", ""])


def modules() -> str:
    """Modules that a plugin's author needs, then the others."""
    return "\n".join(
        ["## For plugins and scripts", "", *map(listing, FIRST), "## Further public names", "", *map(listing, FURTHER)]
    )


# --- Python names that readers meet --------------------------------------------------------------------

READ: dict[str, tuple[str, str, str]] = {
    "po": ("privopt", "po", "`import privopt as po`: problems, releases, ledgers and queries, in memory."),
    "Release": ("privopt_tables.released_matrix", "", "What `po.solve` and `po.open` return for metric mechanisms."),
    "Model": ("privopt.dsl", "dsl", "`from privopt.dsl import Model`: optimisation problems, stated as a paper does."),
    "Plugin": (
        "privopt.specs",
        "specs",
        "`from privopt.specs import hookimpl`: what the [hooks](hooks.md) of a plugin return.",
    ),
    "Kit": ("privopt.testing", "testing", "`from privopt.testing import conformance`: the conformance kit."),
}
"""Sections of the page: title, then module, prefix of its names, and what it is for."""

TITLES = {
    "po": "In memory: `po`",
    "Release": "A release of probabilities",
    "Model": "The modelling language",
    "Plugin": "What a plugin registers",
    "Kit": "The kit",
}
NOT_READ = {
    "privopt_tables.released_matrix": {"ReleasedRows", "add_to_duckdb", "expression"},
    "privopt.dsl": {"FamilyBlock", "StandardForm", "VariableBlock", "solve_form", "write_form"},
    "privopt.specs": {"GROUP", "NOTHING", "Hooks", "Spec", "hookspec"},
    "privopt.testing": {
        *("CheckResult", "GeneratedProblem", "Query", "Subject", "Trial", "Variant", "csv_bytes", "examples_near"),
        *("export_again", "npy_bytes", "relabel", "reorder", "run_check", "run_checks", "subject"),
    },
}
"""Public names that only authors of plugins and of solvers meet; ``python-modules.md`` has them."""

WITHOUT_METHODS = {"po.Charge"}
"""Classes that readers only make: their methods are called by commands."""

WIDTH = 100


def annotation(value: Any) -> str:
    """Return a type as it is written, without the modules that it comes from."""
    text = value if isinstance(value, str) else getattr(value, "__name__", None) or str(value)
    return re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", text)


def typed_signature(name: str, callable_: Any) -> str:
    """Return a signature with types, on one line or one line a parameter."""
    signature = inspect.signature(getattr(callable_, "py_func", callable_))
    parts, is_keyword_only = [], False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword_only:
            parts.append("*")
        is_keyword_only = is_keyword_only or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        typed = "" if parameter.annotation is parameter.empty else f": {annotation(parameter.annotation)}"
        parts.append(
            star + parameter.name + typed + (default(parameter).replace("=", " = ", 1) if typed else default(parameter))
        )
    result = signature.return_annotation
    end = "" if result is signature.empty or inspect.isclass(callable_) else f" -> {annotation(result)}"
    line = f"{name}({', '.join(parts)}){end}"
    return line if len(line) <= WIDTH else f"{name}(\n    " + ",\n    ".join(parts) + f",\n){end}"


def arguments_of(callable_: Any) -> list[str]:
    """Return the list of the arguments that a docstring describes."""
    text = inspect.getdoc(callable_) or ""
    section = re.search(r"(?ms)^Args:\n(.*?)(?=^\S|\Z)", text)
    if section is None:
        return []
    entries = re.findall(r"(?ms)^    (\*{0,2}\w+): (.*?)(?=^    \S|\Z)", section[1])
    return [f"- `{name}`: {in_markdown(' '.join(meaning.split()))}" for name, meaning in entries]


def in_markdown(text: str) -> str:
    """Return a docstring's sentence with its markup as Markdown has it."""
    text = re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", text)
    return re.sub(r"``(.+?)``", r"`\1`", text)


def entry_of(name: str, member_object: Any, level: int) -> list[str]:
    """Return the entry of a name: a heading with an anchor, the signature with types, a sentence and the arguments."""
    lines = [f"{'#' * level} {name} {{: #{name} }}", ""]
    if isinstance(member_object, property) or not callable(member_object):
        value = "" if isinstance(member_object, property) else constant(member_object)
        lines += ["```text", f"{name}{value}", "```", ""] if value else []
        sentence = first_line(member_object) if isinstance(member_object, property) else ""
        return [*lines, in_markdown(sentence), ""] if sentence else lines
    with contextlib.suppress(TypeError, ValueError):  # an exception's or enumeration's own constructor
        lines += ["```text", typed_signature(name, member_object), "```", ""]
    lines += [in_markdown(first_line(member_object)), ""]
    arguments = arguments_of(member_object)
    return [*lines, *arguments, ""] if arguments else lines


def typed_section(title: str) -> str:
    """Return one section of the page: every public name of a module, with the methods of its classes."""
    module, prefix, purpose = READ[title]
    home = import_module(module)
    lines = [f"## {TITLES[title]}", "", purpose, ""]
    for name in sorted(home.__all__, key=str.lower):
        member_object = getattr(home, name)
        if name.startswith("__") or inspect.ismodule(member_object) or name in NOT_READ.get(module, ()):
            continue
        full_name = f"{prefix}.{name}" if prefix else name
        lines += entry_of(full_name, member_object, 3)
        has_methods = isinstance(member_object, type) and member_object.__module__.startswith("privopt")
        if has_methods and full_name not in WITHOUT_METHODS:
            lines += methods_of(full_name, member_object)
    return "\n".join(lines)


def methods_of(name: str, cls: type) -> list[str]:
    """Return public methods of a class, each with its signature and sentence, as a list of definitions."""
    lines = []
    for method_name, member in vars(cls).items():
        inner = getattr(member, "__func__", None) or getattr(member, "func", None) or member
        if method_name.startswith("_") or not (isinstance(member, property) or inspect.isfunction(inner)):
            continue
        is_value = isinstance(member, property) or hasattr(member, "attrname")
        function = member.fget if isinstance(member, property) else inner
        result = annotation(inspect.signature(function).return_annotation)
        text = f"{method_name}: {result}" if is_value else typed_signature(method_name, function)
        anchor = f'<a id="{name}.{method_name}"></a>'
        code = " ".join(text.split()).replace("( ", "(").replace(", )", ")").replace("`", "'").replace("|", "&#124;")
        lines.append(f"- {anchor}<code>{code.replace('<', '&lt;')}</code>: {in_markdown(first_line(member))}")
    return [*lines, ""] if lines else []


def python() -> str:
    """Return what readers meet."""
    return "\n".join(map(typed_section, READ))


# --- command line and hooks ----------------------------------------------------------------------------


def option(click_option: click.Option) -> str:
    """Return an option as it is written."""
    names = ", ".join(f"`{name}`" for name in click_option.opts)
    value = "" if click_option.is_flag else f" {click_option.make_metavar(click.Context(cli))}"
    return f"{names}{value}".replace("|", "&#124;")


def named_commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its name, those of plugins too."""
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        yield name, command


def commands() -> str:
    """Every command with its arguments and options."""
    lines = []
    for name, command in named_commands():
        arguments = " ".join(
            parameter.make_metavar(click.Context(command))
            for parameter in command.params
            if isinstance(parameter, click.Argument)
        )
        lines += [f"### privopt {name}", "", f"`privopt {name} {arguments}`".replace(" `", "`"), ""]
        lines += [first_line(command.callback) or "", "", "| option | means |", "| --- | --- |"]
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                required_text = " Required." if parameter.required else ""
                default_value = parameter.to_info_dict()["default"] if parameter.show_default else None
                default_text = "" if default_value is None else f" Default: {default_value}."
                lines.append(f"| {option(parameter)} | {parameter.help or ''}{required_text}{default_text} |")
        lines += ["| `-h`, `--help` | Show the options and end. |", ""]
    return "\n".join(lines)


def hooks() -> str:
    """Every hook with its parameters."""
    lines = []
    for name, member in vars(Hooks).items():
        function = getattr(member, "__func__", None)
        if function is None:
            continue
        lines += [f"### {name}{parameters(function)}", "", first_line(function), ""]
    return "\n".join(lines)


def files() -> str:
    """Every module of the core and of the plugins, package by package, with the first line of its docstring."""
    lines: list[str] = []
    for source in (ROOT / "privopt", *sorted((ROOT / "plugins").glob("*/src/*"))):
        for path in sorted(source.rglob("*.py"), key=lambda path: (path.parent, path.name)):
            docstring = ast.get_docstring(ast.parse(path.read_text("utf-8")))
            if path.name == "__init__.py" or docstring is None:
                continue
            heading = f"### {path.parent.relative_to(source.parent)}"
            if heading not in lines:
                lines += [*(["```", ""] if lines else []), heading, "", "```text"]
            lines += [path.name, f"{' ' * 8}{docstring.splitlines()[0]}"]
    return "\n".join([*lines, "```", "", ""])


MADE: dict[str, tuple[str, Callable[[], str]]] = {
    "commands": ("command-line.md", commands),
    "hooks": ("hooks.md", hooks),
    "names": ("python.md", python),
    "modules": ("python-modules.md", modules),
    "files": ("../guide/house.md", files),
}


def split_page(text: str, listing_name: str) -> tuple[str, str, str]:
    """Return a page's text before a listing, the listing, and after it.

    Raises:
        ValueError: the page has no such listing.
    """
    page_match = re.search(rf"(?s)\A(.*<!-- made: {listing_name} -->\n\n)(.*)(<!-- end -->.*)\Z", text)
    if page_match is None:
        raise ValueError(f"no listing {listing_name!r}")
    return page_match[1], page_match[2], page_match[3]


def shape(listing: str) -> list[str]:
    """Return a listing without the sentences that say what a name is: those may be improved at leisure."""
    if "{: #" not in listing:
        return [line for line in listing.splitlines() if not re.match(r" {8}", line)]
    kept_lines, is_code = [], False
    for line in listing.splitlines():
        is_code = is_code != line.startswith("```")
        if is_code or line.startswith("#"):
            kept_lines.append(line)
        elif line.startswith("- <a"):
            kept_lines.append(line.partition("</code>")[0])
    return kept_lines


def main() -> None:
    """Write the listings again."""
    for listing_name, (name, make) in MADE.items():
        path = REFERENCE / name
        text_before, _, text_after = split_page(path.read_text("utf-8"), listing_name)
        path.write_text(text_before + make() + text_after, "utf-8")


if __name__ == "__main__":
    main()
