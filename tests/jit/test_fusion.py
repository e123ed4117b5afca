"""Which kernels programs become, as text."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import jit, lax
from amdjax.schedule import fusion
from amdjax.targets import get
from tests.support.jit_helpers import compiled, contents, opcodes, stage

X = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
W = np.random.default_rng(1).standard_normal(128).astype(np.float32)
M = np.random.default_rng(2).standard_normal((128, 32)).astype(np.float32)
SQUARE = np.random.default_rng(3).standard_normal((128, 128)).astype(np.float32)


def softmax(x):
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layernorm(x, w):
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) * lax.rsqrt(v + 1e-5) * w


def batchnorm(x, w):
    return (x - x.mean(0)) * lax.rsqrt(x.var(0) + 1e-5) * w


def backward(f):
    return lambda x, w, ct: amdjax.vjp(f, x, w)[1](ct)


def traffic(fun, *args):
    """Bytes the kernels of a program read and write, by the compiler's own count."""
    return compiled(fun, *args).cost_analysis()["bytes accessed"]


def test_an_elementwise_chain_is_one_kernel():
    f = lambda x: jnp.tanh(x * 2 + 1) * x - jnp.where(x > 0, x, 0.5)
    assert contents(f, X) == ["sub over 64×128"]
    assert stage(f, X, name="fusion") == "v1:f32[64,128] = sub over 64×128 (v0:f32[64,128])"


def test_a_division_that_passes_read_again_is_computed_once():
    gradient = lambda x, ct: amdjax.vjp(amdjax.nn.softmax, x)[1](ct)
    (step,) = contents(gradient, X, X)
    assert step == "reduce_max exp reduce_sum div reduce_sum mul over axes 1 of 64×128"


def test_broadcasts_transposes_slices_and_padding_move_no_data():
    def f(x, w):
        y = jnp.pad(x.T[2:, ::-1], ((1, 1), (0, 0)))
        return y * jnp.broadcast_to(w[:, None], (128, 64)) + jnp.arange(64)

    assert contents(f, X, W) == ["add over 128×64"]


def test_softmax_is_one_kernel():
    assert contents(softmax, X) == ["reduce_max exp reduce_sum div over axes 1 of 64×128"]
    assert opcodes(softmax, X) == ["CALL", "HALT"]
    np.testing.assert_allclose(jit(softmax)(X).sum(-1), 1, rtol=1e-6)


def test_layernorm_is_one_kernel():
    assert contents(layernorm, X, W) == [
        "reduce_sum reduce_sum rsqrt mul over axes 1 of 64×128"
    ]  # fmt: skip


def test_layernorm_gradient_reads_the_activations_twice():
    """Gradients of rows and of columns cannot share a kernel; each is one."""
    steps = contents(backward(layernorm), X, W, X)
    rows = [s for s in steps if "axes 1" in s]
    columns = [s for s in steps if "axes 0" in s]
    assert len(rows) <= 2 and len(columns) == 1 and len(steps) <= 3


def test_batchnorm_forward_and_backward_are_a_kernel_each():
    assert contents(batchnorm, X, W) == ["reduce_sum reduce_sum rsqrt mul over axes 0 of 64×128"]
    (step,) = contents(backward(batchnorm), X, W, X)
    assert step.endswith("over axes 0 of 64×128")


def test_bias_and_activation_ride_behind_a_product():
    dense = lambda x, m, b: jnp.maximum(x @ m + b, 0)
    assert contents(dense, X, M, M[0]) == ["dot_general then max over 64×32"]


def test_residual_behind_a_product():
    f = lambda x, m: x + jnp.tanh(x @ m)
    assert contents(f, X, SQUARE) == ["dot_general then add over 64×128"]


def test_a_product_read_elsewhere_too_is_stored_by_its_kernel():
    f = lambda x, m: (lambda y: (y, jnp.maximum(y, 0)))(x @ m)
    (step,) = contents(f, X, M)
    assert step == "dot_general then max over 64×32"
    y, z = jit(f)(X, M)
    np.testing.assert_array_equal(z, np.maximum(y, 0))


def test_a_transposed_reader_of_a_product_is_not_its_epilogue():
    f = lambda x, m: (x @ m)[::-1] + 1
    assert contents(f, X, M) == ["dot_general", "add over 64×32"]


