"""The stand-alone checker's part for noise on the sphere, which uses only the standard library."""
