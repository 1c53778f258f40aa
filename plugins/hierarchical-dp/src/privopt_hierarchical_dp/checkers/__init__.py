"""The checker for releases of counts, which shares no code with the mechanisms. Its entry point is ``counts``."""