def test_reshapes_are_names():
    assert contents(lambda x: x.reshape(128, 64), X) == ["reshape"]
    assert "CALL" not in opcodes(lambda x: x.reshape(128, 64), X)
    f = lambda x: jnp.exp(x).reshape(8, 1, 1024)[None]
    assert opcodes(f, X) == ["CALL", "HALT"]


def test_a_reshape_between_products_copies_nothing():
    f = lambda x, m: ((x @ m).reshape(32, 64) @ x).reshape(-1)
    assert [op for op in opcodes(f, X, M) if op == "COPY"] == []


def test_expensive_values_with_several_readers_are_computed_once():
    f = lambda x: (lambda e: (e.sum(0), e.T * 2, e[::-1]))(jnp.exp(x))
    steps = contents(f, X)
    assert sum("exp" in s for s in steps) == 1
    tiles = stage(f, X, name="tiles")
    assert sum("= exp " in line for line in tiles.splitlines()) <= 2  # whole tiles, and a tail


def test_cheap_values_with_several_readers_are_computed_again():
    f = lambda x: (lambda e: (e.sum(0), e.T * 2))(x + 1)
    assert contents(f, X) == ["reduce_sum over axes 0 of 64×128", "mul over 128×64"]


def test_large_values_of_little_input_are_computed_again():
    def f(x):
        near = jnp.maximum(1 - abs(x[:, :, None] - x[:, None, :]), 0)
        weight = near * near + 1
        return weight.sum(1), weight.sum(2)

    large, small = (np.ones((n, 80), np.float32) for n in (256, 2))
    assert all(line.startswith("reduce_sum over") for line in contents(f, large))
    assert contents(f, small)[0].startswith("add reduce_sum over")  # one stores what both read


def test_expensive_values_are_not_recomputed_by_broadcasts():
    f = lambda x, w: x * jnp.exp(w)
    assert contents(f, X, W) == ["exp over 128", "mul over 64×128"]


def test_no_kernel_waits_for_itself():
    """a → product → sum with a: the two elementwise parts must not become one kernel."""
    f = lambda x, m: (lambda a: a + a @ m + jnp.sin(a))(jnp.exp(x))
    assert contents(f, X, SQUARE) == ["exp over 64×128", "dot_general then add over 64×128"]


def test_no_cycle_through_a_reduction_over_other_axes():
    def f(x):
        a = jnp.exp(x)
        rows = a / a.sum(1, keepdims=True)
        return rows / rows.sum(0), a * 2

    got = jit(f)(X)
    a = np.exp(X.astype(np.float64))
    rows = a / a.sum(1, keepdims=True)
    np.testing.assert_allclose(got[0], rows / rows.sum(0), rtol=1e-5)
    np.testing.assert_allclose(got[1], a * 2, rtol=1e-5)


def test_reductions_of_one_array_share_a_pass():
    f = lambda x: (x.sum(1), (x * x).sum(1), x.max(1), x.min(1))
    (step,) = contents(f, X)
    assert step == "reduce_sum reduce_sum reduce_max reduce_min over axes 1 of 64×128"


def test_reductions_over_different_axes_are_kernels_of_their_own():
    f = lambda x: (x.sum(0), x.sum(1))
    assert len(contents(f, X)) == 2


def test_few_long_rows_do_not_wait_for_one_thread():
    long = np.zeros((2, 1 << 18), np.float32)
    steps = contents(softmax, long)
    assert len(steps) > 1  # passes that all threads share


def test_optimizer_steps_of_one_shape_share_kernels():
    def adam(p, m, v, g):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        return p - 0.01 * m / (jnp.sqrt(v) + 1e-8), m, v

    assert len(contents(adam, X, X, X, X)) == 1


def test_dead_results_leave_no_kernel():
    def f(x):
        jnp.exp(x).sum()
        return x + 1

    assert contents(f, X) == ["add over 64×128"]


def test_empty_programs_have_no_kernels():
    assert stage(lambda x: (), X, name="fusion") == ""
    assert opcodes(lambda x: x, X) == ["COPY", "HALT"]


