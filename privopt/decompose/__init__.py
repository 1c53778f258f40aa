"""Splits a compiled model into a master and blocks, and solves it; partitions of records for that."""

from privopt.decompose.benders import Benders, Improvement, Start
from privopt.decompose.master import ValidRows
from privopt.decompose.partition import Partition, boundary_of, make_partition, vertex_cover
from privopt.decompose.split import Piece, Split, split_form

__all__ = [
    "Benders",
    "Improvement",
    "Partition",
    "Piece",
    "Split",
    "Start",
    "ValidRows",
    "boundary_of",
    "make_partition",
    "split_form",
    "vertex_cover",
]
