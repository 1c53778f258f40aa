"""Symmetries of an instance, which are permutations of records and outputs that leave it unchanged.

The LP is convex, so the average of an optimal mechanism over the symmetries is optimal too. It is therefore enough to
solve for one column per orbit of outputs and one row multiplier per orbit of records. A square grid has 8 symmetries,
so its LP has about an eighth of the columns and row sums.

Candidates are rotations and reflections of places in the plane or on the sphere. They are used only if they change no
cost and no distance by more than `RELATIVE_TOLERANCE`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, Ints
from privopt.execution.clock import check
from privopt_metric_dp.proof.lagrangian_bound import Few, Multipliers
from privopt_metric_dp.solvers.instance import Instance

__all__ = ["Symmetry", "find_symmetry"]

RELATIVE_TOLERANCE = 1e-12
"""The largest difference at which two costs or two distances count as equal, as a fraction of the largest cost or
distance."""
IMAGE_TOLERANCE = 1e-9
"""The largest distance between an image and the point it is matched with, relative to the largest distance from the
centre."""
MAX_GROUP_ORDER = 64
"""The maximum number of symmetries in a group. Larger groups are not used."""
MAX_SPHERE_MAPS = 4 * MAX_GROUP_ORDER
"""The maximum number of rotations and reflections of a sphere to try. Most candidates turn out to be
symmetries."""
MAX_COMPARED_RECORDS = 4_000
"""The maximum number of records on a sphere for which sums of distances are compared. The time grows with the square of
this number."""


@frozen(kw_only=True, eq=False)
class Symmetry:
    """A group of symmetries and its orbits.

    An orbit is a set of records, or of outputs, that are mapped to one another by symmetries.

    Attributes:
        records: Array of shape (G, N) with the image of each record under each member of the group.
        outputs: Array of shape (G, K) with the image of each output under each member of the group.
        orbit: Array of shape (N,) with the index of each record's orbit.
        representatives: Array of shape (R,) with one output from each orbit of outputs.
    """

    records: Ints
    outputs: Ints
    orbit: Ints
    representatives: Ints

    @classmethod
    def trivial(cls, instance: Instance) -> Symmetry:
        """Return the group that consists only of the identity."""
        n, k = np.arange(instance.records), np.arange(instance.outputs)
        return cls(records=n[None], outputs=k[None], orbit=n, representatives=k)

    @property
    def size(self) -> Ints:
        """Array of shape (O,) with the number of records in each orbit."""
        return np.bincount(self.orbit)

    def average(self, values: Floats) -> Floats:
        """Return ``values``, of shape (N,), with each record's value replaced by the mean over its orbit."""
        if self.order == 1:
            return values
        return np.asarray((np.bincount(self.orbit, values) / self.size)[self.orbit])

    def keep_representatives(self, instance: Instance) -> Instance:
        """Return the instance with only the representative outputs, one from each orbit."""
        return instance if self.order == 1 else evolve(instance, cost=instance.cost[:, self.representatives])

    @property
    def order(self) -> int:
        """The number of symmetries."""
        return len(self.records)

    def lift(self, columns: Floats) -> Floats:
        """Return the symmetric mechanism whose columns have the given sums over each orbit of outputs.

        Args:
            columns: Array of shape (N, R) with the sums of the columns over each orbit, in the order of the
                representatives.

        Returns:
            Array of shape (N, K) with the mechanism over all outputs.
        """
        if self.order == 1:
            return columns
        z = np.zeros((self.records.shape[1], self.outputs.shape[1]))
        for records, outputs in zip(self.records, self.outputs, strict=True):
            # This computes the average over the group. Each symmetry moves the columns to other outputs and their
            # entries to other records.
            z[np.ix_(records, outputs[self.representatives])] += columns / self.order
        return z

    def origin(self) -> tuple[Ints, Ints]:
        """Return the orbit of each output, and a symmetry that maps the orbit's representative to the output.

        Returns:
            Two arrays of shape (K,): the index of each output's representative in ``representatives``, and the index of
            the symmetry.
        """
        orbit_number = np.zeros(self.outputs.shape[1], dtype=np.int64)
        member = np.full(self.outputs.shape[1], -1, dtype=np.int64)
        # Symmetries are visited in descending order. If several qualify, the one with the lowest index remains.
        for g in range(self.order - 1, -1, -1):
            image = self.outputs[g][self.representatives]
            orbit_number[image], member[image] = np.arange(len(image)), g
        return orbit_number, member

    def lift_multipliers(self, instance: Instance, columns: Multipliers) -> Multipliers:
        """Turn multipliers for the representatives into multipliers for all outputs.

        An output's multipliers are the images of its representative's multipliers under a symmetry that maps the
        representative to the output.

        Args:
            instance: The instance with all outputs.
            columns: The multipliers for the representatives, indexed in the order of the representatives.
        """
        if self.order == 1:
            return columns
        n, pairs = instance.records, instance.pairs
        # Each pair is encoded as a number. Pairs are sorted, so a binary search finds the image of a pair.
        number = pairs[:, 0] * n + pairs[:, 1]

        def move_pairs(g: int) -> tuple[Ints, Ints]:
            """Return the image of each pair under a symmetry, and whether the image is reversed.

            Args:
                g: The index of the symmetry.

            Returns:
                Two arrays of shape (P,): the index of each pair's image, and a sign. The sign is -1 if the symmetry
                maps the pair's first record to the second record of the image, and 1 otherwise.
            """
            i, j = self.records[g][pairs[:, 0]], self.records[g][pairs[:, 1]]
            to = np.searchsorted(number, np.minimum(i, j) * n + np.maximum(i, j))
            return to, np.where(i > j, -1, 1)

        def rows() -> Iterator[Few]:
            """Yield the multipliers for each output whose representative has any.

            Yields:
                The index of the output, the indices of its pairs, and the multipliers for these pairs.
            """
            rows_by_output = {k: (places, values) for k, places, values in columns.rows()}
            orbit_number, member = self.origin()
            moves = {g: move_pairs(g) for g in np.unique(member).tolist()}
            for k, (source, g) in enumerate(zip(orbit_number.tolist(), member.tolist(), strict=True)):
                if source in rows_by_output:
                    (places, values), (to, sign) = rows_by_output[source], moves[g]
                    # The sign of a multiplier says to which of the pair's two rows it belongs. If the image of a pair
                    # is reversed, the two rows are exchanged.
                    yield k, to[places], values * sign[places]

        # `many` is the expected number of multipliers, from which `prove` judges whether a proof may be long. An orbit
        # has at most as many outputs as there are symmetries, so the product is an upper estimate.
        return Multipliers(rows=rows, many=columns.many * self.order)


