"""Programs compiled once for many sizes, against the programs of those sizes."""

from __future__ import annotations

import itertools
import random
import re

import numpy as np
import pytest
from hypothesis import given, strategies as st

import amdjax
import amdjax.jit.variants
import amdjax.numpy as jnp
from amdjax import lax, nn, tile
from amdjax.core.dims import (
    Dim,
    Guard,
    SizedScope,
    SymbolicScope,
    capped,
    cheapest,
    choosing,
    like_at_hand,
)
from amdjax.core.errors import InconclusiveDimensionOperation
from amdjax.core.instantiate import instantiate
from amdjax.export import symbolic_shape
from amdjax.jit.cpu import program
from amdjax.jit.plan import plan_program
from amdjax.jit.variants import MOST_CHOSEN, Guards, Variants
from amdjax.schedule.index import Index, LoopVar
from amdjax.targets.cpu import CpuTarget

#: Of which plans for some sizes were once wrong or not made for others.
CHOOSING = [
    *("sort", "sort of columns", "argsort", "greatest", "sort by two keys"),
    "cumulative sum",
    "scatter",
    "norm's gradient",
    "loop",
]

SIZES = [
    (5, 37),
    (5, 64),
    (1, 37),
    (40, 300),
    (2, 2),
    (17, 3),
    (33, 129),
    (64, 1),
    (1, 1),
    (2, 5000),
]


def normalized(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def summed(x, reverse=False):
    step = lambda c, a: (jnp.sin(c) * 0.9 + a, c)
    return lax.scan(step, jnp.ones(x.shape[1]), x, reverse=reverse)[1]


def counted(x):
    return lax.fori_loop(0, x.shape[1], lambda i, c: c + x[:, i], jnp.zeros(x.shape[0]))


def doubled(x):
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1]


def marked(x):
    """With zeros of both signs, and what is no number."""
    return jnp.where(x > 1.5, jnp.nan, jnp.round(x * 2))


CASES = {
    "gelu": (["b, t, 64"], lambda x: nn.gelu(x) * 2 + x),
    "broadcast": (["b, t", "b"], lambda x, y: x * 2 + y[:, None]),
    "transposed": (["b, t", "t, b"], lambda x, y: x + y.T),
    "reshaped": (["b, t, 4"], lambda x: jnp.exp(x).reshape(x.shape[0], -1)),
    "joined": (["b, t", "b, t"], lambda x, y: jnp.concatenate([x, y], 1) * 2),
    "padded": (["b, t"], lambda x: jnp.pad(x, ((0, 0), (1, 2))) + 1),
    "sliced": (["b, t"], lambda x: x[:, :1] * x + x[:1]),
    "reversed": (["b, t"], lambda x: x[:, ::-1] + x),
    "counted": (["b, t"], lambda x: x + jnp.arange(x.shape[1])),
    "divided by a size": (["b, t"], lambda x: x / x.shape[1]),
    "sum": (["b, t"], lambda x: x.sum()),
    "sum of columns": (["b, t"], lambda x: x.sum(0)),
    "argmax": (["b, t"], lambda x: x.argmax(1)),
    "softmax": (["b, t"], lambda x: nn.softmax(x, -1)),
    "softmax of columns": (["b, t"], lambda x: nn.softmax(x, 0)),
    "norm": (["b, t, 64"], normalized),
    "norm's gradient": (["b, t"], amdjax.grad(lambda x: jnp.sum(jnp.sin(normalized(x))))),
    "cumulative sum": (["b, t"], lambda x: jnp.cumsum(x, 1)),
    "embedding": (["b, t", "10, 32"], lambda i, w: w[(jnp.abs(i) * 3).astype("int32")]),
    "scatter": (["b, t"], lambda x: x.at[:, 0].set(1.0) * 2),
    "cond": (["b, t"], lambda x: lax.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, x)),
    "loop": (["b, t"], summed),
    "backward loop": (["b, t"], lambda x: summed(x, reverse=True)),
    "loop's gradient": (["b, t"], amdjax.grad(lambda x: jnp.sum(summed(x)))),
    "counted loop": (["b, t"], counted),
    "while": (["b, t"], doubled),
    "call of Python": (["b, t"], lambda x: jnp.fft.fft(x).real),
    "sort": (["b, t"], lambda x: jnp.sort(marked(x), 1)),
    "sort of columns": (["b, t, 3"], lambda x: jnp.sort(x, 1)),
    "argsort": (["b, t"], lambda x: jnp.argsort(marked(x), 1)),
    "sort by two keys": (["b, t"], lambda x: lax.sort((marked(x), x, -x), num_keys=2)[2]),
    "sort of bytes": (["b, t"], lambda x: jnp.sort((x * 20).astype("int8"), 1)),
    "greatest": (["b, t"], lambda x: lax.top_k(marked(x), 1)[1]),
    "transform": (["b, t"], lambda x: jnp.fft.irfft(jnp.fft.rfft(x * 1), n=x.shape[1]).real),
    "random": (["b, t"], lambda x: x + amdjax.random.normal(amdjax.random.key(0), x.shape)),
}  # fmt: skip


