"""References: every way to run a function that works on them does what NumPy does in place."""

import numpy as np
import pytest

import amdjax
from amdjax import lax, numpy as jnp, random
from amdjax.core.ref import AccumEffect, ReadEffect, WriteEffect
from amdjax.sharding import PartitionSpec as P

X = np.linspace(0.5, 2.0, 6, dtype=np.float32).reshape(2, 3)


def assign(ref, x):
    ref[0] = ref[1] * x[0]


def accumulate(ref, x):
    ref[...] += x
    ref[1, 2] += 5


def exchange(ref, x):
    old = amdjax.ref.swap(ref, (slice(None), 1), x[:, 0])
    amdjax.ref.addupdate(ref, (0, slice(1, None)), old)


def gathered(ref, x):
    at = jnp.argmax(x) % 3
    ref[:, at] = ref[:, 0] + 1
    ref[np.array([0, 1]), np.array([2, 0])] = x[0, :2]
    amdjax.ref.addupdate(ref, (np.array([0, 0]),), x)


def parts(ref, x):
    ref.at[1].at[1:][...] += x[0, 1:]


def looped(ref, x):
    x = jnp.asarray(x)
    lax.fori_loop(0, 3, lambda i, _: ref.__setitem__((0, i), ref[1, i] * x[0, i]), None)


def scanned(ref, x):
    def step(carry, row):
        ref[1] = ref[1] + row * carry
        return carry * 2, ref[0] * row

    _, rows = lax.scan(step, jnp.float32(1), x)
    ref[0] = rows.sum(0)


def scanned_over(ref, x):
    lax.scan(
        lambda _, pair: (None, pair[0].__setitem__(..., pair[0][...] * pair[1])), None, (ref, x)
    )


def branched(ref, x):
    def grow():
        ref[0] = ref[0] * x[1]

    lax.cond(x[0, 0] < 1, grow, lambda: ref.__setitem__(1, x[0]))
    lax.switch(np.int32(1), [lambda: None, lambda: ref.__setitem__((0, 0), x[1, 1])])


def repeated(ref, x):
    x = jnp.asarray(x)

    def step(i):
        ref[i] = ref[i] * x[i]
        return i + 1

    lax.while_loop(lambda i: i < 2, step, 0)


def nested(ref, x):
    inner = amdjax.new_ref(x)

    @amdjax.jit
    def f(y):
        ref[...] = ref[...] * y
        inner[0] = y[1]

    lax.fori_loop(0, 2, lambda i, _: f(x), None)
    ref[1] += amdjax.freeze(inner)[0]


FUNCTIONS = [assign, accumulate, exchange, gathered, parts, looped, scanned, scanned_over, branched,
             repeated, nested]  # fmt: skip
each = pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)


def numpy_result(fn):
    """What a function leaves in an array, by running it on NumPy's arrays where it can."""
    a = X.copy()
    x = X + 1
    if fn is assign:
        a[0] = a[1] * x[0]
    elif fn is accumulate:
        a += x
        a[1, 2] += 5
    elif fn is exchange:
        old, a[:, 1] = a[:, 1].copy(), x[:, 0]
        a[0, 1:] += old
    elif fn is gathered:
        a[:, x.argmax() % 3] = a[:, 0] + 1
        a[[0, 1], [2, 0]] = x[0, :2]
        np.add.at(a, [0, 0], x)
    elif fn is parts:
        a[1, 1:] += x[0, 1:]
    elif fn is looped:
        a[0] = a[1] * x[0]
    elif fn is scanned:
        rows = a[0] * x
        a[1] += x[0] + 2 * x[1]
        a[0] = rows.sum(0)
    elif fn is scanned_over:
        a *= x
    elif fn is branched:
        a[1] = x[0]
        a[0, 0] = x[1, 1]
    elif fn is repeated:
        a *= x
    elif fn is nested:
        a *= x * x
        a[1] += x[1]
    return a


def pure(fn):
    """The function of the array that a reference holds before to what it holds after."""

    def call(start, x):
        ref = amdjax.new_ref(start)
        fn(ref, x)
        return amdjax.freeze(ref)

    return call


