"""One instance of each figure, by its seed: what worker processes compute."""

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
    """Costs and overflows of one instance over delta."""
    rng = np.random.default_rng(seed)
    instance = matern(rng, costs=costs) if kind == "matern" else poisson(rng, costs=costs)
    trial = Trial.of(site_of(instance), deltas)
    setting = Setting()
    return trial.price(instance.clients, draw_noise(rng, len(instance.points), setting.epsilon), setting)


def over_epsilon(seed: int, epsilons: Sequence[float]) -> Any:
    """Return the same over the privacy budget."""
    rng = np.random.default_rng(seed)
    instance = matern(rng)
    n = len(instance.points)
    trial = Trial.of(site_of(instance), (None, 0.2))
    priced = [
        trial.price(instance.clients, draw_noise(rng, n, epsilon), Setting(epsilon=epsilon)) for epsilon in epsilons
    ]
    return np.array(priced)


def of_size(seed: int, n: int) -> Any:
    """One instance of n locations expected: costs and overflows, the optimum, and how often it was drawn again."""
    rng = np.random.default_rng([seed, n])
    instance = matern(rng, n=n)
    trial = Trial.of(site_of(instance), (None, 0.2))
    priced = trial.price(instance.clients, draw_noise(rng, len(instance.points), 0.1), Setting())
    return np.concatenate([priced.ravel(), [trial.optimum(instance.clients), instance.redrawn]])


def over_means(seed: int, means: Sequence[int], deltas: Sequence[float | None]) -> Any:
    """Over the mean count, the same at each location; ``auto`` last."""
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
    """Given locations and clients, facility costs drawn; ``auto`` last."""
    rng = np.random.default_rng(seed)
    n = len(points)
    site = Site(metric=Plane(points), cost=rng.uniform(0.1, 0.3, n))
    trial, setting = Trial.of(site, deltas), Setting()
    chooser, _ = trial.auto(setting)
    noise = draw_noise(rng, n, setting.epsilon)
    priced = trial.price(clients, noise, setting)
    return np.concatenate([priced.ravel(), trial.price_auto(chooser, clients, noise, setting)])


def repeated(seed: int, draws: int) -> Any:
    """Means over several draws of the noise."""
    rng = np.random.default_rng(seed)
    instance = matern(rng)
    n = len(instance.points)
    trial, setting = Trial.of(site_of(instance), (None, 0.2)), Setting()
    return np.mean([trial.price(instance.clients, draw_noise(rng, n, 0.1), setting) for _ in range(draws)], 0)


def auto_failing(seed: int, draws: int, mean: int) -> Any:
    """Return the share of draws in which ``auto`` overflows."""
    rng = np.random.default_rng([seed, mean])
    instance = matern(rng)
    n = len(instance.points)
    trial, setting = Trial.of(site_of(instance), (None,)), Setting()
    chooser, _ = trial.auto(setting)
    counts = np.full(n, mean)
    return np.mean([trial.price_auto(chooser, counts, draw_noise(rng, n, 0.1), setting)[1] for _ in range(draws)])
