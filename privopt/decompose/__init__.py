"""Split a compiled model into a master and blocks, and solve it; partitions of records for that."""

from privopt.decompose.benders import Benders, Start
from privopt.decompose.master import ValidRows
from privopt.decompose.split import Piece, Split, split_form

__all__ = [
    "Benders",
    "Piece",
    "Split",
    "Start",
    "ValidRows",
    "split_form",
]