@each
def test_eager_and_compiled(fn):
    x, wanted = X + 1, numpy_result(fn)
    for run in (lambda f: f, amdjax.jit):
        ref = amdjax.new_ref(X)
        run(fn)(ref, x)
        np.testing.assert_allclose(ref[...], wanted, rtol=1e-6)
        closed_over = amdjax.new_ref(X)
        step = run(lambda x: fn(closed_over, x))
        step(x)
        np.testing.assert_allclose(closed_over[...], wanted, rtol=1e-6)
        np.testing.assert_allclose(run(pure(fn))(X, x), wanted, rtol=1e-6)
    struct = amdjax.ShapeDtypeStruct.like(amdjax.new_ref(X))
    assert struct == amdjax.ShapeDtypeStruct(
        X.shape, X.dtype, sharding=struct.sharding, is_ref=True
    )
    compiled = amdjax.jit(fn).lower(struct, x).compile()
    ref = amdjax.new_ref(X)
    compiled(ref, x)
    np.testing.assert_allclose(ref[...], wanted, rtol=1e-6)


@each
def test_batches(fn):
    starts, xs = np.stack([X, 2 * X, X - 1]), np.stack([X + 1, X, X * X])
    wanted = np.stack([pure(fn)(s, x) for s, x in zip(starts, xs)])
    for run in (lambda f: f, amdjax.jit):
        np.testing.assert_allclose(run(amdjax.vmap(pure(fn)))(starts, xs), wanted, rtol=1e-5)
        np.testing.assert_allclose(
            run(amdjax.vmap(pure(fn), (None, 0)))(X, xs),
            np.stack([pure(fn)(X, x) for x in xs]),
            rtol=1e-5,
        )
        refs = amdjax.new_ref(starts)
        run(amdjax.vmap(fn))(refs, xs)
        np.testing.assert_allclose(refs[...], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    "fn", [f for f in FUNCTIONS if f is not repeated], ids=lambda f: f.__name__
)
def test_derivatives(fn):
    x, loss = X + 1, lambda s, x: (pure(fn)(s, x) * np.arange(6).reshape(2, 3)).sum()
    grads = amdjax.grad(loss, (0, 1))(X, x)
    with amdjax.enable_x64(True):
        start, at = X.astype(np.float64), x.astype(np.float64)
        amdjax.test_util.check_grads(loss, (start, at), 2, modes=("fwd", "rev"))
    for run in (
        amdjax.jit(amdjax.grad(loss, (0, 1))),
        amdjax.grad(amdjax.jit(loss), (0, 1)),
        amdjax.grad(amdjax.checkpoint(loss), (0, 1)),
        amdjax.grad(
            lambda s, x: amdjax.checkpoint(pure(fn))(s, x).ravel() @ np.arange(6.0), (0, 1)
        ),
    ):
        for found, wanted in zip(run(X, x), grads):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    many = amdjax.vmap(amdjax.grad(loss), (0, None))(np.stack([X, X]), x)
    np.testing.assert_allclose(many[1], grads[0], rtol=1e-5)


@each
def test_tangents_of_references(fn):
    x, direction = X + 1, np.cos(X)
    ref, ref_dot = amdjax.new_ref(X), amdjax.new_ref(direction)
    amdjax.jvp(lambda r, x: fn(r, x), (ref, x), (ref_dot, direction))
    value, tangent = amdjax.jvp(pure(fn), (X, x), (direction, direction))
    np.testing.assert_allclose(ref[...], value, rtol=1e-6)
    np.testing.assert_allclose(ref_dot[...], tangent, rtol=1e-5)


@each
def test_programs_are_checked_and_told(fn):
    closed = amdjax.make_jaxpr(fn)(amdjax.new_ref(X), X)
    assert any(isinstance(e, (WriteEffect, AccumEffect)) for e in closed.effects)
    assert "Ref{f32[2,3]}" in str(closed)
    assert not amdjax.make_jaxpr(pure(fn))(X, X).effects
    with amdjax.enable_checks(True):
        np.testing.assert_allclose(amdjax.jit(pure(fn))(X, X + 1), numpy_result(fn), rtol=1e-6)


def test_how_programs_print():
    def f(x, i):
        ref = amdjax.new_ref(x)
        ref[0] = 2.0
        old = amdjax.ref.swap(ref, slice(1, None), x[1:])
        amdjax.ref.addupdate(ref, i, 3.0)
        return old, ref[i], ref[...]

    text = str(amdjax.make_jaxpr(f)(np.zeros(3, np.float32), 1))
    for line in ("c:Ref{f32[3]} = new_ref[kind=None memory_space=None] a", "c[0] <- 2.0:f32[]",
                 ", c[1:] <- c[1:], ", "c[b] += 3.0:f32[]", ":f32[] <- c[b]",
                 ":f32[3] <- c[...]"):  # fmt: skip
        assert line in text
    effects = amdjax.make_jaxpr(lambda r: r[0])(amdjax.new_ref(X)).effects
    assert [type(e) for e in effects] == [ReadEffect]