def variants(f, specs):
    scope = SymbolicScope()
    shapes = [symbolic_shape(spec, scope=scope) for spec in specs]
    structs = [amdjax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    return Variants(amdjax.make_jaxpr(f)(*structs), (False,) * len(specs), (), None), shapes


def arrays(shapes, sizes):
    rng = np.random.default_rng(0)
    numbers = [[n.evaluate(sizes) if isinstance(n, Dim) else n for n in s] for s in shapes]
    return [jnp.asarray(rng.standard_normal(shape).astype("float32")) for shape in numbers]


@pytest.mark.parametrize("name", CASES)
def test_every_size_computes_what_its_own_program_does(name):
    specs, f = CASES[name]
    compiled, shapes = variants(f, specs)
    compare(compiled, shapes, f, SIZES)


@pytest.mark.parametrize("first", [(2, 3), (3, 100), (40, 300)])
@pytest.mark.parametrize("name", CHOOSING)
def test_what_was_chosen_for_other_sizes_is_right(name, first, monkeypatch):
    monkeypatch.setattr("amdjax.jit.variants.MOST_CHOSEN", 1)
    specs, f = CASES[name]
    compiled, shapes = variants(f, specs)
    compare(compiled, shapes, f, [first, (5, 37), (40, 300), (17, 3), (2, 2), (33, 129)])
    # Bundles of rows that overlap are for many rows alone, and rows in one tile for short ones.
    assert len(compiled.known) <= 2 + (name == "norm's gradient" and first[1] < 16)


def attention(q, k, v):
    """Causal attention and the gradient of its sum, in double precision."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scale, n = q.shape[-1] ** -0.5, q.shape[1]
    logits = np.einsum("bqhf,bkhf->bhqk", q, k) * scale
    weights = np.exp(np.where(np.tri(n, dtype=bool), logits, -np.inf))
    weights /= weights.sum(-1, keepdims=True)
    slope = np.einsum("bhqk,bkhf->bhqk", weights, v)
    slope -= weights * slope.sum(-1, keepdims=True)
    gradient = np.einsum("bhqk,bkhf->bqhf", slope, k) * scale
    return np.einsum("bhqk,bkhf->bqhf", weights, v), gradient


@pytest.mark.parametrize("first", [(2, 3), (3, 150)])
def test_blocks_of_an_attention_chosen_for_other_sizes(first, monkeypatch):
    monkeypatch.setattr("amdjax.jit.variants.MOST_CHOSEN", 1)
    attend = lambda *x: nn.dot_product_attention(*x, is_causal=True)
    outputs = lambda *x: (attend(*x), amdjax.grad(lambda *x: attend(*x).sum())(*x))
    compiled, shapes = variants(outputs, ["b, t, 2, 8"] * 3)
    for b, t in [first, (5, 37), (2, 100), (3, 16), (2, 2), (1, 33), (3, 129)]:
        xs = arrays(shapes, {"b": b, "t": t})
        for got, want in zip(compiled.runner({"b": b, "t": t})(xs), attention(*xs), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5, err_msg=f"{b}x{t}")
    assert compiled.reason is None and len(compiled.known) == 2, "sizes of 1 are apart"


def compare(compiled, shapes, f, all_sizes):
    for b, t in all_sizes:
        xs = arrays(shapes, {"b": b, "t": t})
        (got,) = compiled.runner({"b": b, "t": t})(xs)
        want = amdjax.jit(f)(*xs)
        assert got.aval == want.aval
        scale = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6 * scale, err_msg=f"{b}x{t}")
    assert compiled.reason is None


def test_texts_and_accesses_of_indices_decide_nothing():
    scope = SizedScope({"n": 2, "m": 3})
    n, m = scope.variables().values()
    i, j = LoopVar("i", n), LoopVar("j", m)
    index = Index.of(i) * (n - 1) + Index.of(j) * (m - 1) + (n - 2)
    for x in index, index // (n - 1), index % (m - 1), (index // n) * n + index % n:
        assert str(x)
    assert not scope.required and not scope.preferred


def test_one_variant_serves_sizes_of_which_the_same_is_right():
    compiled, _ = variants(lambda x: jnp.exp(x) * 2, ["b, t, 64"])
    rng = np.random.default_rng(1)
    for b, t in rng.integers(2, 200, (60, 2)).tolist():
        compiled.runner({"b": b, "t": t})
    assert len(compiled.known) == 1


def test_different_plans_of_sizes_are_different_variants():
    compiled, _ = variants(lambda x: x.sum(), ["b, t"])
    runs = [compiled.runner({"b": b, "t": t}) for b, t in [(2, 3), (300, 400), (310, 390), (3, 2)]]
    assert 1 < len(compiled.known) <= MOST_CHOSEN
    assert len({id(run) for run in runs}) == 4
    fixed = [v for v in compiled.known if v.regrets({"b": 3, "t": 1}) is not None]
    assert not fixed, "sizes of 1 are compiled apart"


def test_of_plans_as_near_that_for_smaller_sizes_is_taken(monkeypatch):
    monkeypatch.setattr(amdjax.jit.variants, "MOST_CHOSEN", 2)
    compiled, _ = variants(jnp.matmul, ["64, 128", "128, t"])
    for t in 70, 8, 40:
        compiled.runner({"t": t})
    large, small = compiled.known
    assert small.regrets({"t": 40}) < large.regrets({"t": 40})
    assert (large.uses, small.uses) == (1, 2)


def test_the_table_of_variants_tells_sizes_uses_and_differences():
    compiled, _ = variants(lambda x: x.sum(), ["b, t"])
    for b, t in [(2, 3), (300, 400), (310, 390), (2, 3), (1, 3)]:
        compiled.runner({"b": b, "t": t})
    small, large, row = re.split("^variant .*: ", str(compiled), flags=re.MULTILINE)[1:]
    assert small.startswith("2 calls of 1 size\n   b > 1, t > 1")
    assert large.startswith("2 calls of 2 sizes\n   b > 1, t > 1")
    assert row.startswith("1 call of 1 size\n   b == 1, t > 1")
    told = [part.split("launches ")[1] for part in (small, large)]
    assert told[0] != told[1] and all(re.match(r"\w+#\d+ × ", text) for text in told)


@given(
    st.sampled_from([1, 3, -2]), st.sampled_from([0, 6, -4]), st.integers(-40, 40), st.booleans()
)
def test_guards_are_told_as_the_ranges_that_they_are(first, second, constant, answer):
    scope = SizedScope({"n": 5, "m": 3})
    n, m = scope.variables().values()
    guard = Guard("ge", (first * n + second * m + constant).polynomial, answer)
    (told,) = str(Guards([guard], [])).split(", ")
    for sizes in itertools.product(range(2, 12), repeat=2):
        known = dict(zip("nm", sizes))
        assert eval(told, {}, known) is guard.holds(known), told


def test_guards_of_one_number_are_one_range():
    n = SizedScope({"n": 5}).variables()["n"]
    bounds = [(n - 3, True), (n - 4, True), (2 * n - 17, False), (n - 40, False), (20 - n, True)]
    guards = [Guard("ge", dim.polynomial, answer) for dim, answer in bounds]
    assert str(Guards(guards[:2], guards[2:])) == "n >= 4, preferably n <= 8"
    assert str(Guards(guards, [])) == "4 <= n <= 8"


def test_mistakes_of_the_compiler_are_not_hidden(monkeypatch):
    compiled, _ = variants(jnp.exp, ["b, t"])
    monkeypatch.setattr(program, "plan_program", lambda *args: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        compiled.runner({"b": 2, "t": 3})
    assert compiled.reason is None


def test_what_is_decided_of_an_instance_is_a_mistake_too(monkeypatch):
    """It would have had no guard."""

    def decide(sized, sizes):
        assert sized.code.out_avals[0].shape[0] > 7

    compiled, _ = variants(jnp.exp, ["b, t"])
    monkeypatch.setattr(program.LoadedPlan, "at", decide)
    with pytest.raises(InconclusiveDimensionOperation, match="when all was decided"):
        compiled.runner({"b": 2, "t": 3})


def test_what_needs_a_number_is_compiled_for_each_size(monkeypatch):
    def plan(closed, *rest):
        float(closed.in_avals[0].shape[0] * 1.5)
        return plan_program(closed, *rest)

    monkeypatch.setattr(program, "plan_program", plan)
    compiled, (shape,) = variants(jnp.exp, ["b, t"])
    for b, t in (2, 3), (4, 5):
        (x,) = arrays([shape], {"b": b, "t": t})
        (got,) = compiled.runner({"b": b, "t": t})([x])
        np.testing.assert_allclose(got, np.exp(x), rtol=1e-6)
    assert "EstimateTypeError" in compiled.reason and not compiled.known
    assert str(compiled) == f"compiled for each size: {compiled.reason}"


def test_what_is_known_of_sizes_needs_no_guard():
    scope = SymbolicScope(["n <= 4096", "n >= 4", "mod(n, 16) == 3"])
    known = SizedScope({"n": 35}, scope)
    n = known.variables()["n"]
    assert n <= 4096 and n >= 16 and (n - 3) % 16 == 0 and not known.required


def test_what_quotients_and_their_dividends_say_of_each_other_needs_no_guard():
    scope = SizedScope({"b": 5, "t": 11})
    b, t = scope.variables().values()
    assert 2 * (t // 2) <= t and 2 * (t // 2 - 1) + 1 < t and t - 1 < 4 * ((t + 3) // 4)
    assert b * t > 3 * b * (t // 3) - 1 and not scope.required


@pytest.mark.parametrize("seed", range(40))
def test_bounds_of_random_quotients_hold_at_all_sizes(seed):
    rng = random.Random(seed)
    scope = SizedScope({"b": 5, "t": 11})
    b, t = scope.variables().values()
    terms = [b, t, b * t, t * t]
    for _ in range(4):
        terms.append((rng.choice(terms) + rng.randint(-3, 9)) // rng.randint(2, 6))
    a = sum((rng.randint(-6, 6) * rng.choice(terms) for _ in range(4)), rng.randint(-9, 9))
    if isinstance(a, int):
        return
    least, most = scope.bounds(a.polynomial)
    values = [a.evaluate({"b": m, "t": n}) for m in range(2, 24) for n in range(2, 24)]
    assert least is None or least <= min(values)
    assert most is None or most >= max(values)


def test_programs_of_symbolic_sizes_are_cut_into_the_same_kernels():
    f = amdjax.grad(lambda x: jnp.sum(jnp.sin(normalized(x))))
    spec = amdjax.ShapeDtypeStruct(symbolic_shape("b, t, 64"), "float32")
    closed, sizes = amdjax.make_jaxpr(f)(spec), {"b": 5, "t": 37}
    found = []
    for values in sizes, SizedScope(sizes).variables():
        observe = lambda stage, x: found.append(str(x)) if stage == "fusion" else None
        plan_program(instantiate(closed, values), CpuTarget(), observe=observe)
    assert found[0] == re.sub(r"\bt\b", "37", re.sub(r"\bb\b", "5", found[1]))


def test_plans_prefer_sizes_that_are_near_to_those_at_hand():
    def regrets(size, other):
        scope = SizedScope({"n": size})
        like_at_hand(scope.variables()["n"])
        assert not scope.required
        return sum(not guard.holds({"n": other}) for guard in scope.preferred)

    assert not regrets(500, 300)
    for other in (5, 40, 300, 5000):
        for further in (1, 4, 20), (1, 1 / 4, 1 / 20):
            counts = [regrets(max(int(other * factor), 2), other) for factor in further]
            assert counts == sorted(counts) and counts[0] == 0 < counts[-1]


def test_sizes_in_arithmetic_are_operands():
    compiled, shapes = variants(lambda x: x.mean() + x / x.shape[1], ["b, t"])
    for b, t in (5, 37), (9, 38), (6, 41), (70, 300):
        (x,) = arrays(shapes, {"b": b, "t": t})
        (got,) = compiled.runner({"b": b, "t": t})([x])
        want = np.asarray(x, np.float64)
        np.testing.assert_allclose(got, want.mean() + want / t, rtol=1e-5, atol=1e-5)
    assert compiled.reason is None
    assert not any(g.required for v in compiled.known for g in v.guards)


def test_comparisons_note_what_they_are_right_for():
    scope = SizedScope({"n": 10, "m": 10})
    n, m = scope.variables().values()
    assert n >= 2 and not scope.required, "known of all sizes"
    assert n > 7 and n * 2 < 100 and n == m
    with choosing():
        assert not n > 50
    assert [str(g) for g in scope.required] == ["n >= 8", "- 2*n >= -99", "m - n == 0"]
    assert [str(g) for g in scope.preferred] == ["n < 51"]
    assert all(g.holds({"n": 10, "m": 10}) for g in scope.required)
    assert not all(g.holds({"n": 10, "m": 9}) for g in scope.required)
    assert range(n) == range(10) and str(scope.required[-1]) == "n == 10"


def test_divisors_that_may_be_zero_are_guarded_even_where_something_is_chosen():
    scope = SizedScope({"n": 100})
    n = scope.variables()["n"]
    with choosing():
        assert (n // (n // 64)).evaluate({"n": 128}) == 64
    assert [str(g) for g in scope.required] == ["floordiv(n, 64) >= 1"]


def test_estimates_become_no_sizes():
    n = SizedScope({"n": 10}).variables()["n"]
    estimate = n * 1.5 + 1
    assert estimate == 16.0 and estimate.at({"n": 20}) == 31.0 and 15 < estimate < n * 2
    for function in (int, float, round, range, np.float32, lambda x: x // 2):
        with pytest.raises(TypeError):
            function(estimate)
    with pytest.raises(TypeError):
        tile.Builder("kernel").const("f32", 1.0 / n)


def test_numbers_computed_of_sizes_are_operands_of_programs():
    scope = SizedScope({"n": 10})
    n = scope.variables()["n"]
    traced = amdjax.make_jaxpr(lambda x: x * (1.0 / n) + (n / 2 - 1))(1.0)
    for size in (10, 3):
        (got,) = amdjax.core.eval_jaxpr(*_at(traced, {"n": size}), 5.0)
        np.testing.assert_allclose(got, 5.0 / size + size / 2 - 1, rtol=1e-6)


def _at(closed, sizes):
    instance = instantiate(closed, sizes)
    return instance.jaxpr, instance.consts


def test_bounds_of_products_need_no_guards():
    scope = SizedScope({"n": 10, "m": 7})
    n, m = scope.variables().values()
    assert n * m - n >= 2 and n * m - n - m >= 0 and (m - 1) * (n - 1) >= 1 and -1 // n == -1
    assert n * n * m - m * n >= 4 and not n * m < n + m and (-1) % n == n - 1
    assert not scope.required
    assert n * m - 3 * n >= 2 and [str(g) for g in scope.required] == ["m*n - 3*n >= 2"]


@given(st.integers(2, 9), st.integers(2, 9), st.data())
def test_bounds_of_polynomials_hold(n, m, data):
    scope = SizedScope({"n": 5, "m": 5})
    x, y = scope.variables().values()
    terms = [x, y, x * y, x * x, x * x * y, (x + 3) // y, 1]
    factors = data.draw(st.lists(st.integers(-4, 4), min_size=7, max_size=7))
    total = sum(c * t for c, t in zip(factors, terms, strict=True))
    if isinstance(total, Dim):
        least, most = scope.bounds(total.polynomial)
        value = total.evaluate({"n": n, "m": m})
        assert (least is None or least <= value) and (most is None or value <= most)


def test_nothing_is_decided_of_what_was_compiled():
    """Else it would have no guard, and be right for the first size that a variant serves."""
    scope = SizedScope({"n": 10})
    n = scope.variables()["n"]
    assert n > 7
    scope.close()
    assert n > 7 and n * 2 >= 4
    for decide in (lambda: n > 8, lambda: int(n), lambda: n == 9, lambda: 5 // (n - 5)):
        with pytest.raises(InconclusiveDimensionOperation):
            decide()


def test_choices_by_cost_hold_where_they_are_about_the_best():
    scope = SizedScope({"n": 100})
    n = scope.variables()["n"]
    assert cheapest([n * 2.0, 150.0 + n * 0.0, n * 3]) == 1
    (choice,) = scope.preferred
    assert not choice.holds({"n": 10}) and choice.holds({"n": 70}) and choice.holds({"n": 1000})
    assert cheapest([3, 2, 2]) == 1 and capped(5, 4) == 4 and capped(3, 4) == 3
    assert [capped(size, 64) for size in (n, n // 5, n // 20)] == [64, 24, 8]
    assert not scope.required
