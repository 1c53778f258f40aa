"""The checker for releases of counts, which shares no code with the mechanisms. Start reading at ``counts``."""
