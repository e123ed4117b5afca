"""`jit(f, symbolic=…)`: one trace for many sizes computes what a trace of each would."""

import collections
import gc
import re
import sys

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.export import symbolic_shape
from amdjax.jit import programs, recompiles, variants
from tests.support.symbolic_functions import CONSTRAINTS, FUNCTIONS
from tests.support.turns import in_turn

# Where sizes are 1, equal to each other, to constants of the functions or to sums, what tracing
# took for unequal may be equal.
HARD_SIZES = [
    {"a": 1, "b": 1, "t": 4}, {"a": 5, "b": 5, "t": 5}, {"a": 1, "b": 6, "t": 4},
    {"a": 7, "b": 1, "t": 8}, {"a": 4, "b": 3, "t": 9}, {"a": 2, "b": 2, "t": 4},
    {"a": 3, "b": 3, "t": 6}, {"a": 0, "b": 2, "t": 5},
]  # fmt: skip

# Functions of which another program is right where sizes are equal or 1.
SENSITIVE = {
    "broadcast": (lambda x, y: x + y, "a, b", "1, b"),
    "squeeze": (lambda x: jnp.squeeze(x), "a, 1, b"),
    "squeeze sum": (lambda x, y: jnp.squeeze(x).sum(0) + y.sum(), "a, b", "b"),
    "if one": (lambda x: x * 2 if x.shape[0] == 1 else x * 3, "a, b"),
    "if not one": (lambda x: x * 2 if x.shape[0] != 1 else x * 3, "a"),
    "if float": (lambda x: x * 2 if x.shape[0] == 1.0 else x * 3, "a"),
    "if equal": (lambda x: x * 2 if x.shape[0] == x.shape[1] else x * 3, "a, b"),
    "if sum": (lambda x: x * 2 if x.size == 2 * x.shape[0] else x * 3, "a, b"),
    "if shape": (lambda x: x * 2 if x.shape == (4, 3) else x * 3, "a, b"),
    "in": (lambda x: x * 2 if x.shape[0] in (1, 4) else x * 3, "a"),
    "match tuple": (lambda x, y: x * 2 if x.shape == y.shape else x * 3, "a, b", "b, a"),
    "nested jit": (lambda x: amdjax.jit(lambda x: x / (x.shape[0] == 1))(x), "a"),
    "array of sizes": (lambda x: x.shape[0] == np.arange(6), "a"),
    "array first": (lambda x: np.arange(6) != x.shape[0], "a"),
    "less": (lambda x: x.shape[0] < np.arange(6), "a"),
    "argmin": (lambda x: jnp.argmin(x, 1), "a, b"),
    "broadcast to": (lambda x: jnp.broadcast_to(x, (3, x.shape[0], x.shape[1])), "a, b"),
    "dot of one": (lambda x, y: x @ y, "b, 1", "1, a"),
    "tensordot": (lambda x, y: jnp.tensordot(x, y, ((1,), (0,))), "a, b", "b, 3"),
    "einsum of equal": (lambda x, y: jnp.einsum("ij,jk->ik", x, y), "a, b", "b, a"),
    "atleast": (lambda x: jnp.atleast_3d(x), "a, b"),
    "resize": (lambda x: x.reshape(x.shape[1], x.shape[0]), "a, b"),
    "max of empty": (lambda x: jnp.max(x[1:]), "a"),
    "where": (lambda x, y: jnp.where(x > 1, x, y), "a, b", "1, 1"),
    "vmap of one": (amdjax.vmap(lambda x, y: x * y), "a, b", "a, b"),
    "gather": (lambda x: x[jnp.zeros(x.shape[1], int)], "a, b"),
    "cumsum of rows": (lambda x: jnp.cumsum(x.sum(1, keepdims=True), 0) / x, "a, b"),
    "batch norm": (lambda x: (x - x.mean(0)) / (x.var(0) + 1) ** 0.5, "a, b"),
    "softmax": (lambda x: amdjax.nn.softmax(x, 0), "a, b"),
    "scan": (lambda x: lax.scan(lambda c, r: (c + r, c.sum()), x[0], x), "a, b"),
}  # fmt: skip