def _iter_images(points: Floats) -> Iterator[Ints]:
    """Yield the permutations of points in a plane that are induced by rotations and reflections about their mean.

    A map is determined by the images of two points that are not collinear with the mean. Only images at the same
    distances from the mean and from each other are considered. At most `MAX_GROUP_ORDER` + 1 maps are tried, because a
    larger group would not be used.

    Args:
        points: Array of shape (N, 2) with the points.

    Yields:
        Array of shape (N,) with the index of the point that each point is mapped to.
    """
    from scipy.spatial import KDTree

    points = points - points.mean(axis=0)
    radius = np.linalg.norm(points, axis=1)
    tolerance = IMAGE_TOLERANCE * float(radius.max())
    order = np.argsort(radius, kind="stable")[::-1]
    anchor = int(order[0])
    # The anchor is the point that is farthest from the mean. `turned` is perpendicular to the vector from the mean to
    # it.
    turned = points[anchor] @ np.array([[0.0, 1.0], [-1.0, 0.0]])
    # The second point of the basis must be clearly off the line through the anchor and the mean, so that the inverse is
    # accurate.
    is_off_line = np.abs(points[order] @ turned) > np.sqrt(IMAGE_TOLERANCE) * radius[anchor] ** 2
    tree = KDTree(points)
    # Maps are matrices that multiply points, as rows, from the right.
    if not is_off_line.any():  # all points lie on one line, which can only be left as it is or reversed
        maps = [np.eye(2), -np.eye(2)]
    else:
        second = int(order[is_off_line.argmax()])
        # `back` maps a point to its coordinates in the basis of the two points. The images of the two must have the
        # same distances from the mean, and from each other, as the two points.
        back, between = np.linalg.inv(points[[anchor, second]]), np.linalg.norm(points[anchor] - points[second])
        first_images, second_images = (
            np.flatnonzero(np.abs(radius - radius[p]) <= tolerance) for p in (anchor, second)
        )
        maps = [
            back @ points[[image_first, image_second]]
            for image_first in first_images
            for image_second in second_images[
                np.abs(np.linalg.norm(points[second_images] - points[image_first], axis=1) - between) <= tolerance
            ]
        ]
    for turn in maps[: MAX_GROUP_ORDER + 1]:
        check()
        errors, image = tree.query(points @ turn)
        if errors.max() <= tolerance and len(np.unique(image)) == len(image):
            yield image.astype(np.int64)


