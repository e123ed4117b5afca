"""What is kept between calls is kept under all that its trace depends on.

Every construct that remembers programs is evaluated under one setting, then under another, and
compared with a function that was never called before.
"""

import threading

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.config import State

# Constructs: from a function of an array, one that goes through what remembers programs.


def _scan(f):
    return lambda x: lax.scan(lambda c, _: (c, f(x)), 0, None, length=2)[1][0]


def _scan_of(f):
    step = lambda c, x: (c, f(x))
    return lambda x: lax.scan(step, 0, x[None])[1][0]


def _while(f):
    def run(x):
        start = 0 * f(x)
        return lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, c[1] + f(x)), (0, start))[1]

    return run


def _fori(f):
    return lambda x: lax.fori_loop(0, 1, lambda i, c: c + f(x), 0 * f(x))


def _cond(f):
    return lambda x: lax.cond(jnp.sum(x) > -1, f, lambda x: 0 * f(x), x)


def _switch(f):
    return lambda x: lax.switch(jnp.int32(1), [lambda x: 0 * f(x), f, f], x)


def _custom_jvp(f):
    g = amdjax.custom_jvp(f)
    g.defjvp(lambda primals, tangents: (f(*primals), 2 * f(*primals)))
    return g


def _custom_vjp(f):
    g = amdjax.custom_vjp(f)
    bwd = lambda x, ct: (jnp.broadcast_to(f(x).sum(), x.shape).astype(x.dtype),)
    g.defvjp(lambda x: (f(x), x), bwd)
    return g


def _custom_vmap(f):
    g = amdjax.custom_batching.custom_vmap(f)
    g.def_vmap(lambda size, batched, x: (amdjax.vmap(f, axis_name="i")(x), True))
    return g


def _gradient_of_rule(f):
    g = _custom_vjp(f)
    return lambda x: amdjax.vjp(g, x)[1](jnp.ones_like(g(x)))[0]


def _tangent_of_rule(f):
    g = _custom_jvp(f)
    return lambda x: amdjax.jvp(g, (x,), (jnp.ones_like(x),))[1]


def _gradient_of_checkpoint(f):
    def run(x):
        out, pull = amdjax.vjp(amdjax.checkpoint(f), x)
        return out + pull(out)[0]

    return run


def _linearize(f):
    def run(x):
        out, push = amdjax.linearize(f, x)
        return out + push(x)

    return run


CONSTRUCTS = {
    "plain": lambda f: f,
    "jit": amdjax.jit,
    "jit of jit": lambda f: amdjax.jit(amdjax.jit(f)),
    "scan": _scan,
    "scan over x": _scan_of,
    "while": _while,
    "fori": _fori,
    "cond": _cond,
    "switch": _switch,
    "map": lambda f: lambda x: lax.map(f, x[None])[0],
    "checkpoint": amdjax.checkpoint,
    "gradient of checkpoint": _gradient_of_checkpoint,
    "custom_jvp": _custom_jvp,
    "custom_jvp tangent": _tangent_of_rule,
    "custom_vjp": _custom_vjp,
    "custom_vjp gradient": _gradient_of_rule,
    "custom_vmap": _custom_vmap,
    "composite": lambda f: lax.composite(f, "tests.f"),
    "closure_convert": lambda f: lambda x: amdjax.closure_convert(f, x)[0](x),
    "vmap": lambda f: lambda x: amdjax.vmap(f)(x[None])[0],
    "linearize": _linearize,
    "jit of scan": lambda f: amdjax.jit(_scan_of(f)),
    "jit of checkpoint": lambda f: amdjax.jit(amdjax.checkpoint(f)),
}

# Settings: a flag, two values of it, and a function whose result or program tells them apart.


def _bits(x):
    return x + amdjax.random.uniform(amdjax.random.key(3), x.shape)


SETTINGS = {
    "enable_x64": (False, True, lambda x: x * jnp.arange(3).astype(float)),
    "explicit_x64_dtypes": ("allow", "error", lambda x: x.astype("float64")),
    "numpy_dtype_promotion": ("standard", "strict", lambda x: x * jnp.array(2, "int8")),
    "numpy_rank_promotion": ("allow", "raise", lambda x: x * jnp.ones(x.shape[-1])),
    "default_matmul_precision": (None, "highest", lambda x: x @ x.mT @ x),
    "default_prng_impl": ("threefry2x32", "rbg", _bits),
    "threefry_partitionable": (True, False, _bits),
    "random_seed_offset": (0, 1, _bits),
    "high_dynamic_range_gumbel": (
        False, True, lambda x: x + amdjax.random.gumbel(amdjax.random.key(3), x.shape),
    ),
    "softmax_custom_jvp": (True, False, amdjax.nn.softmax),
    "debug_nans": (False, True, lambda x: x + jnp.log(-jnp.abs(x))),
    "debug_infs": (False, True, lambda x: x + 1 / (0 * x)),
}  # fmt: skip


