"""Evenly spread points on a sphere: a spiral of the golden angle, and sets that the icosahedron's rotations keep.

A set of 60 m points that is kept by all 60 rotations of the icosahedron needs only m outputs in the program of
``optimal-lp``, one of each orbit. The m points are moved until the energy of 60 m equal charges is least.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

ORDER = 60
"""Number of rotations of the icosahedron."""


def spiral_positions(count):
    """Return latitudes and longitudes in degrees (count, 2) of a spiral of the golden angle."""
    numbers = np.arange(count) + 0.5
    longitudes = np.degrees(np.pi * (1 + 5**0.5) * numbers) % 360 - 180
    return np.column_stack([np.degrees(np.arcsin(1 - 2 * numbers / count)), longitudes])


def icosahedral_rotations():
    """Return the rotations that keep an icosahedron, as matrices (60, 3, 3)."""
    golden, signs = (1 + 5**0.5) / 2, (-1.0, 1.0)
    plane = [(0.0, a, b * golden) for a in signs for b in signs]
    corners = np.array([np.roll(corner, shift) for shift in range(3) for corner in plane])
    corners /= np.linalg.norm(corners[0])
    distances = np.linalg.norm(corners[:, None] - corners[None], axis=2)
    edge = distances[distances > 1e-9].min()

    def frame(first, second):
        return np.stack([corners[first], corners[second], np.cross(corners[first], corners[second])], axis=1)

    edges = np.argwhere(np.abs(distances - edge) < 1e-9)
    # A rotation is determined by where it takes one directed edge, and there are 60 of these.
    back = np.linalg.inv(frame(*edges[0]))
    return np.array([frame(*ends) @ back for ends in edges])


def _energy(flat, rotations):
    """Return the energy of the charges at the images of points, and its gradient."""
    points = flat.reshape(-1, 3)
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    unit = points / lengths
    images = np.einsum("gab,jb->gja", rotations, unit)
    differences = unit[:, None, None, :] - images[None]
    squares = np.square(differences).sum(axis=3)
    # A point does not repel itself; exactly one rotation is the identity.
    identity = int(np.abs(rotations - np.eye(3)).max(axis=(1, 2)).argmin())
    numbers = np.arange(len(points))
    squares[numbers, identity, numbers] = np.inf
    gradient = -2 * (squares[..., None] ** -1.5 * differences).sum(axis=(1, 2))
    along = (gradient * unit).sum(axis=1, keepdims=True)
    return float((squares**-0.5).sum()), ((gradient - along * unit) / lengths).ravel()


def icosahedral_positions(orbits, seed=1):
    """Return latitudes and longitudes in degrees (60 x orbits, 2) of a set that the icosahedron's rotations keep."""
    rotations = icosahedral_rotations()
    start = np.random.default_rng(seed).normal(size=(orbits, 3))
    least = minimize(_energy, start.ravel(), args=(rotations,), jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    points = least.x.reshape(-1, 3)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    images = np.einsum("gab,jb->gja", rotations, points).reshape(-1, 3)
    latitudes = np.degrees(np.arcsin(np.clip(images[:, 2], -1.0, 1.0)))
    return np.column_stack([latitudes, np.degrees(np.arctan2(images[:, 1], images[:, 0]))])


def write_sphere_problem(folder, positions, epsilon):
    """Write a problem over positions, all pairs, uniform prior, the loss the distance; returns the problem file."""
    rows = [f"{row},{latitude!r},{longitude!r}\n" for row, (latitude, longitude) in enumerate(positions.tolist())]
    (folder / "points.csv").write_text("id,lat,lon\n" + "".join(rows))
    toml = f'[records]\npoints = "points.csv"\n[distance]\nkind = "haversine"\n[privacy]\nepsilon = {epsilon}\n'
    (folder / "p.toml").write_text(toml + '[utility]\nkind = "distance"\n')
    return folder / "p.toml"
