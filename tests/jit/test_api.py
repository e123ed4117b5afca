"""`jit` as users meet it."""

import functools
import gc
import pickle
import traceback
import warnings
import weakref
from typing import NamedTuple

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import grad, jit, lax, vmap
from amdjax.core.config import config
from amdjax.core.errors import UnexpectedTracerError
from tests.support.jit_helpers import run_python


class Counter:
    """A function that counts how often it is traced."""

    def __init__(self, fun):
        self.fun, self.traces = fun, 0
        self.__name__ = "counted"

    def __call__(self, *args, **kwargs):
        self.traces += 1
        return self.fun(*args, **kwargs)


def test_traced_once_for_each_signature():
    counted = Counter(lambda x: x + 1)
    f = jit(counted)
    for _ in range(3):
        f(1.0)
    assert counted.traces == 1
    f(2.0), f(np.float32(1))
    f(np.zeros(3, np.float32)), f(np.ones(3, np.float32))
    f(np.zeros(4, np.float32))
    f(np.zeros(3, np.int32))
    f(jnp.zeros(3))
    assert counted.traces <= 6  # weak scalar, float32 scalar, [3], [4], int32
    before = counted.traces
    f(jnp.ones(3)), f(1.0), f(np.ones(4, np.float32))
    assert counted.traces == before


def test_structure_is_part_of_the_signature():
    counted = Counter(lambda t: jnp.asarray(0.0) + sum(amdjax.tree.leaves(t)))
    f = jit(counted)
    f([1.0, 2.0]), f((1.0, 2.0)), f({"a": 1.0, "b": 2.0}), f([1.0, 2.0])
    assert counted.traces == 3


def test_flags_that_change_programs_retrace():
    counted = Counter(lambda x: x * 2)
    f = jit(counted)
    f(np.float64(1))
    with amdjax.enable_x64(True):
        assert f(np.float64(1)).dtype == np.float64
    assert f(np.float64(1)).dtype == np.float32
    assert counted.traces == 2


def test_static_arguments():
    counted = Counter(lambda x, n: x * n if n > 2 else x)
    counted.__signature__ = None
    f = jit(lambda x, n: counted(x, n), static_argnums=1)
    assert f(2.0, 3) == 6 and f(2.0, 1) == 2 and f(4.0, 3) == 12
    assert counted.traces == 2
    g = jit(lambda x, n, flag=False: x * n if flag else x, static_argnames=("flag", "n"))
    assert g(2.0, 3, flag=True) == 6 and g(2.0, n=3, flag=True) == 6 and g(2.0, 3) == 2
    h = jit(lambda *xs: sum(xs[:-1]) if xs[-1] == "sum" else xs[0], static_argnums=-1)
    assert h(1.0, 2.0, "sum") == 3 and h(1.0, 2.0, "first") == 1


def test_static_arguments_that_are_equal_but_of_another_type():
    f = jit(lambda x, n: x + n, static_argnums=1)
    assert f(1, 2).dtype == np.int32
    assert f(1, 2.0).dtype == np.float32


def test_keyword_arguments_and_defaults():
    @jit
    def f(x, *, scale=2.0, **rest):
        return x * scale + sum(rest.values())

    assert f(3.0) == 6
    assert f(3.0, scale=4.0) == 12
    assert f(3.0, b=1.0, a=10.0) == 17 == f(3.0, a=10.0, b=1.0)


def test_methods():
    class Model:
        def __init__(self, w):
            self.w = w

        @functools.partial(jit, static_argnums=0)
        def __call__(self, x):
            return x * self.w

        @functools.partial(jit, static_argnums=0, static_argnames="power")
        def raised(self, x, power=2):
            return x**power * self.w

    model = Model(3.0)
    assert model(2.0) == 6
    assert model.raised(2.0) == 12 and model.raised(2.0, power=3) == 24
    assert Model(5.0)(2.0) == 10


def test_the_name_and_documentation_stay():
    @jit
    def documented(x):
        """What it does."""
        return x

    assert documented.__name__ == "documented" and documented.__doc__ == "What it does."
    assert documented.__wrapped__(3) == 3
    assert "documented" in repr(documented)


class Point(NamedTuple):
    x: object
    y: object


def test_pytrees_in_and_out():
    @jit
    def f(t):
        return {"sum": t["p"].x + t["p"].y, "list": [t["q"], None, (t["p"],)]}

    out = f({"p": Point(1.0, 2.0), "q": jnp.arange(3)})
    assert out["sum"] == 3
    assert out["list"][1] is None
    assert isinstance(out["list"][2][0], Point)
    np.testing.assert_array_equal(out["list"][0], [0, 1, 2])


