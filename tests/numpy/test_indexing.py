import itertools

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

import amdjax
import amdjax.numpy as jnp
from tests.support.strategies import close

X = np.arange(120, dtype=np.float32).reshape(4, 5, 6)
I = np.array([2, 0, -1])
J = np.array([[1, 2, 3], [0, -1, 2]])
INDICES = [
    np.s_[1], np.s_[-1], np.s_[1:3], np.s_[::2], np.s_[::-1], np.s_[3:0:-2], np.s_[..., 2],
    np.s_[:, None], np.s_[None, 1, ..., None], np.s_[I], np.s_[:, I], np.s_[I, I], np.s_[I, :, I],
    np.s_[I, 1], np.s_[1, :, I], np.s_[J], np.s_[:, J, I], np.s_[J, None, I], np.s_[I, 1:3],
    np.s_[I, ::2], np.s_[:, I, ::-2], np.s_[()], np.s_[...], np.s_[2:2], np.s_[I[:, None], I],
    np.s_[np.array([True, False, True, True])], np.s_[X > 50], np.s_[:, np.arange(5) % 2 == 0],
    np.s_[True], np.s_[np.zeros((0,), int)], np.s_[:, I, ..., I], np.s_[1, I, ..., I],
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_reading_agrees_with_numpy(index):
    close(jnp.asarray(X)[index], X[index])


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_traced_reading_agrees_with_numpy(index):
    close(amdjax.jit(lambda x: x[index])(X), X[index])


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_setting_agrees_with_numpy(index):
    expected = X.copy()
    expected[index] = -1
    close(jnp.asarray(X).at[index].set(-1.0), expected)


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_adding_agrees_with_numpy(index):
    expected = X.copy()
    values = np.ones(X[index].shape, np.float32)
    np.add.at(expected, index, values)
    close(jnp.asarray(X).at[index].add(values), expected)


@pytest.mark.parametrize("symbolic", [None, "n"])
def test_slices_of_short_axes(symbolic):
    slices = [slice(*s) for s in itertools.product((None, -3, 1), (None, -1, 2), (None, 2, -1, -3))]
    traced = amdjax.jit(lambda x: [x[s] for s in slices], symbolic=symbolic)
    for n in range(7):
        x = np.arange(n, dtype=np.float32)
        for s, got in zip(slices, traced(x), strict=True):
            np.testing.assert_array_equal(got, x[s], err_msg=f"{n} elements, {s}")


@pytest.mark.parametrize("name", ["multiply", "min", "max", "divide", "power", "subtract"])
def test_other_updates(name):
    x = np.array([1.0, 2.0, 3.0], np.float32)
    fn = {"multiply": np.multiply, "min": np.minimum, "max": np.maximum, "divide": np.divide,
          "power": np.power, "subtract": np.subtract}[name]  # fmt: skip
    expected = x.copy()
    expected[1] = fn(x[1], 3.0)
    close(getattr(jnp.asarray(x).at[1], name)(3.0), expected)


def test_apply():
    assert jnp.arange(3.0).at[1].apply(jnp.exp)[1] == jnp.exp(1.0)


def test_modes_out_of_bounds():
    x = jnp.arange(3)
    assert int(x[10]) == 2
    assert int(x.at[10].get(mode="fill", fill_value=-7)) == -7
    assert int(x.at[10].get(mode="clip")) == 2
    assert x.at[10].set(5).tolist() == [0, 1, 2]
    assert x.at[10].set(5, mode="clip").tolist() == [0, 1, 5]
    assert np.isnan(float(jnp.arange(3.0).at[10].get(mode="fill")))


def test_negative_indices_can_be_left_alone():
    x = jnp.arange(3)
    assert x.at[jnp.array([-1])].get(mode="fill", fill_value=9, wrap_negative_indices=False)[0] == 9


def test_gradient_of_an_embedding_look_up():
    table, index = jnp.ones((4, 2)), jnp.array([1, 1, 3])
    grad = amdjax.grad(lambda t: (t[index] * jnp.arange(3.0)[:, None]).sum())(table)
    assert grad.tolist() == [[0, 0], [1, 1], [0, 0], [2, 2]]


UPDATES = [  # dtype, method, value; from JAX, of [5, 6] at [0, 0]
    ("int32", "add", 1.7, 8), ("int32", "subtract", 1.7, 1), ("int32", "multiply", 1.7, 14),
    ("int32", "divide", 1.7, 2.5), ("int32", "power", 1.7, 25), ("int32", "set", 1.7, 1),
    ("int32", "multiply", 1j, -5), ("int8", "min", np.int32(300), 5), ("int8", "max", -1.5, 5),
    ("uint8", "max", np.int32(-3), 5), ("int32", "subtract", np.float16(0.3), 4),
    ("float16", "multiply", np.float32(1e-6), 0), ("bool", "add", 2, True),
]  # fmt: skip


@pytest.mark.parametrize("size", [None, 0, 1, 4])
@pytest.mark.parametrize(
    ("fill", "dtype", "weak"),
    [
        (None, "int32", False), (-1, "int32", False), (np.int8(3), "int32", False),
        (1.5, "float32", True), (np.float32(2), "float32", False), (1j, "complex64", True),
    ],
)  # fmt: skip
def test_positions_are_filled_in_the_common_dtype(size, fill, dtype, weak):
    for got in (
        jnp.nonzero(jnp.array([1, 0, 2]), size=size, fill_value=fill)[0],
        jnp.argwhere(jnp.array([1, 0, 2]), size=size, fill_value=fill)[:, 0],
    ):
        assert (got.dtype, got.weak_type) == ((dtype, weak) if size != 0 else ("int32", False))
        want = [0, 2] + [fill or 0] * 2
        close(got, np.array(want if size == 4 else want[: 2 if size is None else size]))


@pytest.mark.filterwarnings("ignore:scatter inputs")
@pytest.mark.parametrize(("dtype", "method", "value", "want"), UPDATES)
def test_updates_are_computed_in_the_common_dtype(dtype, method, value, want):
    """What is written takes the dtype of the array only when it is whole."""
    at = jnp.array([5, 6], dtype).at[jnp.array([0, 0])]
    value = value if isinstance(value, (int, float, complex)) else jnp.asarray(value)
    got = getattr(at, method)(value)
    assert got.dtype == ("float32" if method == "divide" else dtype)
    assert float(got[0]) == want and bool(got[1] == np.array(6, dtype))


def test_updates_broadcast_and_convert():
    x = jnp.zeros((2, 3), jnp.int32)
    assert x.at[:, 1].set(jnp.array([[7], [8]])[:, 0]).tolist() == [[0, 7, 0], [0, 8, 0]]
    assert x.at[0].set(2.9).dtype == np.int32
    with pytest.raises(ValueError, match="Incompatible shapes"):
        x.at[0].set(jnp.ones(4))


@pytest.mark.parametrize(
    "index, error, message",
    [
        ([0, 1], TypeError, "non-tuple sequence"),
        (1.5, TypeError, "integer or boolean"),
        ("a", TypeError, "string"),
        (np.s_[1, 1, 1, 1], IndexError, "Too many indices"),
        (np.s_[..., ...], IndexError, "single ellipsis"),
        (np.ones(3, bool), IndexError, "boolean index did not match"),
    ],
)
def test_errors(index, error, message):
    with pytest.raises(error, match=message):
        jnp.asarray(X)[index]


def test_assignment_is_refused_with_advice():
    with pytest.raises(TypeError, match=r"x\.at\[idx\]\.set"):
        jnp.ones(3)[0] = 1.0


def test_traced_masks_are_refused_with_a_reason():
    with pytest.raises(amdjax.errors.NonConcreteBooleanIndexError):
        amdjax.jit(lambda x: x[x > 0])(jnp.ones(3))


def test_iteration_and_membership():
    assert [float(v) for v in jnp.arange(3.0)] == [0, 1, 2]
    assert 2 in jnp.arange(3) and 5 not in jnp.arange(3)
    with pytest.raises(TypeError, match="0-d"):
        iter(jnp.float32(1))


@pytest.mark.parametrize("mode", [None, "clip", "wrap", "fill"])
def test_take(mode):
    x, index = np.arange(12).reshape(3, 4), np.array([[1, -1], [0, 2]])
    close(jnp.take(x, index, axis=0, mode=mode), np.take(x, index % 3, axis=0)
          if mode != "clip" else np.take(x, np.clip(index, 0, 2), axis=0))  # fmt: skip


def test_take_along_axis_broadcasts():
    index = np.argsort(X, axis=1)[:1]
    close(jnp.take_along_axis(X, index, 1), np.take_along_axis(X, index, 1))


def test_where_and_nonzero():
    mask = np.array([[True, False], [False, True]])
    close(jnp.where(mask, 1.0, jnp.zeros(2)), np.where(mask, 1.0, np.zeros(2)))
    assert [i.tolist() for i in jnp.nonzero(mask)] == [[0, 1], [0, 1]]
    sized = amdjax.jit(lambda m: jnp.nonzero(m, size=3, fill_value=-1))(mask)
    assert [i.tolist() for i in sized] == [[0, 1, -1], [0, 1, -1]]
    with pytest.raises(TypeError, match="either both or neither"):
        jnp.where(mask, 1.0)


@st.composite
def indices(draw):
    """An index into an array of shape (4, 5, 6), of any mixture of what NumPy takes."""
    rows = hnp.arrays(
        np.int32, st.sampled_from([(3,), (1,), (2, 1), (2, 3)]), elements=st.integers(-4, 3)
    )
    entry = st.one_of(st.integers(-4, 3), st.slices(4), rows, rows.map(lambda i: i[..., 0]))
    items = list(draw(st.lists(entry, max_size=3)))
    for extra in draw(st.lists(st.sampled_from([None, None, ...]), max_size=3)):
        if extra is None or not any(i is ... for i in items):
            items.insert(draw(st.integers(0, len(items))), extra)
    return tuple(items)


@given(indices())
def test_any_index_agrees_with_numpy(index):
    try:
        expected = X[index]
    except IndexError:
        assume(False)
    close(jnp.asarray(X)[index], expected)
    close(amdjax.jit(lambda x: x[index])(X), expected)
    new, values = X.copy(), np.arange(expected.size, dtype=np.float32).reshape(expected.shape)
    np.add.at(new, index, values)
    close(jnp.asarray(X).at[index].add(values), new)
