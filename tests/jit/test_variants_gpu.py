"""Programs compiled once for many sizes on emulated GPUs, against NumPy and static programs."""

from __future__ import annotations

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.core.dims import Dim, SizedScope, SymbolicScope, in_units
from amdjax.emulator.debug.counters import recording
from amdjax.emulator.device import emulated_device
from amdjax.export import symbolic_shape
from amdjax.jit.variants import Variants
from amdjax.tree_util import tree_leaves

SIZES = [(5, 37), (4, 64), (1, 37), (3, 300), (2, 2), (17, 3), (6, 48), (7, 1)]

#: Sizes that share variants: multiples of 16, none of 64, and of the same powers of two.
ALIKE = [(9, 96), (16, 112), (13, 80), (15, 96), (10, 112), (12, 80), (14, 80), (9, 112)]


def normalized(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def perceptron(x, w, v):
    return nn.log_softmax(nn.relu(x @ w / 8) @ v / 6)


#: A program and how many variants serve all sizes of `ALIKE`.
CASES = {
    "map": (["b, t"], lambda x: jnp.exp(x) * 2 + x, 2),
    "rows of one length": (["b, t, 24"], lambda x: nn.relu(x) * 2 + x, 2),
    "one number a row": (["b, t", "b"], lambda x, y: x * 2 + y[:, None], 2),
    "sizes in arithmetic": (
        ["b, t"],
        lambda x: x * x.shape[1] ** -0.5 + jnp.arange(x.shape[1]),
        2,
    ),
    "transposed": (["b, t", "t, b"], lambda x, y: x + y.T, 3),
    "joined": (["b, t", "b, t"], lambda x, y: jnp.concatenate([x, y], 1) * 2, 2),
    "padded": (["b, t"], lambda x: jnp.pad(x, ((0, 0), (1, 2))) + 1, 2),
    "sum of all": (["b, t"], lambda x: x.sum(), 2),
    "sums of columns": (["b, t"], lambda x: x.sum(0), 1),
    "place of the greatest": (["b, t"], lambda x: x.argmax(1), 1),
    "softmax": (["b, t"], nn.softmax, 1),
    "softmax of columns": (["b, t"], lambda x: nn.softmax(x, 0), 1),
    "layer norm": (["b, t"], normalized, 1),
    "layer norm of one length": (["b, t, 24"], normalized, 1),
    "gradient of a layer norm": (["b, t"], amdjax.grad(lambda x: jnp.sin(normalized(x)).sum()), 1),
    "products": (["b, 64", "64, 32", "32, 10"], perceptron, 2),
    "loop of so many rounds": (
        ["b, t"],
        lambda x: lax.fori_loop(0, x.shape[1], lambda i, c: c + x[:, i], jnp.zeros(x.shape[0])),
        1,
    ),
}


def attention(q, k, v):
    return nn.dot_product_attention(q, k, v, is_causal=True)


def convolution(x, w):
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)


def looked_up(i, table):
    return jnp.sin(table[(jnp.abs(i) * 9).astype("int32")]).sum()


#: Programs with kernels of their own.
SHAPED = {
    "product of so many columns": (["24, 32", "32, t"], lambda x, y: x @ y),
    "product of any depth": (["b, t", "t, 40"], lambda x, y: x @ y),
    "products of a batch": (["b, t, 16", "b, 16, t"], lambda x, y: x @ y),
    "gradients of products": (["b, 64", "64, 32", "32, 10"],
        amdjax.grad(lambda *xs: jnp.sin(perceptron(*xs)).sum(), argnums=(0, 1, 2))),
    "attention": (["b, t, 2, 16"] * 3, attention),
    "convolution": (["b, 8, t, 3", "3, 3, 3, 8"], convolution),
    "gradients of a convolution": (["b, 8, 8, 3", "3, 3, 3, 8"],
        amdjax.grad(lambda x, w: jnp.sin(convolution(x, w)).sum(), argnums=(0, 1))),
    "running sums": (["b, t"], lambda x: jnp.cumsum(x, 1)),
    "sort": (["b, t"], lambda x: jnp.sort(x, 1)),
    "gradient of a table": (["b, t", "40, 24"], amdjax.grad(looked_up, argnums=1)),
    "scan": (["t, b"],
        lambda x: lax.scan(lambda c, a: (c * 0.9 + a,) * 2, jnp.zeros(x.shape[1]), x)),
}  # fmt: skip


