"""Networks with channels first are computed with channels last, and results stay what they are."""

import random

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.core.check import check_jaxpr
from amdjax.passes import prepare
from amdjax.passes.layouts import choose_layouts
from tests.support.jit_helpers import compiled, fusion_lines, run_jaxpr, small_integers

FIRST = ("NCHW", "OIHW", "NCHW")


def last_is_faster(eqn, fixed):
    """Nanoseconds of a convolution on a machine that has hardly any for features that lie last."""
    (*_, features), (*_, results) = (
        (s[0], *s[2:], s[1]) for s in eqn.params["dimension_numbers"][::2]
    )
    rank = eqn.outvars[0].aval.ndim
    return 1e9 * ((features != rank - 1) + (results != rank - 1)) + 1


def laid_out(f, *args):
    before = prepare(amdjax.make_jaxpr(f)(*args))
    after = choose_layouts(before, last_is_faster)
    check_jaxpr(after.jaxpr)
    return before, after


def transposes(closed):
    return [e.params["permutation"] for e in closed.eqns if e.primitive.name == "transpose"]


def conv(x, w, stride=1, padding="SAME", **options):
    strides = (stride,) * (x.ndim - 2)
    return lax.conv_general_dilated(x, w, strides, padding, **options)


def same(f, *args):
    """The program laid out, if its values are bit for bit the same."""
    before, after = laid_out(f, *args)
    wanted, got = (run_jaxpr(c, *args) for c in (before, after))
    for a, b in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(a, b)
    return after


def block(x, w, v, b):
    y = nn.relu(conv(x, w, 2) + b[:, None, None])
    y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "SAME")
    return conv(y, v) + y


X, W = small_integers((2, 3, 9, 12)), small_integers((4, 3, 3, 3))
V, B = small_integers((4, 4, 3, 3)), small_integers((4,))


def test_a_network_has_one_transpose_at_each_end():
    after = same(lambda x, w, v, b: block(x, w, v, b), X, W, V, B)
    assert transposes(after) == [(0, 2, 3, 1), (0, 3, 1, 2)]


def test_pooling_over_all_positions_needs_none_at_the_end():
    after = same(lambda x, w, v, b: block(x, w, v, b).sum((2, 3)), X, W, V, B)
    assert transposes(after) == [(0, 2, 3, 1)]


def test_positions_as_rows_are_what_lies_there():
    """As patches of a picture become the words of a transformer."""

    def f(x, w):
        y = conv(x, w, 3, "VALID")
        return y.reshape(2, 4, -1).transpose(0, 2, 1)

    assert transposes(same(f, X, W)) == [(0, 2, 3, 1)]


def test_statistics_of_channels():
    def f(x, w):
        y = jnp.sign(conv(x, w))
        centered = y - y.sum((0, 2, 3), keepdims=True)
        return (y * jnp.abs(centered).sum((0, 2, 3), keepdims=True)).sum((2, 3))

    assert transposes(same(f, X, W)) == [(0, 2, 3, 1)]


def test_a_gate_of_each_channel():
    def f(x, w, v, gate):
        y = conv(x, w)
        s = nn.relu(conv(y.sum((2, 3), keepdims=True), gate))
        return conv(y * s, v).sum((2, 3))

    assert transposes(same(f, X, W, V, small_integers((4, 4, 1, 1)))) == [(0, 2, 3, 1)]


def test_joined_split_padded_turned():
    def f(x, w, v):
        y = jnp.concatenate([conv(x, w), x], 1)
        a, b, _ = jnp.split(jnp.pad(y, ((0, 0), (0, 2), (1, 0), (0, 0))), (4, 8), 1)
        return conv(a[:, :, ::2, ::-1] + jnp.flip(b[:, :, ::2], 3), v).max((2, 3))

    assert transposes(same(f, X, W, V)) == [(0, 2, 3, 1)]


def test_ties_in_windows_stay_with_the_first():
    """Over channels and rows, which change places."""

    def f(x, w):
        y = jnp.round(conv(x, w) / 16)
        pool = lambda y: lax.reduce_window(
            y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "VALID"
        )
        out, back = amdjax.vjp(pool, y)
        return back(jnp.arange(out.size, dtype=out.dtype).reshape(out.shape))[0]

    same(f, X, W)


