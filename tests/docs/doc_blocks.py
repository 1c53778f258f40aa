"""Collects the fenced code blocks of the documentation and runs them, page by page, in a folder of their own.

What each kind of block means:

- ``python`` runs; the blocks of a page share one namespace. A ``text`` block right after one is what it prints.
- ``bash`` runs line by line; ``privopt`` runs in this process, everything else in a shell. Where lines start with
  ``$``, those between are what the command says, on either stream; without one, all lines are commands. A command must
  end with code 0 unless ``; echo "exit code $?"`` follows it.
- ``toml``: with a first line ``# name.toml`` it is written to that file; without one it is part of a problem file, and
  each of its keys must be one that some mechanism reads.
- ``text``, ``javascript``, ``html``: not run; they may not hold commands.

In what is expected, ``...`` stands for anything, and a line of ``...`` alone for any lines.

A library (sybil, mktestdocs, pytest-examples) would run the Python, but none knows one command line, one folder a page
and what a command says; this is less than the glue would be.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attrs import frozen
from click.testing import CliRunner

from privopt.command.cli import cli
from privopt.declare import describe_keys
from privopt.declare.schema import ProblemHeading
from privopt.registry import discover, registry, using
from privopt.specs import GROUP

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = ("python", "bash", "toml", "text", "javascript", "html")
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*)(?P<rest>.*)$")
COMMAND = re.compile(r"^\s*(\$ |privopt |python |make |uv )", re.MULTILINE)
COMPILING = "compiling for this machine; later runs reuse the result\n"
ECHO = '; echo "exit code $?"'
PROGRESS = re.compile(r"^ *\d+\.\d s  .*\n", re.MULTILINE)
"""What a slow machine shows while it works."""

ELSEWHERE = ("uv ", "python -m pip ", "python -m pytest", "pytest", "privopt check ")
"""Commands that need an environment of their own, or minutes: tests/third_party runs them for real."""

EXAMPLES = ROOT / "docs" / "examples"
THIRD_PARTIES = {"third-party": "ranked_response", "third-party-family": "policy_dp"}
"""Projects of docs/examples that others might have made, and their packages."""


@frozen
class Block:
    """One fenced block: its language, its text and the line of its fence.

    ``follows`` says whether only blanks are between it and the last block.
    """

    language: str
    code: str
    line: int
    follows: bool


def pages() -> list[Path]:
    """Every page whose blocks are run."""
    paths = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
    paths += [path for path in (ROOT / "docs").rglob("*.md") if ".venv" not in path.parts]
    return sorted(paths)


def blocks(text: str, name: str) -> Iterator[Block]:
    """Yield the blocks of a page in order.

    Raises:
        AssertionError: a block of no known language, or one that never ends.
    """
    open_fence: tuple[int, str, str] | None = None
    lines: list[str] = []
    is_beside = False
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if open_fence is None and fence:
            language = fence["language"]
            assert language in LANGUAGES, (
                f"{name}:{number}: expected a block of {LANGUAGES}, got {language or 'no language'}"
            )
            assert not fence["rest"].strip(), f"{name}:{number}: {fence['rest']!r} after the language"
            open_fence, lines = (number, language, fence["indent"]), []
        elif open_fence is not None and fence and not fence["language"]:
            start, language, indent = open_fence
            code = "\n".join(inner.removeprefix(indent) for inner in lines) + "\n"
            yield Block(language, code, start, is_beside)
            open_fence, is_beside = None, True
        elif open_fence is not None:
            lines.append(line)
        elif line.strip():
            is_beside = False
    assert open_fence is None, f"{name}:{open_fence and open_fence[0]}: a block that never ends"


def matches(expected: str, actual: str) -> bool:
    """Whether what was said is what was expected, trailing blanks and ``...`` aside."""
    pattern = ""
    for line in expected.rstrip().splitlines():
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*?".join(map(re.escape, line.rstrip().split("..."))) + r"[ ]*\n"
    text = "\n".join(line.rstrip() for line in actual.rstrip().splitlines()) + "\n"
    return re.fullmatch(pattern, text) is not None


def known_keys() -> set[str]:
    """Every key that some installed mechanism reads, dotted."""
    classes = [ProblemHeading, *(entry.load().problem_class for entry in registry().mechanisms.values())]
    return {row.key for cls in classes for row in describe_keys(cls)}


def flatten_keys(table: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Keys of nested tables, dotted; tables themselves are not keys."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from flatten_keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


@contextlib.contextmanager
def third_party(page: Path) -> Iterator[None]:
    """Register, in this block, the third party's project that contains a page, as if it were installed."""
    project = next((name for name in THIRD_PARTIES if EXAMPLES / name in page.parents), None)
    if project is None:
        yield
        return
    point = EntryPoint(name=project, value=THIRD_PARTIES[project], group=GROUP)
    project_table = tomllib.loads((EXAMPLES / project / "pyproject.toml").read_text("utf-8"))["project"]
    # as importlib.metadata does
    metadata = {"Name": project_table["name"], "Version": project_table["version"]}
    vars(point)["dist"] = SimpleNamespace(name=metadata["Name"], version=metadata["Version"], metadata=metadata)
    sys.path.insert(0, str(EXAMPLES / project / "src"))
    try:
        with using(discover([*entry_points(group=GROUP), point])):
            yield
    finally:
        sys.path.remove(str(EXAMPLES / project / "src"))


