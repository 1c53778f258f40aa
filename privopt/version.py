"""The version of privopt, in a separate module so that nothing imports the public package for it."""

VERSION = "0.1.0"
