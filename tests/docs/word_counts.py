"""Count what makes the project's English hard to read: long sentences, private words, docstrings without a verb.

Texts are the pages of the documentation, the messages that users see, the docstrings of public names, and the names
themselves (:mod:`name_rules`). The counts are in words.toml, by page or folder, and may only fall:
``python tests/docs/word_counts.py`` writes lower ones.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from name_rules import hidden_names

ROOT: Final = Path(__file__).resolve().parents[2]
TABLE: Final = Path(__file__).with_name("words.toml")

PRIVATE: Final = {
    r"at hand": "available, precomputed",
    r"who(?:m|se)?ever": "anyone who",
    r"(?:no|some)body": "no one; a user, another process",
    r"of (?:which|whom)": "two sentences",
    r"so many": "n, this many",
    r"(?<!there )(?:is|are|was|were) no(?! (?:less|longer|more|other|such))": "is not",
    r"tells?|told|telling": "shows, reports, states",
    r"bears?|bearing": "supports, allows",
    r"reckon\w*": "compute",
    r"anew": "again",
    r"stands?|stood": "is",
    r"beside": "next to, in addition to",
    r"com(?:es?|ing) to": "amounts to, equals",
    r"left out": "omitted",
    r"rooms?": "package; memory, capacity, tolerance",
    r"keepers?": "accountant, ledger",
    r"wanted": "must be X, got Y; expected",
    r"whole or not at all": "completely or not at all",
}
"""Words and phrases that the field does not use, and what it says instead."""

VERBS: Final = frozenset(Path(__file__).with_name("verbs.txt").read_text("utf-8").split())
"""Verbs with which a docstring may begin; a new one is added to verbs.txt."""

CALLS: Final = {
    "Fault",
    "add",
    "add_rows",
    "complain",
    "echo",
    "fault",
    "note",
    "notes",
    "print_result",
    "refuse",
    "tell",
    "warn",
}
"""Functions whose arguments are shown to users."""

_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"``.+?``|`[^`]+`", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_FIRST = r"[A-Z\d]|(?:privopt|[a-z]+-(?:censor|dp|geo|linear|lp|mdp|opt))\b"
"""What a sentence begins with: a capital, a number, or one of the names that are written small."""
_END = re.compile(rf"(?<!\bEq\.)(?<!\bFig\.)(?<!\bal\.)(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_\[]*(?:{_FIRST}))")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.|>) +", re.MULTILINE)
_EXAMPLE = re.compile(
    r"^ *(?:>>>|\.\.\.) .*?(?:\n\s*\n|\Z)|(?<=::)\n\n(?:(?: +[^\n]*)?(?:\n|\Z))+?(?=\S|\Z)", re.MULTILINE | re.DOTALL
)
"""An example that is run, or a block behind ``::``: a formula, a tree or code."""
_ARGUMENT = re.compile(r"^ +\*{0,2}[\w.]+(?:, \*{0,2}\w+)*: ", re.MULTILINE)
_PRIVATE = re.compile(rf"\b(?:{'|'.join(PRIVATE)})\b(?!-)", re.IGNORECASE)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of Markdown or of a docstring. Code is one word, each item and cell a sentence."""
    text = _LINK.sub(r"\1", _CODE.sub("Code", text))
    text = _ARGUMENT.sub("\n\n", _ITEM.sub("\n\n", text))
    for paragraph in re.split(r"\n\s*\n|^#.*$|\|", text, flags=re.MULTILINE):
        for sentence in _END.split(" ".join(paragraph.split())):
            if any(map(str.isalpha, sentence)):
                yield sentence


def count(text: str) -> Counter[str]:
    """Count sentences over 40 and over 30 words, and private words."""
    counts: Counter[str] = Counter()
    for sentence in sentences(text):
        words = len(sentence.split())
        counts["over_40"] += words > 40
        counts["over_30"] += words > 30
        counts["private"] += len(_PRIVATE.findall(sentence))
    return counts


def sources() -> Iterator[tuple[str, Path]]:
    """Yield the folder and path of each file of the packages: the unit in which their counts stand."""
    for path in sorted((ROOT / "privopt").rglob("*.py")):
        yield "/".join(path.relative_to(ROOT).parts[:2]).removesuffix(".py"), path
    for path in sorted(ROOT.glob("plugins/*/src/*/**/*.py")):
        yield "/".join(path.relative_to(ROOT).parts[:2]), path


def pages() -> list[Path]:
    """Return README, CONTRIBUTING and every page of docs/ but those of projects in docs/examples."""
    docs = [path for path in (ROOT / "docs").rglob("*.md") if "examples" not in path.parts]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(docs)]


def literal(node: ast.AST) -> str:
    """Return the text of a string or f-string, with ``X`` for each value; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) or "X" for part in node.values)
    return ""


def messages(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of several words that a module raises, or hands to a function of :data:`CALLS`."""
    for node in ast.walk(tree):
        shown = node.exc if isinstance(node, ast.Raise) else node
        if isinstance(shown, ast.Call):
            name = getattr(shown.func, "id", getattr(shown.func, "attr", ""))
            if isinstance(node, ast.Raise) or name in CALLS:
                yield from (text for text in literals(shown) if " " in text)


