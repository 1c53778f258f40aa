"""The stand-alone checker knows every key of the problem files of photo-censor."""

import attrs

from privopt_photo_censor.checkers.photos import KEYS, PRIVACY_KEYS
from privopt_photo_censor.problem import Photos, Privacy


def test_checker_knows_every_key():
    # A key that the checker does not know makes it refuse releases that verify accepts.
    assert set(KEYS.split()) == {field.name for field in attrs.fields(Photos)}
    assert set(PRIVACY_KEYS.split()) == {field.name for field in attrs.fields(Privacy)}