def arrays(specs, sizes):
    rng = np.random.default_rng(0)
    shapes = [symbolic_shape(spec, scope=amdjax.export.SymbolicScope()) for spec in specs]
    shapes = [[d if isinstance(d, int) else d.evaluate(sizes) for d in s] for s in shapes]
    return [rng.uniform(0.5, 3.5, s).astype(np.float32) for s in shapes]


def outcome(function, args):
    """What a call gives: leaves, or the class of its error."""
    try:
        return amdjax.tree.leaves(function(*args))
    except Exception as e:
        return type(e)


def check(function, specs):
    symbolic = amdjax.jit(function, symbolic=tuple(specs), constraints=CONSTRAINTS)
    if not any("t" in spec for spec in specs):
        symbolic = amdjax.jit(function, symbolic=tuple(specs))
    static = amdjax.jit(function)
    for sizes in [{"a": 6, "b": 8, "t": 11}, *in_turn(HARD_SIZES, 3)]:
        args = arrays(specs, sizes)
        expected, got = outcome(static, args), outcome(symbolic, args)
        if isinstance(expected, type):
            assert got is expected, sizes
            continue
        assert not isinstance(got, type), (got, sizes)
        for x, y in zip(got, expected, strict=True):
            assert x.dtype == y.dtype and x.shape == y.shape, sizes
            np.testing.assert_allclose(x, y, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", SENSITIVE)
def test_sizes_that_are_one_or_equal(name):
    function, *specs = SENSITIVE[name]
    check(function, specs)


@pytest.mark.parametrize("name", in_turn(FUNCTIONS, 3, "symbolic"))
def test_functions(name):
    function, *specs = FUNCTIONS[name]
    check(function, specs)


def test_one_trace_for_many_sizes():
    traces = []

    @amdjax.jit(symbolic={"x": "b, t, ...", "w": None}, constraints=["t >= 2"])
    def f(x, w, scale=2.0):
        traces.append(x.shape)
        return {"y": (x @ w) * scale, "n": x.shape[0] * x.shape[1]}

    w = np.ones((4, 3), np.float32)
    for b, t in [(2, 3), (5, 7), (3, 9), (2, 3)]:
        x = np.arange(b * t * 4, dtype=np.float32).reshape(b, t, 4)
        out = f(x, w=w)
        np.testing.assert_array_equal(out["y"], x @ w * 2)
        assert out["n"] == b * t
    assert [str(shape) for shape in traces] == ["(b, t, 4)"]
    assert f._cache_size() == 3
    f(np.ones((1, 4, 4), np.float32), w)  # a leading axis of one may broadcast
    assert [str(shape) for shape in traces[1:]] in ([], ["(1, t, 4)"])


def test_comparisons_that_hold_of_all_sizes_but_a_few():
    """The function has two branches, and each size takes its own."""
    traces = []

    @amdjax.jit(symbolic="n")
    def f(x):
        traces.append(x.shape)
        y = x[1:] - x[:-1] if x.shape[0] > 3 else x * 2
        return y if x.shape[0] - 8 else y + 1

    for n in [9, 1, 2, 3, 4, 30, 8, 5, 3]:
        x = np.arange(n, dtype=np.float32) ** 2
        want = (np.diff(x) if n > 3 else x * 2) + (n == 8)
        np.testing.assert_array_equal(f(x), want)
    assert [str(shape) for shape in traces] == ["(n,)", "(1,)", "(2,)", "(3,)", "(8,)"]


def test_multiples_of_a_number_are_one_program():
    """Halved and doubled again twice over, a size is itself where four divides it."""
    traces = []

    @amdjax.jit(symbolic="n")
    def f(x):
        traces.append(str(x.shape))
        levels = [x]
        for _ in range(2):
            last = levels[-1]
            pairs = last[: last.shape[0] // 2 * 2].reshape(last.shape[0] // 2, 2)
            levels.append(pairs.sum(1))
        y = levels.pop()
        while levels:
            y = levels.pop() + jnp.repeat(y, 2)
        return y

    for n in (8, 12, 20, 48, 4):
        x = np.arange(n, dtype=np.float32)
        want = x + np.repeat(x.reshape(-1, 2).sum(1), 2) + np.repeat(x.reshape(-1, 4).sum(1), 4)
        np.testing.assert_array_equal(f(x), want)
    assert [t for t in traces if "n" in t] == ["(n,)", "(4*n_by_4,)"]
    assert set(traces) <= {"(n,)", "(4*n_by_4,)", "(4,)"}
    with pytest.raises(TypeError, match="shape"):
        f(np.ones(6, np.float32))


def test_sizes_up_to_a_bound_are_one_program():
    """A table is cut at a length, as positions of texts are: shorter ones are like each other."""
    traces = []
    table = np.arange(32, dtype=np.float32)

    @amdjax.jit(symbolic="n")
    def f(x):
        traces.append(str(x.shape))
        return x + jnp.asarray(table)[: x.shape[0]]

    for n in (5, 9, 31, 32, 2):
        x = np.arange(n, dtype=np.float32) ** 2
        np.testing.assert_array_equal(f(x), x + table[:n])
    assert traces == ["(n,)", "(n_to_32,)"]
    with pytest.raises(TypeError, match="shape"):
        f(np.ones(33, np.float32))
    np.testing.assert_array_equal(f(np.ones(30, np.float32)), 1 + table[:30])
    assert "(30,)" not in traces


def test_few_of_many_sizes_are_kept(monkeypatch):
    monkeypatch.setattr("amdjax.jit.programs._KEPT", 8)
    monkeypatch.setattr("amdjax.jit.variants._KEPT", 4)
    f = amdjax.jit(lambda x, y: x.sum(1) * y, symbolic=("b, t", "b"))
    sizes = [(b, t) for b in (2, 3, 5) for t in range(2, 12)]
    for b, t in [*sizes, *sizes[::-1], *sizes[::3]]:
        x, y = np.ones((b, t), np.float32), np.arange(b, dtype=np.float32)
        np.testing.assert_array_equal(f(x, y), y * t)
        np.testing.assert_array_equal(f(*map(jnp.asarray, (x, y))), y * t)
    # Calls of arrays that are known go past what is kept, and leave it as it is.
    assert len(f._programs.compiled_flat) <= f._cache_size() == 8
    (variants,) = f._programs.variants.values()
    assert len(variants._instances) == 4 and variants.reason is None


def test_linear_shapes_tell_sizes():
    f = amdjax.jit(lambda x, y: x[: y.shape[0]] * y, symbolic=("2*t + 1, b*3", "t, 3*b"))
    x, y = np.ones((9, 6), np.float32), np.full((4, 6), 3, np.float32)
    np.testing.assert_array_equal(f(x, y), y)
    with pytest.raises(ValueError, match=re.escape("'x', axis 0: '2*t + 1' is 8 for no size 't'")):
        f(np.ones((8, 6), np.float32), y)
    with pytest.raises(ValueError, match=re.escape("'y', axis 0: 't' is 4 where t = 4, got")):
        f(x, np.ones((5, 6), np.float32))


BAD = [
    (dict(symbolic="b, t", constraints=["t <= 8"]), (2, 9), "the constraint 't <= 8' does not"),
    (dict(symbolic="b, 4"), (2, 3), "argument 'x', axis 1: the size is said to be 4, got 3"),
    (dict(symbolic="b"), (2, 3), "argument 'x' of shape (2, 3) is said to have the shape 'b'"),
    (dict(symbolic="b*t, 3"), (2, 3), "no axis tells the size of 'b', 't'"),
    (dict(symbolic="b, _", constraints=["n >= 1"]), (2, 3), "no argument tells the size of 'n'"),
    (dict(symbolic=[("b, _", None)]), (2, 3), "symbolic is no prefix of the argument 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "shape", "message"), BAD)
def test_errors_of_calls(options, shape, message):
    f = amdjax.jit(lambda x: x * 2, **options)
    with pytest.raises(ValueError, match=re.escape(message)):
        f(np.ones(shape, np.float32))


def test_errors_of_jit():
    with pytest.raises(ValueError, match="symbolic names 'z', but f takes"):
        amdjax.jit(named, symbolic={"z": "b"})
    with pytest.raises(ValueError, match="symbolic has 3 entries, f takes 2"):
        amdjax.jit(named, symbolic=("b", "b", "b"))
    with pytest.raises(ValueError, match="constraints are those of symbolic"):
        amdjax.jit(named, constraints=["b >= 2"])
    with pytest.raises(ValueError, match="constraints: must be a sequence of strings, got None"):
        amdjax.jit(named, symbolic="b", constraints=None)
    with pytest.raises(ValueError, match="no sizes satisfy"):
        amdjax.jit(named, symbolic="b", constraints=["b >= 2", "b <= 1"])
    with pytest.raises(ValueError, match="'n' is static"):
        amdjax.jit(named, symbolic={"n": "b"}, static_argnames="n")(np.ones(3), n=2)


def f(x, n=1):
    return x * n


named = f


def test_divisibility_is_checked():
    f = amdjax.jit(lambda x: x.reshape(-1, 4).sum(1), symbolic="t", constraints=["mod(t, 4) == 0"])
    np.testing.assert_array_equal(f(np.ones(8, np.float32)), [4, 4])
    with pytest.raises(ValueError, match=re.escape("constraint 'mod(t, 4) == 0' does not hold")):
        f(np.ones(6, np.float32))


def test_static_and_donated_arguments():
    f = amdjax.jit(lambda x, n: x + n, symbolic=("b, 3", None), static_argnums=1, donate_argnums=0)
    for b, n in [(2, 1), (4, 1), (4, 2)]:
        x = jnp.full((b, 3), 5.0)
        np.testing.assert_array_equal(f(x, n), np.full((b, 3), 5.0 + n))
        assert x.is_deleted()


def test_transforms_of_symbolic_functions():
    f = amdjax.jit(lambda x: jnp.sin(x).sum(-1), symbolic="b, ...", constraints=["b <= 4"])
    x = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(amdjax.grad(lambda x: f(x).sum())(x), np.cos(x), rtol=1e-6)
    np.testing.assert_allclose(amdjax.vmap(f)(x[None]), np.sin(x).sum(-1)[None], rtol=1e-6)
    outer = amdjax.jit(lambda x: f(x) * 2, symbolic="n, m")
    for rows in (2, 3):
        y = np.ones((rows, 3), np.float32)
        np.testing.assert_allclose(outer(y), np.sin(y).sum(-1) * 2, rtol=1e-6)
    with pytest.raises(ValueError, match="constraint 'b <= 4'"):
        amdjax.vmap(f)(np.ones((2, 5, 3), np.float32))
    g = amdjax.jit(amdjax.grad(lambda x: (x**3).mean()), symbolic="b")
    for n in (2, 5, 1):
        v = np.arange(n, dtype=np.float32)
        np.testing.assert_allclose(g(v), 3 * v**2 / n, rtol=1e-6)


def test_references():
    state = amdjax.new_ref(jnp.zeros(()))

    @amdjax.jit(symbolic="b")
    def f(x):
        state[...] += x.sum()
        return x * state[...]

    for n in (2, 3):
        f(np.ones(n, np.float32))
    assert state[...] == 5


@pytest.mark.parametrize("options", [{"symbolic": "b, n"}, {"dynamic": "auto"}])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * {8: 5}.get(x.shape[0], 1),
        lambda x: x * (2 if x.shape[1] in {3, 8} else 1),
        lambda x: x * len(set(x.shape)),
        lambda x: x * len({d: 0 for d in x.shape}),
        lambda x: x * collections.Counter(x.shape).most_common(1)[0][1],
        lambda x: x * (2 if hash(x.shape) == hash((8, 8)) else 1),
    ],
)
def test_sizes_that_are_looked_up_in_tables(function, options):
    f = amdjax.jit(lambda x: function(x), **options)
    for shape in [(3, 5), (4, 7), (8, 8), (8, 3), (4, 4)]:
        x = np.ones(shape, np.float32)
        np.testing.assert_array_equal(f(x), function(x), err_msg=str(shape))


def test_compiled_ahead_of_time():
    spec = amdjax.ShapeDtypeStruct(("b", 128), jnp.float32)
    compiled = amdjax.jit(lambda x: jnp.squeeze(x @ x.T)).lower(spec).compile()
    rng = np.random.default_rng(0)
    for b in (3, 1, 7):  # of one row the result has no axes
        x = rng.integers(-4, 4, (b, 128)).astype(np.float32)
        np.testing.assert_array_equal(compiled(x), np.squeeze(x @ x.T))
    costs = compiled.cost_analysis()
    assert costs["bytes accessed"].evaluate({"b": 3}) == 4 * (3 * 128 + 9)
    assert str(costs["flops"]) == "256*b^2"
    assert str(compiled.memory_analysis().output_size_in_bytes) == "4*b^2"
    assert compiled.at({"b": 3}).memory_analysis().output_size_in_bytes == 36
    assert "dot_general" in compiled.as_text()
    with pytest.raises(ValueError, match="said to be 128, got 5"):
        compiled(np.ones((3, 5), np.float32))
    with pytest.raises(TypeError, match="compiled with float32"):
        compiled(np.ones((3, 128), np.int32))
    with pytest.raises(ValueError, match="depends on the sizes"):
        compiled.as_text("llvm")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * jnp.float32(x.shape[0] ** 4),
        lambda x: lax.cond(x[0] > 0, lambda x: x * x.shape[0] ** 4, lambda x: -x, x),
        lambda x: x + jnp.full(3, -(x.shape[0] ** 4))[0],
    ],
)
def test_sizes_too_large_for_their_dtype(function):
    f = amdjax.jit(function, symbolic="n")
    spec = amdjax.ShapeDtypeStruct(("n",), jnp.float32)
    ahead = amdjax.jit(function).lower(spec).compile()
    x = np.ones(7, np.float32)
    for g in (f, ahead):
        np.testing.assert_array_equal(g(x), function(x))
    for call in (f, ahead, lambda x: ahead.at({"n": len(x)})):
        with pytest.raises(OverflowError, match=r"'(- )?n\^4' is -?8100000000 .*test_symbolic.py"):
            call(np.ones(300, np.float32))
    exact = amdjax.jit(lambda x: x * jnp.float32(x.shape[0]) ** 4, symbolic="n")
    np.testing.assert_allclose(exact(np.ones(300, np.float32)), 300.0**4, rtol=1e-6)


