"""The part of the Python API that builds metric problems in memory, from data frames and arrays."""
