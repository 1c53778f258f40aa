"""The English texts for disclosures, read from catalogue.toml, which translators edit."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

_READ: Final = tomllib.loads(files(__package__).joinpath("catalogue.toml").read_text("utf-8"))

CLAIMS: Final[Mapping[str, str]] = _READ["claims"]
"""The meaning of each mark. A mark, such as "proved", stands after a sentence and states the evidence for it."""

TEXTS: Final[Mapping[str, str]] = _READ["texts"]
"""The sentences by key, with names in braces where values are filled in."""

QUESTIONS: Final[Mapping[str, str]] = _READ["questions"]
"""The questions that only the owner of a release can answer, by their key in the file of facts."""

TITLES: Final[Mapping[str, str]] = _READ["titles"]
"""The headings by name."""
