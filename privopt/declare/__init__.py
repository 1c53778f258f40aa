"""Problem files. Each format is declared once, as a class, and all errors in a file are reported together."""

from privopt.declare.describe import describe_keys
from privopt.declare.schema import (
    File,
    Folder,
    RefusedValueError,
    at_least,
    between,
    files_of,
    key,
    non_negative,
    one_of,
    positive,
)
from privopt.declare.toml import load_problem, structure

__all__ = [
    "File",
    "Folder",
    "RefusedValueError",
    "at_least",
    "between",
    "describe_keys",
    "files_of",
    "key",
    "load_problem",
    "non_negative",
    "one_of",
    "positive",
    "structure",
]
