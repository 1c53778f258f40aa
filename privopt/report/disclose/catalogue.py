"""The English texts of disclosures, read from catalogue.toml so that translators can edit them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

_READ: Final = tomllib.loads(files(__package__).joinpath("catalogue.toml").read_text("utf-8"))

CLAIMS: Final[Mapping[str, str]] = _READ["claims"]
"""The meaning of each mark. A mark, such as "proved", follows a sentence and states the evidence for it."""

TEXTS: Final[Mapping[str, str]] = _READ["texts"]
"""The sentences, by key. Names in braces are placeholders for values."""

QUESTIONS: Final[Mapping[str, str]] = _READ["questions"]
"""The questions that only the release's owner can answer. The owner's file of facts uses the same keys."""

TITLES: Final[Mapping[str, str]] = _READ["titles"]
"""The headings, by name."""
