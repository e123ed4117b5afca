import numpy as np
import pytest

from amdjax import random
from amdjax.core import dtypes
from amdjax.core.config import enable_x64, threefry_partitionable
from amdjax.core.pytree import tree_map
from amdjax.transforms.vmap import vmap
from tests.support.recorded_samples import BATCHED_KEYS, KEYS, OTHER_KEYS, SEQUENTIAL, WIDE_KEYS


def ints(x):
    return np.asarray(random.key_data(x)).tolist()


@pytest.mark.parametrize("seed, data, halves, grid, folded", KEYS)
def test_recorded_keys(seed, data, halves, grid, folded):
    for key in (random.PRNGKey(seed), random.key(seed)):
        assert ints(key) == data
        assert ints(random.split(key)) == halves
        assert ints(random.split(key, (1, 2))) == grid
        assert ints(random.fold_in(key, 7)) == folded


@pytest.mark.parametrize("impl, seed, data, halves, folded, bits", OTHER_KEYS)
def test_other_generators(impl, seed, data, halves, folded, bits):
    key = random.key(seed, impl=impl)
    assert random.key_impl(key) == impl
    assert ints(key) == data
    assert ints(random.split(key)) == halves
    assert ints(random.fold_in(key, 7)) == folded
    assert random.bits(key, (3,)).tolist() == bits


@pytest.mark.parametrize("impl, halves, folded, numbers, bits", BATCHED_KEYS)
def test_batches_of_generators_that_see_one_key(impl, halves, folded, numbers, bits):
    keys = random.split(random.key(3, impl=impl), 2)
    assert ints(vmap(random.split)(keys)) == halves
    assert ints(vmap(lambda key: random.fold_in(key, 7))(keys)) == folded
    assert ints(vmap(lambda n: random.fold_in(keys[0], n))(np.arange(2))) == numbers
    assert vmap(lambda key: random.bits(key, (2,)))(keys).tolist() == bits


@pytest.mark.parametrize("impl, data, wide, narrow", WIDE_KEYS)
def test_seeds_and_bits_of_64_bits(impl, data, wide, narrow):
    with enable_x64(True):
        key = random.key(2**33 + 5, impl=impl)
        assert ints(key) == data
        assert random.bits(key, (3,), "uint64").tolist() == wide
        assert random.bits(key, (3,), "uint8").tolist() == narrow


@pytest.mark.parametrize("seed, width, bits, keys", SEQUENTIAL)
def test_bits_from_one_counter(seed, width, bits, keys):
    with threefry_partitionable(False):
        key = random.PRNGKey(seed)
        assert random.bits(key, (5,), f"uint{width}").tolist() == bits
        assert ints(random.split(key, 3)) == keys


def test_seeds_of_64_bits():
    assert random.PRNGKey(2**32 + 5).tolist() == [0, 5]
    with enable_x64(True):
        assert random.PRNGKey(2**32 + 5).tolist() == [1, 5]
        assert random.PRNGKey(-1).tolist() == [2**32 - 1, 2**32 - 1]
        assert random.PRNGKey(np.int64(2**32 + 5)).tolist() == [1, 5]


def test_seeds_may_be_traced():
    seeds = np.array([0, 1, 42], np.int32)
    found = vmap(random.PRNGKey)(seeds)
    assert found.tolist() == [random.PRNGKey(int(s)).tolist() for s in seeds]


def test_typed_keys_are_arrays_of_keys():
    keys = random.split(random.key(0), (2, 3))
    assert keys.shape == (2, 3)
    assert (keys.ndim, keys.size, len(keys)) == (2, 6, 2)
    assert str(keys.dtype) == "key<fry>"
    assert dtypes.issubdtype(keys.dtype, dtypes.prng_key)
    assert ints(keys[1, 2]) == ints(keys)[1][2]
    assert ints(keys[:, 0]) == [row[0] for row in ints(keys)]
    assert ints(keys[..., None])[1][2][0] == ints(keys)[1][2]
    assert keys.reshape(3, -1).shape == (3, 2)
    assert keys.ravel().shape == (6,)
    assert keys.T.shape == (3, 2)
    assert ints(keys.T[2, 1]) == ints(keys[1, 2])
    assert keys[:1].squeeze().shape == (3,)
    assert [ints(k) for k in keys[0]] == ints(keys)[0]
    assert np.asarray(keys == keys).all()
    assert bool(keys[0, 0] != keys[0, 1])
    with pytest.raises(IndexError, match="Too many"):
        keys[0, 0, 0]
    with pytest.raises(TypeError, match="key_data"):
        np.asarray(keys)
    with pytest.raises(TypeError, match="boolean"):
        bool(keys)


def test_keys_are_pytrees():
    keys = random.split(random.key(0), 3)
    assert ints(tree_map(lambda x: x, keys)) == ints(keys)
    found = vmap(lambda k: random.bits(k, (2,)))(keys)
    assert found.tolist() == [random.bits(k, (2,)).tolist() for k in keys]
    found = vmap(lambda k: random.split(k))(keys)
    assert found.shape == (3, 2)
    raw = random.split(random.PRNGKey(0), 3)
    assert vmap(lambda k: random.fold_in(k, 1))(raw).tolist() == [
        random.fold_in(k, 1).tolist() for k in raw
    ]


def test_wrapping():
    data = np.arange(6, dtype=np.uint32).reshape(3, 2)
    keys = random.wrap_key_data(data)
    assert keys.shape == (3,)
    assert ints(keys) == data.tolist()
    assert random.key_dtype("rbg") == random.wrap_key_data(data.reshape(-1)[:4], impl="rbg").dtype
    assert ints(random.clone(keys)) == data.tolist()


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: random.key(np.zeros(2, np.int32)), TypeError, "scalar seed"),
        (lambda: random.key(0.5), TypeError, "must be an integer"),
        (lambda: random.key(random.key(0)), TypeError, "given a PRNG key"),
        (lambda: random.key(0, impl="mersenne"), ValueError, "mersenne"),
        (lambda: random.key(0, impl="rbg", dtype=random.key_dtype()), ValueError, "both"),
        (lambda: random.split(random.split(random.key(0))), ValueError, r"shape \(2,\)"),
        (lambda: random.normal(np.zeros(3, np.uint32)), TypeError, r"ends with \(2,\)"),
        (lambda: random.normal(np.zeros(2, np.int32)), TypeError, "int32"),
        (lambda: random.normal(7), TypeError, "unexpected PRNG key type"),
        (lambda: random.fold_in(random.key(0), np.zeros(2, np.int32)), TypeError, "scalar"),
        (lambda: random.wrap_key_data(np.zeros(3, np.uint32)), TypeError, r"ends with \(2,\)"),
    ],
)
def test_bad_keys_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
