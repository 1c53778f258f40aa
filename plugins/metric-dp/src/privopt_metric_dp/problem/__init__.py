"""The metric problem: the keys in the problem file, and the arrays read from the files that it names."""
