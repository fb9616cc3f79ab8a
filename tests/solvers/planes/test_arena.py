"""The arena of planes against lists of them, and the step over the planes of one block."""

import itertools

import numpy as np
import pytest

from maxmargin.jit import kernel
from maxmargin.solvers.planes.arena import (
    Arena,
    add_flat_products,
    drop_unused,
    free_slot,
    improve_block,
    keep_plane,
    put_plane,
)


@kernel
def one_step(store, kappa, v, moved):
    return improve_block(store, 0, kappa, v, moved, 0.0, 1)


@pytest.mark.parametrize("seed", range(8))
def test_a_step_goes_to_the_top_of_the_parabola(seed):
    """Mass moves from the worst plane that has some to the best, by the amount that is best of a thousand."""
    rng = np.random.default_rng(seed)
    n, kappa = 4, rng.uniform(0.2, 3.0)
    psi, ell = rng.normal(size=(n, 3)), rng.normal(size=n)
    alpha = rng.dirichlet(np.ones(n))
    gram = psi @ psi.T

    def f(masses):
        """The block's part of the dual, but for weight / M, with no other block."""
        w = kappa * masses @ psi
        return masses @ ell - w @ w / (2.0 * kappa)

    store = Arena.empty(1, n, 0)._replace(
        n_planes=np.array([n], np.int32), alpha=alpha.copy(), products=gram.ravel().copy()
    )
    v, moved = ell - kappa * alpha @ gram, np.empty(n)
    best, worst = int(v.argmax()), int(v.argmin())
    gain = one_step(store, kappa, v, moved)
    found = store.alpha
    direction = np.zeros(n)
    direction[best], direction[worst] = 1.0, -1.0
    values = [f(alpha + t * direction) for t in np.linspace(0.0, alpha[worst], 1001)]
    assert f(found) >= max(values) - 1e-12
    assert gain == pytest.approx(f(found) - f(alpha), abs=1e-12)
    np.testing.assert_allclose(found - alpha, moved, atol=1e-15)
    np.testing.assert_allclose(v, ell - kappa * found @ gram, atol=1e-12)


DIMENSION = 6


@kernel
def add(planes, m, ell, index, value, dense, now):
    """Put a plane into a free slot; returns the slot, or -1."""
    slot = free_slot(planes, m)
    if slot >= 0:
        begin = planes.filled[0, 0]
        planes.entry[begin : begin + len(index)] = index
        planes.value[begin : begin + len(index)] = value
        put_plane(planes, 0, m, slot, ell, len(index))
        planes.used[planes.first[m] + slot] = now
        add_flat_products(planes, m, slot, dense)
    return slot


@kernel
def keep(planes, shard, now, m, ell, index, value):
    return keep_plane(planes, shard, now, m, ell, len(index), index, value)


def some_plane(rng):
    index = np.sort(rng.permutation(DIMENSION)[: rng.integers(1, DIMENSION + 1)]).astype(np.int32)
    return index, rng.normal(size=len(index)), float(rng.random())


def dense_of(index, value):
    psi = np.zeros(DIMENSION)
    psi[index] = value
    return psi


def planes_of(arena, m):
    """Constant, vector and mass of each plane of an example, but for the truth."""
    found, first = [], arena.first[m]
    for a in range(first + 1, first + arena.n_planes[m]):
        piece = slice(arena.start[a], arena.start[a] + arena.size[a])
        found.append((arena.ell[a], dense_of(arena.entry[piece], arena.value[piece]), arena.alpha[a]))
    return found


