"""Calls of Python from programs."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from tests.support.lax_checks import close

X = np.array([0.3, -0.7, 1.2], np.float32)
F3 = amdjax.ShapeDtypeStruct((3,), np.float32)
F0 = amdjax.ShapeDtypeStruct((), np.float32)


@pytest.mark.parametrize("transform", [lambda f: f, amdjax.jit])
def test_pure_callback(transform):
    f = transform(lambda x: lax.add(amdjax.pure_callback(np.cosh, F3, x), x))
    close(f(X), np.cosh(X) + X)
    g = transform(lambda x: amdjax.pure_callback(lambda a, *, b: {"s": a + b}, {"s": F3}, x, b=x))
    close(g(X)["s"], 2 * X)


@pytest.mark.parametrize(
    "method", ["sequential", "expand_dims", "broadcast_all", "legacy_vectorized"]
)
@pytest.mark.parametrize("transform", [lambda f: f, amdjax.jit])
def test_pure_callback_under_vmap(method, transform):
    shapes = []

    def host(a, b):
        shapes.append((np.shape(a), np.shape(b)))
        return np.asarray(a * b, np.float32)

    f = lambda x, y: amdjax.pure_callback(host, F0, x, y, vmap_method=method)
    close(transform(amdjax.vmap(f, (0, None)))(X, 2.0), 2 * X)
    expected = {
        "sequential": [((), ())] * 3,
        "expand_dims": [((3,), (1,))],
        "broadcast_all": [((3,), (3,))],
        "legacy_vectorized": [((3,), ())],
    }
    assert shapes == expected[method]


def test_pure_callback_errors():
    with pytest.raises(NotImplementedError, match="vmap_method"):
        amdjax.vmap(lambda x: amdjax.pure_callback(np.cosh, F0, x))(X)
    with pytest.raises(ValueError, match="vmap_method='odd'"):
        amdjax.pure_callback(np.cosh, F3, X, vmap_method="odd")
    with pytest.raises(ValueError, match="JVP"):
        amdjax.grad(lambda x: amdjax.pure_callback(np.cosh, F0, x))(1.0)
    with pytest.raises(Exception, match=r"output shape .*\(3,\).*\(2,\)"):
        amdjax.pure_callback(np.cosh, amdjax.ShapeDtypeStruct((2,), np.float32), X)


def test_pure_callback_with_a_derivative():
    @amdjax.custom_jvp
    def cosh(x):
        return amdjax.pure_callback(np.cosh, F0, x, vmap_method="expand_dims")

    @cosh.defjvp
    def rule(primals, tangents):
        out = amdjax.pure_callback(np.sinh, F0, *primals, vmap_method="expand_dims")
        return cosh(*primals), lax.mul(out, tangents[0])

    close(amdjax.grad(cosh)(0.3), np.sinh(0.3))
    close(amdjax.jit(amdjax.vmap(amdjax.grad(cosh)))(X), np.sinh(X))


def test_io_callback_runs_once_each_time_and_in_order():
    seen = []

    def push(v):
        seen.append(float(v))
        return np.float32(len(seen))

    @amdjax.jit
    def f(x):
        a = amdjax.io_callback(push, F0, x, ordered=True)
        amdjax.io_callback(push, F0, lax.add(x, 1.0), ordered=True)
        return a

    close(f(1.0), 1.0)
    close(f(5.0), 3.0)
    assert seen == [1.0, 2.0, 5.0, 6.0]


def test_io_callback_errors():
    f = lambda x, ordered=False: amdjax.io_callback(lambda v: v, F0, x, ordered=ordered)
    with pytest.raises(ValueError, match="JVP"):
        amdjax.grad(f)(1.0)
    with pytest.raises(ValueError, match="ordered"):
        amdjax.vmap(lambda x: f(x, True))(X)
    close(amdjax.vmap(f)(X), X)


def test_debug_print(capsys):
    def f(x):
        amdjax.debug.print("x = {}, twice {y:.1f}", x, y=lax.add(x, x))
        return lax.sin(x)

    f(1.0)
    amdjax.jit(f)(2.0)
    amdjax.grad(f)(3.0)
    amdjax.vmap(f)(np.array([4.0, 5.0], np.float32))
    assert capsys.readouterr().out.splitlines() == [
        f"x = {i}.0, twice {2 * i}.0" for i in (1, 2, 3, 4, 5)
    ]


def test_debug_print_inside_loops(capsys):
    def body(c, _):
        amdjax.debug.print("c {c}", c=c, ordered=True)
        return lax.add(c, 1), None

    amdjax.jit(lambda: lax.scan(body, 0, None, length=3)[0])()
    assert capsys.readouterr().out == "c 0\nc 1\nc 2\n"


def test_debug_print_errors():
    with pytest.raises(IndexError, match="field 1 without a value"):
        amdjax.debug.print("{} {}", 1.0)
    with pytest.raises(KeyError, match="field 'y' without a value"):
        amdjax.debug.print("{y.real:.2f}", x=1.0)
    with pytest.raises(ValueError, match=r"Unused positional arguments.*f-string"):
        amdjax.debug.print("x", 1.0)
    with pytest.raises(ValueError, match=r"Unused keyword arguments.*'ordered'"):
        amdjax.debug.print(partitioned=True)("x {a}", a=1, ordered=True)
    for form in (amdjax.debug.print, amdjax.debug.callback):
        with pytest.raises(TypeError, match="two-call form"):
            form(None, 1.0)


def test_settings_first_and_values_later(capsys):
    amdjax.jit(lambda x: amdjax.debug.print(ordered=True)("{x:.1f} {}", x, x=x))(2.0)
    seen = []
    amdjax.debug.callback(ordered=True)(seen.append, 3)
    assert (capsys.readouterr().out, seen) == ("2.0 2.0\n", [3])


def test_prints_look_as_where_they_were_written(capsys):
    @amdjax.jit
    def f(x):
        with np.printoptions(precision=2):
            amdjax.debug.print("{}", x)

    f(jnp.asarray([1.2345]))
    assert capsys.readouterr().out == "[1.23]\n"


def test_nested_maps_call_the_inner_axis_last(capsys):
    show = lambda x: amdjax.debug.print("{}", x)
    amdjax.vmap(amdjax.vmap(show))(jnp.arange(6).reshape(3, 2))
    assert capsys.readouterr().out.split() == list("024135")
    add = lambda x, y: amdjax.pure_callback(lambda x, y: x * y, x, x, y, vmap_method="sequential")
    x, y = jnp.arange(6.0).reshape(3, 2), jnp.arange(12.0).reshape(2, 2, 3)
    out = amdjax.vmap(amdjax.vmap(add, (None, 0)), (0, None))(x[:, 0], y[0, 0])
    np.testing.assert_array_equal(out, np.multiply.outer(np.asarray(x)[:, 0], y[0, 0]))
    out = amdjax.vmap(amdjax.vmap(lambda v: add(v, 2 * v)), in_axes=1)(x)
    np.testing.assert_array_equal(out, 2 * np.asarray(x).T ** 2)


def test_results_of_callbacks_have_the_types_that_were_promised():
    with pytest.raises(amdjax.errors.JaxRuntimeError, match="Incorrect output dtype"):
        amdjax.pure_callback(lambda: np.int32(1), amdjax.ShapeDtypeStruct((), np.float32))
    with pytest.raises(ValueError, match="cannot specify 64-bit types"):
        amdjax.io_callback(lambda: 1.0, np.zeros((), np.float64))


def test_io_where_it_would_happen_too_often():
    call = lambda x: amdjax.io_callback(lambda x: x, x, x)
    xs = jnp.arange(2.0)
    with pytest.raises(NotImplementedError, match="vmap-of-cond"):
        amdjax.vmap(lambda x: lax.cond(x > 0, call, lambda x: x, x))(xs)
    with pytest.raises(ValueError, match="batched predicate"):
        amdjax.vmap(lambda x: lax.while_loop(lambda x: x < 3, lambda x: call(x) + 1, x))(xs)
    with pytest.raises(NotImplementedError, match="partial-eval of `checkpoint`"):
        amdjax.grad(amdjax.checkpoint(lambda x: call(lax.stop_gradient(x)) * x))(1.0)
    with pytest.raises(ValueError, match="support transpose"):
        amdjax.linear_transpose(call, 1.0)(1.0)


def test_debug_print_checks_later_if_asked(capsys):
    amdjax.debug.print("x", 1.0, skip_format_check=True, partitioned=True)
    assert capsys.readouterr().out == "x\n"


def test_debug_callback_takes_static_leaves():
    seen = []
    amdjax.jit(lambda x: amdjax.debug.callback(lambda n, v: seen.append((n, float(v))), "x", x))(
        2.0
    )
    assert seen == [("x", 2.0)]


@pytest.mark.parametrize("call", [amdjax.pure_callback, amdjax.io_callback])
@pytest.mark.parametrize("stage", [lambda f: f, amdjax.jit])
def test_errors_of_callbacks_are_causes(call, stage):
    def fail(x):
        raise KeyError("mine")

    for callback, cause in ((fail, KeyError), (lambda: 1.0, TypeError)):
        f = stage(lambda x, callback=callback: call(callback, x, x))
        with pytest.raises(amdjax.errors.JaxRuntimeError, match=cause.__name__) as error:
            f(np.float32(1))
        assert isinstance(error.value.__cause__, cause)