def _sphere_invariants(points: Floats) -> Floats:
    """For each unit vector in a set, return two numbers that are invariant under symmetries of the set.

    These are the vector's distance from the mean of the set, and the sum of its distances from all other vectors. Both
    are scaled so that the largest value over the set is 1. If there are more than `MAX_COMPARED_RECORDS` vectors, the
    sums are 0.

    Args:
        points: Array of shape (N, 3) with the unit vectors.

    Returns:
        Array of shape (N, 2) with the two numbers for each vector.
    """
    from_mean = np.linalg.norm(points - points.mean(axis=0), axis=1)
    sums = np.zeros(len(points))
    if len(points) <= MAX_COMPARED_RECORDS:
        # Blocks of rows limit memory use.
        for start in range(0, len(points), 256):
            differences = points[start : start + 256, None, :] - points[None, :, :]
            sums[start : start + 256] = np.sqrt(np.square(differences).sum(axis=2)).sum(axis=1)
    numbers = np.column_stack([from_mean, sums])
    return np.asarray(numbers / np.maximum(numbers.max(axis=0), np.finfo(np.float64).tiny))


def _iter_sphere_images(points: Floats) -> Iterator[Ints]:
    """Yield the permutations of unit vectors that are induced by rotations and reflections of the sphere.

    A map is determined, up to a reflection, by the images of two points that are neither equal nor opposite. Two such
    points are selected. Candidates for their images are pairs of points with the same invariants and the same distance
    from each other. At most `MAX_SPHERE_MAPS` maps are tried.

    Args:
        points: Array of shape (N, 3) with the unit vectors.

    Yields:
        Array of shape (N,) with the index of the point that each point is mapped to.
    """
    from scipy.spatial import KDTree

    invariants = _sphere_invariants(points)
    is_like = [
        np.abs(invariants - invariants[point]).max(axis=1) <= IMAGE_TOLERANCE for point in range(min(64, len(points)))
    ]
    # The anchor is the one of the first 64 points with the fewest possible images. The second point is the one that
    # gives the best conditioned basis.
    anchor = int(np.argmin([like.sum() for like in is_like]))
    second = int(np.linalg.norm(np.cross(points[anchor], points), axis=1).argmax())
    between = float(np.linalg.norm(points[anchor] - points[second]))
    if between == 0.0:
        return
    back = np.linalg.inv(_frame(points[anchor], points[second], 1.0))
    first_images = np.flatnonzero(is_like[anchor])
    second_images = np.flatnonzero(np.abs(invariants - invariants[second]).max(axis=1) <= IMAGE_TOLERANCE)
    maps = (
        back @ _frame(points[image_first], points[image_second], handedness)
        for image_first in first_images
        for image_second in second_images[
            np.abs(np.linalg.norm(points[second_images] - points[image_first], axis=1) - between) <= IMAGE_TOLERANCE
        ]
        for handedness in (1.0, -1.0)
    )
    tree = KDTree(points)
    for turn in islice(maps, MAX_SPHERE_MAPS):
        check()
        errors, image = tree.query(points @ turn)
        if errors.max() <= IMAGE_TOLERANCE and len(np.unique(image)) == len(image):
            yield image.astype(np.int64)


def _frame(first: Floats, second: Floats, handedness: float) -> Floats:
    """Return a 3 by 3 matrix whose rows are two unit vectors and the unit normal to their plane.

    If the handedness is -1, the normal is reversed.
    """
    normal = np.cross(first, second)
    return np.stack([first, second, handedness * normal / np.linalg.norm(normal)])


