"""The problem file for photo-censor, and the scores or photos that it names.

:class:`PhotoProblem` is the problem file. :class:`PhotoInstance` adds the data: a table of scores, a folder of photos
scored by a classifier, or a folder of photos without a classifier. In the last case, the files are examined only for
what they reveal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import field, frozen

from privopt.arrays import Floats
from privopt.declare import File, Folder, at_least, key, non_negative, positive
from privopt.errors import Fault, Faults, InputError, number_of
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.app.classifier import Classifier, load_classifier
from privopt_photo_censor.app.folder import find_album_place, look_at_folder
from privopt_photo_censor.app.metadata import FolderContents
from privopt_photo_censor.app.open_photo import MAX_MEGAPIXELS
from privopt_photo_censor.score_table import read_scores_of

__all__ = ["PhotoInstance", "PhotoProblem", "Photos", "Privacy"]


@frozen(kw_only=True)
class Photos:
    """The ``[photos]`` table of a problem file: the source of the scores, and the photos that must be kept."""

    scores: File | None = key(None, help="log-probabilities (photos, locations), .npy or .csv with a header")
    probabilities: File | None = key(None, help="the same as probabilities, each photo's summing to 1")
    folder: Folder | None = key(None, help="folder of JPEG, PNG, WebP or HEIC photos, scored by the classifier")
    classifier: File | None = key(None, help="TOML with an ONNX model: input size, normalisation, centres of places")
    true_location: int | None = key(None, help="the column of the true location, from 0", check=non_negative)
    keep: tuple[int | str, ...] = key((), help="photos never to delete: rows from 0, or file names")
    keep_at_least: int = key(1, help="photos that must remain; 0 allows deleting all", check=non_negative)
    max_megapixels: float = key(
        MAX_MEGAPIXELS, help="larger photos of a folder are listed and left out", unit="million pixels", check=positive
    )


@frozen(kw_only=True)
class Privacy:
    """The ``[privacy]`` table of a problem file, with the margin and either ``top_k`` or a deletion budget."""

    top_k: int | None = key(None, help="fewest deletions so that the place is not among the k best", check=at_least(1))
    deletion_budget: int | None = key(
        None, help="highest protected k with at most this number of deletions", unit="photos", check=non_negative
    )
    margin: float = key(
        0.0,
        help="theta, for other classifiers too: how far their log-odds of two places may differ in each photo; 0.7 is "
        "a factor of 2 in the odds",
        check=non_negative,
    )


@frozen(kw_only=True)
class PhotoProblem:
    """A problem file for photo-censor: an album of photos taken in one place, and the guarantee for a release."""

    photos: Photos = key(help="scores, the true location, what must stay")
    privacy: Privacy = key(factory=Privacy, help="a top-k or a deletion budget; none of a folder without a classifier")

    @property
    def is_scored(self) -> bool:
        """Whether the photos have scores.

        This is the case unless the problem names a folder but no classifier.
        """
        return self.photos.folder is None or self.photos.classifier is not None

    @property
    def task(self) -> Task:
        """The top-k or budget task. Only defined if the photos have scores."""
        return Task(top_k=self.privacy.top_k, budget=self.privacy.deletion_budget)


@frozen(kw_only=True, eq=False)
class PhotoInstance:
    """A loaded problem: the problem file, together with the photos' scores or the contents of their folder.

    Attributes:
        declared: The problem file.
        file: The name of the problem file, for error messages.
        names: The photos' file names, or their row numbers from 0 if they have no names.
        _album: The scores. None for a folder without a classifier.
        folder_contents: The contents of the folder other than the scored pictures. None if the problem names no folder.
        places: The names of the places, or an empty tuple if they are unknown.
        model: The classifier that scored the folder and will score the clean copies. None if no classifier is loaded.
    """

    declared: PhotoProblem
    file: str
    names: tuple[str, ...]
    _album: Album | None = None
    folder_contents: FolderContents | None = None
    places: tuple[str, ...] = field(default=(), repr=False)
    model: Classifier | None = field(default=None, repr=False)

    @property
    def album(self) -> Album:
        """The album with its scores. Only defined if the problem has scores (see :attr:`PhotoProblem.is_scored`)."""
        assert self._album is not None  # every caller checks is_scored first
        return self._album

    @property
    def folder(self) -> FolderContents:
        """The contents of the folder other than the scored pictures. Only defined if the problem names a folder."""
        assert self.folder_contents is not None  # every caller has checked that the problem names a folder
        return self.folder_contents

    @classmethod
    def of(cls, declared: PhotoProblem, file: str) -> PhotoInstance:
        """Load the data of a problem: read its table of scores, or examine the photos in its folder and score them.

        The photos in a folder are scored only if the problem names a classifier.

        Args:
            declared: The problem file.
            file: The name of the problem file, for error messages.

        Raises:
            InputError: The problem file or the data named in it is invalid. The exception may list several errors.
        """
        # The keys are checked before any photo is opened, because opening photos may take long.
        _find_key_faults(declared, file).check()
        photos, true = declared.photos, declared.photos.true_location
        if photos.folder is None:
            source = photos.scores or photos.probabilities
            assert source is not None  # _find_key_faults requires exactly one source
            assert true is not None
            scores, names, places = read_scores_of(source, probabilities=photos.probabilities is not None)
            return cls.from_scores(declared, file, scores, names, true, places=places)
        folder = photos.folder.path
        assert folder is not None  # it is None only in a published copy, which `reopen` reads instead
        model = None if photos.classifier is None else load_classifier(photos.classifier.here)
        folder_contents, tensors = look_at_folder(folder, model, photos.max_megapixels)
        # Without a classifier, the folder is only examined, and there is no album.
        if model is None:
            return cls(declared=declared, file=file, names=folder_contents.names, folder_contents=folder_contents)
        # If the problem does not give the true place, it is the one nearest to most of the photos with GPS data.
        true = (
            find_album_place([photo.point for photo in folder_contents.metadata], model, folder.name)
            if true is None
            else true
        )
        if true is None:
            actual = "nothing, and no photo with GPS"
            raise InputError([Fault(file, "photos.true_location", actual, "the column of the true location, from 0")])
        scores = model.scores(tensors)
        return cls.from_scores(
            declared,
            file,
            scores,
            folder_contents.names,
            true,
            folder_contents=folder_contents,
            places=model.names,
            model=model,
        )

    @classmethod
    def from_scores(
        cls,
        declared: PhotoProblem,
        file: str,
        scores: Floats,
        names: Sequence[str],
        true: int,
        *,
        folder_contents: FolderContents | None = None,
        places: tuple[str, ...] = (),
        model: Classifier | None = None,
    ) -> PhotoInstance:
        """Make a problem from the given scores, after checking the keys that refer to photos or locations.

        Args:
            declared: The problem file, already checked for contradictory keys.
            file: The name of the problem file, for error messages.
            scores: (photos, locations) The scores.
            names: The names of the photos.
            true: The column of the true location.
            folder_contents: The contents of the folder other than the scored pictures. None if the problem names no
                folder.
            places: The names of the places, if known.
            model: The classifier that will score the clean copies. None if no classifier is loaded.

        Raises:
            InputError: A key refers to a photo or location that does not exist, ``photos.keep`` repeats a photo, or
                ``keep_at_least`` or ``top_k`` is too large. The exception lists all errors.
        """
        _find_range_faults(declared, file, scores, names, true).check()
        photos = declared.photos
        # `photos.keep` lists photos by file name or row.
        keep = np.isin(np.arange(len(names)), _find_rows(photos.keep, names))
        album = Album(
            scores=scores,
            true=true,
            keep=keep,
            keep_at_least=photos.keep_at_least,
            margin=declared.privacy.margin,
        )
        return cls(
            declared=declared,
            file=file,
            names=tuple(names),
            album=album,
            folder_contents=folder_contents,
            places=places,
            model=model,
        )


def _find_key_faults(declared: PhotoProblem, file: str) -> Faults:
    """Find missing and contradictory keys, without reading any data.

    Args:
        declared: The problem file.
        file: The name of the problem file, for error messages.

    Returns:
        One fault for each missing key and each contradiction.
    """
    photos, privacy, faults = declared.photos, declared.privacy, Faults()
    sources = [n for n in ("scores", "probabilities", "folder") if getattr(photos, n) is not None]
    if len(sources) != 1:
        faults.add(file, "photos", " and ".join(sources) or "nothing", "one of scores, probabilities, folder")
    if not declared.is_scored:
        # A folder without a classifier is only examined, so keys about deletions would have no effect.
        tasks = {"privacy.top_k": privacy.top_k, "privacy.deletion_budget": privacy.deletion_budget}
        keep_text = number_of(len(photos.keep), "photo") if photos.keep else None
        place_text = None if photos.true_location is None else "a column"  # the place is the secret
        for name, value in {**tasks, "photos.true_location": place_text, "photos.keep": keep_text}.items():
            if value is not None:
                expectation = "photos.classifier with it (without one no photo is scored, and none deleted)"
                faults.add(file, name, str(value), expectation)
        return faults
    if (privacy.top_k is None) == (privacy.deletion_budget is None):
        actual = "nothing" if privacy.top_k is None else "top_k and deletion_budget"
        faults.add(file, "privacy", actual, "one of top_k, deletion_budget")
    if photos.folder is None and photos.true_location is None:
        faults.add(file, "photos.true_location", "nothing", "the column of the true location, from 0")
    if photos.folder is None and photos.classifier is not None:
        faults.add(file, "photos", "classifier alone", "folder and classifier together")
    return faults


def _find_rows(keep: Sequence[int | str], names: Sequence[str]) -> list[int]:
    """Return the row of each photo in ``photos.keep``, or -1 for a photo that does not exist.

    Args:
        keep: The photos to look up, by name or by row.
        names: The names of all photos, in row order.
    """
    rows = {name: row for row, name in enumerate(names)}
    return [rows.get(n, -1) if isinstance(n, str) else n if 0 <= n < len(names) else -1 for n in keep]


def _find_range_faults(declared: PhotoProblem, file: str, scores: Floats, names: Sequence[str], true: int) -> Faults:
    """Find keys whose values are out of range, such as a photo or location that does not exist.

    Args:
        declared: The problem file.
        file: The name of the problem file, for error messages.
        scores: (photos, locations) The scores.
        names: The names of the photos.
        true: The column of the true location.

    Returns:
        One fault for each value that is out of range, and for each photo repeated in ``photos.keep``.
    """
    (photos, locations), faults, declared_photos = scores.shape, Faults(), declared.photos
    if not 0 <= true < locations:
        faults.add(file, "photos.true_location", "another column", f"a column from 0 to {locations - 1}")
    rows = _find_rows(declared_photos.keep, names)
    for number, (photo, row) in enumerate(zip(declared_photos.keep, rows, strict=True)):
        # -1 stands for a photo that does not exist.
        if row < 0:
            expectation = f"a row from 0 to {photos - 1}" if isinstance(photo, int) else "the name of a photo"
            faults.add(file, "photos.keep", str(photo), expectation)
        elif row in rows[:number]:
            faults.add(file, "photos.keep", f"{photo} twice", "photos that differ")
    if declared_photos.keep_at_least > photos:
        expectation = f"at most the {photos} photos of the album"
        faults.add(file, "photos.keep_at_least", str(declared_photos.keep_at_least), expectation)
    # The true location must not be among the k best, so there must be k other locations.
    k = declared.privacy.top_k
    if k is not None and k > locations - 1:
        expectation = f"at most {locations - 1}, one less than the {locations} locations"
        faults.add(file, "privacy.top_k", str(k), expectation)
    return faults