def test_values_are_not_shared():
    x = jnp.arange(3.0)
    ref = amdjax.new_ref(x)
    before = ref[...]
    write = amdjax.jit(lambda ref: ref.__setitem__(0, 7.0))
    write(ref)
    ref[1] = 8.0
    write(ref)
    assert ref[...].tolist() == [7, 8, 2]
    assert before.tolist() == x.tolist() == [0, 1, 2]
    frozen = amdjax.freeze(ref)
    ref[2] = 9.0
    assert frozen.tolist() == [7, 8, 2]


def test_loops_update_in_place():
    """A loop that writes one element a step moves no whole array."""
    ref = amdjax.new_ref(jnp.zeros(1_000_000))

    @amdjax.jit
    def fill(ref):
        lax.fori_loop(0, 1000, lambda i, _: ref.__setitem__(i, jnp.float32(i)), None)

    text = fill.lower(ref).compile().as_text("plan")
    loop = text[text.index("@") : text.index("REPEAT")]
    assert "update_slice" in loop and "4000000" not in loop
    fill(ref)
    assert float(ref[...].sum()) == 999 * 500


def test_keys_and_integers():
    key = amdjax.new_ref(random.key(0))
    draw = amdjax.jit(
        lambda k: (k.__setitem__(..., random.fold_in(k[...], 1)), random.bits(k[...]))[1]
    )
    first = draw(key)
    wanted = random.fold_in(random.key(0), 1)
    assert bool(key[...] == wanted) and int(first) == int(random.bits(wanted))
    count = amdjax.new_ref(0)
    amdjax.grad(lambda x: (count.__setitem__(..., count[...] + 1), x)[1])(1.0)
    assert int(count[...]) == 1
    narrow = amdjax.new_ref(np.zeros(2, np.int8))
    narrow[0] = 300
    assert narrow[...].tolist() == [44, 0]


def test_gradients_accumulate():
    total = amdjax.new_ref(jnp.zeros(3))

    def step(_, x):
        _, f_vjp = amdjax.vjp(lambda w: (w * x).sum() ** 2, jnp.ones(3))
        f_vjp.with_refs(total)(1.0)
        return (), ()

    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    amdjax.jit(lambda: lax.scan(step, (), rows))()
    np.testing.assert_allclose(total[...], sum(2 * r.sum() * r for r in rows))


def test_cotangents_that_are_not_wanted_are_not_computed():
    want, leave = amdjax.ad.GradValue(), amdjax.ad.DontWant()
    x, y, total = jnp.arange(3.0), jnp.arange(3.0) + 1, amdjax.new_ref(jnp.zeros(3))
    _, f_vjp = amdjax.vjp(lambda x, y: lax.sin(x) * y, x, y)
    ct = jnp.ones(3)
    for refs, count in (((want, want), 3), ((leave, want), 1), ((leave, leave), 0)):
        pull = f_vjp.with_refs(*refs)
        assert len(amdjax.make_jaxpr(pull)(ct).eqns) == count
        found, expected = amdjax.jit(pull)(ct), f_vjp(ct)
        for ref, a, b in zip(refs, found, expected):
            if ref is leave:
                assert a == amdjax.ad.DidntWant()
            else:
                np.testing.assert_array_equal(a, b)
    assert f_vjp.with_refs(leave, total)(ct) == (amdjax.ad.DidntWant(), amdjax.ad.GradRef())
    np.testing.assert_array_equal(total[...], f_vjp(ct)[1])


@pytest.mark.parametrize("wrap", [lambda f: f, amdjax.jit, amdjax.checkpoint])
@pytest.mark.parametrize("loop", [False, True])
def test_custom_rules_write_when_they_run(wrap, loop):
    @amdjax.custom_vjp
    def stash(ref, x):
        return x

    def backward(ref, g):
        ref[...] = g
        return None, g

    stash.defvjp(lambda ref, x: (x, ref), backward)

    def f(ref, x):
        body = wrap(lambda x: jnp.sin(stash(ref, jnp.sin(x))))
        return lax.scan(lambda c, _: (body(c), None), x, None, length=1)[0] if loop else body(x)

    ref = amdjax.new_ref(jnp.float32(0))
    amdjax.grad(f, 1)(ref, jnp.float32(1))
    np.testing.assert_allclose(ref[...], np.cos(np.sin(1.0)), rtol=1e-6)


