"""The part of the stand-alone checker for spherical-laplace releases. It uses only the standard library."""
