"""Reports about one subject along a trace: the private test for repeating the last report, and the sampler."""
