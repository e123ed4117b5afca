"""vmap and the collectives over its axes."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.jaxpr import jaxpr_as_fun
from amdjax.interpreters import batching
from amdjax.transforms import AxisData, batch_jaxpr
from tests.support.lax_checks import close, total

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_axes_of_arguments_and_results():
    f = lambda x, y: lax.add(x, y)
    close(amdjax.vmap(f)(X, X), 2 * X)
    close(amdjax.vmap(f, in_axes=(0, None))(X, X[0]), X + X[0])
    close(amdjax.vmap(f, in_axes=(1, 1), out_axes=1)(X, X), 2 * X)
    close(amdjax.vmap(f, in_axes=-1, out_axes=-1)(X, X), 2 * X)
    close(amdjax.vmap(total, in_axes=1)(X), X.sum(0))


def test_results_that_differ_may_be_summed():
    f = lambda x: (lax.sin(x), np.float32(2), lax.mul(x, x))
    sines, same, squares = amdjax.vmap(f, out_axes=(None, None, 1), sum_match=True)(X)
    close(sines, np.sin(X).sum(0))
    assert same == 2
    close(squares, (X * X).T)
    with pytest.raises(ValueError, match="out_axes is None"):
        amdjax.vmap(f, out_axes=None)(X)


def test_pytrees_of_axes():
    def f(p, x):
        return {"a": lax.mul(p["w"], x), "b": p["v"][0]}

    p = {"w": X, "v": [np.float32(3)]}
    out = amdjax.vmap(f, in_axes=({"w": 0, "v": None}, 0), out_axes={"a": 1, "b": None})(p, X)
    close(out["a"], (X * X).T)
    assert out["b"].shape == ()
    out = amdjax.vmap(f, in_axes=({"w": 0, "v": None}, 0))(p, X)
    close(out["b"], [3, 3])


def test_keyword_arguments_are_mapped_over_the_first_axis():
    close(amdjax.vmap(lambda x, y: lax.add(x, y))(X, y=X), 2 * X)


def test_nested():
    f = lambda x, y: lax.mul(x, y)
    close(amdjax.vmap(amdjax.vmap(f, (None, 0)), (0, None))(X[0], X[1]), np.outer(X[0], X[1]))


def test_axis_size_without_arguments():
    assert amdjax.vmap(lambda: np.float32(1), axis_size=4)().shape == (4,)


def test_constants_and_closures():
    close(amdjax.vmap(lambda x: X[0])(X), np.stack([X[0]] * 2))
    close(
        amdjax.vmap(lambda x: amdjax.vmap(lambda y: lax.add(x, y))(X[0]))(X[:, 0]), X[:, :1] + X[0]
    )


ERRORS = {
    "sizes": (
        lambda: amdjax.vmap(lambda x, y: x)(X, X[0]),
        ValueError,
        r"sizes[\s\S]*size 2: axis 0 of argument x of type float32\[2,3\][\s\S]*size 3: .* y",
    ),
    "rank": (
        lambda: amdjax.vmap(lambda x: x, in_axes=2)(X),
        ValueError,
        r"along axis 2.*is only 2 \(its shape is \(2, 3\)\): argument x",
    ),
    "scalar": (lambda: amdjax.vmap(lambda x: x)(1.0), ValueError, "rank should be at least 1"),
    "nothing mapped": (
        lambda: amdjax.vmap(lambda x: x, in_axes=None)(X),
        ValueError,
        "at least one non-None",
    ),
    "length": (
        lambda: amdjax.vmap(lambda x, y: x, in_axes=(0,))(X, X),
        ValueError,
        r"len\(in_axes\)=1, len\(args\)=2",
    ),
    "in_axes type": (lambda: amdjax.vmap(lambda x: x, in_axes="0"), TypeError, "in_axes"),
    "in_axes leaf": (lambda: amdjax.vmap(lambda x: x, in_axes=(0.5,)), TypeError, "0.5"),
    "out_axes leaf": (lambda: amdjax.vmap(lambda x: x, out_axes="a"), TypeError, "out_axes"),
    "out_axes None": (
        lambda: amdjax.vmap(lambda x: x, out_axes=None)(X),
        ValueError,
        "out_axes is None",
    ),
    "out_axes range": (lambda: amdjax.vmap(lambda x: x, out_axes=2)(X), ValueError, "out_axes"),
    "prefix": (
        lambda: amdjax.vmap(lambda p: p, in_axes=({"b": 0},))({"a": X}),
        ValueError,
        "vmap in_axes specification must be a tree prefix",
    ),
    "argument type": (lambda: amdjax.vmap(lambda x: x)("text"), TypeError, "argument x is 'text'"),
    "unbound axis": (lambda: lax.psum(1.0, "i"), NameError, "unbound axis name: i"),
    "unbound axis under jit": (
        lambda: amdjax.jit(lambda x: lax.axis_index("i"))(X),
        NameError,
        "unbound axis name: i",
    ),
    "perm": (
        lambda: amdjax.vmap(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 1)]), axis_name="i")(X),
        ValueError,
        "destinations",
    ),
    "shuffle": (
        lambda: amdjax.vmap(lambda x: lax.pshuffle(x, "i", [0, 0]), axis_name="i")(X),
        ValueError,
        "not represent a permutation",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors_say_what_is_wrong(case):
    call, error, message = ERRORS[case]
    if case == "unbound axis":
        call = lambda: lax.psum(1.0, "i")
    with pytest.raises(error, match=message):
        call()


def over_i(f, **kwargs):
    return amdjax.vmap(f, axis_name="i", **kwargs)


def as_float(x):
    return lax.convert_element_type(x, np.float32)


A = np.arange(9, dtype=np.float32).reshape(3, 3)
COLLECTIVES = {
    "psum": (lambda x: lax.psum(x, "i"), np.stack([A.sum(0)] * 3)),
    "psum of a number": (lambda x: lax.mul(x, np.float32(lax.psum(2, "i"))), 6 * A),
    "psum of a shared value": (lambda x: lax.add(x, lax.psum(A[0], "i")), A + 3 * A[0]),
    "pmean": (lambda x: lax.pmean(x, "i"), np.stack([A.mean(0)] * 3)),
    "pmax": (lambda x: lax.pmax(x, "i"), np.stack([A.max(0)] * 3)),
    "pmin": (lambda x: lax.pmin(x, "i"), np.stack([A.min(0)] * 3)),
    "all_gather": (lambda x: lax.all_gather(x, "i"), np.stack([A] * 3)),
    "all_gather to": (lambda x: lax.all_gather(x, "i", to="invarying"), np.stack([A] * 3)),
    "all_gather axis": (lambda x: lax.all_gather(x, "i", axis=1), np.stack([A.T] * 3)),
    "all_gather tiled": (lambda x: lax.all_gather(x, "i", tiled=True), np.stack([A.ravel()] * 3)),
    "ppermute": (
        lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2)]),
        np.stack([np.zeros(3), A[0], A[1]]),
    ),
    "pshuffle": (lambda x: lax.pshuffle(x, "i", [2, 0, 1]), A[[2, 0, 1]]),
    "all_to_all": (lambda x: lax.all_to_all(x, "i", 0, 0), A.T),
    "pswapaxes": (lambda x: lax.pswapaxes(x, "i", 0), A.T),
    "all_to_all tiled": (lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True), A.T),
    "psum_scatter": (lambda x: lax.psum_scatter(x, "i"), A.sum(0)),
    "psum_scatter tiled": (lambda x: lax.psum_scatter(x, "i", tiled=True), A.sum(0)[:, None]),
    "axis_index": (lambda x: lax.add(x, as_float(lax.axis_index("i"))), A + np.arange(3)[:, None]),
    "axis_size": (lambda x: lax.mul(x, np.float32(lax.axis_size("i"))), 3 * A),
    "pbroadcast": (lambda x: lax.pbroadcast(x, "i", 1), np.stack([A[1]] * 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("inside_jit", [False, True])
def test_collectives(name, inside_jit):
    f, expected = COLLECTIVES[name]
    close(over_i(amdjax.jit(f) if inside_jit else f)(A), expected)


def test_all_to_all_between_different_axes():
    x = np.arange(2 * 2 * 3, dtype=np.float32).reshape(2, 2, 3)
    out = over_i(lambda v: lax.all_to_all(v, "i", 0, 1))(x)
    # element i of the result collects the i-th row of every element, as columns
    close(out, x.transpose(1, 2, 0))
    out = over_i(lambda v: lax.all_to_all(v, "i", 0, 1, tiled=True))(x)
    close(out, np.stack([np.concatenate([x[0, i], x[1, i]])[None] for i in range(2)]))


def test_collectives_over_two_axes():
    f = lambda x: (lax.psum(x, ("i", "j")), lax.psum(x, "j"))
    both, one = amdjax.vmap(amdjax.vmap(f, axis_name="j"), axis_name="i")(X)
    close(both, np.full((2, 3), X.sum()))
    close(one, np.tile(X.sum(1, keepdims=True), (1, 3)))


@pytest.mark.parametrize(
    "name", ["psum", "all_gather", "ppermute", "all_to_all", "psum_scatter", "pmean"]
)
def test_collectives_inside_and_outside_of_gradients(name):
    f = COLLECTIVES[name][0]
    outside = amdjax.grad(lambda x: total(lax.sin(over_i(f)(x))))(A)
    close(outside, numerical_grad(lambda x: np.sin(np.asarray(over_i(f)(x))).sum(), A), 2e-2)
    # Inside, each element's cotangent reaches every element it came from.
    inside = over_i(amdjax.grad(lambda x: total(lax.sin(f(x)))))(A)
    close(inside, outside, 1e-4)


def numerical_grad(f, x, eps=1e-2):
    g = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = eps
        g[i] = (float(f(x + step)) - float(f(x - step))) / (2 * eps)
    return g


def test_batched_programs():
    closed = amdjax.make_jaxpr(lambda x, y: (lax.add(x, y), lax.sin(y)))(X[0], X[0])
    batched, out_batched = batch_jaxpr(closed, AxisData(None, 2), [True, False])
    assert out_batched == [True, False]
    close(jaxpr_as_fun(batched)(X, X[0])[0], X + X[0])
    _, out_batched = batch_jaxpr(closed, AxisData(None, 2), [True, False], instantiate=True)
    assert out_batched == [True, True]


def test_custom_vmap():
    @amdjax.custom_batching.custom_vmap
    def f(x, y):
        return lax.mul(x, y)

    with pytest.raises(AttributeError, match="def_vmap"):
        f(X, X)

    @f.def_vmap
    def rule(axis_size, in_batched, x, y):
        assert (axis_size, in_batched) == (2, [True, False])
        return lax.neg(lax.mul(x, lax.broadcast_in_dim(y, x.shape, (1,)))), True

    close(f(X, X), X * X)
    close(amdjax.vmap(f, (0, None))(X, X[1]), -X * X[1])
    close(amdjax.jit(amdjax.vmap(f, (0, None)))(X, X[1]), -X * X[1])
    close(amdjax.grad(lambda x: total(f(x, X)))(X), X)
    close(amdjax.jvp(lambda x: f(x, X), (X,), (X,))[1], X * X)


def test_unknown_types_of_gathered_axes():
    with pytest.raises(ValueError, match=r"to must be .* got 'somewhere'"):
        amdjax.vmap(lambda x: lax.all_gather(x, "i", to="somewhere"), axis_name="i")(X)


def test_values_may_be_declared_as_varying():
    f = lambda x: lax.pvary(x, "i")
    close(amdjax.vmap(f, axis_name="i")(X), X)
    with pytest.raises(NameError, match="unbound axis name: 'i'"):
        f(X)


def test_arguments_that_are_not_mapped_may_be_anything():
    f = lambda x, how, key: jnp.sum(x) if how == "sum" else key[x]
    close(amdjax.vmap(f, (0, None, None))(X, "sum", None), np.asarray(X).sum(1))
    found = amdjax.vmap(lambda d, x: getattr(jnp, d["name"])(x), ({"name": None}, 0))(
        {"name": "sin"}, X
    )
    close(found, np.sin(X))
    with pytest.raises(TypeError, match="how"):
        amdjax.vmap(f, (0, 0, None))(X, "sum", None)


def test_messages_call_keyword_arguments_so():
    with pytest.raises(ValueError, match=r"(?s)argument x of .*axis 0 of kwargs\['y'\]\['a'\] of"):
        amdjax.vmap(lambda x, y: x)(np.ones(2), y={"a": np.ones(3)})


def test_all_places_where_axes_do_not_fit_are_told():
    match = r"(?s)tree prefix of .*Mismatch details \(2 found\).*\['a'\].*\['b'\]"
    with pytest.raises(ValueError, match=match):
        amdjax.vmap(lambda d: d, in_axes=({"a": [0], "b": (0, 0)},))({"a": X, "b": X})
    with pytest.raises(ValueError, match=r"(?s)device_put device specification .*\(1 found\)"):
        amdjax.device_put({"a": X}, {"a": [None]})


def test_the_documentation_says_that_it_is_vectorized():
    def f(x):
        """Doubles."""
        return 2 * x

    assert "Vectorized version of f." in amdjax.vmap(f).__doc__
    assert amdjax.vmap(f).__doc__.endswith("Original documentation:\n\nDoubles.")


class Columns:
    """A matrix whose elements are its columns, and the number of the column."""

    def __init__(self, data, number=None):
        self.data, self.number = data, number


class Way:
    def __init__(self, axis):
        self.axis = axis


@pytest.fixture
def columns():
    def to_elt(cont, index, whole, way):
        return Columns(cont(whole.data * 2.0, way.axis), index())

    def from_elt(cont, size, element, way):
        return Columns(cont(size, element.data + 1.0, way.axis), cont(size, element.number, 0))

    batching.register_vmappable(Columns, Way, int, to_elt, from_elt, None)
    yield
    batching.unregister_vmappable(Columns)


@pytest.mark.parametrize("stage", [lambda f: f, amdjax.jit])
def test_types_of_ones_own_are_taken_apart(columns, stage):
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)

    def column(c, shift):
        assert c.data.shape == (2,) and c.number.shape == ()
        return Columns(c.data * (c.number + 1) + shift, c.number), {"shift": shift, "none": 1.0}

    @stage
    def both(x, shift):
        mapped = amdjax.vmap(column, (Way(1), 0), (Way(0), 0), axis_size=3)
        out, rest = mapped(Columns(x), shift)
        return out.data, out.number, rest

    shift = np.arange(3.0, dtype=np.float32)
    data, number, rest = both(x, shift)
    np.testing.assert_array_equal(data, (2 * x * [1, 2, 3] + shift).T + 1)
    np.testing.assert_array_equal(number, [0, 1, 2])
    np.testing.assert_array_equal(rest["shift"], shift)
    np.testing.assert_array_equal(rest["none"], np.ones(3))
    data = amdjax.vmap(lambda x: both(x, shift)[0])(np.stack([x, x + 1]))
    np.testing.assert_array_equal(data[1], both(x + 1, shift)[0])


def test_types_that_are_not_registered_are_no_arguments():
    assert not batching.is_vmappable(Columns(1.0))
    with pytest.raises(TypeError, match="not a valid JAX type"):
        amdjax.vmap(lambda c: c)(Columns(np.ones(3)))
    with pytest.raises(TypeError, match="in_axes must be an int"):
        amdjax.vmap(lambda c: c, Way(0))


def test_tracers_tell_what_they_hold():
    def f(x):
        assert x.val is batch and x.batch_dim == 1 and x.shape == (2,)
        return x

    batch = jnp.asarray(X)
    amdjax.vmap(f, 1)(batch)


def test_results_of_custom_vmap_that_are_no_numbers_have_no_slope():
    """A boolean that a `custom_vmap` function returns is chosen by and chosen from."""
    f = amdjax.custom_batching.custom_vmap(lambda x, m: (x * 2, m))
    f.def_vmap(lambda size, batched, x, m: ((x * 2, m), tuple(batched)))

    def g(x):
        y, m = f(x, x > 1)
        return jnp.where(jnp.where(m, m, m), y, x).sum()

    x = jnp.arange(4.0)
    assert amdjax.grad(g)(x).tolist() == [1, 1, 2, 2]
    assert amdjax.linearize(g, x)[1](x).item() == 11
