"""The tree of cases: it proves what brute force finds, nothing more, and says so from its file alone."""

import itertools

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.errors import InputError
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.solver import search
from privopt_photo_censor.solver.optimal import prove_bound, solve
from privopt_photo_censor.solver.proof import Tree, make_claim


def album_of(seed, photos, places, required_count=0, infinite=0.0, margin=0.0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 2, (photos, places))
    scores[:, 0] += rng.uniform(0, 2)
    scores[:, 1:][rng.random((photos, places - 1)) < infinite] = -np.inf
    is_required = np.zeros(photos, dtype=np.bool_)
    is_required[:required_count] = True
    return Album(scores=scores, true=0, keep=is_required, keep_at_least=0, margin=margin)


def most_kept(album, k):
    """Return the most photos that can stay with k locations protected, by all sets; -1: none but the empty one."""
    best = -1
    for bits in itertools.product((False, True), repeat=album.photos):
        is_kept = np.array(bits)
        if is_kept.any() and not (album.keep & ~is_kept).any() and protected_k(album, is_kept) >= k:
            best = max(best, int(is_kept.sum()))
    return best


def tree_for(album, k, fewest):
    """Return the tree of a claim; None where the claim is false."""
    bound_with_tree = prove_bound(album, Task(top_k=k), fewest - 1)
    assert bound_with_tree is None or bound_with_tree[0] == fewest - 1
    return None if bound_with_tree is None else bound_with_tree[1]


albums = st.builds(
    album_of,
    st.integers(0, 10**6),
    st.integers(2, 8),
    st.integers(3, 7),
    required_count=st.integers(0, 2),
    infinite=st.sampled_from([0.0, 0.1]),
    margin=st.sampled_from([0.0, 0.2]),
)


@settings(max_examples=60)
@given(albums, st.data())
def test_tree_proves_the_optimum_and_no_more(tmp_path_factory, album, data):
    k = data.draw(st.integers(1, album.locations - 1))
    best = most_kept(album, k)
    tree = tree_for(album, k, max(best, 0) + 1)
    assert tree is not None
    folder = tmp_path_factory.mktemp("tree")
    tree.write(folder)
    read_tree = Tree.read(folder)
    assert read_tree.fault(album, k, max(best, 0) + 1) is None
    if best > 0:
        assert tree_for(album, k, best) is None
        assert read_tree.fault(album, k, best) is not None


@settings(max_examples=100)
@given(albums, st.data())
def test_no_changed_tree_proves_a_false_bound(album, data):
    k = data.draw(st.integers(1, album.locations - 1))
    best = most_kept(album, k)
    tree = tree_for(album, k, max(best, 0) + 1)
    if best < 1 or tree is None or not len(tree.kind):
        return
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    kind, item, values, places = tree.kind.copy(), tree.item.copy(), tree.values.copy(), tree.places.copy()
    node = int(rng.integers(0, len(kind)))
    kind[node] = rng.integers(0, 3)
    item[node] = rng.integers(0, album.locations)
    if len(values):
        values[rng.integers(0, len(values))] *= rng.lognormal(0, 3)
        places[rng.integers(0, len(places))] = rng.integers(0, album.locations)
    changed_tree = attrs.evolve(tree, kind=kind, item=item, values=values, places=places)
    leaves = int((kind == 0).sum())
    if leaves + 1 == len(tree.starts):
        assert changed_tree.fault(album, k, best) is not None


def test_excluding_photo_leaves_nothing_to_prove():
    album = album_of(1, 5, 4)
    scores = album.scores.copy()
    scores[2, 0] = -np.inf
    hidden = Album(scores=scores, true=0, keep_at_least=0)
    assert prove_bound(hidden, Task(top_k=2), 2) is None
    assert prove_bound(hidden, Task(top_k=2), 5) is not None
    assert make_claim(hidden, Task(budget=2), 1) == (2, 3)


@pytest.mark.parametrize("task", [Task(top_k=4), Task(budget=6)])
def test_large_trees_prove_a_weaker_bound(task, monkeypatch):
    album = album_of(3, 14, 12)
    best = solve(album, task)
    assert best.proved
    for effort in (10, 500, 2_000):
        monkeypatch.setattr(search, "PROOF_EFFORT", effort)
        weaker = solve(album, task)
        assert weaker.bound >= best.bound
        assert weaker.tree.fault(album, *make_claim(album, task, weaker.bound)) is None


def test_tree_of_a_hard_album_is_small():
    rng = np.random.default_rng(1)
    scores = rng.normal(0, 2, (64, 100)) + rng.normal(0, 1, (1, 100))
    scores[:, 0] += 4.0
    album = Album(scores=scores - np.log(np.exp(scores).sum(axis=1))[:, None], true=0)
    plan = solve(album, Task(top_k=5))
    assert plan.bound == plan.retained.sum()
    assert len(plan.tree.kind) <= 2_000


@pytest.mark.parametrize("name", ["kind", "starts", "values"])
def test_refuses_arrays_that_do_not_match(tmp_path, name):
    tree = tree_for(album_of(3, 6, 6), 3, 6)
    assert tree is not None
    attrs.evolve(tree, **{name: getattr(tree, name)[:-1]}).write(tmp_path)
    with pytest.raises(InputError, match=r"proof\.npz"):
        Tree.read(tmp_path)
