"""Work that moves memory: elementwise chains, transposes, random numbers."""

from __future__ import annotations

from .lib import JaxLike, Torch
from .workload import Prepared, Workload, array_function, normal, together

SIXTEEN_M = normal(4096, 4096, quick=(512, 512))


def _chain(l, x, y):
    return l.np.where(x > 0, l.np.exp(-x) * y, l.np.tanh(y)) + 0.5 * x


def _chain_torch(t, x, y):
    return t.where(x > 0, t.exp(-x) * y, t.tanh(y)) + 0.5 * x


def _bf16_gelu(l, x):
    return l.nn.gelu(x.astype(l.np.bfloat16)).astype(l.np.float32)


def _bf16_gelu_torch(t, x):
    return t.nn.functional.gelu(x.to(t.bfloat16), approximate="tanh").float()


def _random(name: str, draw: str, draw_torch: str) -> Workload:
    def prepare(lib: JaxLike) -> Prepared:
        key = lib.random.PRNGKey(0)
        shape = (512, 512) if lib.quick else (4096, 4096)
        sample = lib.jit(lambda key: getattr(lib.random, draw)(key, shape))
        return Prepared(lambda: sample(key))

    def prepare_torch(lib: Torch) -> Prepared:
        shape = (512, 512) if lib.quick else (4096, 4096)
        sample = lib.compile(lambda: getattr(lib.torch, draw_torch)(*shape))
        return Prepared(lambda: sample())

    return Workload(name, prepare, prepare_torch, torch_comparable=False)


WORKLOADS = [
    array_function("x + 1, 16M", SIXTEEN_M, lambda l, x: x + 1.0, lambda t, x: x + 1.0),
    array_function(
        "gelu, 16M",
        SIXTEEN_M,
        lambda l, x: l.nn.gelu(x),
        lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
    ),
    array_function(
        "gelu gradient, 16M",
        SIXTEEN_M,
        lambda l, x: l.nn.gelu(x),
        lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
        argnums=(0,),
    ),
    array_function(
        "gelu in bfloat16, 16M", SIXTEEN_M, _bf16_gelu, _bf16_gelu_torch, tolerance=2e-2
    ),
    array_function(
        "where, exp, tanh chain, 16M", together(SIXTEEN_M, SIXTEEN_M), _chain, _chain_torch
    ),
    array_function("sin, 16M", SIXTEEN_M, lambda l, x: l.np.sin(x), lambda t, x: t.sin(x)),
    array_function(
        "x + y.T, 4096²",
        together(SIXTEEN_M, SIXTEEN_M),
        lambda l, x, y: x + y.T,
        lambda t, x, y: x + y.T,
    ),
    _random("random normal, 16M", "normal", "randn"),
    _random("random uniform, 16M", "uniform", "rand"),
]
