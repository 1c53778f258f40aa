"""Several tables of the same individuals under one budget, which agree wherever they share attributes."""

from privopt_hierarchical_dp.several.mechanism import HierarchicalTables

__all__ = ["HierarchicalTables"]
