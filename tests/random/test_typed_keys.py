"""Arrays of keys in programs: every operation and transform sees their words as they would be."""

import copy
import pickle

import numpy as np
import pytest

import amdjax
from amdjax import lax, numpy as jnp, random
from amdjax.core.parse import parse_jaxpr

IMPLS = ("threefry2x32", "threefry4x32", "philox2x32", "philox4x32", "rbg", "unsafe_rbg")
LAYOUT = {
    "transpose": lambda x, y: x.T,
    "reshape": lambda x, y: x.reshape(3, 2, 1),
    "slice": lambda x, y: x[:1, ::2],
    "reverse": lambda x, y: x[::-1],
    "gather": lambda x, y: x[np.array([1, 0, 1])],
    "gather pairs": lambda x, y: x[np.array([1, 0]), np.array([2, 0])],
    "mask": lambda x, y: x[np.array([False, True])],
    "take": lambda x, y: jnp.take(x, np.array([[2, 0]]), axis=1),
    "fill": lambda x, y: x.at[5].get(mode="fill"),
    "set": lambda x, y: x.at[1].set(y[0]),
    "scatter": lambda x, y: x.at[:, np.array([2, 0])].set(y[:, :2]),
    "concatenate": lambda x, y: jnp.concatenate([x, y], axis=1),
    "stack": lambda x, y: jnp.stack([x, y], axis=1),
    "broadcast": lambda x, y: jnp.broadcast_to(x[0], (4, 3)),
    "tile": lambda x, y: jnp.tile(x, (2, 1)),
    "repeat": lambda x, y: jnp.repeat(x, 2, axis=0),
    "roll": lambda x, y: jnp.roll(x, 1, axis=1),
    "where": lambda x, y: jnp.where(np.arange(3) > 0, x, y),
    "select": lambda x, y: lax.select_n(np.int32(1), x, y),
    "update": lambda x, y: lax.dynamic_update_slice(x, y[:1], (np.int32(1), np.int32(0))),
    "dynamic slice": lambda x, y: lax.dynamic_slice(x, (np.int32(0), np.int32(1)), (2, 2)),
    "expand": lambda x, y: jnp.expand_dims(x, (0, 2)),
    "split": lambda x, y: jnp.split(x, 3, axis=1)[1],
    "barrier": lambda x, y: lax.optimization_barrier(x),
    "copy": lambda x, y: x.copy(),
}


def words(keys):
    return np.asarray(random.key_data(keys))


def two_arrays(impl):
    keys = random.split(random.key(7, impl=impl), (2, 2, 3))
    return keys[0], keys[1]


def of_each_word(fn, *arrays):
    """`fn` of arrays of one word each, which is what it must do to keys."""
    parts = [np.moveaxis(words(a), -1, 0) for a in arrays]
    return np.stack([fn(*map(jnp.asarray, each)) for each in zip(*parts)], axis=-1)


@pytest.mark.parametrize("impl", ("threefry2x32", "rbg"))
@pytest.mark.parametrize("name", LAYOUT)
def test_what_moves_elements_moves_keys(name, impl):
    fn, arrays = LAYOUT[name], two_arrays(impl)
    wanted = of_each_word(fn, *arrays)
    for run in (fn, amdjax.jit(fn)):
        found = run(*arrays)
        assert found.dtype == arrays[0].dtype
        np.testing.assert_array_equal(words(found), wanted)
    batched = amdjax.vmap(fn)(*(jnp.stack([a, a[::-1]]) for a in arrays))
    np.testing.assert_array_equal(words(batched[0]), wanted)
    np.testing.assert_array_equal(words(batched[1]), of_each_word(fn, *(a[::-1] for a in arrays)))


