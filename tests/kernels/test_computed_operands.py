"""Products of few rows that compute the elements of their large operand where they read them."""

import ml_dtypes
import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.quantize import quantize_array
from amdjax.quantize.products import product_of_stored
from tests.support.jit_helpers import on_machine, results_and_schedule

EPS = float(np.finfo(np.float32).eps)
ROUNDINGS = 8  # of the sum of absolute products


def is_computed(schedule):
    return "computed columns" in schedule or "computed lines" in schedule


def assert_close(found, x, w, eps=EPS):
    """A product within a few roundings of what is summed; oracle in float64."""
    x, w = np.asarray(x, np.float64), np.asarray(w, np.float64)
    error = np.abs(np.asarray(found, np.float64) - x @ w)
    assert (error <= ROUNDINGS * eps * (np.abs(x) @ np.abs(w))).all(), error.max()


def activations(rows, depth, dtype=np.float32):
    return np.random.default_rng(rows).standard_normal((rows, depth)).astype(dtype)


def bits(shape, dtype, seed=1):
    """Numbers of any bits."""
    info = ml_dtypes.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def scales(*shape):
    return np.random.default_rng(2).uniform(0.01, 1, shape).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("group", [8, 16, 17, 24, 32, 64, 128, 300])
@pytest.mark.parametrize("with_zero", [False, True])
def test_groups_of_depth(rows, group, with_zero):
    """`(q - z) * s`, with scales and zero points of groups, the last of which may be cut."""
    depth, columns = 300, 160
    groups = -(-depth // group)
    x, q = activations(rows, depth), bits((depth, columns), np.int8)
    s, z = scales(groups, columns), bits((groups, columns), np.int8, 3)

    def dequantized(q, s, z, np=jnp):
        spread = lambda a: np.repeat(a, group, 0)[:depth]
        moved = q.astype("f") - spread(z.astype("f")) if with_zero else q.astype("f")
        return moved * spread(s)

    found, schedule = results_and_schedule(lambda x, *w: x @ dequantized(*w), x, q, s, z)
    assert is_computed(schedule), schedule
    assert_close(found, x, dequantized(q, s, z, np))


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("shape", [(64, 512), (130, 256), (96, 259), (2048, 48)], ids=str)
@pytest.mark.parametrize("dtype", ["int4", "uint4", "mxfp4", "int8", "float8_e4m3fn"])
def test_stored_formats(rows, shape, dtype):
    """Whatever a quantized array holds, two numbers of 4 bits in a byte too."""
    w = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    q = quantize_array(w, dtype, axis=0, group=32, symmetric=dtype != "uint4")
    x = activations(rows, shape[0])
    found, schedule = results_and_schedule(lambda x, q: x @ q.dequantize(), x, q)
    assert is_computed(schedule), schedule
    assert_close(found, x, q.dequantize())


@pytest.mark.parametrize("dtype", [np.int8, ml_dtypes.int4])
def test_groups_of_an_axis_of_their_own(dtype):
    """Scales and zero points have one element along the axis within groups, and so a position of
    their own.
    """
    x, q = activations(3, 256), bits((8, 32, 96), dtype)
    s, z = scales(8, 1, 96), bits((8, 1, 96), np.int8, 4)
    w = lambda q, s, z: ((q.astype("f") - z.astype("f")) * s).reshape(256, 96)
    found, schedule = results_and_schedule(lambda x, *a: x @ w(*a), x, q, s, z)
    assert is_computed(schedule), schedule
    assert_close(found, x, w(q, s, z))
    f = lambda x, q, s: x @ (jnp.exp(q.astype("f") / 99) * s * (q.astype("f") * s)).reshape(256, 96)
    found, schedule = results_and_schedule(f, x, q, s)
    assert is_computed(schedule), schedule
    assert_close(found, x, (np.exp(q.astype("f") / 99) * s * (q.astype("f") * s)).reshape(256, 96))


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("depth", [512, 500])
@pytest.mark.parametrize("dtype", ["int4", "mxfp4", "int8"])
def test_sums_of_groups(side, rows, depth, dtype):
    """Products written group by group, as those of quantized weights are."""
    w = np.random.default_rng(3).standard_normal((depth, 96)).astype(np.float32)
    q, x = quantize_array(w, dtype, axis=0, group=32), activations(rows, depth)
    numbers = ((1,), (0,))[:: 1 if side else -1], ((), ())
    params = {"dimension_numbers": numbers, "precision": None, "out_sharding": None}

    def f(x, q):
        return product_of_stored("dot_general", params, x, q, side, np.dtype(np.float32))

    found, schedule = results_and_schedule(f, x, q)
    assert is_computed(schedule), schedule
    assert_close(found if side else found.T, x, q.dequantize())


@pytest.mark.parametrize(
    "scale",
    [
        lambda s: jnp.broadcast_to(s[:, :1, :1], s.shape),
        lambda s: jnp.broadcast_to(s[:, :1], s.shape),
        lambda s: jnp.broadcast_to(s[:1], s.shape),
        lambda s: s,
        lambda s: s[:, :, :1],
        lambda s: 0.5,
    ],
    ids=["groups", "columns", "no groups", "rows too", "rows", "number"],
)
def test_scales_of_sums(scale):
    """Scales that differ along the rows are no part of the matrix."""
    x, q = activations(3, 128).reshape(3, 4, 32), bits((4, 32, 256), np.int8)
    s = scales(4, 3, 256)

    def f(x, q, s):
        sums = lax.dot_general(jnp.moveaxis(x, 1, 0), q.astype("f"), (((2,), (1,)), ((0,), (0,))))
        return jnp.sum(sums * scale(s) * 2, 0)

    found = amdjax.jit(f)(x, q, s)
    each = np.einsum("rge,gec->grc", x.astype("d"), q.astype("d"))
    wanted = (each * np.asarray(scale(jnp.asarray(s))) * 2).sum(0)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("rows", [1, 4, 8])
@pytest.mark.parametrize("bits_each", [2, 4, 8])
@pytest.mark.parametrize("scaled", ["sum", "parts", "differently"])
def test_sums_by_element(rows, bits_each, scaled):
    """Rows times weights in few bits as one sum over elements, with scales of all numbers of a byte
    or of each place in it.
    """
    per, groups, columns = 8 // bits_each, 8, 96
    size = 32 // per
    x, q = activations(rows, 32 * groups), bits((columns, groups, size), np.uint8)
    s, t = scales(columns, groups), scales(columns, groups) * 3

    def parts(q, s, t, np):
        mask = np.uint8((1 << bits_each) - 1)
        for i in range(per):
            w = ((q >> np.uint8(i * bits_each)) & mask).astype("f") - (s * 8)[..., None]
            yield {
                "sum": w,
                "parts": w * s[..., None],
                "differently": w * (t if i % 2 else s)[..., None],
            }[scaled]

    def f(x, q, s, t):
        rows = x.reshape(-1, 1, groups, 32)
        total = sum(rows[..., i::per] * w for i, w in enumerate(parts(q, s, t, jnp)))
        return jnp.sum(total * s[..., None], (-2, -1))

    found, schedule = results_and_schedule(f, x, q, s, t)
    assert "computed lines" in schedule, schedule
    w = np.stack([*parts(q, s, t, np)], -1) * s[..., None, None]
    assert_close(found, x, w.reshape(columns, -1).T)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, q: jnp.sum(x[:, None, :] * q.astype("f"), 2),
        lambda x, q: jnp.sum(x[:, None, :] * q.astype("f") + q.astype("f"), 2),
        lambda x, q: jnp.sum(x[:, None, :] * q.astype("f") * x[:, None, :], 2),
        lambda x, q: jnp.sum((y := x[:, None, :] * q.astype("f")), 2) + y[:, :, 0],
        lambda x, q: jnp.sum(x[:, None, :] * q.astype("f"), 1),
        lambda x, q: jnp.sum(x[:, None, :] * jnp.float32(q[:, :1]), 2),
    ],
    ids=["product", "sum", "square", "read again", "over columns", "spread"],
)
def test_sums_of_other_products(f):
    x, q = activations(3, 256), bits((128, 256), np.int8)
    found = amdjax.jit(f)(x, q)
    wanted = f(jnp.asarray(x, np.float32), jnp.asarray(q))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=5e-3)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4, np.uint8, np.int16], ids=str)
