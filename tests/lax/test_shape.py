import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from amdjax import lax
from amdjax.transforms.staging import make_jaxpr
from tests.support.lax_checks import check_batching, check_derivatives

arrays = hnp.arrays(np.int32, hnp.array_shapes(min_dims=0, max_dims=4, max_side=4))
nonscalars = hnp.arrays(np.int32, hnp.array_shapes(max_dims=4, max_side=4))


def counting(*shape):
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


@given(arrays, st.lists(st.integers(0, 3), max_size=2))
def test_broadcast(x, sizes):
    np.testing.assert_array_equal(lax.broadcast(x, sizes), np.broadcast_to(x, (*sizes, *x.shape)))


@given(nonscalars, st.data())
def test_broadcast_in_dim(x, data):
    # Spread the axes of `x` over a larger rank, and widen those of size one.
    rank = data.draw(st.integers(x.ndim, x.ndim + 2))
    dims = data.draw(st.permutations(range(rank)))[: x.ndim]
    shape = [data.draw(st.integers(0, 3)) for _ in range(rank)]
    for d, n in zip(dims, x.shape):
        shape[d] = n if n != 1 else shape[d]
    spread = np.ones(rank, int)
    spread[dims] = x.shape
    wanted = np.broadcast_to(x.transpose(np.argsort(dims)).reshape(spread), shape)
    np.testing.assert_array_equal(lax.broadcast_in_dim(x, shape, dims), wanted)


@given(nonscalars, st.randoms())
def test_transpose_and_reshape(x, random):
    permutation = random.sample(range(x.ndim), x.ndim)
    np.testing.assert_array_equal(lax.transpose(x, permutation), x.transpose(permutation))
    np.testing.assert_array_equal(lax.reshape(x, (x.size,)), x.reshape(-1))
    flipped = lax.reshape(x, (x.size,), permutation)
    np.testing.assert_array_equal(flipped, x.transpose(permutation).reshape(-1))
    in_two_steps = lax.reshape(lax.transpose(x, permutation), (1, x.size))
    np.testing.assert_array_equal(np.asarray(in_two_steps)[0], flipped)


@given(nonscalars, st.randoms())
def test_axes_of_size_one(x, random):
    where = sorted(random.sample(range(x.ndim + 2), 2))
    wide = lax.expand_dims(x, where)
    np.testing.assert_array_equal(wide, np.expand_dims(x, where))
    np.testing.assert_array_equal(lax.squeeze(wide, where), x)
    np.testing.assert_array_equal(lax.squeeze(wide, [d - x.ndim - 2 for d in where]), x)


@given(nonscalars, st.data())
def test_joining_and_cutting(x, data):
    axis = data.draw(st.integers(0, x.ndim - 1))
    y = np.flip(x, axis)[tuple(slice(0, 2) if d == axis else slice(None) for d in range(x.ndim))]
    wanted = np.concatenate([x, y, x], axis)
    found = lax.concatenate([x, y, x], axis)
    np.testing.assert_array_equal(found, wanted)
    sizes = [x.shape[axis], y.shape[axis], x.shape[axis]]
    for piece, part in zip(lax.split(found, sizes, axis), (x, y, x), strict=True):
        np.testing.assert_array_equal(piece, part)
    np.testing.assert_array_equal(lax.stack([x, x + 1], axis), np.stack([x, x + 1], axis))
    for k, piece in enumerate(lax.unstack(x, axis)):
        np.testing.assert_array_equal(piece, np.take(x, k, axis))
    np.testing.assert_array_equal(lax.rev(x, (axis,)), np.flip(x, axis))
    reps = [1 + (d == axis) for d in range(x.ndim)]
    np.testing.assert_array_equal(lax.tile(x, reps), np.tile(x, reps))


def padded(x, value, config):
    """`lax.pad` with NumPy: spread, surround, cut."""
    wide = [n + max(n - 1, 0) * step for n, (_, _, step) in zip(x.shape, config)]
    out = np.full(wide, value, x.dtype)
    out[tuple(slice(None, None, step + 1) for _, _, step in config)] = x
    out = np.pad(out, [(max(a, 0), max(b, 0)) for a, b, _ in config], constant_values=value)
    cut = [slice(max(-a, 0), n - max(-b, 0)) for n, (a, b, _) in zip(out.shape, config)]
    return out[tuple(cut)]


