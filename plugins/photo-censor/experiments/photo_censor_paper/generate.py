"""Generate score matrices that are as hard as the paper's (section 5, Table 1), without its photos.

A location c has a feature vector mu_c. Locations come in regions whose members look alike, like the cells of a city. A
photo of location t shows ``a mu_t + e``, where e is normal noise and a says how telling the photo is, which differs
widely from photo to photo (log-normal). The classifier's logits for a photo f are ``f . mu_c - b |mu_c|^2 / 2``, and
its scores are their log-softmax. With standard normal e and a = b = 1 this is the exact posterior. Photos of a random
collection are independent. Those of an album share much of a and e, because they share photographer, day and motif. The
constants were fitted to Tables 1 to 3; `tests/test_generate.py` and the README compare the results with these tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, read_only
from privopt_photo_censor.album import Album

__all__ = ["COLLECTIONS", "World", "collections", "sizes"]

LOCATIONS: Final = 512
"""Number of locations."""
COLLECTIONS: Final = ("R-16", "R-32", "R-64", "R-128", "Albums")
"""The paper's collection types."""


@frozen(kw_only=True)
class Traits:
    """Constants of the generator.

    Attributes:
        dimensions: Number of features.
        spread: Mean length of a feature vector.
        alike: Share of a feature vector's square length that the locations of a region have in common.
        regions: Number of regions.
        telling: Standard deviation of log a.
        bias: The factor b of the logits.
        album_noise: Standard deviation of the part of e that all photos of an album have in common.
        photo_noise: Standard deviation of the part of e that belongs to one photo of an album.
        album_telling: Share of log a's variance that the photos of an album have in common.
    """

    dimensions: int = 160
    spread: float = 1.91
    alike: float = 0.70
    regions: int = 19
    telling: float = 0.665
    bias: float = 0.0
    album_noise: float = 0.95
    photo_noise: float = 1.45
    album_telling: float = 0.62


@frozen(kw_only=True, eq=False)
class World:
    """The locations as a classifier sees them.

    Attributes:
        features: (M, D) feature vectors mu of the M locations.
        traits: The constants of the generator.
    """

    features: Floats
    traits: Traits = Traits()

    @classmethod
    def draw(cls, rng: np.random.Generator, locations: int = LOCATIONS, traits: Traits | None = None) -> World:
        """Draw the feature vectors of locations.

        Args:
            rng: Source of randomness.
            locations: Number of locations.
            traits: The constants of the generator. None for the fitted ones.
        """
        traits = traits or Traits()
        regions = rng.standard_normal((traits.regions, traits.dimensions))
        member = rng.permutation(np.arange(locations) % traits.regions)
        own_features = rng.standard_normal((locations, traits.dimensions))
        features = np.sqrt(traits.alike) * regions[member] + np.sqrt(1.0 - traits.alike) * own_features
        return cls(features=read_only(traits.spread * features / np.sqrt(traits.dimensions)), traits=traits)

    def other(self, rng: np.random.Generator, difference: float) -> World:
        """Return the same locations with features that another classifier might have learnt.

        Args:
            rng: Source of randomness.
            difference: Share of each feature vector's square length that only the other classifier has, from 0 to 1.
        """
        own_features = rng.standard_normal(self.features.shape)
        own_features *= self.traits.spread / np.sqrt(self.traits.dimensions)
        features = np.sqrt(1.0 - difference) * self.features + np.sqrt(difference) * own_features
        return World(features=read_only(features), traits=self.traits)

    def scores(self, photos: Floats) -> Floats:
        """Return the classifier's log-probabilities (N, M) of the locations for photos (N, D)."""
        logits = photos @ self.features.T - 0.5 * self.traits.bias * (self.features**2).sum(axis=1)
        # The largest logit is subtracted first, so that exp does not overflow.
        shifted = logits - logits.max(axis=1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))

    def photos(self, rng: np.random.Generator, location: int, count: int) -> Floats:
        """Draw independent photos (count, D) of a location, given by its number."""
        telling = np.exp(self.traits.telling * rng.standard_normal((count, 1)))
        return np.asarray(telling * self.features[location] + rng.standard_normal((count, self.traits.dimensions)))

    def album(self, rng: np.random.Generator, location: int, count: int) -> Floats:
        """Draw the photos (count, D) of one photographer's album at a location, given by its number."""
        shared_weight, own_weight = np.sqrt(self.traits.album_telling), np.sqrt(1.0 - self.traits.album_telling)
        log_a = self.traits.telling * (
            shared_weight * rng.standard_normal() + own_weight * rng.standard_normal((count, 1))
        )
        noise = self.traits.album_noise * rng.standard_normal(self.traits.dimensions)
        noise = noise + self.traits.photo_noise * rng.standard_normal((count, self.traits.dimensions))
        return np.asarray(np.exp(log_a) * self.features[location] + noise)


def sizes(rng: np.random.Generator, count: int) -> list[int]:
    """Draw the sizes of albums: 16 to 250 photos, about 33 on average."""
    return [int(n) for n in np.minimum(16 + np.floor(rng.exponential(17.5, count)), 250)]


def collections(kind: str, count: int, seed: int = 0, worlds: int = 8) -> Iterator[Album]:
    """Draw collections of one of the paper's types, or ``"single"`` photos.

    Args:
        kind: One of :data:`COLLECTIONS`, or ``"single"``.
        count: Number of collections.
        seed: Seed of the collections.
        worlds: Number of different draws of the locations, which the collections use in turn.

    Raises:
        ValueError: There is no such type.
    """
    if kind != "single" and kind not in COLLECTIONS:
        raise ValueError(f"no collection type is called {kind!r}; expected single or one of {', '.join(COLLECTIONS)}")
    # Each type has its own random numbers; all types share the locations.
    rng = np.random.default_rng([seed, *kind.encode()])
    worlds_drawn = [World.draw(np.random.default_rng([seed, number])) for number in range(worlds)]
    lengths = sizes(rng, count) if kind == "Albums" else [1 if kind == "single" else int(kind[2:])] * count
    for number, length in enumerate(lengths):
        world = worlds_drawn[number % worlds]
        location = int(rng.integers(LOCATIONS))
        draw = world.album if kind == "Albums" else world.photos
        yield Album(scores=world.scores(draw(rng, location, length)), true=location)