@pytest.mark.parametrize("impl", IMPLS)
def test_equality_is_of_whole_keys(impl):
    x, _ = two_arrays(impl)
    data = words(x).copy()
    data[0, 1, -1] += 1  # one word of one key differs
    y = random.wrap_key_data(data, impl=impl)
    wanted = np.ones((2, 3), bool)
    wanted[0, 1] = False
    for same, different in ((x == y, x != y), amdjax.jit(lambda a, b: (a == b, a != b))(x, y)):
        np.testing.assert_array_equal(same, wanted)
        np.testing.assert_array_equal(different, ~wanted)
    np.testing.assert_array_equal(amdjax.vmap(lambda a: a == y[0, 0])(x[0]), x[0] == y[0, 0])


@pytest.mark.parametrize(
    "misuse",
    [
        lambda k: amdjax.tree.map(lambda x: x + 1, {"k": k}),
        lambda k: k + k,
        lambda k: -k,
        lambda k: k < k,
        lambda k: k == 1,
        lambda k: k.astype(np.uint32),
        lambda k: jnp.array(k, dtype=np.int32),
        lambda k: lax.convert_element_type(np.int32(0), k.dtype),
        lambda k: lax.bitcast_convert_type(k, np.uint32),
        lambda k: jnp.where(True, k, 1),
        lambda k: jnp.concatenate([k[None], jnp.ones(1)]),
        lambda k: jnp.sort(k[None]),
        lambda k: jnp.sum(k[None]),
        lambda k: k == random.key(0, impl="rbg"),
        lambda k: amdjax.grad(lambda k: 1.0)(k),
    ],
)
def test_keys_are_no_numbers(misuse):
    for run in (misuse, amdjax.jit(misuse)):
        with pytest.raises((TypeError, ValueError)):
            run(random.key(0))


@pytest.mark.parametrize(
    "use", [bool, int, float, complex, np.asarray, lambda k: k.tolist(), lambda k: k.item(), hash]
)
def test_concrete_keys_become_no_numbers(use):
    with pytest.raises(TypeError):
        use(random.key(0))


def test_keys_are_leaves():
    key = random.key(3)
    assert isinstance(key, amdjax.Array)
    assert amdjax.tree.leaves({"k": key}) == [key]
    assert amdjax.tree.map(lambda x: x.shape, [key]) == [()]


def test_copies():
    keys = random.split(random.key(1), 3)
    for made in (copy.copy(keys), copy.deepcopy(keys), pickle.loads(pickle.dumps(keys))):
        assert made.dtype == keys.dtype
        np.testing.assert_array_equal(words(made), words(keys))
    assert pickle.loads(pickle.dumps(keys.dtype)) == keys.dtype
    assert repr(random.key(5)) == "Array((), dtype=key<fry>) overlaying:\n[0 5]"


def test_filled():
    dtype = random.key_dtype("rbg")
    for make, word in ((jnp.zeros, 0), (jnp.ones, 1), (jnp.empty, 0)):
        assert words(make((2,), dtype)).tolist() == [[word] * 4] * 2
    assert words(jnp.full_like(random.key(0), 3)).tolist() == [3, 3]
    key = random.key(9)
    assert words(jnp.full((2,), key, key.dtype)).tolist() == [words(key).tolist()] * 2


def test_programs_show_keys():
    def draw(key):
        first, second = random.split(key)
        return random.bits(first), random.fold_in(second, 3), random.key_data(key)

    closed = amdjax.make_jaxpr(draw)(random.key(0))
    text = str(closed)
    for part in ("a:key<fry>[]", "random_split[shape=(2,)]", "random_fold_in", "random_unwrap",
                 "random_bits[bit_width=32 shape=()]", "key<fry>[2]"):  # fmt: skip
        assert part in text
    assert str(closed.in_avals[0]) == "key<fry>[]"
    assert "random_seed[impl=fry]" in str(amdjax.make_jaxpr(random.key)(0))
    assert "random_wrap[impl=fry]" in str(amdjax.make_jaxpr(random.split)(random.PRNGKey(0)))
    parsed = parse_jaxpr("{ lambda ; a:key<fry>[3]. let b:key<fry>[3] = copy a in (b,) }")
    assert parsed.in_avals[0].dtype == random.key_dtype()