def test_memory_traffic_of_a_fused_chain_is_one_read_and_one_write():
    assert traffic(lambda x: jnp.tanh(x) * 2 + x, X) == 2 * X.nbytes
    assert traffic(softmax, X) == 2 * X.nbytes


@pytest.mark.parametrize("axis", [0, 1])
def test_normalized_rows_and_columns_are_right(axis):
    f = lambda x: (x - x.mean(axis, keepdims=True)) / (x.std(axis, keepdims=True) + 1e-6)
    x = X.astype(np.float64)
    want = (x - x.mean(axis, keepdims=True)) / (x.std(axis, keepdims=True) + 1e-6)
    np.testing.assert_allclose(jit(f)(X), want, rtol=1e-4, atol=1e-5)
    assert len(contents(f, X)) == 1


def test_chains_of_any_length_compile():
    """Longer than Python's stack is deep, and than one kernel may be."""

    def long(x):
        for i in range(1500):
            x = x * 0.999 + (i % 3) * 0.1
        return x

    want = X[:2].astype(np.float64)
    for i in range(1500):
        want = want * 0.999 + (i % 3) * 0.1
    np.testing.assert_allclose(jit(long)(X[:2]), want, rtol=1e-4)


def test_sums_of_many_arguments_compile():
    f = jit(lambda *xs: sum(xs))
    assert f(*(jnp.float32(i) for i in range(400))) == 399 * 200


def test_long_chains_behind_a_reduction():
    def f(x):
        m = x.max(1, keepdims=True)
        for i in range(300):
            m = m * 0.99 + i
        y = x - m
        for _ in range(300):
            y = y * 0.99
        return y.sum(1)

    x = X.astype(np.float64)
    m = x.max(1, keepdims=True)
    for i in range(300):
        m = m * 0.99 + i
    np.testing.assert_allclose(jit(f)(X), ((x - m) * 0.99**300).sum(1), rtol=1e-4)


def _of_points(n):
    """Points, and channels of each."""
    rng = np.random.default_rng(n)
    return rng.uniform(0.5, 2, (5, 37)).astype(np.float32), rng.standard_normal((5, 37, n))