class Page:
    """Runs one page's blocks in a folder."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder
        self.space: dict[str, Any] = {"__name__": "__page__"}
        self.printed = ""
        self.ran = 0
        for name in ("docs", "tests"):
            (folder / name).symlink_to(ROOT / name)

    def run(self) -> None:
        """Run every block.

        Raises:
            AssertionError: naming page and line.
        """
        last = None
        with contextlib.chdir(self.folder), third_party(self.path):
            for block in blocks(self.path.read_text("utf-8"), self.path.name):
                try:
                    getattr(self, block.language)(block, last)
                except Exception as error:
                    error.add_note(f"{self.path.relative_to(ROOT)}:{block.line}: block of {block.language}")
                    raise
                last = block
                self.ran += block.language in ("python", "bash", "toml")

    def python(self, block: Block, last: Block | None) -> None:
        """Run a block in the page's namespace."""
        code = compile("\n" * block.line + block.code, str(self.path), "exec", dont_inherit=True)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, self.space)
        self.printed = printed.getvalue()

    def text(self, block: Block, last: Block | None) -> None:
        """Compare with what the Python block before it printed; elsewhere it may not hide commands."""
        if last is not None and block.follows and last.language == "python":
            assert matches(block.code, self.printed), f"expected\n{block.code}\nprinted\n{self.printed}"
        else:
            assert not COMMAND.search(block.code), "a command in a block of text is never run: make it bash"

    javascript = html = text

    def toml(self, block: Block, last: Block | None) -> None:
        """Write the file that it is, or hold its keys to those that are read."""
        first = block.code.splitlines()[0]
        file_name = re.fullmatch(r"# ([\w./-]+\.toml)", first)
        tables = tomllib.loads(block.code)
        if file_name:
            path = self.folder / file_name[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code, "utf-8")
        else:
            unknown = set(flatten_keys(tables)) - known_keys()
            assert not unknown, f"keys that no mechanism reads: {sorted(unknown)}"

    def bash(self, block: Block, last: Block | None) -> None:
        """Run each command; where prompts are shown, hold what it says to what is shown."""
        prompts = block.code.startswith("$ ")
        for command, expected in session(block.code) if prompts else ((c, None) for c in commands(block.code)):
            code, output = self.command(command)
            output = output.replace(COMPILING, "")  # whichever page is the first to call a compiled function says it
            if ECHO in command:
                output += f"exit code {code}\n"
            else:
                assert code == 0, f"{command}\nended with {code} and said\n{output}"
            if expected:
                assert matches(expected, output), f"{command}\nexpected\n{expected}\nsaid\n{output}"

    def command(self, text: str) -> tuple[int, str]:
        """Run one command: its code and what it said."""
        text = text.removesuffix(ECHO).strip()
        bare = re.sub(r"\s+#\s.*$", "", text) if "\n" not in text else text
        if bare.startswith("make "):
            completed = subprocess.run(["make", "-n", *bare.split()[1:]], cwd=ROOT, capture_output=True, check=False)
            return completed.returncode, ""
        if bare.startswith(ELSEWHERE):
            return 0, ""
        if bare.startswith("privopt ") and not re.search(r"[|><;&\n`$]", bare):
            completed = CliRunner().invoke(cli, shlex.split(bare)[1:], prog_name="privopt")
            if completed.exception is not None and not isinstance(completed.exception, SystemExit):
                raise completed.exception
            return completed.exit_code, PROGRESS.sub("", completed.output)
        shell = subprocess.run(
            ["bash", "-c", f'PATH="{Path(sys.executable).parent}:$PATH"\n{text}'],
            capture_output=True,
            text=True,
            check=False,
            timeout=3000,
        )
        return shell.returncode, PROGRESS.sub("", shell.stdout + shell.stderr)  # told where a machine is loaded


def commands(code: str) -> Iterator[str]:
    """Yield the commands of a block without prompts: backslashes and here-documents joined, no comments or blanks."""
    lines = iter(code.splitlines())
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        text = line
        while text.endswith("\\"):
            text = text[:-1] + next(lines)
        here_document = re.search(r"<<\s*'?(\w+)'?", text)
        if here_document:
            for inner in lines:
                text += "\n" + inner
                if inner == here_document[1]:
                    break
        yield text


def session(code: str) -> Iterator[tuple[str, str]]:
    """Commands and what they are said to say, of a block with prompts."""
    parts = re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]
    for part in parts:
        command, _, expected = part.partition("\n")
        yield command, expected.strip("\n")