@pytest.mark.parametrize("wide", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64], ids=str)
def test_dtypes(dtype, wide):
    x, q = activations(2, 200, wide), bits((200, 100), dtype)
    s = scales(1, 100).astype(wide)
    with amdjax.enable_x64(True):
        f = lambda x, q, s: lax.dot(
            x, q.astype(wide) * s, preferred_element_type=np.promote_types(wide, np.float32)
        )
        found, schedule = results_and_schedule(f, x, q, s)
    narrower = 2 * np.dtype(dtype).itemsize <= np.dtype(wide).itemsize
    assert is_computed(schedule) == narrower, schedule
    eps = float(ml_dtypes.finfo(wide).eps)
    assert_close(found, x, np.asarray(q, np.float64) * np.asarray(s, np.float64), eps)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("group", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("with_zero", [False, True])
def test_groups_of_lines(rows, group, with_zero):
    """The matrix transposed: lanes are steps in depth, also of two that share a byte."""
    depth, columns = 512, 100
    x, packed = activations(rows, depth), bits((columns, depth // 2), np.uint8)
    s, z = scales(columns, depth // group), bits((columns, depth // group), ml_dtypes.uint4, 3)

    def dequantized(packed, s, z, np=jnp):
        q = np.stack([packed & 15, packed >> 4], -1).reshape(columns, -1, group).astype("f")
        moved = q - z.astype("f")[..., None] if with_zero else q - 8
        return (moved * s[..., None]).reshape(columns, depth)

    f = lambda x, *w: x @ dequantized(*w).T
    found, schedule = results_and_schedule(f, x, packed, s, z)
    assert "computed lines" in schedule, schedule
    assert_close(found, x, dequantized(packed, s, z, np).T)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("shape", [(48, 512), (101, 256), (3000, 64)], ids=str)
@pytest.mark.parametrize("dtype", ["int4", "uint4", "mxfp4", "int8", "float8_e4m3fn"])
def test_stored_formats_by_lines(rows, shape, dtype):
    """Halves of a line share bytes."""
    w = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    q = quantize_array(w, dtype, axis=1, group=32, symmetric=dtype != "uint4")
    x = activations(rows, shape[1])
    found, schedule = results_and_schedule(lambda x, q: x @ q.dequantize().T, x, q)
    assert "computed lines" in schedule, schedule
    assert_close(found, x, np.asarray(q.dequantize()).T)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("threads", [1, 3])
def test_either_operand_by_lines(side, own, threads, monkeypatch):
    on_machine(monkeypatch, threads=threads)
    q, s, x = bits((160, 256), np.int8), scales(160, 4), activations(3, 256)
    w = lambda q, s: q.astype("f") * jnp.repeat(s, 64, 1)

    def f(x, q, s):
        pair = (x, w(q, s))[:: 1 if side else -1]
        return lax.dot_general(*pair, (((own,), (1,))[:: 1 if side else -1], ((), ())))

    found, schedule = results_and_schedule(f, x.T.copy() if own == 0 else x, q, s)
    assert "computed lines" in schedule, schedule
    assert_close(found if side else found.T, x, np.asarray(w(jnp.asarray(q), jnp.asarray(s))).T)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("own", [0, 1])
def test_either_operand(side, own):
    """The computed one first or last; the other summed along either axis."""
    q, s = bits((256, 96), np.int8), scales(256, 96)[::64]
    x = activations(3, 256)
    w = lambda q, s: q.astype("f") * jnp.repeat(s, 64, 0)

    def f(x, q, s):
        pair = (x, w(q, s))[:: 1 if side else -1]
        numbers = ((own,), (0,))[:: 1 if side else -1]
        return lax.dot_general(*pair, (numbers, ((), ())))

    found, schedule = results_and_schedule(f, x.T.copy() if own == 0 else x, q, s)
    assert is_computed(schedule), schedule
    assert_close(found if side else found.T, x, np.asarray(w(jnp.asarray(q), jnp.asarray(s))))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("shape", [(4096, 128), (512, 2048)], ids=str)
def test_any_number_of_threads(threads, shape, monkeypatch):
    """Programs share columns, or the depth where there are few columns."""
    on_machine(monkeypatch, threads=threads)
    q, s, x = bits(shape, np.int8), scales(1, shape[1]), activations(2, shape[0])
    found, _ = results_and_schedule(lambda x, q, s: x @ (q.astype("f") * s), x, q, s)
    assert_close(found, x, q * s)


@pytest.mark.parametrize("by_line", [False, True])
@pytest.mark.parametrize("dtype", ["int4", "mxfp4"])
def test_narrower_vectors(by_line, dtype, monkeypatch):
    """Where nothing is looked up in a register."""
    on_machine(monkeypatch, vector_bits=256)
    w = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    q, x = quantize_array(w, dtype, axis=int(by_line), group=32), activations(3, 256)
    turned = lambda w: w.T if by_line else w
    found, schedule = results_and_schedule(lambda x, q: x @ turned(q.dequantize()), x, q)
    assert is_computed(schedule), schedule
    assert_close(found, x, turned(np.asarray(q.dequantize())))


@pytest.mark.parametrize("depth", [512, 500])
@pytest.mark.parametrize("dtype", ["int4", "int8"])
def test_what_comes_from_afar_is_asked_for(depth, dtype, monkeypatch):
    """Also behind the end, where nothing is read."""
    on_machine(monkeypatch, l2_bytes=1 << 15)
    w = np.random.default_rng(0).standard_normal((depth, 256)).astype(np.float32)
    q, x = quantize_array(w, dtype, axis=0, group=32), activations(2, depth)
    found = amdjax.jit(lambda x, q: x @ q.dequantize()).lower(x, q).compile()
    assert "prefetch" in found.as_text("tiles")
    assert_close(found(x, q), x, q.dequantize())


def test_what_follows_is_in_the_same_kernel():
    q, s, b = bits((256, 96), np.int8), scales(4, 96), scales(96)
    x = activations(2, 256)
    w = lambda q, s, np: q.astype("f") * np.repeat(s, 64, 0)
    f = lambda x, q, s, b: jnp.maximum(x @ w(q, s, jnp) + b, 0)
    found, schedule = results_and_schedule(f, x, q, s, b)
    assert is_computed(schedule) and schedule.count("\n  ") == 1, schedule
    wanted = np.maximum(x.astype("d") @ w(q, s, np).astype("d") + b, 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-3)


def test_functions_and_constants_of_places():
    """Elements may be computed of anything: functions, masks by position, joined parts."""
    q, x = bits((256, 96), np.int8), activations(2, 256)

    def w(q):
        wide = q.astype("f") / 128
        parts = jnp.concatenate([jnp.tanh(wide[:, :32]), jnp.exp(wide[:, 32:])], 1)
        return jnp.where(jnp.arange(96) > jnp.arange(256)[:, None], parts, 0)

    found, schedule = results_and_schedule(lambda x, q: x @ w(q), x, q)
    assert is_computed(schedule), schedule
    assert_close(found, x, w(jnp.asarray(q)))


@pytest.mark.parametrize(
    "f",
    [
        lambda x, q: (x @ (w := q.astype("f") * 2), w),
        lambda x, q: (x @ (w := q.astype("f") * 2), jnp.ones((64, 256)) @ w),
        lambda x, q: x[:, :250] @ (q.reshape(96, 256)[:, :250].astype("f") * 2).T,
        lambda x, q: jnp.ones((64, 256)) @ (q.astype("f") * 2),
        lambda x, q: x @ jnp.repeat(q[:, :12].astype("f"), 8, 1),
    ],
    ids=["result", "read by many rows", "odd lines", "many rows", "repeated in lanes"],
)
def test_what_is_stored(f):
    q, x = bits((256, 96), np.int8), activations(2, 256)
    found, schedule = results_and_schedule(f, x, q)
    assert not is_computed(schedule), schedule
    wanted = amdjax.tree.map(np.asarray, f(jnp.asarray(x), jnp.asarray(q)))
    for a, b in zip(amdjax.tree.leaves(found), amdjax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-2)


def test_two_products_of_few_rows_compute_it_each():
    q, s, x = bits((256, 96), np.int8), scales(1, 96), activations(2, 256)

    def f(x, q, s):
        w = q.astype("f") * s
        return x @ w, (x * 2) @ w

    found, schedule = results_and_schedule(f, x, q, s)
    assert schedule.count("computed columns") == 2, schedule
    for y, factor in zip(found, (1, 2), strict=True):
        assert_close(y, x * factor, q * s)


def test_in_loops_and_gradients():
    q, s, x = bits((192, 192), np.int8), scales(1, 192) / 1000, activations(2, 192)
    w = lambda q, s: q.astype("f") * s

    def f(x, q, s):
        return lax.fori_loop(0, 3, lambda i, x: jnp.tanh(x @ w(q, s)), x)

    found = amdjax.jit(f)(x, q, s)
    wanted = x
    for _ in range(3):
        wanted = np.tanh(wanted @ (q * s))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    slope = amdjax.jit(amdjax.grad(lambda x, q, s: (x @ w(q, s)).sum()))(x, q, s)
    np.testing.assert_allclose(
        slope, np.broadcast_to((q * s).sum(1), (2, 192)), rtol=1e-4, atol=1e-4
    )


def test_equal_layers_share_a_kernel_and_others_do_not():
    """What is computed in front of a product is part of what tells its kernel apart."""
    q, s, x = bits((2, 256, 96), np.int8), scales(1, 96), activations(2, 256)
    f = lambda x, q, s: (x @ (q[0].astype("f") * s), x @ (q[1].astype("f") + s))
    a, b = amdjax.jit(f)(x, q, s)
    assert_close(a, x, q[0] * s)
    assert_close(b, x, q[1] + s)


def test_it_can_be_switched_off():
    q, s, x = bits((256, 96), np.int8), scales(1, 96), activations(2, 256)
    f = lambda x, q, s: x @ (q.astype("f") * s)
    options = {"disabled_passes": "compute_operands"}
    compiled = amdjax.jit(f).lower(x, q, s).compile(compiler_options=options)
    assert not is_computed(compiled.as_text("schedule"))
    assert_close(compiled(x, q, s), x, q * s)
