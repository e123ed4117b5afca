"""Functions traced at symbolic shapes compute at given sizes what they do traced at those."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import checkpoint, grad, jit, jvp, lax, linearize, nn, ops, random, vmap
from amdjax.core.check import check_jaxpr
from amdjax.core.instantiate import instantiate
from amdjax.core.jaxpr import jaxpr_as_fun
from amdjax.core.parse import parse_jaxpr

CONSTRAINTS = ("t >= 4",)
SIZES = ({"a": 1, "b": 1, "t": 4}, {"a": 8, "b": 5, "t": 17})

FUNCTIONS = {
    "reshape": (lambda x: x.reshape(-1), "a, b"),
    "reshape2": (lambda x: x.reshape(x.shape[1], -1), "a, b"),
    "arange": (lambda x: x + jnp.arange(x.shape[0]), "a"),
    "slice": (lambda x: x[1:], "t"),
    "slice2": (lambda x: x[:-1] - x[1:], "t"),
    "slice3": (lambda x: x[::2], "a"),
    "slice4": (lambda x: x[:2], "a"),
    "idx": (lambda x: x[-1], "a"),
    "rev": (lambda x: x[::-1], "a"),
    "half": (lambda x: x[: x.shape[0] // 2], "a"),
    "mean": (lambda x: x.mean(), "a, b"),
    "var": (lambda x: x.var(0), "a, b"),
    "std": (lambda x: jnp.std(x), "a"),
    "softmax": (lambda x: nn.softmax(x), "a, b"),
    "norm": (lambda x: jnp.linalg.norm(x), "a"),
    "concat": (lambda x: jnp.concatenate([x, x[:1]]), "a"),
    "stack": (lambda x: jnp.stack([x, x]), "a"),
    "pad": (lambda x: jnp.pad(x, (1, 2)), "a"),
    "tile": (lambda x: jnp.tile(x, 3), "a"),
    "repeat": (lambda x: jnp.repeat(x, 2, 0), "a, b"),
    "split": (lambda x: jnp.split(x, 2), "2*a"),
    "take": (lambda x: jnp.take(x, jnp.array([0, 1])), "t"),
    "sort": (jnp.sort, "a"),
    "argsort": (jnp.argsort, "a, b"),
    "cumsum": (jnp.cumsum, "a"),
    "argmax": (lambda x: x.argmax(), "a"),
    "where": (lambda x: jnp.where(x > 0, x, 0), "a, b"),
    "einsum": (lambda x, y: jnp.einsum("bij,bjk->bik", x, y), "a, b, 3", "a, 3, t"),
    "dot": (lambda x, y: x @ y, "a, b", "b, t"),
    "outer": (jnp.outer, "a", "b"),
    "bc": (lambda x, y: x[:, None] + y, "a", "b"),
    "bcto": (lambda x: jnp.broadcast_to(x, (3, x.shape[0])), "b"),
    "ones": (lambda x: jnp.ones(x.shape) + x, "a, b"),
    "zeros_like": (jnp.zeros_like, "a"),
    "full": (lambda x: jnp.full((x.shape[0], 2), 3.0), "a"),
    "eye": (lambda x: jnp.eye(x.shape[0]), "a"),
    "tril": (jnp.tril, "a, a"),
    "flip": (jnp.flip, "a"),
    "roll": (lambda x: jnp.roll(x, 1), "a"),
    "diff": (jnp.diff, "t"),
    "clip": (lambda x: jnp.clip(x, 0, 1), "a"),
    "linspace": (lambda x: jnp.linspace(0, 1, x.shape[0]), "t"),
    "meshgrid": (lambda x, y: jnp.meshgrid(x, y), "a", "b"),
    "median": (jnp.median, "a"),
    "prod": (jnp.prod, "a"),
    "max": (jnp.max, "a"),
    "cov": (jnp.cov, "t, b"),
    "kron": (jnp.kron, "a", "b"),
    "swap": (lambda x: x.swapaxes(0, 1), "a, b"),
    "moveaxis": (lambda x: jnp.moveaxis(x, 0, -1), "a, b, 3"),
    "atset": (lambda x: x.at[0].set(1.0), "a"),
    "atadd": (lambda x: x.at[:2].add(1.0), "t"),
    "gather": (lambda x, i: x[i.astype(int)], "a", "b"),
    "bool": (lambda x: jnp.where(x > 0, x, 0).sum(), "a"),
    "searchsorted": (jnp.searchsorted, "a", "b"),
    "topk": (lambda x: lax.top_k(x, 2), "a, t"),
    "onehot": (lambda x: nn.one_hot(x.astype(int), 5), "a"),
    "onehot2": (lambda x: nn.one_hot(x.astype(int), x.shape[0]), "a"),
    "vmap": (lambda x: vmap(lambda r: r.sum())(x), "a, b"),
    "grad": (lambda x: grad(lambda x: (x**2).mean())(x), "a, b"),
    "jit": (lambda x: jit(lambda x: x * 2)(x), "a"),
    "scan": (lambda x: lax.scan(lambda c, x: (c + x, c * x), 0.0, x), "a"),
    "scanrev": (
        lambda x: lax.scan(lambda c, x: (c + x, c * x), jnp.zeros(x.shape[1]), x, reverse=True),
        "a, b",
    ),
    "scangrad": (grad(lambda x: lax.scan(lambda c, x: (c * x, c + x), 1.0, x)[0]), "a"),
    "map": (lambda x: lax.map(jnp.sin, x), "a"),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), "a"),
    "while": (
        lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x)),
        "a",
    ),
    "fori": (lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i], 0.0), "a"),
    "shapeval": (lambda x: x * x.shape[0], "a"),
    "shapediv": (lambda x: x / x.shape[0] ** 0.5, "a"),
    "sqrtshape": (lambda x: x / jnp.sqrt(x.shape[-1]), "a, b"),
    "conv": (lambda x, w: lax.conv(x, w, (1, 1), "SAME"), "a, 3, b, t", "8, 3, 3, 3"),
    "convs2": (lambda x, w: lax.conv(x, w, (2, 2), "VALID"), "a, 3, t, t", "8, 3, 3, 3"),
    "rw": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2,), (2,), "VALID"), "t"),
    "fft": (jnp.fft.fft, "a"),
    "inv": (jnp.linalg.inv, "a, a"),
    "chol": (jnp.linalg.cholesky, "a, a"),
    "rand": (lambda x: random.normal(random.key(0), x.shape), "a, b"),
    "drop": (lambda x: random.bernoulli(random.key(0), 0.5, x.shape), "a"),
    "attn": (lambda q: nn.dot_product_attention(q, q, q, is_causal=True), "a, t, 4, 8"),
    "ln": (lambda x: nn.LayerNorm(8)(x), "a, b, 8"),
    "linear": (lambda x: nn.Linear(8, 3, key=random.key(0))(x), "a, 8"),
    "logsumexp": (lambda x: nn.logsumexp(x, axis=0), "a, b"),
    "embed": (lambda i: jnp.ones((10, 4))[i.astype(int)], "a, b"),
    "xent": (lambda x: -(nn.log_softmax(x) * x).sum(-1).mean(), "a, b"),
    "jvp": (lambda x: jvp(jnp.sin, (x,), (x,)), "a"),
    "linearize": (lambda x: linearize(jnp.sin, x)[1](x), "a"),
    "remat": (grad(checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum())), "a"),
    "size": (lambda x: x.sum() / x.size, "a, b"),
    "nonzero": (lambda x: jnp.nonzero(x, size=4), "a"),
    "interp": (jnp.interp, "a", "t", "t"),
    "histogram": (lambda x: jnp.histogram(x, 4)[0], "a"),
    "convolve": (jnp.convolve, "t", "3"),
    "trapz": (jnp.trapezoid, "t"),
    "triu_i": (lambda x: x[jnp.triu_indices(3)], "t, t"),
    "squeeze": (lambda x: x.squeeze(1), "a, 1, b"),
    "expand": (lambda x: jnp.expand_dims(x, 0), "a"),
    "ravel": (jnp.ravel, "a, b"),
    "dstack": (lambda x: jnp.dstack([x, x]), "a, b"),
    "dus": (lambda x: lax.dynamic_update_slice(x, jnp.ones(2), (0,)), "t"),
    "ds": (lambda x: lax.dynamic_slice(x, (1,), (2,)), "t"),
    "segsum": (lambda x: ops.segment_sum(x, jnp.zeros(x.shape[0], int), 3), "a"),
    "lexsort": (lambda x: jnp.lexsort((x, x)), "a"),
    "isclose": (jnp.allclose, "a", "a"),
    "cummax": (lambda x: lax.cummax(x), "a"),
    "trace": (jnp.trace, "a, a"),
    "diag": (jnp.diag, "a"),
    "diag2": (jnp.diag, "a, a"),
    "cross": (jnp.cross, "a, 3", "a, 3"),
    "percentile": (lambda x: jnp.percentile(x, 30), "a"),
}


def traced(function, *specs):
    scope = amdjax.export.SymbolicScope(CONSTRAINTS)
    shapes = [amdjax.export.symbolic_shape(spec, scope=scope) for spec in specs]
    args = [amdjax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    return amdjax.make_jaxpr(function)(*args), shapes


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sizes(name, request):
    function, *specs = FUNCTIONS[name]
    closed, shapes = traced(function, *specs)
    check_jaxpr(closed.jaxpr)
    assert str(parse_jaxpr(str(closed))) == str(closed)
    rng = np.random.default_rng(0)
    for sizes in SIZES:
        args = [
            rng.uniform(0.5, 3.5, [d if isinstance(d, int) else d.evaluate(sizes) for d in shape])
            .astype(np.float32)
            for shape in shapes
        ]  # fmt: skip
        program = instantiate(closed, sizes)
        check_jaxpr(program.jaxpr)
        expected = amdjax.tree.leaves(jit(function)(*args))
        got = jit(jaxpr_as_fun(program))(*args)
        assert len(got) == len(expected)
        for x, y in zip(got, expected):
            assert x.dtype == y.dtype and x.shape == y.shape
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=2e-6, atol=1e-6)
