"""Draw exactly from the Laplace distribution on the sphere, in integers, with a fast path in doubles."""
