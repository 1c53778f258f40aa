"""The checker's part for releases of counts, which shares no code with the mechanisms. Start with ``counts``."""
