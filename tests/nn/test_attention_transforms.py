"""Attention under transformations in every dtype, at the edges of its sizes, against NumPy.

The oracle is the definition in float64 (`support/attention.py`), and central differences of it and
of its gradient for derivatives in a direction.
"""

import numpy as np
import pytest

import amdjax
import amdjax.lax.attention as primitives
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.core.jaxpr import subjaxprs
from amdjax.lax.attention import blocks
from tests.support import attention as reference
from tests.support.turns import in_turn

pytestmark = pytest.mark.share(4)

#: Of a result that is about 1: a few roundings of its dtype, and what differences leave.
TOLERANCE = {"float64": 2e-7, "float32": 2e-5, "float16": 8e-3, "bfloat16": 6e-2}
NAMES = {
    "window": "local_window_size",
    "query_lengths": "query_seq_lengths",
    "key_lengths": "key_value_seq_lengths",
}
STEP = 1e-5


def int32(*values):
    return np.array(values, np.int32)


#: Sizes as of `reference.operands`, and options of the oracle.
CASES = {
    "plain": ((2, 5, 7, 4, 2, 8, 6), {}),
    "causal with window": ((1, 9, 11, 2, 1, 4, 4), {"is_causal": True, "window": (3, 1)}),
    "bias and mask": (
        (2, 4, 6, 2, 2, 4, 4),
        {"bias": np.random.default_rng(3).normal(size=(1, 2, 4, 6)),
         "mask": np.random.default_rng(4).random((2, 1, 4, 6)) < 0.7},
    ),
    "no batch": ((0, 5, 7, 2, 2, 4, 4), {"is_causal": True}),
    "one key": ((2, 3, 1, 2, 2, 4, 4), {}),
    "one query": ((2, 1, 9, 4, 2, 8, 8), {"key_lengths": int32(9, 4)}),
    "one of both": ((1, 1, 1, 1, 1, 3, 3), {"is_causal": True}),
    "all keys masked": ((2, 3, 5, 2, 2, 4, 4), {"mask": np.zeros((2, 1, 3, 5), bool)}),
    "lengths of nothing": (
        (2, 4, 4, 2, 1, 4, 4),
        {"query_lengths": int32(0, 3), "key_lengths": int32(2, 0), "is_causal": True},
    ),
    "no length at all": (
        (2, 3, 4, 2, 2, 4, 4), {"query_lengths": int32(0, 0), "key_lengths": int32(0, 0)}
    ),
}  # fmt: skip


def attend(options):
    """Attention with the options of a case, as a function of query, key and value."""
    call = {NAMES.get(name, name): x for name, x in options.items()}

    def f(q, k, v):
        bias = call.get("bias")
        more = {} if bias is None else {"bias": jnp.asarray(bias, q.dtype)}
        return nn.dot_product_attention(q, k, v, **{**call, **more})

    return f


def of_case(name, dtype):
    """Operands, directions and a cotangent, and the options with what the bias becomes."""
    sizes, options = CASES[name]
    *args, ct = (jnp.asarray(x) for x in reference.operands(sizes, dtype))
    directions = tuple(jnp.asarray(x) for x in reference.operands(sizes, dtype, 1)[:3])
    options = dict(options)
    if "bias" in options:
        options["bias"] = np.asarray(jnp.asarray(options["bias"], dtype), np.float64)
    return tuple(args), directions, ct, options


def wide(xs):
    return [np.asarray(x, np.float64) for x in xs]


def along(f, args, directions):
    """The derivative of a function of NumPy in a direction, by central differences."""
    high, low = (
        f(*(x + s * STEP * d for x, d in zip(wide(args), wide(directions), strict=True)))
        for s in (1, -1)
    )
    if isinstance(high, np.ndarray):
        return (high - low) / (2 * STEP)
    return [(x - y) / (2 * STEP) for x, y in zip(high, low, strict=True)]


def check(found, expected, dtype):
    found, expected = (x if isinstance(x, (list, tuple)) else [x] for x in (found, expected))
    for got, want in zip(found, expected, strict=True):
        assert got.dtype == np.dtype(dtype) and got.shape == want.shape
        scale = max(1.0, np.abs(want).max(initial=0))
        np.testing.assert_allclose(
            np.asarray(got, np.float64), want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale
        )


