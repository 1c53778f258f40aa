"""The part of the stand-alone checker that checks spherical-laplace releases. It uses only the standard library."""
