"""Ordinary functions of symbolic shapes are traced once, whatever sizes are equal in a call."""

from __future__ import annotations

import gc
import itertools
import weakref

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import ShapeDtypeStruct, grad, lax, nn, vmap
from amdjax.core.aval import ShapedArray
from amdjax.core.dims import SizedScope, SymbolicScope
from amdjax.core.ref import AbstractRef
from amdjax.export import symbolic_shape

SIZES = (4, 5, 8, 9, 16, 64)

#: By name: a function, and the shapes of its arguments.
FUNCTIONS = {
    "causal mask": (lambda x: jnp.tril(jnp.ones((x.shape[1],) * 2)) * (x @ x.mT) @ x, "b, t, 4"),
    "attention": (lambda x: nn.dot_product_attention(x, x, x, is_causal=True), "b, t, 2, 4"),
    "cross": (lambda x, y: nn.softmax(x @ y.mT) @ y, "b, t, 4", "b, s, 4"),
    "lengths": (lambda x, n: jnp.where(jnp.arange(x.shape[1]) < n[:, None], x, 0), "b, t", "b"),
    "differences": (lambda x: x[:, 1:] - x[:, :-1], "b, t"),
    "shifted": (lambda x: jnp.concatenate([x[:, :1], x[:, :-1]], 1) + x, "b, t"),
    "next": (lambda x: -(nn.log_softmax(x[:, :-1]) * x[:, 1:]).sum(-1).mean(), "b, t, 4"),
    "joined": (lambda x, y: jnp.concatenate([x, y], 1), "b, t", "b, s"),
    "multiples": (
        lambda x: jnp.pad(x, ((0, 0), (0, -x.shape[1] % 16))).reshape(x.shape[0], -1, 16), "b, t",
    ),
    "windows": (
        lambda x: jnp.stack([x[:, i : x.shape[1] - 2 + i] for i in range(3)], -1), "b, t",
    ),
    "convolution": (lambda x: lax.conv(x, jnp.ones((4, 3, 3)), (2,), "SAME"), "b, 3, t"),
    "pooling": (lambda x: nn.max_pool(x, 2), "b, t, 3"),
    "products": (lambda x, y: x @ y, "b, t", "t, s"),
    "gradient": (grad(lambda x, y: jnp.tanh(x @ y).sum()), "b, t", "t, s"),
    "outer": (lambda x, y: x[:, None] * y, "b", "t"),
    "normalized": (nn.LayerNorm(8), "b, t, 8"),
    "centered": (lambda x: (x - x.mean(0)) / x.std(0), "b, t"),
    "running mean": (lambda x: jnp.cumsum(x, 1) / jnp.arange(1, x.shape[1] + 1), "b, t"),
    "flat": (lambda x: (x.reshape(-1, 4) @ jnp.ones((4, 3))).reshape(*x.shape[:2], 3), "b, t, 4"),
    "heads": (lambda x: x.reshape(*x.shape[:2], 2, 4).swapaxes(1, 2) @ jnp.ones((4, 4)), "b, t, 8"),
    "halves": (lambda x: (x[:, : x.shape[1] // 2], x[:, x.shape[1] // 2 :]), "b, t"),
    "parts": (lambda x: x[:, : x.shape[1] // 4 * 4].reshape(x.shape[0], 4, -1), "b, t"),
    "angles": (lambda x: x * jnp.cos(jnp.arange(x.shape[1])[:, None] * jnp.arange(8)), "b, t, 8"),
    "first": (lambda x: (x[:, :8], x[:, -8:], x[:, 5]), "b, t"),
    "rolled": (lambda x: jnp.roll(x, 1, 1) + x, "b, t"),
    "cache": (
        lambda x, y: lax.dynamic_update_slice(y, x, (0, y.shape[1] - 1, 0)), "b, 1, 4", "b, t, 4",
    ),
    "rows": (vmap(lambda row: jnp.interp(row, row, row)), "b, t"),
    "labels": (lambda x: nn.one_hot(x.astype(int), 5), "b, t"),
    "token": (
        lambda x: jnp.concatenate([x[:, :1] * 0, x], 1) + jnp.ones((x.shape[1] + 1, 4)), "b, t, 4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_trace(name):
    function, *specs = FUNCTIONS[name]
    scope = SymbolicScope()
    args = [ShapeDtypeStruct(symbolic_shape(s, scope=scope), np.float32) for s in specs]
    amdjax.eval_shape(function, *args)
    for sizes in itertools.product(SIZES, repeat=3):
        sizes = dict(zip("bts", sizes))
        assert not scope.is_apart(sizes), (sizes, list(scope.undecided))


def test_types_of_symbolic_shapes_end_with_their_scope():
    """They are interned, one object each, and so is what is made of them."""

    def of_new_scope():
        b, t = symbolic_shape("b, t")
        known = ShapedArray((b, 3, t), "float32")
        assert known is ShapedArray([b, 3, t], np.float32) is known.update(weak_type=False)
        assert AbstractRef(known) is AbstractRef(known) is not AbstractRef(known, "no_grad")
        f = amdjax.jit(lambda x: jnp.sin(x).sum(1), symbolic="b, 3, t")
        f(np.ones((2, 3, 123), np.float32))
        return weakref.ref(b.scope), weakref.ref(known)

    gone = of_new_scope()
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
    scopes = (x for x in gc.get_objects() if type(x) is SizedScope)
    assert {"b": 2, "t": 123} not in [scope.sizes for scope in scopes]


def test_a_constraint_on_a_size_that_is_a_number_apart():
    """Programs of length 1 have a number where a constraint names a variable."""
    shape = symbolic_shape("b, l, 4", constraints=["l <= 16"])
    table = jnp.arange(64.0).reshape(16, 4)
    add = amdjax.jit(lambda x: x + table[: x.shape[1]])
    exported = amdjax.export.export(add)(ShapeDtypeStruct(shape, np.float32))
    for length in (1, 2, 16):
        x = np.ones((3, length, 4), np.float32)
        np.testing.assert_array_equal(exported.call(x), x + np.asarray(table[:length]))
    with pytest.raises(ValueError, match="l <= 16"):
        exported.call(np.ones((3, 17, 4), np.float32))