def variants(f, specs, gfx):
    scope = SymbolicScope()
    shapes = [symbolic_shape(spec, scope=scope) for spec in specs]
    structs = [amdjax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    place = emulated_device(gfx).uncommitted
    closed = amdjax.make_jaxpr(f)(*structs)
    return Variants(closed, (False,) * len(specs), (), place), shapes


def arrays(shapes, sizes):
    rng = np.random.default_rng(0)
    numbers = [[n.evaluate(sizes) if isinstance(n, Dim) else n for n in s] for s in shapes]
    return [jnp.asarray(rng.standard_normal(shape).astype("float32")) for shape in numbers]


def check(f, specs, gfx, sizes):
    """Compare each size with what a program of the host computes; nothing may be left to that."""
    compiled, shapes = variants(f, specs, gfx)
    for b, t in sizes:
        xs = arrays(shapes, {"b": b, "t": t})
        results = compiled.runner({"b": b, "t": t})(xs)
        with amdjax.default_device(amdjax.devices("cpu")[0]):
            wanted = tree_leaves(amdjax.jit(f)(*xs))
        for got, want in zip(results, wanted, strict=True):
            assert got.aval == want.aval
            scale = max(1.0, float(np.abs(want).max()))
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6 * scale, err_msg=f"{b}x{t}")
    assert compiled.reason is None
    return compiled.known


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("name", SHAPED)
def test_kernels_of_their_own_serve_many_sizes(name, gfx):
    specs, f = SHAPED[name]
    check(f, specs, gfx, [(5, 37), (4, 64), (1, 19), (3, 36), (2, 2)])


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("name", ["attention", "gradient of an attention", "running sums"])
def test_what_is_written_for_one_tile_is_right_for_more(name, gfx, monkeypatch):
    """Few sizes have loops written once, with masks; other sizes may get that variant."""
    monkeypatch.setattr("amdjax.jit.variants.MOST_FITTING", 1)
    loss = lambda *qkv: jnp.sin(attention(*qkv)).sum()
    gradient = ["b, t, 2, 16"] * 3, amdjax.grad(loss, argnums=(0, 1, 2))
    specs, f = SHAPED.get(name, gradient)
    known = check(f, specs, gfx, [(2, 5), (3, 37), (2, 71)])
    assert len(known) == 1 or name != "attention"  # tiles of others limit sizes


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("name", CASES)
def test_every_size_computes_what_a_program_of_the_host_does(name, gfx):
    specs, f, most = CASES[name]
    check(f, specs, gfx, SIZES)
    compiled, _ = variants(f, specs, gfx)
    for b, t in ALIKE:
        compiled.runner({"b": b, "t": t})
    assert compiled.reason is None
    assert len(compiled.known) <= most, compiled


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("specs", [["b, t", "t, 40"], ["t, b", "t, 40"]], ids=["rows", "columns"])
def test_one_plan_serves_parts_without_depth_and_bands_of_any_number(specs, gfx, monkeypatch):
    """Of the depth at hand each part has some; of others the last have none."""
    monkeypatch.setattr("amdjax.jit.variants.MOST_FITTING", 1)
    f = (lambda x, y: x @ y) if specs[0] == "b, t" else (lambda x, y: x.T @ y)
    compiled, shapes = variants(f, specs, gfx)
    for b, t in [(7, 1501), (3, 37), (201, 69), (131, 1003), (5, 5)]:
        x, y = arrays(shapes, {"b": b, "t": t})
        (got,) = compiled.runner({"b": b, "t": t})([x, y])
        want = f(np.float64(x), np.float64(y))
        scale = np.sqrt(t)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6 * scale, err_msg=f"{b}x{t}")
    assert len(compiled.known) == 1, compiled


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1100"])
def test_one_plan_of_attention_serves_any_length(gfx, monkeypatch):
    """Parts of the keys may be empty, and blocks reach over the last row."""
    monkeypatch.setattr("amdjax.jit.variants.MOST_FITTING", 1)
    compiled, shapes = variants(attention, ["b, t, 2, 16"] * 3, gfx)
    for b, t in [(2, 1061), (3, 5), (2, 129), (5, 37)]:
        xs = arrays(shapes, {"b": b, "t": t})
        (got,) = compiled.runner({"b": b, "t": t})(xs)
        with amdjax.default_device(amdjax.devices("cpu")[0]):
            want = amdjax.jit(attention)(*xs)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=4e-6, err_msg=f"{b}x{t}")
    assert len(compiled.known) == 1, compiled


