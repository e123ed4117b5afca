"""Choices among plans that are all right change no results, whatever is chosen."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.core.dims import Dim, Estimate, SizedScope, SymbolicScope, sized
from amdjax.core.dims.polynomial import evaluate
from amdjax.export import symbolic_shape
from amdjax.jit.variants import Variants
from tests.support.turns import in_turn

SIZES = (1, 2, 3, 15, 16, 17, 33)
SEEDS = 9


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def normalized(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-2)


def norm(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-2)


def norms_gradient(x):
    y, slope = normalized(x), np.cos(normalized(x))
    inner = slope - slope.mean(-1, keepdims=True) - y * (slope * y).mean(-1, keepdims=True)
    return inner / np.sqrt(x.var(-1, keepdims=True) + 1e-2)


def attention(q, k, v):
    logits = np.einsum("bqhf,bkhf->bhqk", q, k) * q.shape[-1] ** -0.5
    weights = softmax(np.where(np.tri(q.shape[1], dtype=bool), logits, -np.inf))
    return np.einsum("bhqk,bkhf->bqhf", weights, v)


def attentions_gradient(q, k, v):
    """Of the sum, by the queries and the values."""
    scale = q.shape[-1] ** -0.5
    weights = softmax(np.einsum("bqhf,bkhf->bhqk", q, k) * scale)
    slope = np.einsum("bqhf,bkhf->bhqk", np.ones_like(q), v)
    slope = weights * (slope - (slope * weights).sum(-1, keepdims=True))
    by_values = np.einsum("bhqk,bqhf->bkhf", weights, np.ones_like(q))
    return np.einsum("bhqk,bkhf->bqhf", slope, k) * scale, by_values


def windows(x, w):
    """A convolution of odd windows with zeros around."""
    kh, kw = w.shape[:2]
    padded = np.pad(x, ((0, 0), (kh // 2, kh // 2), (kw // 2, kw // 2), (0, 0)))
    parts = np.lib.stride_tricks.sliding_window_view(padded, (kh, kw), (1, 2))
    return np.einsum("nhwcij,ijco->nhwo", parts, w)


def convolved(x, w):
    dims = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=dims)


def steps(x, w):
    c, out = np.zeros((x.shape[1], w.shape[1])), []
    for row in x:
        c = np.tanh(c @ w * 0.2 + row)
        out.append(c)
    return np.stack(out)


def perceptrons_gradient(x, w, v):
    """Of the sum of squares of the results, by the weights."""
    h = x @ w
    slope = 2 * (np.maximum(h, 0) @ v)
    return x.T @ ((slope @ v.T) * (h > 0)), np.maximum(h, 0).T @ slope


def scanned(x, w):
    step = lambda c, row: (jnp.tanh(c @ w * 0.2 + row),) * 2
    return lax.scan(step, jnp.zeros((x.shape[1], w.shape[1])), x)[1]


def indices(x):
    return (abs(x) * 5).astype("int32") % 10


def embedded_gradient(x, w):
    found = np.zeros_like(w)
    np.add.at(found, indices(np.float32(x)), 2 * w[indices(np.float32(x))])
    return found


def attend(*qkv):
    return nn.dot_product_attention(*qkv, is_causal=True)


QKV = ["b, t, 2, 8"] * 3
#: Shapes, a function, and what it is in NumPy; of arguments in double precision.
FAMILIES = {
    "map": (["b, t, 4"], lambda x: jnp.tanh(x) * 2 + x, lambda x: np.tanh(x) * 2 + x),
    "transposed": (["b, t", "t, b"], lambda x, y: x + y.T, lambda x, y: x + y.T),
    "reshaped": (["b, t, 4"], lambda x: jnp.exp(x).reshape(x.shape[0], -1),
                 lambda x: np.exp(x).reshape(x.shape[0], -1)),
    "joined": (["b, t", "b, t"], lambda x, y: jnp.concatenate([x, y], 1) * 2,
               lambda x, y: np.concatenate([x, y], 1) * 2),
    "padded": (["b, t"], lambda x: jnp.pad(x, ((0, 0), (1, 2))) + 1,
               lambda x: np.pad(x, ((0, 0), (1, 2))) + 1),
    "reversed": (["b, t"], lambda x: x[:, ::-1] * x[:1], lambda x: x[:, ::-1] * x[:1]),
    "sums": (["b, t"], lambda x: (x.sum(), x.sum(0), x.sum(1)),
             lambda x: (x.sum(), x.sum(0), x.sum(1))),
    "extrema": (["b, t"], lambda x: (x.max(0), x.argmax(1)), lambda x: (x.max(0), x.argmax(1))),
    "softmax": (["b, t"], lambda x: nn.softmax(x, -1), softmax),
    "softmax of columns": (["b, t"], lambda x: nn.softmax(x, 0), lambda x: softmax(x, 0)),
    "norm": (["b, t, 8"], norm, normalized),
    "norm's gradient": (["b, t"], amdjax.grad(lambda x: jnp.sum(jnp.sin(norm(x)))),
                        norms_gradient),
    "cumulative sum": (["b, t"], lambda x: (jnp.cumsum(x, 1), jnp.cumsum(x, 0)),
                       lambda x: (np.cumsum(x, 1), np.cumsum(x, 0))),
    "sort": (["b, t"], lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0)),
             lambda x: (np.sort(x, 1), np.argsort(x, 0, kind="stable"))),
    "greatest": (["b, t"], lambda x: lax.top_k(x, 1)[0], lambda x: x.max(1, keepdims=True)),
    "scatter": (["b, t"], lambda x: x.at[:, 0].set(1.0) * 2,
                lambda x: np.concatenate([np.ones_like(x[:, :1]), x[:, 1:]], 1) * 2),
    "embedding": (["b, t", "10, 8"], lambda i, w: w[indices(i)],
                  lambda i, w: w[indices(np.float32(i))]),
    "embedding's gradient": (
        ["b, t", "10, 8"],
        lambda i, w: amdjax.grad(lambda w: jnp.sum(w[indices(i)] ** 2))(w), embedded_gradient),
    "rows of a product": (["b, t, 24", "24, 20"], lambda x, y: nn.relu(x @ y),
                          lambda x, y: np.maximum(x @ y, 0)),
    "columns of a product": (["24, 20", "20, t"], lambda x, y: x @ y, lambda x, y: x @ y),
    "all of a product": (["b, t", "t, b"], lambda x, y: x @ y, lambda x, y: x @ y),
    "depth of a product": (["20, t", "t, 12"], lambda x, y: x @ y, lambda x, y: x @ y),
    "products": (["b, t, 12", "b, 12, t"], lambda x, y: x @ y, lambda x, y: x @ y),
    "product with a vector": (["b, t", "t"], lambda x, y: x @ y, lambda x, y: x @ y),
    "perceptron's gradient": (
        ["b, t", "t, 24", "24, 5"],
        amdjax.grad(lambda x, w, v: jnp.sum((nn.relu(x @ w) @ v) ** 2), (1, 2)),
        perceptrons_gradient),
    "attention": (QKV, attend, attention),
    "attention's gradient": (
        QKV, amdjax.grad(lambda *x: jnp.sum(nn.dot_product_attention(*x)), (0, 2)),
        attentions_gradient),
    "convolution": (["b, t, 6, 3", "3, 3, 3, 8"], convolved, windows),
    "loop": (["t, b, 8", "8, 8"], scanned, steps),
    "counted loop": (["b, t"], lambda x: lax.fori_loop(
        0, x.shape[1], lambda i, c: c + x[:, i], jnp.zeros(x.shape[0])), lambda x: x.sum(1)),
    "branches": (["b, t"], lambda x: lax.cond(x[0, 0] > 0, jnp.sin, lambda x: x - 1, x),
                 lambda x: np.sin(x) if x[0, 0] > 0 else x - 1),
    "transform": (["b, t"], lambda x: jnp.fft.fft(x).real, lambda x: np.fft.fft(x).real),
}  # fmt: skip


def answer_at_random(monkeypatch, seed):
    """Let what is chosen be chosen at random: each answer alone, or as if for other sizes.

    Comparisons outside of `choosing()`, which decide what is right, are answered as ever.
    """
    draw = random.Random(seed)
    others: dict[str, int] = {}
    at_others = lambda name: others.setdefault(name, draw.choice((2, 5, 20, 70, 300, 5000)))

    def is_at_least_zero(scope, a):
        known = SymbolicScope.is_at_least_zero(scope, a)
        if known is not None or not sized._choosing.get():
            return guard(scope, a)
        likely = bool(draw.getrandbits(1)) if seed % 2 else evaluate(a, at_others) >= 0
        return scope.preferences.setdefault(("ge", a), likely)

    def estimate(self, scope, *operation):
        made(self, scope, *operation)
        if seed % 2:
            self.value *= 4.0 ** draw.randint(-3, 3)
        else:
            self.value = float(self.at({name: at_others(name) for name in scope.sizes}))

    guard, made = SizedScope.is_at_least_zero, Estimate.__init__
    monkeypatch.setattr(SizedScope, "is_at_least_zero", is_at_least_zero)
    monkeypatch.setattr(Estimate, "__init__", estimate)
    monkeypatch.setattr("amdjax.jit.variants.MOST_CHOSEN", 1)


@pytest.mark.parametrize(
    ("name", "seed"), in_turn(itertools.product(FAMILIES, range(SEEDS)), 4, "choices")
)
def test_choices_change_no_results(name, seed, monkeypatch):
    check(name, seed, monkeypatch)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["sort", "greatest"])
def test_bundles_of_rows_overlap_only_where_there_are_so_many(name, seed, monkeypatch):
    check(name, seed, monkeypatch)


def check(name, seed, monkeypatch):
    specs, f, oracle = FAMILIES[name]
    scope = SymbolicScope()
    shapes = [symbolic_shape(spec, scope=scope) for spec in specs]
    traced = amdjax.make_jaxpr(f)(*[amdjax.ShapeDtypeStruct(s, "float32") for s in shapes])
    compiled = Variants(traced, (False,) * len(specs), (), None)
    answer_at_random(monkeypatch, seed)
    rng = np.random.default_rng(seed)
    pairs = [(int(b), int(t)) for b, t in zip(rng.permutation(SIZES), rng.permutation(SIZES))]
    for b, t in pairs:
        sizes = {"b": b, "t": t}
        numbers = [[n.evaluate(sizes) if isinstance(n, Dim) else n for n in s] for s in shapes]
        xs = [rng.standard_normal(shape).astype("float32") for shape in numbers]
        found = compiled.runner(sizes)([jnp.asarray(x) for x in xs])
        wanted = oracle(*(x.astype("float64") for x in xs))
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for got, want in zip(found, wanted, strict=True):
            assert got.shape == want.shape
            scale = max(1.0, float(np.abs(want).max()))
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5 * scale, err_msg=f"{b}x{t}")
    assert compiled.reason is None
