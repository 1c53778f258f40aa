"""Python functions that build metric problems in memory."""