@pytest.mark.parametrize(
    "n, f, kernels",
    [
        (3, lambda x, y: jnp.exp(x)[..., None] * y, 1),
        (4, lambda x, y: jnp.log(x)[..., None] * y + (jnp.sin(x) + jnp.log(x))[..., None], 1),
        # Too many channels, several places, other layouts, several readers, points as results.
        (6, lambda x, y: jnp.exp(x)[..., None] * y, 2),
        (3, lambda x, y: (jnp.exp(x) + jnp.roll(jnp.exp(x), 1, 0))[..., None] * y, 2),
        (3, lambda x, y: (jnp.exp(x)[..., None] * y).transpose(2, 0, 1), 2),
        (3, lambda x, y: (jnp.exp(x)[..., None] * y, jnp.exp(x).sum(0)), 2),
        (3, lambda x, y: (jnp.exp(x)[..., None] * y, jnp.exp(x)), 2),
    ],
)
def test_channels_share_what_follows_from_their_points(n, f, kernels):
    x, y = _of_points(n)
    y = y.astype(np.float32)
    assert len(contents(f, x, y)) == kernels
    expected = amdjax.tree.leaves(f(jnp.array(x), jnp.array(y)))  # eagerly, one by one
    for got, want in zip(amdjax.tree.leaves(jit(f)(x, y)), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


def test_what_several_kernels_widen_is_kept_narrow():
    def f(x, y):
        wide = (jnp.exp(jnp.sin(x)) * jnp.tanh(y)).astype(jnp.float32)
        return (wide * 2).sum(0), (wide + 1).sum(1), jnp.sort(wide.max(1))

    x, y = (jnp.asarray(a, jnp.bfloat16) for a in (X, X[::-1]))
    made = [line.partition(" = ")[0] for line in stage(f, x, y, name="fusion").splitlines()]
    assert any("bf16[64,128]" in kept for kept in made)
    assert not any("f32[64,128]" in kept.replace("bf16", "") for kept in made)
    wide = [jnp.asarray(a, jnp.float32) for a in (x, y)]
    for got, want in zip(jit(f)(x, y), f(*wide), strict=True):  # each product to a bfloat16
        np.testing.assert_allclose(got, want, atol=128 * 3 * 2**-9)


@pytest.mark.parametrize("shapes", [[(64, 128)], [(64, 1, 128)], [(32, 256), (8, 8, 128)]])
def test_what_is_kept_narrow_may_have_other_names(shapes):
    """Of a value that others read in another shape, what is kept is the value itself."""

    def f(x, y):
        narrow = jnp.exp(jnp.sin(x)) * jnp.tanh(y)
        for shape in shapes:
            narrow = narrow.reshape(shape)
        wide = narrow.astype(jnp.float32)
        return (wide * 2).sum(0), (wide + 1).sum(-1), jnp.sort(wide.max(-1))

    x, y = (jnp.asarray(a.T, jnp.bfloat16) for a in (X, X[::-1]))
    wide = [jnp.asarray(a, jnp.float32) for a in (x, y)]
    for got, want in zip(jit(f)(x, y), f(*wide), strict=True):  # each product to a bfloat16
        np.testing.assert_allclose(got, want, atol=256 * 3 * 2**-9)


def residual(x, w, b, scale):
    """What a norm and a later sum read is made of a product and of what it is added to."""
    y = x + (x @ w + b)
    return y + layernorm(y, scale)


def activated(x, w, b, scale):
    return amdjax.nn.gelu(x @ w + b) * scale


def of_two(x, w, b, scale):
    """A sum of two products is in the place of neither."""
    return layernorm(x @ w + w @ x, scale)


@pytest.mark.cpu_only("what GPUs do")
def test_what_is_read_several_times_takes_the_place_of_a_product():
    specs = [
        amdjax.ShapeDtypeStruct(s, np.float32) for s in ((512, 512), (512, 512), (512,), (512,))
    ]

    def steps(f):
        text = amdjax.jit(f).lower(*specs).compile(target="gfx942").as_text("fusion")
        return [line.split(" = ")[1] for line in text.splitlines()]

    first, norm = steps(residual)
    assert first.startswith("dot_general then add over 512×512")
    assert norm.count("f32[512,512]") == 1  # the sum, and not what it was made of
    (only,) = steps(activated)
    assert only.startswith("dot_general then add mul over 512×512")
    assert [s.startswith("dot_general (") for s in steps(of_two)] == [True, True, False]


@pytest.mark.devices
@pytest.mark.parametrize("f", [residual, activated, of_two])
def test_what_takes_the_place_of_a_product_is_right(device, monkeypatch, f):
    monkeypatch.setattr(fusion, "LARGE", 1)
    rng = np.random.default_rng(4)
    args = [rng.standard_normal(s).astype(np.float32) for s in ((24, 24), (24, 24), (24,), (24,))]
    with amdjax.default_device(amdjax.devices("cpu")[0]):
        wanted = amdjax.tree.leaves(f(*args))
    for x, y in zip(amdjax.tree.leaves(jit(f)(*args)), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=2e-5, atol=2e-5)


def normed(*axes):
    """Values of each element that wait for a norm."""

    def f(g, m, v):
        norm = jnp.sqrt(jnp.sum(g * g, *axes, keepdims=True))
        return m + g / norm, v * norm

    return f


@pytest.mark.parametrize(
    "f, shape, apart",
    [
        (normed(), (10, 10), False),
        (normed(), (50, 64), True),
        (normed(-1), (64, 99), False),  # there are enough rows
        (lambda g, m, v: m + g / jnp.sqrt(jnp.sum(g * g)), (100, 100), True),
        (lambda g, m, v: g / jnp.sqrt(jnp.sum(g * g)), (100, 100), False),  # is in registers
    ],
)
def test_few_rows_compute_few_values(f, shape, apart):
    """One program does not update what all programs would, where these share a launch anyway."""
    args = [amdjax.ShapeDtypeStruct(shape, np.float32)] * 3
    jaxpr = amdjax.make_jaxpr(f)(*args).jaxpr
    cut = lambda target: [s.axes is None for s in fusion.fuse(jaxpr, target).steps]
    assert cut(get("gfx942")) == ([False, True] if apart else [False])
    assert cut(get("sm_90")) == [False]
