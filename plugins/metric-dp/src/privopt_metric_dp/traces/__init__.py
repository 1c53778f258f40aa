"""Sample reports along a subject's trace, with a private test that decides whether to repeat the previous report."""
