"""Exact sampling from the Laplace distribution on the sphere, in integer arithmetic with a fast path in doubles."""
