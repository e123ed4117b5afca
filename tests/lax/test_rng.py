import numpy as np
import pytest

from amdjax import lax
from amdjax.core.config import enable_x64
from amdjax.lax.counter_blocks import philox2x32, philox4x32, threefry2x32, threefry4x32
from amdjax.transforms.vmap import vmap

ONES = 0xFFFFFFFF


def words(*values):
    return tuple(np.uint32(v) for v in values)


@pytest.mark.parametrize(
    "block, key, count, wanted",
    [
        # Known answers of the Random123 library.
        (threefry2x32, (0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        (threefry2x32, (ONES, ONES), (ONES, ONES), (0x1CB996FC, 0xBB002BE7)),
        (
            *(threefry2x32, (0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3)),
            (0xC4923A9C, 0x483DF7A0),
        ),
        (threefry4x32, (0,) * 4, (0,) * 4, (0x9C6CA96A, 0xE17EAE66, 0xFC10ECD4, 0x5256A7D8)),
        (threefry4x32, (ONES,) * 4, (ONES,) * 4, (0x2A881696, 0x57012287, 0xF6C7446E, 0xA16A6732)),
        (philox2x32, (0,), (0, 0), (0xFF1DAE59, 0x6CD10DF2)),
        (philox2x32, (ONES,), (ONES, ONES), (0x2C3F628B, 0xAB4FD7AD)),
        (philox4x32, (0, 0), (0,) * 4, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (philox4x32, (ONES,) * 2, (ONES,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ],
)
def test_blocks(block, key, count, wanted):
    assert [int(w) for w in block(words(*key), words(*count))] == list(wanted)


def test_threefry_of_arrays_and_batches():
    counts = np.arange(20, dtype=np.uint32).reshape(4, 5)
    key = words(3, 4)
    whole = threefry2x32(key, (counts, counts))
    single = threefry2x32(key, (counts[2, 3], counts[2, 3]))
    assert [int(w[2, 3]) for w in whole] == [int(w) for w in single]
    rows = vmap(lambda c: threefry2x32(key, (c, c)))(counts)
    for a, b in zip(rows, whole):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(TypeError, match="uint32"):
        threefry2x32(key, (counts.astype(np.int32), counts))


PHILOX = [0x1E8FE864, 0x4D5E0BD7, 0x4B87C9BE, 0x2D689201, 0x5273487B]
THREEFRY = [0x5DF433EC, 0x8617198E, 0x2C24A8A8, 0x9094FA5E, 0x91386643]
STATE = np.array([1, 2, 3, 4], np.uint32)


@pytest.mark.parametrize(
    "algorithm, bits, state",
    [
        (lax.RandomAlgorithm.RNG_DEFAULT, PHILOX, [1, 2, 5, 4]),
        (lax.RandomAlgorithm.RNG_PHILOX, PHILOX, [1, 2, 5, 4]),
        (lax.RandomAlgorithm.RNG_THREE_FRY, THREEFRY, [1, 2, 6, 4]),
    ],
)
def test_bit_generator(algorithm, bits, state):
    after, found = lax.rng_bit_generator(STATE, (5,), np.uint32, algorithm)
    assert found.tolist() == bits
    assert after.tolist() == state
    _, narrow = lax.rng_bit_generator(STATE, (5,), np.uint8, algorithm)
    assert narrow.tolist() == [b & 0xFF for b in bits]


def test_bit_generator_of_several_axes():
    _, found = lax.rng_bit_generator(STATE, (3, 3), np.uint8, lax.RandomAlgorithm.RNG_THREE_FRY)
    assert found.shape == (3, 3)
    _, found = lax.rng_bit_generator(STATE, (), np.uint32)
    assert int(found) == PHILOX[0]


def test_bit_generator_of_64_bits():
    with enable_x64(True):
        wide = STATE.view(np.uint64)
        for algorithm in lax.RandomAlgorithm:
            after, found = lax.rng_bit_generator(wide, (2,), np.uint64, algorithm)
            _, words = lax.rng_bit_generator(STATE, (4,), np.uint32, algorithm)
            low, high = np.asarray(words).astype(np.uint64).reshape(2, 2).T
            np.testing.assert_array_equal(found, low | high << np.uint64(32))
            assert after.dtype == np.uint64


def test_the_counter_carries():
    state = np.array([0, 0, ONES, 7], np.uint32)
    after, _ = lax.rng_bit_generator(state, (8,))
    assert after.tolist() == [0, 0, 1, 8]


def test_the_first_state_makes_the_bits_of_a_batch():
    states = np.stack([STATE, STATE + 1])
    after, found = vmap(lambda s: lax.rng_bit_generator(s, (3,)))(states)
    first_after, whole = lax.rng_bit_generator(STATE, (2, 3))
    np.testing.assert_array_equal(found, whole)
    np.testing.assert_array_equal(after, [first_after, STATE + 1])


def test_uniform_with_hidden_state():
    x = np.asarray(lax.rng_uniform(np.float32(2), np.float32(5), (1000,)))
    assert x.dtype == np.float32
    assert x.min() >= 2 and x.max() <= 5
    y = np.asarray(lax.rng_uniform(np.float32(2), np.float32(5), (1000,)))
    assert (x != y).any()
    n = np.asarray(lax.rng_uniform(np.int32(2), np.int32(5), (1000,)))
    assert set(n.tolist()) == {2, 3, 4}


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: lax.rng_bit_generator(STATE[:3], (2,)), TypeError, "shape"),
        (lambda: lax.rng_bit_generator(STATE, (2,), np.int32), TypeError, "dtype"),
        (lambda: lax.rng_uniform(np.float32(0), np.int32(1), (2,)), ValueError, "dtype"),
        (lambda: lax.rng_uniform(np.zeros(2, "f"), np.float32(1), (2,)), ValueError, "scalars"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
