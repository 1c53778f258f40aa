"""Regions, for guarantees that cover any two points rather than only pairs of records."""
