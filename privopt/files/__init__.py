"""Files read and made with care; `archive` reads arrays from files that anyone may have written."""

from privopt.files.regular import (
    LARGEST,
    Unreadable,
    flush,
    open_private,
    open_regular,
    private_folder,
    read_bytes,
    read_whole,
    what_it_is,
)

__all__ = [
    "LARGEST",
    "Unreadable",
    "flush",
    "open_private",
    "open_regular",
    "private_folder",
    "read_bytes",
    "read_whole",
    "what_it_is",
]