@pytest.mark.parametrize("dims", [1, 3])
def test_other_numbers_of_positions(dims):
    shape = (2, 3, 6, 5, 4)[: 2 + dims]
    x, w = small_integers(shape), small_integers((4, 3, *(3,) * dims))
    after = same(lambda x, w: nn.relu(conv(x, w)), x, w)
    assert len(transposes(after)) == 2


def test_groups_and_dilation():
    x, w = small_integers((2, 4, 9, 9)), small_integers((8, 2, 3, 3))
    same(lambda x, w: nn.relu(conv(x, w, feature_group_count=2, rhs_dilation=(2, 1))), x, w)
    same(lambda x, w: conv(x, w[:4, :1], padding=[(1, 2)] * 2, feature_group_count=4,
                           lhs_dilation=(2, 2)), x, w)  # fmt: skip


def test_gradients():
    def loss(w, v, b, x):
        return (block(x, w, v, b) * jnp.arange(6.0).reshape(3, 2)[:, :1][0]).sum()

    after = same(amdjax.grad(loss, (0, 1, 2, 3)), W, V, B, X)
    assert after.eqns


def test_gradients_of_kernels_have_taps_first_where_that_is_faster():
    def cost(eqn, fixed):
        """Results are written along features alone."""
        return last_is_faster(eqn, fixed) if eqn.params["dimension_numbers"][0][0] == 0 else (
            1.0 if eqn.params["dimension_numbers"][2][1] == 3 else 1e9
        )  # fmt: skip

    before = prepare(amdjax.make_jaxpr(amdjax.grad(lambda w, x: (conv(x, w) ** 2).sum()))(W, X))
    after = choose_layouts(before, cost)
    check_jaxpr(after.jaxpr)
    assert transposes(after)[-1] == (3, 2, 0, 1)
    for a, b in zip(run_jaxpr(before, W, X), run_jaxpr(after, W, X), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_has_no_rule_gets_the_order_it_was_written_for():
    def f(x, w, v):
        y = jnp.cumsum(conv(x, w), axis=1)
        return conv(jnp.sort(y, axis=2), v), y

    same(f, X, W, V)


def test_loops_over_pictures():
    def f(x, w, v):
        step = lambda y, _: (jnp.sign(conv(y, v)) + y, y.sum())
        return lax.scan(step, conv(x, w), None, length=3)

    same(f, X, W, V)


def test_results_that_are_read_twice_are_transposed_once():
    def f(x, w):
        y = conv(x, w)
        return y, jnp.cumsum(y, 2), jnp.cumsum(y, 3)

    assert transposes(same(f, X, W)).count((0, 3, 1, 2)) == 1


def test_channels_last_stay():
    x, w = X.transpose(0, 2, 3, 1), W.transpose(2, 3, 1, 0)
    before, after = laid_out(
        lambda x, w: conv(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC")), x, w
    )
    assert before is after


def test_transposes_that_cost_more_than_they_save():
    before = prepare(amdjax.make_jaxpr(lambda x, w: conv(x, w))(X, W))
    assert choose_layouts(before, lambda eqn, fixed: 100.0) is before


def test_transposes_of_constants_cost_nothing():
    """Nor do estimates count what packs them, which they are told."""
    w, told = jnp.asarray(W), set()

    def cost(eqn, fixed):
        told.update((i, v in fixed) for i, v in enumerate(eqn.invars))
        lhs, rhs, _ = eqn.params["dimension_numbers"]
        return 1.0 if lhs[1] == 3 and rhs[:2] == (3, 2) else 100.0

    before = prepare(amdjax.make_jaxpr(lambda x: conv(conv(x, w[::-1]), V).sum())(X))
    assert choose_layouts(before, cost) is before
    assert told == {(0, False), (1, False)}
    told.clear()
    after = choose_layouts(before, cost, before.jaxpr.constvars)
    check_jaxpr(after.jaxpr)
    assert after is not before
    assert told == {(0, False), (1, True)}
    for a, b in zip(run_jaxpr(before, X), run_jaxpr(after, X), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.turns(8)
@pytest.mark.parametrize("seed", range(24))
def test_random_networks(seed):
    same(network(seed), small_integers((2, 4, 8, 6), seed=seed))


def network(seed):
    choices = random.Random(seed)
    steps = [choices.choice(STEPS) for _ in range(choices.randint(3, 9))]
    keys = [choices.randrange(1 << 30) for _ in steps]

    def f(x):
        values, outs = [x], []
        for step, key in zip(steps, keys):
            y = step(values[key % len(values)], values, random.Random(key))
            # Small whole numbers, so that sums in any order are the same.
            values.append(jnp.clip(y - 5 * jnp.floor(y / 5), -5, 5) if y.ndim else y)
            outs += [values[-1]] * (key % 3 == 0)
        return [values[-1], *outs]

    return f


def _kernel(choices, *shape):
    return small_integers(shape, seed=choices.randrange(1000))


def _conv(y, values, choices):
    if y.ndim != 4 or min(y.shape) < 1:
        return y + 1
    out, size = choices.choice([1, 3, 4]), choices.choice([1, 2, 3])
    w = _kernel(choices, out, y.shape[1], size, choices.choice([1, size]))
    return conv(y, w, choices.choice([1, 1, 2]))


def _join(y, values, choices):
    axis = choices.randrange(y.ndim) if y.ndim else None
    alike = [v for v in values if v.ndim == y.ndim and y.ndim]
    alike = [
        v
        for v in alike
        if v.shape[:axis] + v.shape[axis + 1 :] == y.shape[:axis] + y.shape[axis + 1 :]
    ]
    return jnp.concatenate([y, choices.choice(alike)], axis) if alike else y


def _add(y, values, choices):
    alike = [v for v in values if v.shape == y.shape or v.ndim == 0]
    return y * 2 - choices.choice(alike)


def _pool(y, values, choices):
    if y.ndim != 4 or min(y.shape) < 2:
        return y
    size = tuple(choices.choice([1, 2]) for _ in range(4))
    init, fn = choices.choice([(-jnp.inf, lax.max), (0.0, lax.add)])
    return lax.reduce_window(
        y, init, fn, size, (1, 1, *(choices.choice([1, 2]) for _ in "hw")), "VALID"
    )


def _reduce(y, values, choices):
    axes = tuple(a for a in range(y.ndim) if choices.random() < 0.5)
    return (
        choices.choice([jnp.sum, jnp.max])(y, axes, keepdims=choices.random() < 0.7) if axes else y
    )


def _transpose(y, values, choices):
    return y.transpose(choices.sample(range(y.ndim), y.ndim))


def _reshape(y, values, choices):
    if y.ndim < 2:
        return y.reshape(-1, 1, 1, y.size)
    i = choices.randrange(y.ndim - 1)
    merged = (*y.shape[:i], y.shape[i] * y.shape[i + 1], *y.shape[i + 2 :])
    if choices.random() < 0.4 or y.ndim > 4:
        return y.reshape(merged)
    if y.shape[i] % 2 == 0 and y.ndim == 3:
        return y.reshape(*y.shape[:i], 2, y.shape[i] // 2, *y.shape[i + 1 :])
    return y.reshape(*merged[: i + 1], 1, *merged[i + 1 :])


def _cut(y, values, choices):
    return y[
        tuple(
            choices.choice([slice(None), slice(None, None, 2), slice(None, None, -1)])
            for _ in y.shape
        )
    ]


def _sort(y, values, choices):
    return jnp.sort(y, choices.randrange(y.ndim)) if y.ndim else y


def _statistics(y, values, choices):
    axes = tuple(a for a in range(y.ndim) if a != 1)
    return y - y.max(axes, keepdims=True) * _kernel(choices, *y.shape[1:2], *(1,) * (y.ndim - 2))


def _broadcast(y, values, choices):
    scale = jnp.broadcast_to(_kernel(choices, *y.shape[-1:]), y.shape)
    return jnp.where(scale > 0, y, scale)


STEPS = [_conv, _conv, _conv, _conv, _join, _add, _pool, _reduce, _transpose, _reshape, _cut, _sort,
         _statistics, _broadcast]  # fmt: skip


def test_on_this_machine():
    """Whatever estimates say of a residual block here, results are right."""
    x, w, v = (small_integers(s) for s in ((2, 64, 16, 16), (64, 64, 3, 3), (64, 64, 3, 3)))

    def f(x, w, v):
        return conv(nn.relu(conv(x, w)), v).sum((2, 3))

    steps = fusion_lines(f, x, w, v)
    is_last = "f32[2,16,16,64] = conv_general_dilated then" in "\n".join(steps)
    assert [s.split(" = ")[1].split()[0] for s in steps].count("transpose") == is_last
    plain = (
        amdjax.jit(f).lower(x, w, v).compile(compiler_options={"disabled_passes": "choose_layouts"})
    )
    np.testing.assert_array_equal(compiled(f, x, w, v)(x, w, v), plain(x, w, v))