def slopes(options, ct):
    """The gradient of `(attention * ct).sum()` in NumPy."""
    return lambda *args: reference.attention(*args, ct=ct, **options)[2][:3]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.cpu_only("emulated below")
def test_both_modes(name, dtype):
    args, directions, ct, options = of_case(name, dtype)
    f = attend(options)

    def both(args, directions, ct):
        out, tangent = amdjax.jvp(f, args, directions)
        return out, tangent, amdjax.vjp(f, *args)[1](ct)

    out, tangent, gradient = amdjax.jit(both)(args, directions, ct)
    define = lambda *args: reference.attention(*args, **options)[0]
    check(out, define(*wide(args)), dtype)
    check(tangent, along(define, args, directions), dtype)
    check(gradient, slopes(options, wide([ct])[0])(*wide(args)), dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", in_turn(list(CASES), 5))
@pytest.mark.cpu_only("derivatives are composed")
def test_second_order(name, dtype):
    """Forward over reverse, and reverse over reverse, in one direction."""
    args, directions, ct, options = of_case(name, dtype)
    f = attend(options)
    gradient = lambda *args: amdjax.vjp(f, *args)[1](ct)

    def both(args, directions):
        over = amdjax.jvp(gradient, args, directions)[1]
        # The second derivative is symmetric in all operands together.
        return over, amdjax.vjp(gradient, *args)[1](tuple(directions))

    found = amdjax.jit(both)(args, directions)
    expected = along(slopes(options, wide([ct])[0]), args, directions)
    check(found[0], expected, dtype)
    check(found[1], expected, dtype)


AXES = {
    "all": (0, 0, 0),
    "queries": (0, None, None),
    "keys": (None, 0, 0),
    "values": (None, None, 0),
}


@pytest.mark.parametrize("over", AXES)
@pytest.mark.parametrize("name", ["plain", "causal with window", "bias and mask", "no batch",
                                  "lengths of nothing"])  # fmt: skip
@pytest.mark.cpu_only("emulated below")
def test_vmap(over, name):
    """Of values, tangents and gradients; and the gradient of a sum over examples."""
    args, directions, ct, options = of_case(name, "float32")
    f, axes = attend(options), AXES[over]
    many = [jnp.stack([x, -x, 2 * x]) if a == 0 else x for x, a in zip(args, axes, strict=True)]
    cts = jnp.stack([ct, 3 * ct, -ct])

    def one(q, k, v, ct):
        tangent = amdjax.jvp(f, (q, k, v), directions)[1]
        return f(q, k, v), tangent, amdjax.vjp(f, q, k, v)[1](ct)

    def summed(*args):
        return (amdjax.vmap(f, axes)(*args) * cts).sum()

    mapped = lambda *args: amdjax.vmap(one, (*axes, 0))(*args, cts)
    found, total = amdjax.jit(lambda *a: (mapped(*a), amdjax.grad(summed, (0, 1, 2))(*a)))(*many)
    define = lambda *args: reference.attention(*args, **options)[0]
    gradients = []
    for i in range(3):
        own = wide(x[i] if a == 0 else x for x, a in zip(many, axes, strict=True))
        check(found[0][i], define(*own), "float32")
        check(found[1][i], along(define, own, directions), "float32")
        gradients.append(slopes(options, wide([cts[i]])[0])(*own))
        check([g[i] for g in found[2]], gradients[-1], "float32")
    joined = [
        np.stack(g) if a == 0 else np.sum(g, axis=0)
        for g, a in zip(zip(*gradients, strict=True), axes, strict=True)
    ]
    check(total, joined, "float32")


@pytest.mark.parametrize("queries", [9, 4])
def test_on_every_machine(queries, monkeypatch):
    """Values, tangents and gradients, of all at once and mapped over queries alone."""
    monkeypatch.setattr(blocks, "LEAST_QUERIES", queries)  # of a block of the definition
    monkeypatch.setattr(blocks, "MOST_PAIRS", 1)
    args, directions, ct, options = of_case("causal with window", "float32")
    f = attend(options)
    define = lambda *args: reference.attention(*args, **options)[0]

    def all_of(args, directions, ct):
        q, k, v = args
        mapped = amdjax.vmap(f, (0, None, None))(jnp.stack([q, -q]), k, v)
        tangent = amdjax.jvp(f, args, directions)[1]
        return mapped, tangent, amdjax.vjp(f, *args)[1](ct)

    mapped, tangent, gradient = amdjax.jit(all_of)(args, directions, ct)
    q, k, v = wide(args)
    check(mapped, np.stack([define(q, k, v), define(-q, k, v)]), "float32")
    check(tangent, along(define, args, directions), "float32")
    check(gradient, slopes(options, wide([ct])[0])(q, k, v), "float32")


@pytest.mark.cpu_only("maps of tangents and of gradients")
def test_jacobians_of_both_modes():
    (q, k, v), *_, options = of_case("causal with window", "float32")
    f = lambda q: attend(options)(q, k, v)
    forward, reverse = amdjax.jacfwd(f)(q), amdjax.jacrev(f)(q)
    np.testing.assert_allclose(forward, reverse, rtol=1e-5, atol=1e-6)
    define = lambda q: reference.attention(q, *wide([k, v]), **options)[0]
    d = np.cos(np.arange(q.size)).reshape(q.shape)
    check(jnp.tensordot(forward, d.astype("float32"), 4), along(define, [q], [d]), "float32")


@pytest.mark.parametrize("shape", ["1, t, 2, 4", "b, 9, 2, 4"])
@pytest.mark.cpu_only("traces")
def test_one_trace_for_many_sizes(shape):
    """Of maps and of second derivatives, whose ways depend on sizes where these are known."""
    f = lambda q, k: nn.dot_product_attention(q, k, k, is_causal=True)
    gradient = lambda q, k: amdjax.grad(lambda q: (f(q, k) ** 2).sum())(q)
    traced = []

    def both(q, k):
        traced.append(q.shape)
        mapped = amdjax.vmap(lambda q: f(q, k))(jnp.stack([q, -q]))
        return mapped, amdjax.jvp(lambda q: gradient(q, k), (q,), (jnp.cos(q),))[1]

    program = amdjax.jit(both, symbolic=shape)
    for n in (5, 12):
        b, t = (1, n) if "t" in shape else (n, 9)
        q, k, *_ = reference.operands((b, t, t, 2, 2, 4, 4), "float32")
        mapped, second = program(q, k)
        q, k = wide([q, k])
        out = lambda q: reference.attention(q, k, k, is_causal=True)[0]
        slope = lambda q: slopes({"is_causal": True}, 2 * out(q))(q, k, k)[0]
        check(mapped, np.stack([out(q), out(-q)]), "float32")
        check(second, along(slope, [q], [np.cos(q)]), "float32")
    assert len(traced) == 1


def _equations(jaxpr):
    """All equations of a program and those within."""
    yield from jaxpr.eqns
    for inner in subjaxprs(jaxpr):
        yield from _equations(inner)


@pytest.mark.parametrize("options", [{}, {"is_causal": True, "mask": np.ones((1, 1, 4, 64), bool)}])
@pytest.mark.cpu_only("nothing is computed")
def test_mapped_queries_do_not_repeat_keys(options):
    """Nor do their gradients and tangents: examples are heads that share the keys."""
    q, k = (amdjax.ShapeDtypeStruct(s, np.float32) for s in ((50, 2, 4, 2, 8), (2, 64, 2, 8)))
    f = lambda q, k, v: nn.dot_product_attention(q, k, v, **options)
    mapped = amdjax.vmap(f, (0, None, None))
    programs = (
        mapped,
        amdjax.grad(lambda *args: mapped(*args).sum(), (0, 1, 2)),
        lambda q, k, v: amdjax.jvp(mapped, (q, k, v), (q, k, v)),
    )
    for program in programs:
        found = list(_equations(amdjax.make_jaxpr(program)(q, k, k).jaxpr))
        keys = [e.invars[1].aval.shape for e in found if e.primitive.name.startswith("attention")]
        assert keys and set(keys) == {k.shape}


@pytest.mark.cpu_only("shapes of batching")
def test_mapped_gradients_of_a_bias_that_a_batch_shares():
    q, k, v = (jnp.asarray(x) for x in reference.operands((2, 5, 6, 4, 2, 8, 8), "float32")[:3])
    bias = jnp.asarray(np.random.default_rng(0).normal(size=(1, 4, 5, 6)), "float32")
    loss = lambda q, bias: (nn.dot_product_attention(q, k, v, bias) ** 2).sum()
    queries = jnp.stack([q, -q, 2 * q])
    for axes, given in (((0, None), bias), ((0, 0), jnp.stack([bias, 2 * bias, -bias]))):
        found = amdjax.vmap(amdjax.grad(loss, 1), axes)(queries, given)
        for i in range(3):
            one = given[i] if axes[1] == 0 else given
            np.testing.assert_allclose(found[i], amdjax.grad(loss, 1)(queries[i], one), atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.cpu_only("loops")
def test_in_loops_and_checkpoints(dtype):
    """Steps of `scan` and of `while`, in both modes where these have them, and recomputed."""
    (q, k, v), (dq, _, _), ct, _ = of_case("one of both", dtype)
    q, k, v, dq, ct = (
        jnp.asarray(np.random.default_rng(i).normal(size=(2, 4, 2, 4)), dtype) for i in range(5)
    )
    f = lambda x: nn.dot_product_attention(x, k, v, is_causal=True) + x
    scanned = lambda x, step=f: lax.scan(lambda x, _: (step(x), None), x, length=3)[0]
    looped = lambda x, n: lax.fori_loop(0, n, lambda _, x: f(x), x)

    def define(x):
        for _ in range(3):
            x = reference.attention(x, *wide([k, v]), is_causal=True)[0] + x
        return x

    want, tangent = define(*wide([q])), along(define, [q], [dq])
    check(amdjax.jit(scanned)(q), want, dtype)
    check(amdjax.jit(looped)(q, 3), want, dtype)
    check(amdjax.jvp(scanned, (q,), (dq,))[1], tangent, dtype)
    check(amdjax.jvp(lambda x: looped(x, jnp.int32(3)), (q,), (dq,))[1], tangent, dtype)
    plain = amdjax.vjp(scanned, q)[1](ct)[0]
    again = amdjax.vjp(lambda x: scanned(x, amdjax.checkpoint(f)), q)[1](ct)[0]
    # The gradient of a loop, seen from its tangent.
    moved = (np.float64(ct) * tangent).sum()
    for gradient in (plain, again):
        np.testing.assert_allclose(
            (np.float64(gradient) * np.float64(dq)).sum(), moved, atol=20 * TOLERANCE[dtype]
        )


@pytest.mark.cpu_only("emulated in tests/kernels")
def test_what_is_dropped_is_the_same_under_all_transformations():
    sizes, rate, key = (3, 6, 8, 4, 2, 4, 4), 0.4, amdjax.random.key(5)
    *args, ct = (jnp.asarray(x) for x in reference.operands(sizes, "float32"))
    directions = [jnp.asarray(x) for x in reference.operands(sizes, "float32", 1)[:3]]
    f = lambda *args: nn.dot_product_attention(*args, dropout_rate=rate, dropout_key=key)
    factors = reference.weight_factors(sizes, amdjax.random.bits(key, (3, 2), np.uint32), rate)
    define = lambda *args: reference.attention(*args, factors=factors)[0]
    out = f(*args)
    check(out, define(*wide(args)), "float32")
    np.testing.assert_array_equal(amdjax.jit(f)(*args), out)
    primal, tangent = amdjax.jvp(f, args, directions)
    np.testing.assert_array_equal(primal, out)
    check(tangent, along(define, args, directions), "float32")
    found = amdjax.vjp(amdjax.checkpoint(f), *args)[1](ct)
    *_, expected = reference.attention(*wide(args), ct=wide([ct])[0], factors=factors)
    check(found, expected, "float32")
    same = amdjax.vmap(f, (0, None, None))(jnp.stack([args[0], -args[0]]), *args[1:])
    check(same[0], define(*wide(args)), "float32")
    check(same[1], define(-np.float64(args[0]), *wide(args[1:])), "float32")


def _given(case, seed=0):
    """Operands of the primitives of attention for a case, with their parameters, and some more."""
    sizes, options = case
    rng = np.random.default_rng(seed)
    q, k, v, ct = reference.operands(sizes, "float32")
    names = {"key_lengths": "key_value_lengths"}
    more = {names.get(n, n): x for n, x in options.items() if n not in ("is_causal", "window")}
    if "bias" in more:
        more["bias"] = more["bias"].astype(np.float32)
    more["seeds"] = rng.integers(0, 2**32, (sizes[0], 2), dtype=np.uint32)
    given = tuple(n for n in primitives.operands.OPTIONAL if n in more)
    params = {
        "given": given, "scale": 0.4, "is_causal": options.get("is_causal", False),
        "window": options.get("window"), "rate": 0.3,
    }  # fmt: skip
    return [q, k, v, *(more[n] for n in given)], ct, params


@pytest.mark.parametrize(
    "name", ["plain", "causal with window", "bias and mask", "lengths of nothing"]
)
@pytest.mark.cpu_only("definitions")
def test_definitions_by_blocks(name, monkeypatch):
    """Of queries give what they give of all at once, also where blocks do not divide them."""
    args, ct, params = _given(CASES[name])
    wants_bias = "bias" in params["given"]
    directions = ("query", "key", "value", *(["bias"] if wants_bias else []))
    tangents = [np.cos(args[i]) for i in range(len(directions))]

    def all_of(*args):
        out, maximum, total = primitives.composed_attention(*args, **params)
        tangent = primitives.composed_tangent(
            *args, out, maximum, total, *tangents, directions=directions, **params
        )
        delta = total * 0.1
        gradient = primitives.composed_gradient(
            *args, maximum, total, delta, ct, bias_gradient=wants_bias, **params
        )
        return [out, maximum, total, *tangent, *gradient]

    def derivative(q):
        return amdjax.grad(lambda q: sum((x**2).sum() for x in all_of(q, *args[1:])[3:]))(q)

    whole = [*amdjax.jit(all_of)(*args), derivative(args[0])]
    monkeypatch.setattr(blocks, "LEAST_QUERIES", 1)
    sizes = primitives.Extents.of(primitives.operands.Operands(*args[:3]))
    monkeypatch.setattr(blocks, "MOST_PAIRS", 2 * sizes.batch * sizes.heads * sizes.keys)
    amdjax.clear_caches()
    text = str(amdjax.make_jaxpr(all_of)(*args))
    assert text.count("scan[") == 3
    for got, want in zip([*amdjax.jit(lambda *a: all_of(*a))(*args), derivative(args[0])], whole,
                         strict=True):  # fmt: skip
        scale = 1 + abs(want).max()
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=3e-6 * scale)


def _memory(queries, transformed):
    shapes = [amdjax.ShapeDtypeStruct((1, queries, 2, 16), np.float32)] * 3
    program = amdjax.jit(transformed).lower(*shapes).compile()
    return program.memory_analysis().temp_size_in_bytes


@pytest.mark.cpu_only("memory of programs")
@pytest.mark.parametrize("order", ["forward", "forward over reverse", "reverse over reverse"])
def test_memory_of_derivatives_is_linear(order):
    f = lambda q, k, v: nn.dot_product_attention(q, k, v, is_causal=True)
    gradient = amdjax.grad(lambda *args: (f(*args) ** 2).sum(), (0, 1, 2))
    transformed = {
        "forward": lambda q, k, v: amdjax.jvp(f, (q, k, v), (v, q, k)),
        "forward over reverse": lambda q, k, v: amdjax.jvp(gradient, (q, k, v), (v, q, k)),
        "reverse over reverse": amdjax.grad(
            lambda *args: sum((x**2).sum() for x in gradient(*args)), (0, 1, 2)
        ),
    }[order]
    small, large = _memory(2048, transformed), _memory(8192, transformed)
    assert large <= 4.5 * small and large < 8192 * 8192 * 2  # of one array of 2 heads: 8 times that