def test_values_without_gradients():
    ref = amdjax.new_ref(1.0, kind="no_grad_stats")

    def f(x):
        ref[...] += x * x
        return ref[...] * x

    assert float(amdjax.grad(f)(2.0)) == 5.0
    assert float(ref[...]) == 5.0


REF = amdjax.new_ref(jnp.zeros(3))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda r: r.__setitem__(0, jnp.ones(2)), ValueError, "Invalid shape for `swap`"),
        (lambda r: r.__setitem__(0, 1), ValueError, "Invalid dtype for `swap`"),
        (lambda r: amdjax.ref.addupdate(r, ..., 1.0), ValueError, "Invalid shape for `addupdate`"),
        (lambda r: r[5], ValueError, "Out of bound indexer: idx=5, dim=3"),
        (lambda r: r[1, 2], ValueError, "must not be longer"),
        (lambda r: r["a"], TypeError, "not a valid JAX type"),
        (lambda r: r[0.5], TypeError, "must be an integer"),
        (lambda r: r.__setitem__(0, "a"), TypeError, "not a valid JAX type"),
        (lambda r: jnp.sin(r), TypeError, "sin"),
        (lambda r: lax.add_p.bind(r, r), TypeError, "reference"),
        (lambda r: amdjax.jit(lambda: r)(), ValueError, "returned a mutable array reference"),
        (lambda r: amdjax.jit(lambda a, b: a[0])(r, r), ValueError, "appeared at both a and b"),
        (lambda r: amdjax.jit(lambda a: a[0] + r[0])(r), ValueError, "closed over and passed"),
        (lambda r: amdjax.vmap(lambda a, b: None)(r, r), ValueError, "appeared at both a and b"),
        (lambda r: amdjax.vmap(lambda x: r.__setitem__(0, x))(jnp.ones(2)), Exception, "unbatched"),
        (lambda r: amdjax.vmap(lambda x: amdjax.ref.addupdate(r, 0, x))(jnp.ones(2)), Exception,
         "performing an addupdate operation with vmapped value"),
        (lambda r: amdjax.grad(lambda x: (r.__setitem__(0, x), x)[1])(1.0), Exception,
         "Move the array reference"),
        (lambda r: lax.scan(lambda c, x: (c, amdjax.new_ref(x)), 0, jnp.ones(2)), ValueError,
         "traced for scan returned a mutable"),
        (lambda r: lax.cond(True, lambda a: a[0] + r[0], lambda a: a[0], r), ValueError,
         "closed over and passed as the argument a"),
        (lambda r: amdjax.ref.get(jnp.ones(3), 0), ValueError, "on a `Ref`"),
        (lambda r: amdjax.new_ref("a"), TypeError, "init_val"),
    ],
)  # fmt: skip
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call(REF)


def test_freed_references():
    ref = amdjax.new_ref(1.0)
    amdjax.free_ref(ref)
    for use in (lambda: ref[...], lambda: ref.__setitem__(..., 1.0), lambda: amdjax.free_ref(ref)):
        with pytest.raises(ValueError, match="freed"):
            use()

    @amdjax.jit
    def f(x):
        ref = amdjax.empty_ref(amdjax.ShapeDtypeStruct((), "float32"))
        ref[...] = x * x
        y = ref[...]
        amdjax.free_ref(ref)
        return y

    assert float(f(3.0)) == 9.0
    assert float(amdjax.grad(f)(3.0)) == 6.0
    assert isinstance(ref, amdjax.Ref) and not isinstance(ref, amdjax.Array)
    assert not isinstance(jnp.ones(2), amdjax.Ref)


def test_a_batch_does_not_write_what_it_shares():
    shared = amdjax.new_ref(jnp.zeros(2))

    def read(x):
        return lax.scan(lambda c, _: (c + shared[0], None), x, None, length=2)[0]

    assert amdjax.vmap(read)(np.ones(3, np.float32)).tolist() == [1, 1, 1]
    for write in (lambda: shared.__setitem__(0, 1.0), lambda: amdjax.ref.addupdate(shared, 0, 1.0)):
        with pytest.raises(ValueError, match="unbatched array reference"):
            amdjax.vmap(lambda x, write=write: (write(), x)[1])(np.ones(3, np.float32))


