"""The version of privopt, in a separate module so that reading it does not import the public package."""

VERSION = "0.1.0"