#: Instructions, of those of a static program: tiles of rows keep their masks, extents are read, and
#: what is one loop divides by them, where the static program has tiles of two loops.
RATIOS = {
    "map": 1.0, "rows of one length": 1.0, "one number a row": 1.45, "softmax": 1.13,
    "layer norm of one length": 1.25,
}  # fmt: skip


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("name", RATIOS)
def test_aligned_sizes_take_as_many_instructions_as_a_static_program(name, gfx):
    specs, f, _ = CASES[name]
    compiled, shapes = variants(f, specs, gfx)
    compiled.runner({"b": 16, "t": 96})
    sizes = {"b": 16, "t": 112}
    xs = arrays(shapes, sizes)
    run = compiled.runner(sizes)
    assert len(compiled.known) == 1, "another variant"
    with recording() as symbolic:
        run(xs)
    with recording() as static, amdjax.default_device(emulated_device(gfx)):
        amdjax.jit(f)(*xs)
    counts = [sum(sum(x.by_mnemonic.values()) for x in r) for r in (symbolic, static)]
    assert counts[0] <= RATIOS[name] * counts[1], counts


def test_variables_counted_in_units_are_divisible():
    scope = SizedScope({"b": 5, "t": 64}, SymbolicScope(["t <= 512"]), {"t": 16})
    b, t = scope.variables().values()
    assert (b * t) % 16 == 0 and t >= 16 and t <= 512 and not scope.required
    assert t > 32 and [str(g) for g in scope.required] == ["16*t_16 >= 33"]
    assert in_units({"b": 3, "t": 48}, scope.units) == {"b": 3, "t_16": 3}


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1100"])
def test_columns_of_any_number_in_products(gfx):
    """What lies in rows of a length known at run time is read row after row, and written so."""
    rng = np.random.default_rng(0)
    product = amdjax.jit(lambda x, y: x @ y, symbolic=("b, t, 32", "b, 32, t"))
    for b, t in ((2, 3), (1, 33), (2, 2)):
        shapes = (b, t, 32), (b, 32, t)
        x, y = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
        on_gpu = [amdjax.device_put(a, emulated_device(gfx)) for a in (x, y)]
        np.testing.assert_allclose(product(*on_gpu), x @ y, rtol=2e-5, atol=2e-5)


def few_rows(x, w, bias, y):
    return nn.relu(x @ w + bias) + y


@pytest.mark.parametrize("depth", [64, 2048], ids=["one program", "programs that share the depth"])
@pytest.mark.parametrize("gfx", ["gfx942", "gfx1100"])
def test_products_of_few_rows_take_as_many_instructions_as_static_ones(gfx, depth):
    """What is computed for few rows serves no more than these; masks cost little."""
    specs = ["b, K", "K, 48", "48", "b, 48"]
    specs = [spec.replace("K", str(depth)) for spec in specs]
    compiled, shapes = variants(few_rows, specs, gfx)
    for b in (3, 2, 16, 5, 4, 40):
        xs = arrays(shapes, {"b": b})
        run = compiled.runner({"b": b})
        with recording() as symbolic:
            (got,) = run(xs)
        x, w, bias, y = map(np.float64, xs)
        exact = np.maximum(x @ w + bias, 0) + y
        scale = np.sqrt(depth)
        np.testing.assert_allclose(got, exact, rtol=1e-5, atol=2e-6 * scale, err_msg=f"{b}")
        if b <= 4:
            with recording() as static, amdjax.default_device(emulated_device(gfx)):
                amdjax.jit(few_rows)(*xs)
            counts = [sum(sum(x.by_mnemonic.values()) for x in r) for r in (symbolic, static)]
            assert counts[0] <= 1.15 * counts[1], (b, counts)
    of_few = [v for v in compiled.known if any("b <= 4" in str(g) for g in v.guards)]
    assert len(of_few) == 1 and len(compiled.known) > 1
