"""All transforms, nested, through all control flow, against the same functions in plain Python.

Under `disable_jit` loops and branches run as Python, one operation after another, which tests none
of their rules; `vmap` of that reference is a loop over the examples.
"""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.config import enable_x64
from amdjax.transforms.remat import checkpoint


def recurrent(h, w, xs):
    def step(c, x):
        count, state = c
        new = jnp.tanh(jnp.sin(w) @ state + x)
        return (count + 1, new), new * x

    (_, last), ys = lax.scan(step, (0, h), xs)
    return ys.sum() + last @ last


def backwards(h, w, xs):
    step = lambda c, x: (jnp.tanh(w @ c) * x, (c, x))
    last, (ys, same) = lax.scan(step, h, xs, reverse=True)
    return (ys * same).sum() + last.sum()


def counted(h, w, xs):
    body = lambda i, c: jnp.sin(w @ c) + lax.dynamic_index_in_dim(xs, i, 0, False) * c
    return lax.fori_loop(0, 3, body, h).sum()


def branching(h, w, xs):
    left = lambda h: (jnp.sin(w @ h), h.sum())
    right = lambda h: (jnp.exp(h) * h, jnp.prod(h))
    a, b = lax.cond(h.sum() > 0, left, right, h)
    return a.sum() * b


def switching(h, w, xs):
    branches = [jnp.sin, lambda h: w @ (h * h), lambda h: h]
    return lax.switch(jnp.asarray(h.sum(), int), branches, h).sum()


def branch_in_loop(h, w, xs):
    def step(c, x):
        new = lax.cond(x.sum() > 0, lambda c: jnp.sin(w @ c), lambda c: c * x, c)
        return new, new.sum()

    return (lax.scan(step, h, xs)[1] ** 2).sum()


def loop_in_branch(h, w, xs):
    left = lambda h: lax.scan(lambda c, x: (jnp.sin(c * x), None), h, xs)[0]
    right = lambda h: lax.fori_loop(0, 2, lambda i, c: c * jnp.cos(c), h)
    return lax.cond(h.sum() > 0, left, right, h).sum()


def loop_in_loop(h, w, xs):
    def outer(c, x):
        inner = lambda d, row: (jnp.sin(d * row + x), d * c)
        last, ys = lax.scan(inner, c, w)
        return last, ys.sum()

    last, ys = lax.scan(outer, h, xs)
    return last.sum() + ys.sum()


def checkpointed(h, w, xs):
    step = checkpoint(lambda c, x: (jnp.tanh(w @ c + x), jnp.cos(c).sum()))
    return lax.scan(step, h, xs)[1].sum()


def mapped(h, w, xs):
    return lax.map(lambda x: jnp.sin(w @ (x * h)).sum(), xs, batch_size=2).sum()


FUNCTIONS = [recurrent, backwards, counted, branching, switching, branch_in_loop, loop_in_branch,
             loop_in_loop, checkpointed, mapped]  # fmt: skip

RNG = np.random.default_rng(0)
H, W, XS = RNG.standard_normal(3), RNG.standard_normal((3, 3)) / 2, RNG.standard_normal((3, 3))
HS, WS = np.stack([H, -H, H / 2]), np.stack([W, W / 3, -W])
ALL = (0, 1, 2)


class Native:
    vmap = staticmethod(amdjax.vmap)
    jit = staticmethod(amdjax.jit)


class Python:
    @staticmethod
    def vmap(fun, in_axes):
        def mapped(*args):
            outs = []
            for i in range(3):
                outs.append(fun(*[x if a is None else x[i] for x, a in zip(args, in_axes)]))
            return amdjax.tree.map(lambda *xs: jnp.stack(xs), *outs)

        return mapped

    @staticmethod
    def jit(fun):
        return fun


def forward_over_reverse(m, f):
    return amdjax.jvp(m.jit(amdjax.grad(f, ALL)), (H, W, XS), (H / 10, W / 5, XS / 3))


def reverse_over_forward(m, f):
    directional = lambda h, w: amdjax.jvp(f, (h, w, XS), (H / 10, W / 5, XS / 3))[1]
    return amdjax.grad(directional, (0, 1))(H, W)


def reverse_over_reverse(m, f):
    inner = m.jit(amdjax.grad(f, 1))
    return amdjax.grad(lambda h, w: jnp.sin(inner(h, w, XS)).sum(), (0, 1))(H, W)


def third_order(m, f):
    first = lambda h: amdjax.grad(f)(h, W, XS).sum()
    second = lambda h: amdjax.grad(first)(h).sum()
    return amdjax.grad(second)(H)


def grad_of_vmap(m, f):
    total = lambda h, w: m.vmap(f, (0, None, None))(h, w, XS).sum()
    return amdjax.grad(total, (0, 1))(HS, W)


def vmap_of_grad_of_jit(m, f):
    return m.vmap(amdjax.grad(m.jit(f), ALL), (0, None, None))(HS, W, XS)


TRANSFORMS = {
    "value": lambda m, f: f(H, W, XS),
    "jit": lambda m, f: m.jit(f)(H, W, XS),
    "jvp": lambda m, f: amdjax.jvp(f, (H, W, XS), (H / 10, W / 5, XS / 3)),
    "linearize": lambda m, f: amdjax.linearize(f, H, W, XS)[1](H / 10, W / 5, XS / 3),
    "grad": lambda m, f: amdjax.grad(f, ALL)(H, W, XS),
    "grad of jit": lambda m, f: amdjax.grad(m.jit(f), ALL)(-H, W, XS),
    "jit of grad": lambda m, f: m.jit(amdjax.grad(f, ALL))(H, W, XS),
    "vmap": lambda m, f: m.vmap(f, (0, 0, None))(HS, WS, XS),
    "vmap of grad of jit": vmap_of_grad_of_jit,
    "grad of vmap": grad_of_vmap,
    "vmap of vmap": lambda m, f: m.vmap(m.vmap(f, (0, None, None)), (None, 0, None))(HS, WS, XS),
    "hessian": lambda m, f: amdjax.jacfwd(amdjax.jacrev(lambda h: f(h, W, XS)))(H),
    "vmap of hessian": lambda m, f: m.vmap(amdjax.hessian(lambda h: f(h, W, XS)), (0,))(HS),
    "forward over reverse": forward_over_reverse,
    "reverse over forward": reverse_over_forward,
    "reverse over reverse": reverse_over_reverse,
    "third order": third_order,
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_nesting(function, transform):
    run = TRANSFORMS[transform]
    with enable_x64(True):
        got = amdjax.tree.leaves(run(Native, function))
        with amdjax.disable_jit():
            wanted = amdjax.tree.leaves(run(Python, function))
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert a.shape == b.shape
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-8, atol=1e-9)
