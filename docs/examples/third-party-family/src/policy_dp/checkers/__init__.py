"""The checker's part for policy DP: imports the standard library, the checker and itself alone."""
