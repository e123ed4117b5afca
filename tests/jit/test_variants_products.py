"""Products and convolutions compiled once for many sizes, against the programs of those sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import amdjax
import amdjax.jit.variants
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.core.dims import Dim, SizedScope, SymbolicScope
from amdjax.core.instantiate import instantiate
from amdjax.export import symbolic_shape
from amdjax.jit.plan import plan_program
from amdjax.jit.variants import Variants
from amdjax.kernels.products.cpu.direct import DIRECT, DOT_PRODUCTS
from amdjax.kernels.products.cpu.dispatch import PRODUCTS
from amdjax.kernels.products.cpu.packed import packed_plans
from amdjax.schedule.search import Solver
from amdjax.targets.cpu import CpuTarget

# The first of each kind is compiled; what is right for later sizes computes them too.
SIZES = [(5, 37), (64, 300), (5, 64), (2, 2), (1, 37), (17, 3), (33, 129), (3, 20), (70, 18)]


def convolved(strides=(1, 1), padding="SAME", layout=("NHWC", "HWIO", "NHWC"), **params):
    return lambda x, w: lax.conv_general_dilated(
        x, w, strides, padding, dimension_numbers=layout, **params
    )


def gradients(f):
    def loss(*xs):
        return jnp.sum(jnp.sin(f(*xs)))

    return lambda *xs: amdjax.grad(loss, argnums=tuple(range(len(xs))))(*xs)


def in_bfloat16(f):
    return lambda *xs: f(*(x.astype("bfloat16") for x in xs)).astype("float32")


def of_bytes(x, y):
    x, y = ((x * 20).astype("int8") for x in (x, y))
    return lax.dot(x, y, preferred_element_type="int32").astype("float32")


def mlp(x, w, v):
    return nn.log_softmax(nn.relu(x @ w) @ v)


CHANNELS_FIRST = ("NCHW", "OIHW", "NCHW")
CASES = {
    "rows": (["b, t, 64", "64, 32"], lambda x, y: nn.relu(x @ y)),
    "columns": (["64, 32", "32, t"], lambda x, y: x @ y),
    "depth": (["64, t", "t, 32"], lambda x, y: x @ y),
    "all axes": (["b, t", "t, b"], lambda x, y: nn.gelu(x @ y)),
    "turned": (["b, 64", "t, 64"], lambda x, y: x @ y.T),
    "batch": (["b, t, 16", "b, 16, t"], lambda x, y: x @ y),
    "vector": (["b, t", "t"], lambda x, y: x @ y),
    "vector at the left": (["t", "t, b"], lambda x, y: x @ y),
    "complex": (["b, t", "t, b"], lambda x, y: ((x + 1j * x) @ (y - 2j * y)).real),
    "bfloat16": (["b, t", "t, b"], in_bfloat16(lambda x, y: x @ y)),
    "bytes": (["b, t", "t, 32"], of_bytes),
    "perceptron's gradient": (["b, 64", "64, 128", "128, 10"], gradients(mlp)),
    "convolution": (["b, t, 8, 3", "3, 3, 3, 8"], convolved()),
    "strided": (["b, t, 8, 3", "3, 3, 3, 8"], convolved((2, 2))),
    "of single pixels": (["b, t, 8, 16", "1, 1, 16, 32"], convolved()),
    "channels first": (["b, 8, t, 14", "16, 8, 3, 3"], convolved(layout=CHANNELS_FIRST)),
    "grouped": (["b, t, 8, 8", "3, 3, 2, 16"], convolved(feature_group_count=4)),
    "depthwise": (["b, t, 8, 32", "3, 3, 1, 32"], convolved(feature_group_count=32)),
    "dilated input": (
        ["b, t, 8, 8", "3, 3, 8, 16"],
        convolved(padding=((1, 2), (1, 2)), lhs_dilation=(2, 2)),
    ),
    "convolution in bfloat16": (["b, t, 8, 32", "3, 3, 32, 32"], in_bfloat16(convolved())),
    "convolution's gradients": (["b, t, 8, 3", "3, 3, 3, 8"], gradients(convolved())),
    "depthwise gradients": (
        ["b, t, 8, 32", "3, 3, 1, 32"],
        gradients(convolved(feature_group_count=32)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_right_for_a_size_computes_it(name, monkeypatch):
    monkeypatch.setattr(amdjax.jit.variants, "MOST_CHOSEN", 1)
    specs, f = CASES[name]
    scope = SymbolicScope()
    shapes = [symbolic_shape(spec, scope=scope) for spec in specs]
    structs = [amdjax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    compiled = Variants(amdjax.make_jaxpr(f)(*structs), (False,) * len(specs), (), None)
    rng = np.random.default_rng(0)
    for b, t in SIZES:
        sizes = {"b": b, "t": t}
        numbers = [[n.evaluate(sizes) if isinstance(n, Dim) else n for n in s] for s in shapes]
        xs = [jnp.asarray(rng.standard_normal(shape).astype("float32")) for shape in numbers]
        got = compiled.runner(sizes)(xs)
        assert compiled.reason is None
        wanted = amdjax.tree.leaves(amdjax.jit(f)(*xs))
        for x, want in zip(got, wanted, strict=True):
            assert x.aval == want.aval
            # Sums in another order, and results of bfloat16 that are rounded.
            unit = 2**-7 if "bfloat16" in name else 1e-5
            scale = unit * max(1.0, float(np.abs(want).max()))
            np.testing.assert_allclose(x, want, rtol=unit, atol=scale, err_msg=f"{b}x{t}")
    assert len(compiled.known) < len(SIZES)


DEEP = {"large": ((4608, 512), (8, 700, 3)), "small": ((24, 40), (9, 3000, 700))}


@pytest.mark.parametrize("name", DEEP)
def test_depths_that_are_cut_into_blocks(name, monkeypatch):
    monkeypatch.setattr(amdjax.jit.variants, "MOST_CHOSEN", 1)
    check_sums(*DEEP[name])


@pytest.mark.parametrize("lengths", [(20_000, 1500, 90, 2), (90, 2, 20_000)])
def test_depths_that_programs_share(lengths, monkeypatch):
    """Some have no part of a short one."""

    def split(product, target):
        plans = packed_plans(product, replace(target, threads=4))
        found = [p for p in plans if p.blocking.splits > 1]
        chosen.extend(found)
        return found or plans

    chosen = []
    monkeypatch.setattr(amdjax.jit.variants, "MOST_CHOSEN", 1)
    monkeypatch.setattr(PRODUCTS, "solvers", [Solver("packed", split)])
    check_sums((64, 48), lengths)
    assert chosen


def check_sums(shape, lengths):
    compiled = amdjax.jit(lambda x, y: x.T @ y, symbolic=[f"t, {n}" for n in shape])
    rng = np.random.default_rng(0)
    for t in lengths:
        x, y = (rng.standard_normal((t, n)).astype("float32") for n in shape)
        exact, bound = x.astype("d").T @ y, np.abs(x).astype("d").T @ np.abs(y)
        assert np.all(np.abs(compiled(x, y) - exact) <= 2e-6 * bound), t
    (made,) = compiled._programs.variants.values()
    assert made.reason is None and len(made.known) < len(lengths)


@pytest.mark.parametrize("after", [lambda x: x, lambda x: nn.relu(x) + 1], ids=["plain", "fused"])
def test_few_columns_that_are_many_of_other_sizes(after, monkeypatch):
    monkeypatch.setattr(amdjax.jit.variants, "MOST_CHOSEN", 1)
    monkeypatch.setattr(PRODUCTS, "solvers", [DIRECT])
    compiled = amdjax.jit(lambda x, y: after(x @ y), symbolic=[None, "12, t"])
    rng = np.random.default_rng(0)
    for t in 5, 17, 300, 2, 64:
        # Sums of such numbers are exact.
        x, y = (rng.integers(-9, 10, shape).astype("float32") for shape in ((20, 12), (12, t)))
        np.testing.assert_array_equal(compiled(x, y), after(jnp.asarray(x @ y)))
    (made,) = compiled._programs.variants.values()
    assert made.reason is None and len(made.known) == 1
    assert not made.known[0].guards[0].required


@pytest.mark.parametrize("after", [lambda x: x, lambda x: nn.relu(x) + 1], ids=["plain", "fused"])
def test_few_rows_that_are_fewer_of_other_sizes(after, monkeypatch):
    """Sums of a variant are of as many rows as it may have; only those that exist are stored."""
    monkeypatch.setattr(amdjax.jit.variants, "MOST_CHOSEN", 1)
    monkeypatch.setattr(PRODUCTS, "solvers", [DOT_PRODUCTS])
    f = lambda x, y: after(jnp.einsum("nbk,ntk->nbt", x, y))
    compiled = amdjax.jit(f, symbolic=["3, b, 40", "3, t, 40"])
    rng = np.random.default_rng(0)
    for b, t in (11, 70), (2, 3), (12, 200), (5, 64), (16, 9):
        # Sums of such numbers are exact.
        x, y = (rng.integers(-9, 10, (3, n, 40)).astype("float32") for n in (b, t))
        np.testing.assert_array_equal(compiled(x, y), after(jnp.asarray(x @ y.swapaxes(1, 2))))
    (made,) = compiled._programs.variants.values()
    assert made.reason is None and len(made.known) == 2


def test_few_rows_of_any_number_are_not_packed_for():
    for rows in 2, 5, 7, 8:
        plan, _ = planned(["b, 256", "512, 256"], {"b": rows}, lambda x, y: x @ y.T)
        assert [kernel.name for kernel in plan.kernels()] == ["dots"]


def test_windows_that_leave_even_and_odd_images_otherwise(monkeypatch):
    monkeypatch.setattr(amdjax.jit.variants, "MOST_CHOSEN", 1)
    f = lambda x, w: nn.conv(x, w, strides=2, padding="SAME")
    compiled = amdjax.jit(f, symbolic=["b, t, t, 8", None])
    rng = np.random.default_rng(0)
    w = rng.integers(-4, 5, (3, 3, 8, 16)).astype("float32")
    for t in 18, 17, 6, 31:
        # Sums of such numbers are exact.
        x = rng.integers(-4, 5, (3, t, t, 8)).astype("float32")
        np.testing.assert_array_equal(compiled(x, w), f(x, w))
    (made,) = compiled._programs.variants.values()
    assert made.reason is None and len(made.known) == 1


def planned(specs, sizes, f=jnp.matmul):
    """A product planned for sizes, and the scope that knows of which others it is chosen."""
    scope = SymbolicScope()
    structs = [amdjax.ShapeDtypeStruct(symbolic_shape(x, scope=scope), "float32") for x in specs]
    sized = SizedScope(sizes, scope)
    program = instantiate(amdjax.make_jaxpr(f)(*structs), sized.variables())
    return plan_program(program, CpuTarget(512, 2)), sized


def test_products_of_any_depth_have_programs_for_all_threads():
    """Those of the sizes at hand are computed by one thread; deeper ones wake others."""
    plan, sized = planned(["64, t", "t, 96"], {"t": 150})
    assert all(guard.holds({"t": 250}) for guard in (*sized.required, *sized.preferred))
    for depth, woken in (150, 0), (250, 1):
        _, programs, parallel = plan.at({"t": depth}).instructions[0].words[:3]
        assert programs > 1 and parallel == woken


def test_products_of_many_batches_are_alike():
    _, sized = planned(["b, t, 32", "b, 32, t"], {"b": 64, "t": 128})
    assert all(guard.holds({"b": 9, "t": 128}) for guard in sized.preferred)
    assert not all(guard.holds({"b": 7, "t": 128}) for guard in sized.preferred)


def test_rows_that_one_tile_holds_are_not_cut_in_two():
    for rows in 5, 9:
        _, sized = planned(["b, 128", "128, 512"], {"b": rows})
        assert not all(guard.holds({"b": rows + 2}) for guard in sized.preferred)