def test_python_and_numpy_values_of_all_kinds():
    f = jit(lambda x: x)
    for x in [True, 3, 2.5, 1 + 2j, np.int8(4), np.float16(0.5), np.bool_(False), [1, 2.0]]:
        assert amdjax.tree.leaves(f(x))[0] == amdjax.tree.leaves(x)[0]
    strided = np.arange(20, dtype=np.float32).reshape(4, 5)[::2, ::-2]
    np.testing.assert_array_equal(f(strided), strided)
    np.testing.assert_array_equal(f(np.asfortranarray(strided)), strided)


def test_nested():
    inner = Counter(lambda x: x * 2)
    g = jit(inner)
    f = jit(lambda x: g(x) + g(x + 1))
    assert f(3.0) == 14 and f(4.0) == 18
    assert inner.traces == 1
    assert jit(jit(jit(lambda x: x + 1)))(1.0) == 2


def test_closures_over_arrays_and_tracers():
    table = jnp.arange(3.0)
    assert jit(lambda x: (x * table).sum())(2.0) == 6

    def f(x):
        @jit
        def inner(y):
            return x * y

        return inner(3.0) + grad(jit(lambda y: y * x))(1.0)

    assert f(2.0) == 8 and jit(f)(2.0) == 8
    assert grad(f)(2.0) == 4
    np.testing.assert_array_equal(vmap(f)(jnp.arange(3.0)), [0, 4, 8])


def test_a_changed_closure_is_not_seen_by_the_compiled_program():
    box = {"scale": 2.0}
    f = jit(lambda x: x * box["scale"])
    assert f(1.0) == 2
    box["scale"] = 5.0
    assert f(1.0) == 2
    f.clear_cache()
    assert f(1.0) == 5


def test_disable_jit():
    values = []
    f = jit(lambda x: values.append(float(x)) or x * 2)
    with amdjax.disable_jit():
        assert f(3.0) == 6 and f(4.0) == 8
    assert values == [3.0, 4.0]


def test_clear_caches():
    counted = Counter(lambda x: x + 1)
    f = jit(counted)
    f(1.0), f(1.0)
    amdjax.clear_caches()
    assert f(1.0) == 2
    assert counted.traces == 2


def test_partial_and_callable_objects():
    assert jit(functools.partial(lambda a, x: a * x, 3.0))(2.0) == 6
    assert jit(Counter(lambda x: -x))(2.0) == -2


def test_an_exception_while_tracing_leaves_nothing_broken():
    bad = [True]

    @jit
    def f(x):
        y = jit(lambda z: z * 2)(x)
        if bad[0]:
            raise KeyError("mine")
        return y

    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            f(1.0)
    with pytest.raises(KeyError):
        grad(lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0])(1.0)
    assert jnp.sin(0.0) == 0  # the eager trace is the current one again
    bad[0] = False
    assert f(1.0) == 2 and grad(f)(1.0) == 2


def test_leaked_tracers_are_refused_everywhere():
    leaked = []
    jit(lambda x: leaked.append(x) or x)(1.0)
    for use in [lambda x: x + 1, jit(lambda x: x), lambda x: jit(lambda y: y + leaked[0])(1.0)]:
        with pytest.raises(UnexpectedTracerError):
            use(leaked[0])


def test_results_of_the_wrong_kind():
    with pytest.raises(TypeError, match=r"(?s)named.*str"):

        @jit
        def named(x):
            return "text"

        named(1.0)


@pytest.mark.parametrize("call,error,words", [
    (lambda: jit(3), TypeError, ["jit", "3", "callable"]),
    (lambda: jit(lambda x: x)("text"), TypeError, ["path x", "'text'", "str"]),
    (lambda: jit(lambda x: x)({"a": object()}), TypeError, ["path x['a']", "object"]),
    (lambda: jit(lambda x, k: x)(1.0, k=None if False else "s"), TypeError, ["path k", "str"]),
    (lambda: jit(lambda x: x, static_argnums=0)([1]), ValueError, ["tatic", "list", "hash"]),
    (lambda: jit(lambda x: x, static_argnums=4), ValueError, ["static_argnums", "4"]),
    (lambda: jit(lambda x: x, static_argnames="y"), ValueError, ["static_argnames", "'y'"]),
    (lambda: jit(lambda x: x, static_argnums="x"), TypeError, ["static_argnums"]),
    (lambda: jit(lambda x: x, static_argnames=3), TypeError, ["static_argnames"]),
    (lambda: jit(lambda x: x, donate_argnums=7), ValueError, ["donate_argnums", "7"]),
    (lambda: jit(lambda x: x, abstracted_axes=()), NotImplementedError, ["abstracted_axes"]),
    (lambda: jit(lambda x: x)(), TypeError, ["x"]),
    (lambda: jit(lambda x: x)(1, 2), TypeError, ["argument"]),
])  # fmt: skip
def test_bad_input(call, error, words):
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def my_broken_line(x):
    return x + jnp.zeros((3, 4))[:, 1] * jnp.zeros(7)


