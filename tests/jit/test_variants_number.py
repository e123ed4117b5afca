"""How many variants serve any sizes on GPUs; they are planned, and need no device."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn, targets
from amdjax.core.dims import SymbolicScope
from amdjax.export import symbolic_shape
from amdjax.jit import variants
from amdjax.jit.arrays import SizedRunner
from amdjax.jit.gpu.kernels import GpuGenerator
from amdjax.jit.plan import plan_program
from amdjax.jit.variants import Variants

NUMBERS = np.random.default_rng(7)
#: Of requests: `b` up to 64 and `t` up to 512, those of one row and one column among them.
SIZES = [(1, 77), (64, 512), *zip(NUMBERS.integers(1, 65, 60), NUMBERS.integers(1, 513, 60))]
EDGES = [(2, 2), (16, 128), (15, 127), (17, 129), (3, 16), (64, 1), (1, 512)]


def norm(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def attention(q, k, v):
    return nn.dot_product_attention(q, k, v, is_causal=True)


def convolution(x, w):
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)


def pooled(x):
    window = (1, 2, 2, 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "SAME")


def block(x, qkv, out, up, down):
    q, k, v = jnp.split(norm(x) @ qkv, 3, axis=-1)
    heads = lambda y: y.reshape(*y.shape[:2], 4, 32)
    x = x + attention(heads(q), heads(k), heads(v)).reshape(x.shape) @ out
    return x + nn.gelu(norm(x) @ up) @ down


def gradient(f, *argnums):
    return amdjax.grad(lambda *xs: jnp.sin(f(*xs)).sum(), argnums=argnums)


BLOCK = ["b, t, 128", "128, 384", "128, 128", "128, 512", "512, 128"]

#: A program, and how many variants serve all of `SIZES`: a few for each alignment of rows.
PROGRAMS = {
    "map": (["b, t"], lambda x: x + 1, 11),
    "rows of one length": (["b, t, 64"], lambda x: nn.gelu(x) * 2 + x, 10),
    "sums of rows": (["b, t, 64"], lambda x: x.sum(1), 12),
    "softmax": (["b, t"], lambda x: nn.softmax(x, -1), 19),
    "gradient of a layer norm": (["b, t, 256"], gradient(norm, 0), 12),
    "product of so many rows": (["b, t, 128", "128, 96"], jnp.matmul, 6),
    "product of so many columns": (["64, 128", "128, t"], jnp.matmul, 6),
    "product of any depth": (["64, t", "t, 96"], jnp.matmul, 9),
    # one of them of few rows
    "products of a batch": (["b, t, 32", "b, 32, t"], jnp.matmul, 17),
    "attention": (["b, t, 4, 32"] * 3, attention, 17),
    "convolution": (["b, t, t, 32", "3, 3, 32, 32"], convolution, 10),
    "gradients of a convolution": (
        ["b, t, t, 32", "3, 3, 32, 32"],
        gradient(convolution, 0, 1),
        13,
    ),
    "pooling": (["b, t, t, 32"], pooled, 14),
    "sort": (["b, t"], lambda x: jnp.sort(x, -1), 18),
    "running sums": (["b, t"], lambda x: jnp.cumsum(x, -1), 18),
    "transformer block": (BLOCK, block, 18),
}


def planned(f, specs, target, monkeypatch):
    """The variants of a function for a target that is not there: no kernel is compiled."""
    generator = GpuGenerator(target, debug=False)
    code = lambda kernel: generator.identity(generator.named(kernel))

    def compile_sized(closed, donated, refs, place):
        plan = plan_program(closed, target, donated)
        return SizedRunner(lambda sizes: None, plan.identity(code), plan.launches(code))

    backend = SimpleNamespace(compile_sized=compile_sized)
    monkeypatch.setattr(variants, "get_backend", lambda: backend)
    scope = SymbolicScope()
    shapes = [symbolic_shape(spec, scope=scope) for spec in specs]
    closed = amdjax.make_jaxpr(f)(*(amdjax.ShapeDtypeStruct(s, "float32") for s in shapes))
    place = SimpleNamespace(device=SimpleNamespace(platform="gpu"))
    return Variants(closed, (False,) * len(specs), (), place)


@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "sm_90a"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_few_variants_serve_any_sizes(name, target, monkeypatch):
    specs, f, most = PROGRAMS[name]
    compiled = planned(f, specs, targets.get(target), monkeypatch)
    for b, t in (*SIZES, *EDGES):
        sizes = {"b": int(b), "t": int(t)}
        compiled.runner({n: size for n, size in sizes.items() if n in str(specs)})
    assert compiled.reason is None
    assert len(compiled.known) <= most, compiled