def test_shapes_without_values():
    struct = amdjax.ShapeDtypeStruct((), random.key_dtype("rbg"))
    assert amdjax.ShapeDtypeStruct.like(random.key(0, impl="rbg")).dtype == struct.dtype
    out = amdjax.eval_shape(lambda key: (random.split(key, 3), random.normal(key, (2,))), struct)
    assert out[0].shape == (3,) and out[0].dtype == struct.dtype
    assert out[1] == amdjax.ShapeDtypeStruct((2,), "float32")
    compiled = amdjax.jit(random.split).lower(struct).compile()
    key = random.key(0, impl="rbg")
    np.testing.assert_array_equal(words(compiled(key)), words(random.split(key)))


def test_control_flow():
    key = random.key(2)

    def chain(key, _):
        key, sub = random.split(key)
        return key, (sub, random.uniform(sub))

    wanted, k = [], key
    for _ in range(3):
        k, (sub, u) = chain(k, None)
        wanted.append((words(sub).tolist(), float(u)))
    last, (subs, us) = lax.scan(chain, key, None, length=3)
    np.testing.assert_array_equal(words(last), words(k))
    assert list(zip(words(subs).tolist(), us.tolist())) == wanted
    _, drawn = lax.scan(lambda c, k: (c, random.uniform(k)), 0, subs)
    np.testing.assert_array_equal(drawn, us)

    _count, found = lax.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + 1, chain(s[1], None)[0]), (0, key)
    )
    np.testing.assert_array_equal(words(found), words(last))
    pick = amdjax.jit(lambda p, a, b: lax.cond(p, lambda a, b: a, lambda a, b: b, a, b))
    np.testing.assert_array_equal(words(pick(False, key, last)), words(last))
    batched = amdjax.vmap(pick)(np.array([True, False]), subs[:2], subs[1:])
    np.testing.assert_array_equal(words(batched), words(subs)[[0, 2]])
    loop = lambda key: lax.fori_loop(0, 3, lambda i, k: chain(k, None)[0], key)
    np.testing.assert_array_equal(words(amdjax.vmap(loop)(key[None])[0]), words(last))
    np.testing.assert_array_equal(words(lax.map(random.clone, subs)), words(subs))


def test_jit_closes_over_keys():
    key = random.key(4)
    assert float(amdjax.jit(lambda x: x + random.uniform(key))(0.0)) == float(random.uniform(key))
    step = amdjax.jit(lambda keys: jnp.roll(keys, 1), donate_argnums=0)
    keys = random.split(key, 4)
    wanted = np.roll(words(keys), 1, axis=0)
    np.testing.assert_array_equal(words(step(keys)), wanted)


def dropout(key, x):
    return jnp.where(random.bernoulli(key, 0.5, x.shape), jnp.sin(x), 0.0)


@pytest.mark.parametrize("wrap", [lambda f: f, amdjax.jit, amdjax.checkpoint])
def test_derivatives_of_what_takes_keys(wrap):
    key, x = random.key(6), np.arange(8, dtype=np.float32)
    mask = np.asarray(random.bernoulli(key, 0.5, x.shape))
    loss = lambda x, key: wrap(dropout)(key, x).sum()
    np.testing.assert_allclose(amdjax.grad(loss)(x, key), np.cos(x) * mask, rtol=1e-6)
    _, pull = amdjax.vjp(wrap(dropout), key, x)
    key_ct, x_ct = pull(np.ones(8, np.float32))
    assert key_ct.dtype == amdjax.float0 and key_ct.shape == ()
    np.testing.assert_allclose(x_ct, np.cos(x) * mask, rtol=1e-6)
    zero = np.zeros((), amdjax.float0)
    _, tangent = amdjax.jvp(wrap(dropout), (key, x), (zero, np.ones(8, np.float32)))
    np.testing.assert_allclose(tangent, np.cos(x) * mask, rtol=1e-6)
    assert amdjax.grad(lambda k: 1.0, allow_int=True)(key).dtype == amdjax.float0


