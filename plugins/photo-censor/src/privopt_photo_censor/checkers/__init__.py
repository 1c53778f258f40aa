"""The checker's part for photos: the standard library only, no code shared with the mechanism."""
