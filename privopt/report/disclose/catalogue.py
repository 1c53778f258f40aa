"""The English texts of a disclosure, read from catalogue.toml, which translators edit."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

_READ: Final = tomllib.loads(files(__package__).joinpath("catalogue.toml").read_text("utf-8"))

CLAIMS: Final[Mapping[str, str]] = _READ["claims"]
"""The meaning of each mark, such as "proved", that states the evidence for a sentence at its end."""

TEXTS: Final[Mapping[str, str]] = _READ["texts"]
"""Sentences by key, with names in braces for values."""

QUESTIONS: Final[Mapping[str, str]] = _READ["questions"]
"""Questions that only the owner can answer, by their key in the file of facts."""

TITLES: Final[Mapping[str, str]] = _READ["titles"]
"""Headings by name."""
