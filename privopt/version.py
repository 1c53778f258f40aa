"""The version of privopt, by itself, so that no module imports the public door for it."""

from typing import Final

VERSION: Final = "0.1.0"