def literals(node: ast.AST) -> Iterator[str]:
    """Yield the strings and f-strings of an expression, those inside f-strings not by themselves."""
    for part in ast.iter_child_nodes(node):
        text = literal(part)
        if text:
            yield text
        else:
            yield from literals(part)


def docstrings(body: list[ast.stmt]) -> Iterator[tuple[str, bool]]:
    """Yield the docstrings of the public names of a body, and whether each must begin with a verb."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            noun = isinstance(node, ast.ClassDef) or any("property" in ast.unparse(d) for d in node.decorator_list)
            yield ast.get_docstring(node) or "", not noun
            if isinstance(node, ast.ClassDef):
                yield from docstrings(node.body)


def begins_with_verb(docstring: str) -> bool:
    """Check that the first word of a docstring is an imperative verb."""
    first = re.match(r"[A-Z][a-z]+\b", docstring)
    return first is not None and first[0].lower() in VERBS


def counted() -> dict[str, dict[str, dict[str, int]]]:
    """Return the counts above 0, by kind of text, page or folder, and what is counted."""
    tables: dict[str, dict[str, Counter[str]]] = {"docs": {}, "messages": {}, "docstrings": {}, "names": {}}
    for page in pages():
        tables["docs"][page.relative_to(ROOT).as_posix()] = count(_FENCE.sub("\n\n", page.read_text("utf-8")))
    for folder, path in sources():
        tree = ast.parse(path.read_text("utf-8"))
        for message in messages(tree):
            tables["messages"].setdefault(folder, Counter()).update(count(message))
        tables["names"].setdefault(folder, Counter()).update(rule for rule, _ in hidden_names(tree))
        own = tables["docstrings"].setdefault(folder, Counter())
        for docstring, is_function in [(ast.get_docstring(tree) or "", False), *docstrings(tree.body)]:
            own.update(count(_EXAMPLE.sub("\n\n", docstring)))
            own["no_verb"] += bool(docstring) and is_function and not begins_with_verb(docstring)
    return {
        kind: {
            name: {key: n for key, n in counts.items() if n} for name, counts in table.items() if any(counts.values())
        }
        for kind, table in tables.items()
    }


def committed() -> dict[str, dict[str, dict[str, int]]]:
    """Return the table that is committed."""
    return tomllib.loads(TABLE.read_text("utf-8"))


def written(tables: dict[str, dict[str, dict[str, int]]]) -> str:
    """Return the counts as TOML, a line for each page or folder."""
    parts = []
    for kind, table in tables.items():
        lines = [
            f'"{name}" = {{ {", ".join(f"{key} = {n}" for key, n in row.items())} }}' for name, row in table.items()
        ]
        parts.append("\n".join([f"[{kind}]", *lines]))
    return "\n\n".join(parts) + "\n"


def differences(
    now: dict[str, dict[str, dict[str, int]]], then: dict[str, dict[str, dict[str, int]]], sign: int
) -> list[str]:
    """Return a line for each count that rose (``sign`` 1) or fell (-1)."""
    lines = []
    for kind in sorted({*now, *then}):
        new, old = now.get(kind, {}), then.get(kind, {})
        for name in sorted({*new, *old}):
            is_now, was_then = new.get(name, {}), old.get(name, {})
            for key in sorted({*is_now, *was_then}):
                is_, was = is_now.get(key, 0), was_then.get(key, 0)
                if sign * (is_ - was) > 0:
                    lines.append(f"{name}: {kind}: {key} is {is_}, was {was}")
    return lines


def show(names: list[str]) -> None:
    """Print what is counted in pages, and in files of the packages."""
    for name in names:
        text = (ROOT / name).read_text("utf-8")
        texts = [_FENCE.sub("\n\n", text)]
        if name.endswith(".py"):
            tree = ast.parse(text)
            found = [(ast.get_docstring(tree) or "", False), *docstrings(tree.body)]
            texts = [*messages(tree), *(_EXAMPLE.sub("\n\n", docstring) for docstring, _ in found)]
            for rule, hidden in hidden_names(tree):
                print(f"{name}: {rule}: {hidden}")
            for docstring, is_function in found:
                if docstring and is_function and not begins_with_verb(docstring):
                    print(f"{name}: no verb: {docstring.splitlines()[0]}")
        for sentence in (each for one in texts for each in sentences(one)):
            words, private = len(sentence.split()), _PRIVATE.findall(sentence)
            if words > 30 or private:
                print(f"{name}: {words} words {private or ''}: {sentence}")


def main() -> None:
    """Write lower counts, or show what is counted in the files that are named."""
    if sys.argv[1:]:
        show(sys.argv[1:])
        return
    now = counted()
    risen = differences(now, committed(), 1) if TABLE.exists() else []
    if risen:
        sys.exit("counts may only fall; `python tests/docs/word_counts.py FILE` shows where:\n" + "\n".join(risen))
    TABLE.write_text(written(now), "utf-8")


if __name__ == "__main__":
    main()
