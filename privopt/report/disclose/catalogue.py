"""The English texts of a disclosure, read from catalogue.toml, which translators edit."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

_READ: Final = tomllib.loads(files(__package__).joinpath("catalogue.toml").read_text("utf-8"))

CLAIMS: Final[Mapping[str, str]] = _READ["claims"]
"""What each mark behind a sentence means."""

TEXTS: Final[Mapping[str, str]] = _READ["texts"]
"""Sentences by key; names in braces are filled in."""

QUESTIONS: Final[Mapping[str, str]] = _READ["questions"]
"""What only the owner knows, by key of the file of facts."""

TITLES: Final[Mapping[str, str]] = _READ["titles"]
"""Headings by name."""