@given(nonscalars, st.data())
def test_pad(x, data):
    edges = st.tuples(st.integers(-2, 3), st.integers(-2, 3), st.integers(0, 2))
    config = [data.draw(edges) for _ in x.shape]
    sizes = [a + b + n + step * max(n - 1, 0) for n, (a, b, step) in zip(x.shape, config)]
    if min(sizes) < 0:
        with pytest.raises(ValueError, match="is not at least 0"):
            lax.pad(x, np.int32(7), config)
    else:
        np.testing.assert_array_equal(lax.pad(x, np.int32(7), config), padded(x, 7, config))


@pytest.mark.parametrize("dtype", ["int8", "uint32", "float32", "bfloat16", "complex64"])
def test_iota(dtype):
    x = np.asarray(lax.broadcasted_iota(dtype, (2, 3), 1))
    assert x.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(x.astype(np.complex64), [[0, 1, 2]] * 2)


def test_filling():
    assert lax.full((2,), 1).aval.weak_type and lax.full((2,), 1).tolist() == [1, 1]
    assert lax.full((2,), 1.5, np.int32).tolist() == [1, 1]
    assert lax.full(2, True).dtype == np.bool_
    like = lax.full_like(np.zeros((2, 1), np.int8), 3.0)
    assert like.dtype == np.int8 and like.tolist() == [[3], [3]]
    assert lax.full_like(np.zeros(3), 1, dtype=np.int32, shape=(1,)).tolist() == [1]
    assert lax.empty((2, 3), np.float32).shape == (2, 3)
    assert lax.shape_as_value((2, 3)).tolist() == [2, 3]
    with pytest.raises(TypeError, match="scalar"):
        lax.full((2,), np.ones(2))


def test_helpers():
    assert lax.broadcast_shapes((2, 1), (3,), ()) == (2, 3)
    assert lax.broadcast_to_rank(np.ones(3), 3).shape == (1, 1, 3)
    assert lax.broadcast_like(np.float32(1), np.ones((2, 3))).shape == (2, 3)
    assert lax.collapse(counting(2, 3, 4), 1).shape == (2, 12)
    assert lax.collapse(counting(2, 3, 4), 0, -1).shape == (6, 4)
    with pytest.raises(ValueError, match="Incompatible shapes"):
        lax.broadcast_shapes((2,), (3,))


X = counting(2, 3)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (TypeError, "sizes must either be 1", lambda: lax.broadcast_in_dim(X, (2, 4), (0, 1))),
        (TypeError, "length equal to operand ndim", lambda: lax.broadcast_in_dim(X, (2, 3), (0,))),
        (TypeError, "must not contain duplicates", lambda: lax.broadcast_in_dim(X, (2, 3), (1, 1))),
        (TypeError, "subset of output", lambda: lax.broadcast_in_dim(X, (2, 3), (0, 2))),
        (TypeError, "nonnegative", lambda: lax.full((-2,), 1)),
        (ValueError, "total size", lambda: lax.reshape(X, (4,))),
        (TypeError, "nonnegative", lambda: lax.reshape(X, (-1,))),
        (TypeError, "permutation", lambda: lax.transpose(X, (0, 0))),
        (ValueError, "squeeze", lambda: lax.squeeze(X, (0,))),
        (ValueError, "out of bounds", lambda: lax.expand_dims(X, (5,))),
        (ValueError, "unique", lambda: lax.expand_dims(X, (0, 0))),
        (TypeError, "differ in dimensions", lambda: lax.concatenate([X, counting(3, 2)], 0)),
        (TypeError, "different ranks", lambda: lax.concatenate([X, counting(3)], 0)),
        (TypeError, "same dtypes", lambda: lax.concatenate([X, X.astype(np.int32)], 0)),
        (TypeError, "out of bounds", lambda: lax.concatenate([X, X], 2)),
        (ValueError, "non-empty", lambda: lax.concatenate([], 0)),
        (ValueError, "one entry for each axis", lambda: lax.pad(X, 0.0, [(0, 0, 0)])),
        (TypeError, "one dtype", lambda: lax.pad(X, 0, [(0, 0, 0)] * 2)),
        (ValueError, "interior", lambda: lax.pad(X, 0.0, [(0, 0, -1)] * 2)),
        (TypeError, "rank 2", lambda: lax.rev(X, (2,))),
        (TypeError, "unique", lambda: lax.rev(X, (0, 0))),
        (TypeError, "iota does not accept dtype bool", lambda: lax.iota(bool, 2)),
        (ValueError, "dimension=2", lambda: lax.broadcasted_iota(np.int32, (2, 3), 2)),
        (ValueError, "Sum of sizes 5", lambda: lax.split(X, (1, 4), 1)),
        (TypeError, "reps", lambda: lax.tile(X, (2,))),
        (TypeError, "concrete integers", lambda: lax.reshape(X, (2.0, 3.0))),
    ],
)
def test_errors(error, message, call):
    with pytest.raises(error, match=message):
        call()


