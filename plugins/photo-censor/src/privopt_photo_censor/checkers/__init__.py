"""The part of the stand-alone checker that checks photo-censor releases.

It uses only the standard library and shares no code with the mechanism.
"""
