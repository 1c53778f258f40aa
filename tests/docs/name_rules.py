"""Find names that hide what they name: private words, participles as classes, numbers without a unit, single letters.

:mod:`word_counts` counts them by folder, and the counts may only fall.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

_WORD = re.compile(
    "_?(?:after|ahead|before|beside|found|given|kept|least|made|most|moved|off|own|room|said|say|tell|telling|told)"
)

_WORDY = re.compile(r"(?:^|_)(?:beside|few|kept|likely|nothing|reckon\w*|room|said|telling|told|worth)(?:_|$)")
_PARTICIPLE = re.compile(r"_*[A-Z][a-z]*(?:ed|ing|own|aid|ept|een|old|ought|ound)")
NOUNS: Final = frozenset({"Listing", "Round", "Rounding", "Routing", "Setting"})
"""Classes that end like a participle and are things."""


def hidden_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each name of a module that hides what it names, after the kind that counts it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and _PARTICIPLE.fullmatch(node.name) and node.name.strip("_") not in NOUNS:
            yield "classes", node.name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if _WORD.fullmatch(node.name) or _WORDY.search(node.name):
                yield "functions", node.name
            letters = not node.name.startswith("_")
            for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                if _WORD.fullmatch(argument.arg) or (letters and len(argument.arg) == 1):
                    yield "parameters", f"{argument.arg} of {node.name}"
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Constant):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            name = target.id.strip("_") if isinstance(target, ast.Name) else ""
            if name.isupper() and "_" not in name and type(statement.value.value) in (int, float):
                yield "constants", name
