"""Where values live: arena, memory taken over in place, donation, loops."""

import random
import re

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdjax
import amdjax.numpy as jnp
from amdjax import grad, jit, lax
from amdjax.jit import instructions
from amdjax.jit.instructions import ALIGN, Storage, packed
from tests.support.jit_helpers import compiled, opcodes, stage
from tests.support.random_programs import draw_program


def f32(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


lifetimes = st.lists(
    st.tuples(st.integers(0, 700), st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=25
)


def arranged(values):
    storages = [Storage(nbytes, first=min(a, b), last=max(a, b)) for nbytes, a, b in values]
    return storages, packed(storages)


@settings(max_examples=200)
@given(lifetimes)
def test_live_values_never_overlap(values):
    storages, total = arranged(values)
    placed = [s for s in storages if s.nbytes]
    for s in placed:
        assert s.offset % ALIGN == 0 and s.offset + s.nbytes <= total
    for i, s in enumerate(placed):
        for t in placed[:i]:
            live_together = s.first <= t.last and t.first <= s.last
            apart = s.offset + s.nbytes <= t.offset or t.offset + t.nbytes <= s.offset
            assert apart or not live_together


@given(lifetimes)
def test_many_values_go_where_few_would(values):
    few, total = arranged(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instructions, "MANY", 0)
        many, most = arranged(values)
    assert total == most and [s.offset for s in few] == [s.offset for s in many]


@given(lifetimes)
def test_the_arena_is_not_larger_than_all_values(values):
    storages, total = arranged(values)
    assert total <= sum(-(-s.nbytes // ALIGN) * ALIGN for s in storages)


def test_values_that_follow_each_other_share_memory():
    _, total = arranged([(640, 0, 1), (640, 2, 3), (640, 4, 5)])
    assert total == 640


def test_unused_values_take_nothing():
    assert packed([Storage(4096)]) == 0


def test_a_chain_of_products_needs_two_places():
    def f(x):
        for _ in range(6):
            x = x @ x
        return x

    x = f32(64, 64)
    assert compiled(f, x).memory_analysis().temp_size_in_bytes <= 2 * x.nbytes + 4096


@pytest.mark.parametrize("seed", range(5000, 5030))
def test_donation_changes_no_result(seed):
    """Every argument donated, alone and together; what is not donated stays what it was."""
    program = draw_program(seed, np.float32)
    before = [x.copy() for x in program.inputs]

    def f(*xs):
        return program.run(jnp, xs)

    want = [np.array(x) for x in jit(f)(*program.inputs)]
    for donated in [(0,), tuple(range(len(program.inputs)))]:
        arrays = [jnp.array(x) for x in program.inputs]
        got = jit(f, donate_argnums=donated)(*arrays)
        for w, g in zip(want, got, strict=True):
            np.testing.assert_array_equal(w, g, err_msg=str(program))
        for i, (x, old) in enumerate(zip(arrays, before, strict=True)):
            if i not in donated:
                np.testing.assert_array_equal(x, old)


def test_donated_memory_becomes_the_result():
    x = jnp.array(f32(1000))
    address = x.unsafe_buffer_pointer()
    y = jit(lambda x: x * 2 + 1, donate_argnums=0)(x)
    assert y.unsafe_buffer_pointer() == address
    assert x.is_deleted()


@pytest.mark.parametrize("use", [
    lambda x: x + 1, np.asarray, jit(lambda x: x), lambda x: x.tolist(), lambda x: float(x[0]),
    lambda x: amdjax.grad(lambda y: y.sum())(x), lambda x: jit(lambda y: y)({"a": x}),
    lambda x: x.block_until_ready() + 1,
])  # fmt: skip
def test_using_a_donated_array_says_that_it_is_gone(use):
    x = jnp.array(f32(8))
    jit(lambda x: x + 1, donate_argnums=0)(x)
    with pytest.raises(RuntimeError, match=r"deleted.*float32\[8\]"):
        use(x)


def test_donation_by_name_and_of_trees():
    params = {"w": jnp.array(f32(5, 4)), "b": jnp.array(f32(4))}

    def step(params, scale):
        return {k: v * scale for k, v in params.items()}

    new = jit(step, donate_argnames="params")(params, 2.0)
    assert all(v.is_deleted() for v in params.values())
    np.testing.assert_array_equal(new["b"], f32(4) * 2)


def test_an_update_of_a_donated_array_copies_nothing():
    def f(x, i):
        return lax.dynamic_update_index_in_dim(x, jnp.float32(7), i, 0)

    assert "COPY" in opcodes(f, f32(1000), np.int32(3))
    assert "COPY" not in opcodes(f, f32(1000), np.int32(3), donate_argnums=0)


def test_a_donated_argument_that_is_read_later_keeps_its_value():
    def f(x):
        y = x + 1
        return y, jnp.sin(x)[::-1]

    x = f32(50)
    y, z = jit(f, donate_argnums=0)(jnp.array(x))
    np.testing.assert_array_equal(y, x + 1)
    np.testing.assert_array_equal(z, np.asarray(jnp.sin(x))[::-1])


def test_another_name_of_a_donated_argument_keeps_its_value():
    def f(x):
        square = x.reshape(4, 4)
        return x + 1, square @ square

    x = np.arange(16, dtype=np.float32)
    y, z = jit(f, donate_argnums=0)(jnp.array(x))
    np.testing.assert_array_equal(y, x + 1)
    np.testing.assert_array_equal(z, x.reshape(4, 4) @ x.reshape(4, 4))


@pytest.mark.parametrize("which", [True, False])
def test_branches_do_not_overwrite_what_is_read_after_them(which):
    def f(x, p):
        y = lax.cond(p, lambda v: v + 1, lambda v: v - 1, x)
        return y, x[::-1] * 2

    x = f32(64)
    y, z = jit(f, donate_argnums=0)(jnp.array(x), which)
    np.testing.assert_array_equal(y, x + 1 if which else x - 1)
    np.testing.assert_array_equal(z, x[::-1] * 2)


def test_a_loop_does_not_take_an_argument_for_a_larger_result():
    def f(x):
        return lax.scan(lambda c, i: (c + 1.0, x * 2.0 + c), jnp.float32(0), jnp.arange(3))[1]

    got = jit(f, donate_argnums=0)(jnp.ones(4))
    np.testing.assert_array_equal(got, 2 + np.arange(3.0)[:, None] + np.zeros(4))


def test_an_array_passed_twice_and_donated_once():
    x = jnp.array(f32(4, 4))
    old = np.array(x)
    with pytest.raises(RuntimeError, match="donate the same array twice"):
        jit(lambda x, y: (x + 1, y @ y.T), donate_argnums=0)(x, x)
    np.testing.assert_array_equal(x, old)


def test_numpy_memory_is_never_written():
    x = f32(16)
    old = x.copy()
    jit(lambda x: x + 1, donate_argnums=0)(x)
    np.testing.assert_array_equal(x, old)


def test_views_and_constants_survive_donation():
    x = jnp.arange(4.0)
    view = np.asarray(x)
    adds = jit(lambda y: y + x)
    adds(jnp.zeros(4))
    jit(lambda x: x * 3, donate_argnums=0)(x)
    np.testing.assert_array_equal(view, [0, 1, 2, 3])
    np.testing.assert_array_equal(adds(jnp.zeros(4)), [0, 1, 2, 3])


def test_results_own_their_memory():
    """Returning an argument does not make two arrays of one memory."""
    x = f32(8)
    y, z = jit(lambda x: (x, x))(x)
    x[:] = 0
    assert np.asarray(y).any()
    assert y.unsafe_buffer_pointer() != z.unsafe_buffer_pointer()


def test_elementwise_chains_between_kernels_work_in_place():
    """The product's memory holds what follows from it when nothing else reads the product."""

    def f(x):
        return jnp.cumsum(jnp.tanh(jnp.cumsum(x, 0)) * 2, 0)

    x = f32(64, 64)
    assert compiled(f, x).memory_analysis().temp_size_in_bytes <= x.nbytes + 4096


def test_memory_analysis():
    def f(x, y):
        return x @ y, jnp.float32(1)

    x, y = jnp.array(f32(8, 16)), jnp.array(f32(16, 4))
    stats = compiled(f, x, y).memory_analysis()
    assert stats.argument_size_in_bytes == x.nbytes + y.nbytes
    assert stats.output_size_in_bytes == 8 * 4 * 4 + 4
    assert stats.alias_size_in_bytes == 0
    donated = compiled(lambda x: x + 1, x, donate_argnums=0).memory_analysis()
    assert donated.alias_size_in_bytes == x.nbytes


def test_constants_are_counted_once():
    table = jnp.array(f32(100))
    stats = compiled(lambda x: (x + table) * (x - table)[::-1], table).memory_analysis()
    assert stats.constant_size_in_bytes == table.nbytes


def test_plan_text_names_arguments_results_and_constants():
    text = stage(lambda x: x @ x + 1, f32(3, 3), name="plan")
    assert re.match(r"arena \d+ bytes\n", text)
    assert "in0" in text and text.splitlines()[-1].split() == ["HALT"]


def test_random_loops_of_updates():
    """Carried arrays that are updated, passed on, exchanged and returned, in all mixtures."""
    for seed in range(12):
        rng = random.Random(seed)
        moves = [rng.choice(["set", "add", "keep", "swap", "both"]) for _ in range(3)]

        def step(i, carry, xp, moves=moves):
            a, b, seen = carry
            for k, move in enumerate(moves):
                if move == "set":
                    a = put(xp, a, (i + k) % 5, a[i % 5] + 1)
                elif move == "add":
                    b = b + a
                elif move == "swap":
                    a, b = b, a
                elif move == "both":
                    seen = seen + a[0] * b[1]
                    b = put(xp, b, i % 5, seen)
            return a, b, seen

        init = np.arange(5.0, dtype=np.float32), np.ones(5, np.float32), np.float32(0)
        want = init
        for i in range(4):
            want = step(i, want, np)
        got = jit(lambda c: lax.fori_loop(0, 4, lambda i, c: step(i, c, jnp), c))(init)
        for w, g in zip(want, got, strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-6, err_msg=str(moves))


def put(xp, x, i, value):
    if xp is not np:
        return x.at[i].set(value)
    out = x.copy()
    out[i] = value
    return out


def test_equal_results_are_written_by_the_kernel_that_computes_them():
    x = np.random.default_rng(0).integers(-3, 4, (37, 53)).astype(np.float32)
    square = lambda x: x * x + 1

    def f(x):
        again = square(x).T.reshape(-1), square(x).T.reshape(-1)
        return square(x), square(x), x.sum(0), x.sum(0), square(x), x @ x.T, x @ x.T, x, *again

    found = jit(f).lower(x).compile()
    y, product = square(x), x @ x.T
    wanted = (y, y, x.sum(0), x.sum(0), y, product, product, x, y.T.ravel(), y.T.ravel())
    for a, b in zip(found(x), wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    # What is an argument, of a product, or another name for a result is copied.
    assert found.as_text("plan").count("COPY") == 3
    both = jit(lambda *xs: grad(lambda a, b: ((a + b) ** 2).sum(), (0, 1))(*xs))
    assert "COPY" not in both.lower(x, x).compile().as_text("plan")
    for slope in both(x, x):
        np.testing.assert_array_equal(slope, 4 * x)


def test_memory_of_symbolic_programs_is_a_formula():
    spec = amdjax.ShapeDtypeStruct(("b", "t"), "float32")
    f = lambda x: jnp.sort(jnp.cumsum(x @ x.T @ x, 1), 0) @ (x.T @ x)
    program = amdjax.jit(f).lower(spec).compile()
    assert program.memory_analysis().temp_size_in_bytes is None
    variants = program.variants
    for b, t in [(100, 64), (61, 90), (300, 40)]:
        program(np.ones((b, t), np.float32))
        variant, stats = variants.most_used(), program.memory_analysis()
        sizes = {"b": b, "t": t}
        live = [sum(n.evaluate(sizes) for n in peak) for peak in variant.program.peaks()]
        assert stats.temp_size_in_bytes.evaluate(sizes) == max(live)
        assert stats.argument_size_in_bytes.evaluate(sizes) == 4 * b * t
    small = amdjax.jit(lambda x: (x @ x.T).sum(0)).lower(spec).compile()
    small(np.ones((100, 64), np.float32))
    # Beside the product there may be packed operands.
    assert small.memory_analysis().temp_size_in_bytes.evaluate({"b": 100, "t": 64}) >= 4 * 100**2
    donated = amdjax.jit(lambda x: x * 2, donate_argnums=0).lower(spec).compile()
    donated(np.ones((100, 64), np.float32))
    assert str(donated.memory_analysis().alias_size_in_bytes) == "4*b*t"