def test_gradient_through_a_scan_that_carries_a_key():
    def run(x, key):
        def step(carry, _):
            x, key = carry
            key, sub = random.split(key)
            return (x * (1 + random.uniform(sub)), key), None

        return lax.scan(step, (x, key), None, length=3)[0][0]

    key = random.key(11)
    factor = float(run(1.0, key))
    assert float(amdjax.grad(run)(2.0, key)) == pytest.approx(factor, rel=1e-5)
    many = amdjax.vmap(amdjax.grad(run), (None, 0))(2.0, random.split(key, 2))
    each = [float(run(1.0, k)) for k in random.split(key, 2)]
    np.testing.assert_allclose(many, each, rtol=1e-5)


def test_custom_rules():
    @amdjax.custom_vjp
    def scaled(key, x):
        return x * random.uniform(key)

    def forward(key, x):
        return scaled(key, x), key

    def backward(key, ct):
        return np.zeros((), amdjax.float0), ct * random.uniform(key)

    scaled.defvjp(forward, backward)
    key = random.key(8)
    assert float(amdjax.grad(scaled, 1)(key, 3.0)) == float(random.uniform(key))
    assert float(amdjax.jit(amdjax.grad(scaled, 1))(key, 3.0)) == float(random.uniform(key))

    @amdjax.custom_jvp
    def same(key, x):
        return key, x

    @same.defjvp
    def rule(primals, tangents):
        return same(*primals), (tangents[0], 2 * tangents[1])

    assert float(amdjax.grad(lambda x: same(key, x)[1])(3.0)) == 2.0


@pytest.mark.parametrize("impl", IMPLS)
def test_arrays_of_keys_act_like_their_keys(impl):
    """All but what XLA's generator makes, of which the first key of a batch makes the bits."""
    keys = random.split(random.key(12, impl=impl), 3)
    mapped = lambda fn: amdjax.vmap(fn)(keys)
    each = lambda fn: [fn(k) for k in keys]
    exact = "rbg" not in impl
    if impl != "unsafe_rbg":
        np.testing.assert_array_equal(
            words(mapped(lambda k: random.split(k, 2))),
            np.stack(each(lambda k: words(random.split(k, 2)))),
        )
    folded = np.stack(each(lambda k: words(random.fold_in(k, 5))))
    np.testing.assert_array_equal(words(mapped(lambda k: random.fold_in(k, 5))), folded)
    drawn = mapped(lambda k: random.bits(k, (4,)))
    wanted = each(lambda k: random.bits(k, (4,))) if exact else random.bits(keys[0], (3, 4))
    np.testing.assert_array_equal(drawn, np.stack(wanted))
    numbers = np.arange(3, dtype=np.uint32)
    if exact:
        grid = amdjax.vmap(lambda k: amdjax.vmap(lambda n: random.fold_in(k, n))(numbers))(keys)
        np.testing.assert_array_equal(
            words(grid), [[words(random.fold_in(k, n)) for n in numbers] for k in keys]
        )


def test_own_generators():
    from amdjax.extend.random import define_prng_impl
    from amdjax.random._prng import random_bits, random_split

    impl = define_prng_impl(
        key_shape=(2, 2),
        seed=lambda seed: jnp.full((2, 2), seed, np.uint32) + np.arange(2, dtype=np.uint32),
        split=lambda key, shape: jnp.broadcast_to(key, (*shape, 2, 2)) + np.uint32(1),
        random_bits=lambda key, width, shape: jnp.broadcast_to(key.sum(), shape).astype(np.uint32),
        fold_in=lambda key, number: key ^ number,
        tag="mine",
    )
    key = random.key(5, impl=impl)
    assert str(key.dtype) == "key<mine>"
    assert words(key).tolist() == [[5, 6], [5, 6]]
    keys = random_split(key, (3,))
    assert words(keys.reshape(1, 3)[0, 1:]).shape == (2, 2, 2)
    assert (keys == keys[0]).tolist() == [True] * 3
    assert random_bits(keys, 32, ()).tolist() == [26] * 3
    assert random.key_impl(key) == impl
    assert random.fold_in(key, 1).dtype == key.dtype