def test_compiled_ahead_of_time_by_few_programs():
    spec = amdjax.ShapeDtypeStruct(("b", "t", 8), jnp.float32)
    compiled = amdjax.jit(lambda x: {"y": amdjax.nn.softmax(x, 1).sum(-1), "z": x[:, ::2]}).lower(
        spec
    )
    compiled = compiled.compile(compiler_options={"default_matmul_precision": "float32"})
    rng = np.random.default_rng(0)
    for b, t in [(2, 5), (3, 9), (17, 33), (4, 64), (2, 200), (1, 5)]:
        x = rng.standard_normal((b, t, 8)).astype(np.float32)
        e = np.exp(x.astype(float))
        out = compiled(x)
        np.testing.assert_allclose(out["y"], (e / e.sum(1, keepdims=True)).sum(-1), rtol=2e-6)
        np.testing.assert_array_equal(out["z"], x[:, ::2])
    assert len(compiled.variants.known) <= 4
    assert list(compiled._compiled) == [(("b", 1), ("t", 5))]  # as 1 broadcasts
    assert "t > 1" in compiled.as_text("variants")


def test_lowered_from_arrays_of_a_symbolic_function():
    f = amdjax.jit(lambda x: x[::-1], symbolic="n, ...", constraints=["n >= 2"])
    compiled = f.lower(np.ones((3, 2), np.float32)).compile()
    x = np.arange(8.0, dtype=np.float32).reshape(4, 2)
    np.testing.assert_array_equal(compiled(x), x[::-1])
    with pytest.raises(ValueError, match="constraint 'n >= 2'"):
        compiled(x[:1])


