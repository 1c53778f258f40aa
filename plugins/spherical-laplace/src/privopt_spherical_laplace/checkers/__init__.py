"""The part of the stand-alone checker for spherical-laplace releases, which uses only the standard library."""
