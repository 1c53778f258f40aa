"""Exact sampling from the Laplace distribution on the sphere, using integer arithmetic with a fast path in doubles."""
