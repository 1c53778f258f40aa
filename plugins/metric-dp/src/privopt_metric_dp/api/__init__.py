"""The Python API for metric problems, which builds them in memory from data frames and arrays."""
