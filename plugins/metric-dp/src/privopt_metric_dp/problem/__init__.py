"""The metric problem: the keys of the problem file, and the arrays read from the files that it names."""
