"""Score matrices as hard as the paper's, without its photos (its section 5, Table 1; mathematics P8).

A location c has a feature vector mu_c; locations come in regions whose members look alike, as cells of one city do.
A photo of location t shows ``a mu_t + e``: how telling it is, a, differs widely from photo to photo (log-normal), e is
standard normal. The classifier's logits are ``f . mu_c - b |mu_c|^2 / 2``, and its scores their log-softmax: at a = 1
and b = 1 the very posterior. Photos of a random collection are independent; those of an album share much of a and e,
as they share photographer, day and motif. The constants were fitted to Tables 1 to 3; `tests/test_generate.py` and the
README hold them to it.
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
COLLECTIONS: Final = ("R-16", "R-32", "R-64", "R-128", "Albums")
"""The paper's collection types."""


@frozen(kw_only=True)
class Traits:
    """Constants of the generator.

    Attributes:
        dimensions: of the features.
        spread: mean length of a feature vector.
        alike: share of a feature vector's square length that its region has in common.
        regions: number of regions.
        telling: standard deviation of log a.
        bias: b.
        album_noise: standard deviation of what all photos of an album show beside the place.
        photo_noise: of what each of them shows by itself.
        album_telling: share of log a's variance that the photos of an album have in common.
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
    """Locations as a classifier sees them.

    Attributes:
        features: (M, D) mu.
        traits: how photos are drawn.
    """

    features: Floats
    traits: Traits = Traits()

    @classmethod
    def draw(cls, rng: np.random.Generator, locations: int = LOCATIONS, traits: Traits | None = None) -> World:
        """Draw a world of so many locations."""
        traits = traits or Traits()
        regions = rng.standard_normal((traits.regions, traits.dimensions))
        member = rng.permutation(np.arange(locations) % traits.regions)
        own_features = rng.standard_normal((locations, traits.dimensions))
        features = np.sqrt(traits.alike) * regions[member] + np.sqrt(1.0 - traits.alike) * own_features
        return cls(features=read_only(traits.spread * features / np.sqrt(traits.dimensions)), traits=traits)

    def other(self, rng: np.random.Generator, difference: float) -> World:
        """Return the same world as another classifier learnt it: `apart` of each feature's square length is its own."""
        own_features = rng.standard_normal(self.features.shape)
        own_features *= self.traits.spread / np.sqrt(self.traits.dimensions)
        features = np.sqrt(1.0 - difference) * self.features + np.sqrt(difference) * own_features
        return World(features=read_only(features), traits=self.traits)

    def scores(self, photos: Floats) -> Floats:
        """(N, M) log-probabilities of photos (N, D)."""
        logits = photos @ self.features.T - 0.5 * self.traits.bias * (self.features**2).sum(axis=1)
        shifted = logits - logits.max(axis=1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))

    def photos(self, rng: np.random.Generator, location: int, count: int) -> Floats:
        """(count, D) independent photos of a location."""
        telling = np.exp(self.traits.telling * rng.standard_normal((count, 1)))
        return np.asarray(telling * self.features[location] + rng.standard_normal((count, self.traits.dimensions)))

    def album(self, rng: np.random.Generator, location: int, count: int) -> Floats:
        """(count, D) photos of one photographer's album."""
        shared_weight, own_weight = np.sqrt(self.traits.album_telling), np.sqrt(1.0 - self.traits.album_telling)
        log_a = self.traits.telling * (
            shared_weight * rng.standard_normal() + own_weight * rng.standard_normal((count, 1))
        )
        noise = self.traits.album_noise * rng.standard_normal(self.traits.dimensions)
        noise = noise + self.traits.photo_noise * rng.standard_normal((count, self.traits.dimensions))
        return np.asarray(np.exp(log_a) * self.features[location] + noise)


def sizes(rng: np.random.Generator, count: int) -> list[int]:
    """Sizes of albums: 16 to 250 photos, 33 in the mean."""
    return [int(n) for n in np.minimum(16 + np.floor(rng.exponential(17.5, count)), 250)]


def collections(kind: str, count: int, seed: int = 0, worlds: int = 8) -> Iterator[Album]:
    """Draw collections of one of the paper's types, or ``"single"`` photos.

    Args:
        kind: one of :data:`COLLECTIONS`, or ``"single"``.
        count: how many.
        seed: the same collections for the same seed.
        worlds: different worlds that they are of.

    Raises:
        ValueError: no such type.
    """
    if kind != "single" and kind not in COLLECTIONS:
        raise ValueError(f"no collection type is called {kind!r}; expected single or one of {', '.join(COLLECTIONS)}")
    rng = np.random.default_rng([seed, *kind.encode()])
    worlds_drawn = [World.draw(np.random.default_rng([seed, number])) for number in range(worlds)]
    lengths = sizes(rng, count) if kind == "Albums" else [1 if kind == "single" else int(kind[2:])] * count
    for number, length in enumerate(lengths):
        world = worlds_drawn[number % worlds]
        location = int(rng.integers(LOCATIONS))
        draw = world.album if kind == "Albums" else world.photos
        yield Album(scores=world.scores(draw(rng, location, length)), true=location)
