"""The TOML file with a release owner's answers to questions that only the owner can answer, one key per question."""

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
"""The maximum number of characters in an answer, which must fit in a form field."""


def read_facts(path: Path) -> dict[str, str]:
    """Read the owner's answers from a TOML file.

    Line breaks within an answer are replaced by spaces, and empty answers are left out.

    Returns:
        The answers, by key.

    Raises:
        InputError: The file is not valid TOML, a key is unknown, or an answer is not a string, is too long or contains
            invisible characters.
    """
    expectation = "TOML with keys of the questions (privopt disclose --ask FILE writes them)"
    try:
        answers_by_key = tomllib.loads(File.read(path, str(path), expectation=expectation).contents.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError([Fault(str(path), "", f"text that is not TOML ({reason_of(error)})", expectation)]) from None
    # Unknown keys get the first kind of fault, and invalid answers to known questions get the second.
    faults = [
        Fault(str(path), name, "an unknown key", f"one of {', '.join(QUESTIONS)}")
        if name not in QUESTIONS
        else Fault(str(path), name, cut(repr(answer)), f"a text of at most {MAX_CHARACTERS:,} characters that all show")
        for name, answer in answers_by_key.items()
        if name not in QUESTIONS
        or not isinstance(answer, str)
        or len(answer) > MAX_CHARACTERS
        or not _is_visible(answer)
    ]
    if faults:
        raise InputError(faults)
    # Empty answers are left out, because the file written by --ask has one for each unanswered question.
    return {name: " ".join(answer.split()) for name, answer in answers_by_key.items() if answer.strip()}


def _is_visible(answer: str) -> bool:
    """Return whether an answer contains only visible characters, spaces and line breaks.

    Invisible direction marks, for example, could reverse the text after the answer.
    """
    return " ".join(answer.split()).isprintable()


def questions_text(answers: Mapping[str, str]) -> str:
    """Return the contents of a TOML file with each question as a comment, followed by its answer or an empty string."""
    head = "# What only the owner knows. An empty answer stays open in what is filed.\n"
    return head + "".join(
        f"\n# {question}\n{name} = {_quote_toml(answers.get(name, ''))}\n" for name, question in QUESTIONS.items()
    )


def _quote_toml(text: str) -> str:
    """Quote a string as a TOML basic string."""
    # JSON strings are valid TOML basic strings, except that TOML also requires DEL to be escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