def _outputs_image(cost: Floats, records: Ints, probe: Floats) -> Ints | None:
    """Find the permutation of the outputs that preserves the costs under a given permutation of the records.

    A random linear combination of the rows gives one number for each column. Sorting these numbers before and after the
    permutation of the records gives the only candidate, which is then checked against all costs.

    Args:
        cost: Array of shape (N, K) with the costs.
        records: Array of shape (N,) with the image of each record under the given permutation.
        probe: Array of shape (N,) with a random weight for each row.

    Returns:
        Array of shape (K,) with the image of each output, or None if there is no such permutation.
    """
    image = np.empty(cost.shape[1], dtype=np.int64)
    # One number for each column of the costs, and for each column of the costs with permuted rows. Equal columns have
    # equal numbers.
    probed, probed_images = probe @ cost, probe @ cost[records]
    image[np.argsort(probed)] = np.argsort(probed_images)
    scale = float(np.abs(cost).max())
    # Rows are compared in blocks of two million entries to limit memory use.
    step = max(1, 2_000_000 // cost.shape[1])
    for a in range(0, len(cost), step):
        part = cost[np.ix_(records[a : a + step], image)]
        if np.abs(part - cost[a : a + step]).max() > RELATIVE_TOLERANCE * scale:
            return None
    return image


def _keeps_pairs(instance: Instance, records: Ints) -> bool:
    """Return whether a permutation of the records maps required pairs to required pairs at the same distance."""
    n = instance.records
    i, j = instance.pairs.T
    number = i * n + j
    a, b = records[i], records[j]
    moved = np.minimum(a, b) * n + np.maximum(a, b)
    # The cap keeps the index in range if an image is not a required pair, which the comparison below rejects.
    to = np.minimum(np.searchsorted(number, moved), len(number) - 1)
    has_equal_distance = (
        np.abs(instance.distances[to] - instance.distances) <= RELATIVE_TOLERANCE * instance.distances.max()
    )
    return bool((number[to] == moved).all() and has_equal_distance.all())


def _verify_images(instance: Instance) -> list[tuple[Ints, Ints]]:
    """Return the permutations of the records and the outputs that together preserve pairs and costs.

    Args:
        instance: A connected instance.

    Returns:
        The permutations, as one pair per symmetry. The list is empty if there are fewer than two records, or if the
        records have no positions in a plane or on a sphere.

    Raises:
        OutOfTime: The time limit expired.
    """
    points = instance.coordinates
    if points is None or len(points) < 2:
        return []
    is_on_sphere = points.shape[1] == 3 and bool((np.abs(np.linalg.norm(points, axis=1) - 1) <= IMAGE_TOLERANCE).all())
    if points.shape[1] != 2 and not is_on_sphere:
        return []
    # The seed is fixed so that runs are reproducible. If two different columns have the same number by chance, the
    # permutation fails the comparison of costs and is not used.
    probe = np.random.default_rng(1).uniform(1, 2, instance.records)
    members = []
    for records in _iter_sphere_images(points) if is_on_sphere else _iter_images(points):
        check()
        outputs = _outputs_image(instance.cost, records, probe) if _keeps_pairs(instance, records) else None
        if outputs is not None:
            members.append((records, outputs))
    return members


def find_symmetry(instance: Instance) -> Symmetry:
    """Return the symmetries of a connected instance, or the trivial group if there are none or too many.

    Raises:
        OutOfTime: The time limit expired.
    """
    members = _verify_images(instance)
    # Images were matched within a tolerance, so the permutations may fail to form a group, which averaging over orbits
    # requires. It is enough that they are closed under composition.
    if not 1 < len(members) <= MAX_GROUP_ORDER or not _is_group(members):
        return Symmetry.trivial(instance)
    records = np.stack([m[0] for m in members])
    outputs = np.stack([m[1] for m in members])
    # The smallest image under all members is the same for all records in an orbit, so it identifies the orbit.
    orbit = np.unique(records.min(axis=0), return_inverse=True)[1]
    return Symmetry(records=records, outputs=outputs, orbit=orbit, representatives=np.unique(outputs.min(axis=0)))


def _is_group(members: list[tuple[Ints, Ints]]) -> bool:
    """Return whether the given permutations of records and outputs are closed under composition."""
    keys = {records.tobytes() + outputs.tobytes() for records, outputs in members}
    return all(a[0][b[0]].tobytes() + a[1][b[1]].tobytes() in keys for a in members for b in members)
