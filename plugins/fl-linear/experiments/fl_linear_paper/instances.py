"""Compute one instance of each figure, given its seed, in a worker process.

Costs and overflows are those of `Trial.price`: the normalised cost, and whether some facility overflows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fl_linear_paper.generate import Instance, matern, poisson
from fl_linear_paper.trials import Setting, Trial, draw_noise
from privopt_fl_linear.metric import Plane
from privopt_fl_linear.site import Site

__all__ = ["auto_failing", "in_town", "of_size", "over_delta", "over_epsilon", "over_means", "repeated", "site_of"]


def site_of(instance: Instance) -> Site:
    """Return the public part of an instance."""
    return Site(metric=Plane(instance.points), cost=instance.cost)


def over_delta(seed: int, kind: str, costs: tuple[float, float], deltas: Sequence[float | None]) -> Any:
    """Return costs and overflows (deltas, 2, 2) of one instance over the reconnection radius.

    Args:
        seed: Seed of the instance and the noise.
        kind: ``"matern"`` or ``"poisson"``.
        costs: Interval of the facility costs.
        deltas: The radii; None for ``laplace``.
    """
    rng = np.random.default_rng(seed)
    instance = matern(rng, costs=costs) if kind == "matern" else poisson(rng, costs=costs)
    trial = Trial.of(site_of(instance), deltas)
    setting = Setting()
    return trial.price(instance.clients, draw_noise(rng, len(instance.points), setting.epsilon), setting)


def over_epsilon(seed: int, epsilons: Sequence[float]) -> Any:
    """Return costs and overflows (epsilons, 2, 2, 2) of one Matern instance over epsilon.

    The second axis has ``laplace`` and delta 0.2; the last two axes are those of `Trial.price`.
    """
    rng = np.random.default_rng(seed)
    instance = matern(rng)
    n = len(instance.points)
    trial = Trial.of(site_of(instance), (None, 0.2))
    priced = [
        trial.price(instance.clients, draw_noise(rng, n, epsilon), Setting(epsilon=epsilon)) for epsilon in epsilons
    ]
    return np.array(priced)


def of_size(seed: int, n: int) -> Any:
    """Return the results of one Matern instance with n expected locations, as a flat array.

    These are costs and overflows (2, 2, 2) of ``laplace`` and delta 0.2, the optimum, and how often the instance was
    drawn again.
    """
    rng = np.random.default_rng([seed, n])
    instance = matern(rng, n=n)
    trial = Trial.of(site_of(instance), (None, 0.2))
    priced = trial.price(instance.clients, draw_noise(rng, len(instance.points), 0.1), Setting())
    return np.concatenate([priced.ravel(), [trial.optimum(instance.clients), instance.redrawn]])


def over_means(seed: int, means: Sequence[int], deltas: Sequence[float | None]) -> Any:
    """Return the results of one Matern instance at several counts, each the same at all locations.

    Args:
        seed: Seed of the instance and the noise.
        means: The counts.
        deltas: Reconnection radii; None for ``laplace``.

    Returns:
        A row for each count: costs and overflows (deltas, 2, 2) as a flat array, then the cost and overflow of "auto".
    """
    rng = np.random.default_rng(seed)
    instance = matern(rng)
    n = len(instance.points)
    trial, setting = Trial.of(site_of(instance), deltas), Setting()
    chooser, _ = trial.auto(setting)
    results = []
    for mean in means:
        counts, noise = np.full(n, mean), draw_noise(rng, n, setting.epsilon)
        priced = trial.price(counts, noise, setting)
        auto = trial.price_auto(chooser, counts, noise, setting)
        results.append(np.concatenate([priced.ravel(), auto]))
    return np.array(results)


def in_town(seed: int, points: Any, clients: Any, deltas: Sequence[float | None]) -> Any:
    """Draw facility costs for given locations and clients, and return the results as a flat array.

    Args:
        seed: Seed of the facility costs and the noise.
        points: (n, 2) locations.
        clients: (n,) clients of each location.
        deltas: Reconnection radii; None for ``laplace``.

    Returns:
        Costs and overflows (deltas, 2, 2), then the cost and overflow of "auto".
    """
    rng = np.random.default_rng(seed)
    n = len(points)
    site = Site(metric=Plane(points), cost=rng.uniform(0.1, 0.3, n))
    trial, setting = Trial.of(site, deltas), Setting()
    chooser, _ = trial.auto(setting)
    noise = draw_noise(rng, n, setting.epsilon)
    priced = trial.price(clients, noise, setting)
    return np.concatenate([priced.ravel(), trial.price_auto(chooser, clients, noise, setting)])


def repeated(seed: int, draws: int) -> Any:
    """Return the means of costs and overflows (2, 2, 2) of ``laplace`` and delta 0.2 over several draws of the noise.

    Args:
        seed: Seed of the Matern instance and the noise.
        draws: Number of draws.
    """
    rng = np.random.default_rng(seed)
    instance = matern(rng)
    n = len(instance.points)
    trial, setting = Trial.of(site_of(instance), (None, 0.2)), Setting()
    return np.mean([trial.price(instance.clients, draw_noise(rng, n, 0.1), setting) for _ in range(draws)], 0)


def auto_failing(seed: int, draws: int, mean: int) -> Any:
    """Return the share of draws of the noise in which a plan of "auto" overflows.

    Args:
        seed: Seed of the Matern instance and the noise.
        draws: Number of draws.
        mean: Number of clients of every location.
    """
    rng = np.random.default_rng([seed, mean])
    instance = matern(rng)
    n = len(instance.points)
    trial, setting = Trial.of(site_of(instance), (None,)), Setting()
    chooser, _ = trial.auto(setting)
    counts = np.full(n, mean)
    return np.mean([trial.price_auto(chooser, counts, draw_noise(rng, n, 0.1), setting)[1] for _ in range(draws)])
