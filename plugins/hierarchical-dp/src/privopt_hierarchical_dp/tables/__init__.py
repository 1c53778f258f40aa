"""Several tables of the same individuals under one budget, which agree wherever they share attributes."""
