"""The version of privopt, in a separate module so that it can be read without importing the public package."""

VERSION = "0.1.0"