@pytest.mark.parametrize("call", [
    lambda: jit(my_broken_line)(1.0),
    lambda: jit(jit(my_broken_line))(1.0),
    lambda: grad(jit(my_broken_line))(1.0),
    lambda: vmap(jit(my_broken_line))(jnp.ones(2)),
    lambda: jit(lambda x: lax.scan(lambda c, _: (my_broken_line(c), c), x, None, length=2))(1.0),
])  # fmt: skip
def test_tracebacks_end_at_the_users_line(call):
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].name == "my_broken_line"
    assert all("/amdjax/jit/" not in f.filename for f in frames)


@pytest.mark.parametrize("call", [
    lambda: jit(lambda x: x)(object()),
    lambda: jit(lambda x: x, static_argnums=0)([]),
    lambda: jit(lambda x: x, static_argnums=9),
])  # fmt: skip
def test_errors_about_arguments_end_at_the_call(call):
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].filename == __file__


def test_full_tracebacks_on_demand():
    code = """
    import traceback
    import amdjax, amdjax.numpy as jnp
    try:
        amdjax.jit(lambda x: x + jnp.zeros((3,)) * jnp.zeros(7))(1.0)
    except (TypeError, ValueError):
        print(sum("amdjax/jit/api.py" in l for l in traceback.format_exc().splitlines()))
    """
    assert int(run_python(code, AMDJAX_TRACEBACK="full")) > 0
    assert int(run_python(code, AMDJAX_TRACEBACK="filtered")) == 0


def test_full_tracebacks_by_flag():
    before = config.traceback
    config.update("traceback", "full")
    try:
        with pytest.raises((TypeError, ValueError)) as caught:
            jit(my_broken_line)(1.0)
    finally:
        config.update("traceback", before)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert any(f.filename.endswith("api.py") for f in frames)


def test_jit_of_one_function_is_compiled_once():
    traced = []

    def f(x, n=2):
        traced.append(n)
        return x * n

    for _ in range(3):
        assert amdjax.jit(f)(1.0) == 2
        assert amdjax.jit(lambda x: amdjax.jit(f)(x) + 1)(1.0) == 3
    assert traced == [2]
    assert amdjax.jit(f, static_argnames="n")(1.0, n=3) == 3
    assert traced == [2, 3]
    amdjax.jit(f).clear_cache()
    assert amdjax.jit(f)(1.0) == 2
    assert traced == [2, 3, 2]


def test_what_jit_remembers_lives_as_long_as_the_function():
    def make():
        def f(x):
            return x + 1

        amdjax.jit(f)(1.0)
        amdjax.grad(amdjax.jit(f))(1.0)
        return weakref.ref(f)

    function = make()
    gc.collect()
    assert function() is None


def test_equal_callables_are_not_one_function():
    class Adds:
        def __init__(self, n):
            self.n = n

        def __call__(self, x):
            return x + self.n

        __eq__ = lambda self, other: True
        __hash__ = lambda self: 0

    assert amdjax.jit(Adds(1))(1.0) == 2
    assert amdjax.jit(Adds(2))(1.0) == 3


def test_pickles_of_devices_and_compiled_functions():
    device = amdjax.devices()[0]
    assert pickle.loads(pickle.dumps(device)) is device
    f = amdjax.jit(pow, static_argnums=1)
    assert float(f(3.0, 2)) == 9
    assert float(pickle.loads(pickle.dumps(f))(3.0, 3)) == 27


@pytest.mark.parametrize("dtype", ["float64", "int64", "complex128"])
def test_pickles_of_64_bits_are_read_as_32_where_those_are_not_enabled(dtype):
    with amdjax.enable_x64(True):
        data = pickle.dumps(amdjax.numpy.arange(5, dtype=dtype))
        assert pickle.loads(data).dtype == dtype
    found = pickle.loads(data)
    assert found.dtype == amdjax.dtypes.canonicalize_dtype(dtype)
    np.testing.assert_array_equal(found, np.arange(5))