def _outcome(f, g):
    """Values, types and program of `f`, or the class of its error; `g` is a like function."""
    x = jnp.linspace(0.5, 1.5, 9, dtype=np.float32).reshape(3, 3)
    try:
        out = f(x)
        text = str(amdjax.make_jaxpr(g)(x))
    except (TypeError, ValueError, FloatingPointError) as e:
        return type(e).__name__
    return text, str(out.dtype), out.weak_type, repr(np.asarray(out).tolist())


def _fresh(make, body):
    """The construct around a function that nothing has seen yet."""
    return make(lambda x: body(x))


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_flags_belong_to_the_keys(construct, name):
    before, after, body = SETTINGS[name]
    make, flag = CONSTRUCTS[construct], State(name)
    f, g = _fresh(make, body), _fresh(make, body)
    with flag(before):
        first = _outcome(f, g)
    with flag(after):
        second = _outcome(f, g)
        assert second == _outcome(_fresh(make, body), _fresh(make, body))
    with flag(before):
        assert _outcome(f, g) == first
    assert first != second


@pytest.mark.parametrize("name", [n for n in SETTINGS if not n.startswith("debug")])
def test_flags_hold_where_a_program_is_traced(name):
    before, after, body = SETTINGS[name]

    def inside(x):
        with State(name)(after):
            return body(x)

    with State(name)(before):
        assert _outcome(amdjax.jit(inside), inside) == _outcome(inside, inside)


WIDE_BODIES = {
    "cumsum": jnp.cumsum,
    "sort": lambda x: jnp.sort(x)[::-1],
    "norm": jnp.linalg.norm,
    "softmax": amdjax.nn.softmax,
    "median": jnp.median,
    "gammaln": amdjax.scipy.special.gammaln,
    "erf_inv": lambda x: lax.erf_inv(x / 10),
    "uniform": lambda x: amdjax.random.uniform(amdjax.random.key(1), (3,), x.dtype),
    "bits": lambda x: amdjax.random.bits(amdjax.random.key(3), (2,), "uint64"),
    "sum of integers": lambda x: jnp.arange(4).sum(),
    "gradient": lambda x: amdjax.grad(lambda x: jnp.std(jnp.sort(x)))(x),
}


@pytest.mark.parametrize("name", WIDE_BODIES)
def test_wide_operations_inside_a_program_of_32_bits(name):
    """Operations that are made of others are so under the types that they were traced with."""

    def inside(x):
        with amdjax.enable_x64(True):
            return WIDE_BODIES[name](x.astype("float64"))

    x = jnp.linspace(0.5, 4.5, 5)
    wanted, found = inside(x), amdjax.jit(inside)(x)
    assert found.dtype == wanted.dtype and found.dtype.itemsize == 8
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


AXIS_BODIES = {
    "axis_size": lambda x: x * lax.axis_size("i"),
    "psum of 1": lambda x: x * lax.psum(1, "i"),
    "pmean": lambda x: lax.pmean(x, "i"),
    "axis_index": lambda x: x + lax.axis_index("i") / lax.axis_size("i"),
    "all_gather": lambda x: lax.all_gather(x, "i").mean(0),
    "ppermute": lambda x: lax.ppermute(x, "i", [(k, 0) for k in [lax.axis_size("i") - 1]]),
}


@pytest.mark.parametrize("body", AXIS_BODIES)
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_sizes_of_named_axes_belong_to_the_keys(construct, body):
    make = CONSTRUCTS[construct]
    f = _fresh(make, AXIS_BODIES[body])
    for size in (2, 4, 3, 2):
        x = np.linspace(0.5, 1.5, size * 2, dtype=np.float32).reshape(size, 2)
        found = amdjax.vmap(f, axis_name="i")(x)
        fresh = amdjax.vmap(_fresh(make, AXIS_BODIES[body]), axis_name="i")(x)
        np.testing.assert_array_equal(found, fresh)
        compiled = amdjax.jit(amdjax.vmap(f, axis_name="i"))(x)
        np.testing.assert_allclose(compiled, fresh, rtol=1e-6)


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_an_axis_that_is_gone_is_not_found_in_a_cache(construct):
    f = _fresh(CONSTRUCTS[construct], AXIS_BODIES["psum of 1"])
    x = np.ones((2, 2), np.float32)
    amdjax.vmap(f, axis_name="i")(x)
    with pytest.raises(NameError, match="unbound axis name"):
        f(x)


def test_another_thread_sees_its_own_axes():
    seen = []
    f = amdjax.jit(lambda x: x * lax.psum(1, "i"))

    def run(size):
        seen.append((size, np.asarray(amdjax.vmap(f, axis_name="i")(np.ones(size)))))

    threads = [threading.Thread(target=run, args=(n,)) for n in (2, 3, 4, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(seen) == 4
    for size, out in seen:
        np.testing.assert_array_equal(out, np.full(size, size, np.float32))
