"""The version of privopt, in a separate module so that nothing imports the public package for it."""

from typing import Final

VERSION: Final = "0.1.0"