def test_donations_of_no_use_bring_a_warning():
    f = amdjax.jit(lambda x, y: (x.sum(), y + 1), donate_argnums=(0, 1))
    with pytest.warns(UserWarning, match=r"donated buffers were not usable: f32\[3\]\."):
        f(jnp.ones(3), jnp.ones(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(jnp.ones(3), jnp.ones(4))  # once, when it is compiled
        amdjax.jit(lambda x: x + 1, donate_argnums=0)(jnp.ones(5))


@pytest.mark.parametrize(
    "f", [lambda x: x, lambda x: x + 1, lambda x: x.astype(float), jnp.zeros_like]
)
def test_donated_arrays_are_deleted(f):
    move = amdjax.jit(lambda x, y: (f(x), y), donate_argnums=0)
    for x in (jnp.arange(3.0), jnp.broadcast_to(2.0, (3,)), jnp.arange(6.0)[::2]):
        expected, y = np.asarray(f(x)), jnp.ones(3)
        got, _ = move(x, y)
        assert x.is_deleted()
        assert not y.is_deleted()
        np.testing.assert_array_equal(got, expected)


def test_an_array_is_not_donated_and_read():
    move = amdjax.jit(lambda x, y: x + y, donate_argnums=0)
    x = jnp.ones(3)
    with pytest.raises(RuntimeError, match="leaf 0 of the arguments, f32\\[3\\], is another leaf"):
        move(x, x)
    assert not x.is_deleted()


def test_static_arguments_that_cannot_be_compared():
    class Odd:
        __hash__ = lambda self: 1

        def __eq__(self, other):
            raise NotImplementedError("not I")

    f = amdjax.jit(lambda x, mode: x + 1, static_argnums=1)
    assert f(1, Odd()) == 2
    for call in (f, lambda x, mode: amdjax.make_jaxpr(lambda x: f(x, mode))(x)):
        with pytest.raises(ValueError, match=r"comparable using __eq__.*Error: not I"):
            call(1, Odd())


def test_integers_that_no_dtype_holds_are_named():
    f = amdjax.jit(lambda size, mode, x: x["n"] + size, static_argnums=1)
    assert f(1, "a", {"n": 2}) == 3
    with pytest.raises(OverflowError, match=r"path is x\['n'\]\. Python int"):
        f(1, "a", {"n": 2**70})


def test_what_has_no_value_is_traced_and_not_run():
    struct = amdjax.ShapeDtypeStruct((3,), "float32")
    double = amdjax.jit(lambda x: x * 2)
    loop = lambda x: amdjax.lax.fori_loop(0, 3, lambda _, c: c * 2, x)
    for f in (double, amdjax.vmap(double), amdjax.checkpoint(double), loop):
        assert amdjax.eval_shape(lambda f=f: f(struct)) == struct
        with pytest.raises(TypeError, match="ShapeDtypeStruct does not have a value"):
            f(struct)
        with pytest.raises(TypeError, match="ShapeDtypeStruct does not have a value"):
            amdjax.jit(lambda f=f: f(struct))()
    with pytest.raises(TypeError, match=r"'x\['a'\]' of shape float32\[3\] .*not a valid JAX type"):
        amdjax.jit(lambda x: x)({"a": struct})


def test_inlined_calls_leave_no_trace():
    f = amdjax.jit(lambda x: x * 2 + 1, inline=True)
    assert "jit" not in str(amdjax.make_jaxpr(f)(3))
    assert amdjax.grad(lambda x: f(x) * x)(3.0) == 13
    assert [float(y) for y in amdjax.vmap(f)(jnp.arange(2.0))] == [1, 3]


def test_positions_and_names_given_both_are_taken_as_they_are():
    def traced(x, y):
        seen.append([isinstance(v, amdjax.core.Tracer) for v in (x, y)])
        return 1

    f = amdjax.jit(traced, static_argnums=1, static_argnames="x")
    seen = []
    f(2, "foo"), f(1, y=3), f(x="foo", y=3)
    assert seen == [[True, False], [True, True], [False, True]]
    for names in ("args", "a", "missing"):
        with pytest.raises(ValueError, match="by keyword"):
            amdjax.jit(lambda a, /, b, *args: b, static_argnames=names)
    amdjax.jit(lambda a, /, b, **kw: b, static_argnames="missing")