LINEAR = {
    "broadcast_in_dim": lambda x: lax.broadcast_in_dim(x, (2, 4, 3), (0, 2)),
    "broadcast_ones": lambda x: lax.broadcast_in_dim(
        lax.expand_dims(x, (0,)), (2, 2, 3), (0, 1, 2)
    ),
    "broadcast_transposed": lambda x: lax.broadcast_in_dim(x, (3, 4, 2), (2, 0)),
    "reshape": lambda x: lax.reshape(x, (3, 2)),
    "transpose": lambda x: lax.transpose(x, (1, 0)),
    "squeeze": lambda x: lax.squeeze(lax.expand_dims(x, (0, 3)), (0, 3)),
    "pad": lambda x: lax.pad(x, np.asarray(0, x.dtype)[()], [(1, 2, 1), (-1, 1, 0)]),
    "rev": lambda x: lax.rev(x, (1,)),
    "tile": lambda x: lax.tile(x, (2, 3)),
    "split": lambda x: tuple(lax.split(x, (1, 2), 1)),
    "unstack": lambda x: lax.unstack(x, 1),
}


@pytest.mark.parametrize("name", sorted(LINEAR))
def test_rules_of_linear_operations(name):
    check_derivatives(LINEAR[name], X.astype(np.float64))
    check_batching(LINEAR[name], X)


def test_rules_of_joining():
    x, y = counting(2, 3), counting(2, 2)
    join = lambda p, q: lax.concatenate([p, q, p], 1)
    x64, y64 = x.astype(np.float64), y.astype(np.float64)
    check_derivatives(join, x64, y64)
    check_batching(join, x, y)
    pile = lambda p, q: lax.stack([p, q], 1)
    check_derivatives(pile, x64, x64 + 1)
    check_batching(pile, x, x + 1)
    pad = lambda p, v: lax.pad(p, v, [(1, 0, 1), (0, -1, 0)])
    check_derivatives(pad, x64, np.float64(2))
    check_batching(pad, x, np.float32(2))


def test_nothing_is_recorded_for_the_identity():
    x = counting(2, 3)
    same = lambda v: lax.transpose(lax.reshape(lax.broadcast(v, ()), (2, 3)), (0, 1))
    assert str(make_jaxpr(same)(x)) == "{ lambda ; a:f32[2,3]. let  in (a,) }"


def test_printed_programs():
    assert str(make_jaxpr(lambda v: lax.broadcast(v, (5,)))(X)) == (
        "{ lambda ; a:f32[2,3]. let\n"
        "    b:f32[5,2,3] = broadcast_in_dim[broadcast_dimensions=(1, 2)] a\n"
        "  in (b,) }"
    )
    assert str(make_jaxpr(lambda v: lax.rev(v, (0,)))(X)) == (
        "{ lambda ; a:f32[2,3]. let b:f32[2,3] = rev[dimensions=(0,)] a in (b,) }"
    )
