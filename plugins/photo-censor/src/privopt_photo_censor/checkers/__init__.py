"""The part of the checker for photos: the standard library alone, no code shared with the rest."""