def check_planes(arena, known):
    """The arena has the planes that are known, in their order, and their inner products."""
    for m, some in enumerate(known):
        found = planes_of(arena, m)
        assert [(ell, mass) for ell, _, mass in found] == [(ell, mass) for ell, _, mass, _ in some]
        psi = np.array([np.zeros(DIMENSION), *(vector for _, vector, _, _ in some)])
        np.testing.assert_array_equal([np.zeros(DIMENSION), *(vector for _, vector, _ in found)], psi)
        n, width = len(psi), int(arena.capacity[m])
        square = arena.products[arena.square[m] : arena.square[m] + width**2].reshape(width, width)
        np.testing.assert_allclose(square[:n, :n], psi @ psi.T, atol=1e-12)
    assert arena.n_kept == sum(map(len, known))
    assert arena.n_support == sum(mass > 0.0 for some in known for _, _, mass, _ in some)
    slots = sorted((int(a), int(a + n)) for a, n in zip(arena.first, arena.capacity, strict=True))
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(slots))


@pytest.mark.parametrize("seed", range(6))
def test_planes_stay_while_the_arena_grows_and_shrinks(seed):
    """Planes are added at random, masses change, blocks get more slots one by one, entries more room, and idle planes go."""
    rng = np.random.default_rng(seed)
    arena, known, dense = Arena.empty(5, 2, 4), [[] for _ in range(5)], np.zeros(DIMENSION)
    sizes = set()
    for now in range(200):
        m = int(rng.integers(5) if rng.random() < 0.5 else 0)
        index, value, ell = some_plane(rng)
        if arena.filled[0, 0] + len(index) > len(arena.entry):
            arena = arena.with_room(4, len(index))
        if arena.n_planes[m] == arena.capacity[m]:
            arena = arena.with_capacity(np.array([m]))
            sizes.add(len(arena.ell))
        slot = add(arena, m, ell, index, value, dense, now)
        assert slot == len(known[m]) + 1
        known[m].append((ell, dense_of(index, value), 0.0, now))
        for k, (ell, psi, _, used) in enumerate(known[m]):
            mass = float(rng.random() < 0.3) * 0.25
            known[m][k] = ell, psi, mass, used
            arena.alpha[arena.first[m] + 1 + k] = mass
        if rng.random() < 0.05:
            drop_unused(arena, now - 20)
            known = [[one for one in some if one[2] > 0.0 or one[3] >= now - 20] for some in known]
        check_planes(arena, known)
    # Some blocks moved within the arrays, others when all did.
    assert 1 < len(sizes) < 30
    assert not dense.any()


def test_a_crowded_block_takes_no_plane():
    rng = np.random.default_rng(0)
    arena, dense = Arena.empty(2, 3, 100), np.zeros(DIMENSION)
    for now in range(2):
        index, value, ell = some_plane(rng)
        assert add(arena, 1, ell, index, value, dense, now) == now + 1
    arena.alpha[4:6] = 0.5
    assert add(arena, 1, ell, index, value, dense, 3) == -1
    # Without mass, the plane whose last use is longest ago is replaced.
    arena.alpha[4:6], arena.used[4:6] = 0.0, (7, 6)
    assert add(arena, 1, ell, index, value, dense, 8) == 2
    grown = arena.with_capacity(np.arange(2))
    assert list(grown.capacity) == [6, 6]
    assert grown.most == 6
    assert len(grown.ell) == 12


def test_equal_planes_are_kept_once_in_segments():
    rng = np.random.default_rng(1)
    arena, shards = Arena.empty(4, 4, 10, 2, products=False), [(0, 2), (2, 4)]
    some = [some_plane(rng) for _ in range(3)]
    for now in range(12):
        for m in range(4):
            index, value, ell = some[(now + m) % 3]
            slot = keep(arena, m // 2, now, m, ell, index, value)
            if slot < 0:
                arena = arena.with_room(0, DIMENSION, shards)
                slot = keep(arena, m // 2, now, m, ell, index, value)
            assert arena.used[arena.first[m] + slot] == now
    for m in range(4):
        found = planes_of(arena, m)
        assert sorted(ell for ell, _, _ in found) == sorted(ell for _, _, ell in some)
        first = arena.first[m]
        assert (arena.start[first + 1 : first + 4] >= arena.segment[m // 2]).all()
        assert (arena.start[first + 1 : first + 4] < arena.segment[m // 2 + 1]).all()
    assert (arena.filled[:, 0] <= arena.segment[1:]).all()
