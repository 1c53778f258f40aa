"""The checker's part for photos, which uses only the standard library and shares no code with the mechanism."""
