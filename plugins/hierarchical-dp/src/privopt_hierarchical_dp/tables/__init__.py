"""The hierarchical-tables mechanism: several consistent tables of the same individuals under one budget."""
