"""Problem files: declared once as classes, read with every fault named."""

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
