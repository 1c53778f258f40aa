"""Reports along a subject's trace: the sampler, and the private test that decides whether to repeat a report."""
