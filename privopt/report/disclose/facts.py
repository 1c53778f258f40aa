"""Read the small TOML file of facts that only the owner of a release knows: one key for each question."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from privopt.declare import File
from privopt.errors import Fault, InputError, cut, reason_of
from privopt.report.disclose.catalogue import QUESTIONS

MAX_CHARACTERS: Final = 4_000
"""Characters of an answer: a form's field, not a report."""


def read_facts(path: Path) -> dict[str, str]:
    """Read what the owner answered, by key; answers that are empty are omitted.

    Raises:
        InputError: no TOML, a key that no one asked for, an answer that is not a text or too long.
    """
    wanted = "TOML with keys of the questions (privopt disclose --ask FILE writes them)"
    try:
        given = tomllib.loads(File.read(path, str(path), wanted=wanted).contents.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError([Fault(str(path), "", f"text that is not TOML ({reason_of(error)})", wanted)]) from None
    faults = [
        Fault(str(path), name, "an unknown key", f"one of {', '.join(QUESTIONS)}")
        if name not in QUESTIONS
        else Fault(str(path), name, cut(repr(answer)), f"a text of at most {MAX_CHARACTERS:,} characters that all show")
        for name, answer in given.items()
        if name not in QUESTIONS or not isinstance(answer, str) or len(answer) > MAX_CHARACTERS or not _shows(answer)
    ]
    if faults:
        raise InputError(faults)
    return {name: " ".join(answer.split()) for name, answer in given.items() if answer.strip()}


def _shows(answer: str) -> bool:
    """Check that an answer has no invisible characters: marks of direction could reverse the words after it."""
    return " ".join(answer.split()).isprintable()


def questions_text(answers: Mapping[str, str]) -> str:
    """Write every question as TOML, with what is answered so far."""
    head = "# What only the owner knows. An empty answer stays open in what is filed.\n"
    return head + "".join(
        f"\n# {question}\n{name} = {_quoted(answers.get(name, ''))}\n" for name, question in QUESTIONS.items()
    )


def _quoted(text: str) -> str:
    """Return a basic string of TOML: one of JSON in which DEL is escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