SPEC = amdjax.ShapeDtypeStruct(("b", 8), jnp.float32)
MISTAKES = {
    "at a text": (lambda c: c.at("b"), TypeError, "must be a dictionary by variable, of ['b']"),
    "at nothing": (lambda c: c.at({}), ValueError, "at: sizes lacks 'b'; the variables are ['b']"),
    "at another": (lambda c: c.at({"b": 3, "c": 2}), ValueError, "at: sizes names 'c'"),
    "at a fraction": (lambda c: c.at({"b": 2.5}), TypeError, "the size of 'b' must be an integer"),
    "at less": (lambda c: c.at({"b": -1}), ValueError, "the size of 'b' must not be negative"),
    "a text as shape": (
        lambda c: amdjax.ShapeDtypeStruct("b, 8", jnp.float32), TypeError, "got the text 'b, 8'"),
    "no dimension": (
        lambda c: amdjax.jit(jnp.sin).lower(amdjax.ShapeDtypeStruct(("b c", 8), jnp.float32)),
        ValueError, "ShapeDtypeStruct of shape ('b c', 8): syntax error"),
    "called": (lambda c: amdjax.jit(jnp.sin)(SPEC), TypeError, "can be traced or lowered with it"),
    "target": (
        lambda c: amdjax.jit(jnp.sin).lower(SPEC).compile("gfx943"), ValueError, "mean 'gfx942'?"),
    "option": (
        lambda c: amdjax.jit(jnp.sin).lower(SPEC).compile(compiler_options={"fast": 1}),
        RuntimeError, "No such compile option: 'fast'"),
    "bytes": (lambda c: amdjax.export.deserialize("abc"), TypeError, "blob must be bytes, got str"),
    "specs": (
        lambda c: amdjax.export.symbolic_args_specs((np.ones(3), np.ones((3, 2))), "b"),
        ValueError, "symbolic_args_specs: leaf 1 of args, of shape (3, 2): "),
    "prefix": (
        lambda c: amdjax.export.symbolic_args_specs((np.ones(3), np.ones(3)), ("b",)),
        ValueError, "shapes_specs is no prefix of args"),
    "scope": (lambda c: symbolic_shape("b", scope=3), TypeError, "must be a SymbolicScope, got 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_ahead_of_time_are_named(name):
    mistake, error, message = MISTAKES[name]
    compiled = amdjax.jit(lambda x: x * 2).lower(SPEC).compile()
    with pytest.raises(error, match=re.escape(message)):
        mistake(compiled)


@pytest.mark.parametrize("options", [{"symbolic": "n"}, {"dynamic": "auto"}])
def test_tangents_of_integers(options):
    """They have no bits, and no symbolic shapes."""
    grad = amdjax.grad(lambda x: (x * 1.5).sum(), allow_int=True)
    both = amdjax.grad(lambda x, i: (x * i).sum(), (0, 1), allow_int=True)
    inside, outside = amdjax.jit(grad, **options), amdjax.grad(
        amdjax.jit(lambda x: (x * 1.5).sum(), **options), allow_int=True)  # fmt: skip
    for n in (3, 5, 7, 3):
        for g in (inside, outside):
            zeros = g(np.arange(n))
            assert zeros.shape == (n,) and zeros.dtype == amdjax.dtypes.float0
        x, i = amdjax.jit(both, **options)(np.ones(n, np.float32), np.arange(n))
        np.testing.assert_array_equal(x, np.arange(n))
        assert i.shape == (n,) and i.dtype == amdjax.dtypes.float0


def calls_of(function, *args):
    """How many functions, of Python and of C, a call calls."""
    calls = []
    sys.setprofile(lambda frame, event, arg: calls.append(event) if "call" in event else None)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    return len(calls)


@pytest.mark.parametrize(
    "options",
    [{"symbolic": "n, m"}, {"dynamic": "auto"}, {"symbolic": "n, m", "static_argnames": "k"}],
)
def test_a_call_at_a_known_size_does_no_more_than_any_compiled_call(options):
    function = lambda x, y, k=1: (x * y).sum(0)
    symbolic, static = amdjax.jit(function, **options), amdjax.jit(
        function, **{k: v for k, v in options.items() if k == "static_argnames"})  # fmt: skip
    arrays = [(jnp.ones((n, 5)), jnp.ones((n, 5))) for n in (3, 7, 4)]
    for f in (symbolic, static):
        for args in (*arrays, *arrays):
            f(*args)
    for args in arrays[1:]:
        assert calls_of(symbolic, *args) <= calls_of(static, *args) + 1


def test_a_program_compiled_ahead_of_time_solves_known_sizes_once(monkeypatch):
    monkeypatch.setattr(variants, "_KEPT", 2)
    spec = amdjax.ShapeDtypeStruct(("n", 5), jnp.float32)
    compiled = amdjax.jit(lambda x, y: {"sum": (x + y["z"]).sum(0)}).lower(spec, {"z": spec})
    compiled, flat = compiled.compile(), amdjax.jit(jnp.tanh).lower(spec).compile()
    assert compiled.as_text("variants").startswith("none yet")
    arrays = [jnp.full((n, 5), 0.5) for n in (3, 7)]
    for x in (*arrays, *arrays):
        np.testing.assert_array_equal(compiled(x, {"z": x})["sum"], np.full(5, x.shape[0]))
        np.testing.assert_allclose(flat(x), np.tanh(np.asarray(x)), 1e-6)
    static = amdjax.jit(jnp.tanh).lower(arrays[0]).compile()
    for x in arrays:
        assert calls_of(flat, x) <= calls_of(static, arrays[0])
        compiled(x, {"z": np.asarray(x)})
    assert compiled.as_text("variants").startswith("variant 0: 6 calls of 2 sizes")
    for n in (9, 4, 3, 11):  # of which few are known at once
        assert flat(jnp.ones((n, 5))).shape == (n, 5)
    assert len(flat._served) == 2
    for wrong in (jnp.ones((3, 4)), jnp.ones((3, 5), jnp.int32)):
        with pytest.raises((TypeError, ValueError)):
            flat(wrong)
    with pytest.raises(TypeError, match="structure"):
        flat(arrays[0], arrays[0])


def test_memory_does_not_grow_with_sizes(monkeypatch):
    """What is kept of sizes is bounded: after many more of them there are no more objects."""
    monkeypatch.setattr(programs, "_KEPT", 20)
    monkeypatch.setattr(variants, "_KEPT", 20)
    monkeypatch.setattr(recompiles, "_compilations", collections.deque(maxlen=20))
    f = amdjax.jit(lambda x: jnp.tanh(x).sum() * x.shape[0], symbolic="n")
    g = amdjax.jit(lambda x: x * 2 + x.sum(), dynamic="auto")

    def objects(sizes):
        for n in sizes:
            x = np.ones(n, np.float32)
            f(x), g(x)
        gc.collect()
        return len(gc.get_objects())

    objects(range(5, 65))
    before = objects(range(65, 125))
    assert objects(range(125, 305)) <= before + 600  # of 180 sizes


@pytest.mark.share(1)
def test_on_an_emulated_gpu():
    f = amdjax.jit(lambda x, y: jnp.tanh(x) + y, symbolic=("b, 16", None))
    compiled = f.lower(np.ones((2, 16), np.float32), np.float32(1)).compile("gfx942")
    assert compiled.at({"b": 3}).as_text("asm") and compiled.at({"b": 3}).kernels


def test_sizes_that_are_one_or_equal_leave_the_others_symbolic():
    traces = []

    @amdjax.jit(symbolic=("b, t", "b, s"))
    def f(x, y):
        traces.append((str(x.shape), str(y.shape)))
        same = x + y if x.shape == y.shape else x.sum(1, keepdims=True) - y
        return same * (jnp.ones((3, 1)) if x.shape[0] == 1 else 2.0)

    def expected(x, y):
        same = x + y if x.shape == y.shape else x.sum(1, keepdims=True) - y
        return same * (np.ones((3, 1)) if x.shape[0] == 1 else 2.0)

    sizes = [(b, t, s) for b in (2, 1, 5, 0) for t in (7, 1, 3) for s in (3, 7, 1)]
    for b, t, s in [*sizes, (1, 9, 9), (4, 6, 6), (1, 8, 9), (1, 0, 0), (6, 0, 2)]:
        x = np.arange(b * t, dtype=np.float32).reshape(b, t)
        y = np.arange(b * s, dtype=np.float32).reshape(b, s) / 4
        np.testing.assert_array_equal(f(x, y), expected(x, y), str((b, t, s)))
    assert len(traces) == len(set(traces)) and len(traces) < 20
    assert {("(b, t)", "(b, s)"), ("(1, t)", "(1, s)"), ("(b, t)", "(b, t)")} < {*traces}
    before = len(traces)
    for n in range(10, 30):
        x, y = np.ones((1, n), np.float32), np.ones((1, n + 3), np.float32)
        assert f(x, y).shape == (3, n + 3) and f(x, x).shape == (3, n)
    assert len(traces) == before


def test_calls_that_do_not_fit_are_refused_after_others_were_served():
    """What is kept of a structure of arguments is compared with each call."""
    f = amdjax.jit(
        lambda x, y, z: x.sum() + y.sum() + z.sum(), symbolic={"x": "b, _, t", "y": "t, 2*b"},
        constraints=["t >= 2"],
    )  # fmt: skip
    for b, n, t, m in [(2, 3, 4, 5), (3, 3, 4, 1), (3, 8, 2, 5)]:
        x, y, z = np.ones((b, n, t)), np.ones((t, 2 * b)), np.ones(m)
        np.testing.assert_allclose(f(x, y, z), b * n * t + 2 * t * b + m)
    for x, y, message in [
        ((2, 3, 4), (5, 4), r"argument 'y', axis 0: 't' is 4 where t = 4, got the size 5"),
        ((2, 3, 4), (4, 5), r"argument 'y', axis 1: '2\*b' is 4 where b = 2, got the size 5"),
        ((2, 3, 1), (1, 4), r"the constraint 't >= 2' does not hold where b = 2, t = 1"),
        ((2, 3), (4, 4), r"argument 'x' of shape \(2, 3\) is said to have the shape 'b, _, t'"),
        ((2, 3, 4), (4,), r"'y' of shape \(4,\) is said to have the shape 't, 2\*b'"),
    ]:
        with pytest.raises(ValueError, match=message):
            f(np.ones(x), np.ones(y), np.ones(3))
    np.testing.assert_allclose(f(np.ones((5, 2, 3)), np.ones((3, 10)), np.ones(2)), 62)
