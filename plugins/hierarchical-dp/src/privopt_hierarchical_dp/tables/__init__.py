"""The mechanism hierarchical-tables: several tables of the same individuals, consistent and under one budget."""
