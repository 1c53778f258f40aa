"""Photo censor: delete photos from an album so that a classifier cannot tell where the album was taken.

The method is described in Yang, Chakrabarti and Vorobeychik, Protecting Geolocation Privacy of Photo Collections, AAAI
2020. This module only registers the mechanism and its privacy notion.
"""

from __future__ import annotations

from collections.abc import Sequence

from privopt.specs import KindSpec, MechanismSpec, MethodSpec, hookimpl


@hookimpl
def privopt_kinds() -> Sequence[KindSpec]:
    """Return the specification of the privacy notion ``top-k``."""
    summary = "the true place is not among a classifier's k best guesses"
    return [KindSpec(role="notion", name="top-k", target="privopt_photo_censor.privacy:TopK", summary=summary)]


@hookimpl
def privopt_mechanisms() -> Sequence[MechanismSpec]:
    """Return the specification of the mechanism ``photo-censor`` and its methods."""
    return [
        MechanismSpec(
            name="photo-censor",
            target="privopt_photo_censor.mechanism:PhotoCensor",
            guarantee="top-k",
            summary="the fewest photos to delete so that the place is not among a classifier's k best guesses",
            source="Yang, Chakrabarti, Vorobeychik: Protecting Geolocation Privacy of Photo Collections (AAAI 2020)",
            methods=[
                MethodSpec(name="optimal", summary="proved: branch and bound over places and photos"),
                MethodSpec(name="greedy", summary="the paper's baseline: delete the highest true-location scores"),
                MethodSpec(name="top-1", summary="the polynomial algorithm for top_k = 1"),
                MethodSpec(
                    name="positions",
                    summary="a folder without a classifier: what its files reveal, and clean copies of all photos",
                    guarantee="none",
                    consent=False,
                ),
            ],
        )
    ]