def test_references_in_another_shape():
    start = np.arange(12, dtype=np.float32).reshape(4, 3)
    expected = start.copy()
    expected.reshape(-1)[5] = 7
    expected.reshape(2, 6)[1].reshape(3, 2)[0, 1] += 2

    def write(ref):
        ref.reshape(-1)[5] = 7.0
        ref.reshape(2, 6).at[1].reshape((3, 2))[0, 1] += 2
        return ref.reshape(6, -1)[...]

    for call in (write, amdjax.jit(write)):
        ref = amdjax.new_ref(start)
        np.testing.assert_array_equal(call(ref), expected.reshape(6, 2))
        np.testing.assert_array_equal(ref[...], expected)
    many = amdjax.new_ref(np.stack([start, start]))
    amdjax.vmap(write)(many)
    np.testing.assert_array_equal(many[1], expected)

    def loss(x):
        ref = amdjax.new_ref(x)
        ref.reshape(-1)[1:3] = 2 * ref.reshape(-1)[2:4]
        return (ref[...] ** 2).sum()

    slope = amdjax.grad(loss)(jnp.arange(4.0).reshape(2, 2))
    np.testing.assert_array_equal(slope, [[0, 0], [16, 30]])
    with pytest.raises(TypeError, match="cannot reshape"):
        ref.reshape(5)


def test_parts_are_not_mapped():
    """An axis of the reference is none of its part."""
    ref = amdjax.new_ref(jnp.zeros((3, 3)))
    with pytest.raises(TypeError, match="TransformedRefs are not allowed"):
        amdjax.vmap(lambda part: part[...])(ref.at[1:3])
    x = amdjax.vmap(lambda part, x: part[...] + x, in_axes=(None, 0))(ref.at[1], jnp.arange(2.0))
    np.testing.assert_array_equal(x, [[0, 0, 0], [1, 1, 1]])


def test_the_places_of_a_mesh_write_references_made_outside():
    ref = amdjax.new_ref(jnp.zeros(3))
    mesh = amdjax.make_mesh((1,), ("i",))

    def write(x):
        ref[1:] += x
        ref[0] = 1.0 + lax.axis_index("i")

    mapped = amdjax.shard_map(write, mesh=mesh, in_specs=P("i"), out_specs=None)
    for call in (mapped, amdjax.jit(mapped)):
        call(jnp.ones(2))
    np.testing.assert_array_equal(ref[...], [1, 2, 2])
    assert ref.sharding == ref[...].sharding


def _twice(view):
    view[...] = 2 * view[...]
    return view[0]


@pytest.mark.parametrize(
    "call",
    [
        amdjax.jit,
        amdjax.checkpoint,
        lambda f: lambda view: amdjax.lax.cond(True, f, f, view),
        lambda f: amdjax.jit(amdjax.checkpoint(f)),
    ],
)
def test_parts_of_references_are_arguments(call):
    ref = amdjax.new_ref(jnp.arange(6.0))
    at = jnp.array([2, 3])
    assert float(call(_twice)(ref.at[1:5].at[at])) == 6
    np.testing.assert_array_equal(ref[...], [0, 1, 2, 6, 8, 5])


@amdjax.custom_vjp
def sine_of(ref, scale):
    return scale * jnp.sin(ref[...])


def _sine_of_fwd(ref, scale):
    x = ref[...]
    ref[...] = x * 7.0  # of which the rules know nothing
    return scale * jnp.sin(x), (x, scale)


sine_of.defvjp(_sine_of_fwd, lambda kept, g: (2 * g * kept[0] * kept[1], g * 100))


@pytest.mark.parametrize("stage", [lambda f: f, amdjax.jit])
def test_custom_rules_take_references_that_are_differentiated(stage):
    """The rule's cotangent is that of what the reference holds when the function is called."""

    def f(x):
        ref = amdjax.new_ref(3.0 * x)
        first = sine_of(ref, 1.0)
        second = sine_of(ref, x)
        return first + second + 10.0 * ref[...]

    x = 2.0
    wanted = 3 * (2 * 3 * x) + 3 * (2 * (7 * 3 * x) * x) + 100 + 10 * 3
    found = amdjax.grad(stage(f))(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    batch = amdjax.grad(lambda xs: amdjax.vmap(stage(f))(xs).sum())(jnp.full(2, x))
    np.testing.assert_allclose(batch, [wanted, wanted], rtol=1e-5)
