"""The part of the stand-alone checker for laws on the sphere, which uses only the standard library."""
