"""Functions of the Python API that build metric problems in memory, from data frames and arrays."""
