"""Index expressions against plain integers."""

import itertools
import math

import pytest
from hypothesis import assume, given, settings, strategies as st

from amdjax.schedule.index import TRUE, Dynamic, Guard, Index, LoopVar, delinear, linear

EXTENTS = (1, 3, 4, 6)
VARS = tuple(LoopVar(f"i{k}", n) for k, n in enumerate(EXTENTS))
POINTS = [dict(zip(VARS, p)) for p in itertools.product(*map(range, EXTENTS))]

small = st.integers(-12, 12)
divisors = st.integers(1, 13)


def evaluate(index, point):
    """The number an expression stands for, symbol by symbol."""
    total = index.const
    for symbol, c in index.terms:
        if isinstance(symbol, LoopVar):
            value = point[symbol]
        else:
            inner = evaluate(symbol.inner, point)
            value = inner % symbol.by if symbol.remainder else inner // symbol.by
        total += c * value
    return total


affine = st.builds(
    lambda const, cs: sum((Index.of(v) * c for v, c in zip(VARS, cs)), Index(const)),
    small,
    st.tuples(*[small] * len(VARS)),
)
expressions = st.recursive(
    affine,
    lambda inner: st.one_of(
        st.builds(lambda a, n: a // n, inner, divisors),
        st.builds(lambda a, n: a % n, inner, divisors),
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, k: a * k, inner, small),
    ),
    max_leaves=4,
)


def everywhere(index, expected):
    return all(evaluate(index, p) == expected(p) for p in POINTS)


@given(expressions, expressions, small)
def test_sums_and_products(a, b, k):
    assert everywhere(a + b, lambda p: evaluate(a, p) + evaluate(b, p))
    assert everywhere(a - b, lambda p: evaluate(a, p) - evaluate(b, p))
    assert everywhere(k - a, lambda p: k - evaluate(a, p))
    assert everywhere(a * k, lambda p: evaluate(a, p) * k)
    assert everywhere(-a, lambda p: -evaluate(a, p))


@given(expressions, divisors)
def test_division_rounds_down(a, n):
    assert everywhere(a // n, lambda p: evaluate(a, p) // n)
    assert everywhere(a % n, lambda p: evaluate(a, p) % n)


@given(expressions, divisors)
def test_dividends_left_to_the_machine_are_not_negative(a, n):
    """Machines truncate toward zero, so what remains to be divided must not be negative."""
    for result in (a // n, a % n):
        for symbol, _ in result.terms:
            if not isinstance(symbol, LoopVar):
                assert all(evaluate(symbol.inner, p) >= 0 for p in POINTS)


@given(expressions)
def test_ranges_hold_all_values(a):
    lo, hi = a.range()
    values = [evaluate(a, p) for p in POINTS]
    assert lo <= min(values) and max(values) <= hi


@given(affine)
def test_ranges_of_affine_expressions_are_exact(a):
    values = [evaluate(a, p) for p in POINTS]
    assert a.range() == (min(values), max(values))


@given(affine, affine)
def test_equal_expressions_compare_equal(a, b):
    same = everywhere(a, lambda p: evaluate(b, p))
    assert (a == b) == same
    if same:
        assert hash(a) == hash(b)


@given(expressions, st.lists(affine, min_size=2, max_size=2))
def test_substitution(a, replacements):
    table = dict(zip(VARS[1:3], replacements))
    after = a.substitute(table)

    def expected(p):
        return evaluate(a, {**p, **{v: evaluate(i, p) for v, i in table.items()}})

    assert everywhere(after, expected)


@given(affine, small)
def test_guards(a, bound):
    for guard, holds in [
        (a >= bound, lambda x: x >= bound),
        (a > bound, lambda x: x > bound),
        (a < bound, lambda x: x < bound),
        (a <= bound, lambda x: x <= bound),
        (a.equals(bound), lambda x: x == bound),
    ]:
        truths = [holds(evaluate(a, p)) for p in POINTS]
        simple = guard.simplify()
        if simple is True:
            assert all(truths)
        elif simple is False:
            assert not any(truths)
        else:
            (condition,) = simple.conditions
            for p, truth in zip(POINTS, truths):
                x = evaluate(condition.index, p)
                assert (x >= 0 if condition.kind == "ge" else x == 0) == truth


@given(affine, small)
def test_ranges_decide_inequalities(a, bound):
    truths = {evaluate(a, p) >= bound for p in POINTS}
    decided = (a >= bound).simplify()
    assert (decided in truths) if len(truths) == 1 else isinstance(decided, Guard)


shapes = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


@given(shapes)
def test_linear_then_delinear_is_the_identity(shape):
    index = tuple(Index.of(LoopVar(f"j{k}", n)) for k, n in enumerate(shape))
    assert delinear(linear(index, shape), shape) == index


@given(shapes, st.randoms(use_true_random=False))
def test_reshape_there_and_back_is_the_identity(shape, random):
    size = 1
    for n in shape:
        size *= n
    rows = random.choice([d for d in range(1, size + 1) if size % d == 0])
    position = Index.of(LoopVar("k", size))
    there = delinear(position, (rows, size // rows))
    again = linear(there, (rows, size // rows))
    for k in range(size):
        (symbol,) = [s for s, _ in position.terms] or [None]
        assert evaluate(again, {symbol: k}) == k


@given(shapes, st.integers(0, 3))
def test_delinear_then_linear_is_the_identity(shape, count):
    """Of a position that is any expression, here one read from data, and of its last digits."""
    position = Index.of(Dynamic(None, 0, 10_000)) * 3 + Index.of(VARS[2])
    digits = delinear(position, shape)
    assert linear(digits, shape) == position
    inner = shape[len(shape) - count :] if 0 < count < len(shape) else ()
    if inner:
        again = linear(digits[len(shape) - count :], inner)
        assert again == position % math.prod(inner)


@given(expressions, divisors, divisors)
def test_nested_quotients(a, m, n):
    assert everywhere(a // m // n, lambda p: evaluate(a, p) // (m * n))
    x = Index.of(Dynamic(None, 0, 10_000))
    assert x // m // n == x // (m * n)
    assert x // m % n * m + x % m == x % (n * m)


@given(shapes)
def test_positions_enumerate_the_shape(shape):
    size = 1
    for n in shape:
        size *= n
    assume(size > 1)
    var = LoopVar("k", size)
    index = delinear(Index.of(var), shape)
    visited = [tuple(evaluate(i, {var: k}) for i in index) for k in range(size)]
    assert visited == list(itertools.product(*map(range, shape)))


def test_loops_of_one_turn_vanish():
    assert Index.of(LoopVar("i", 1)) == Index(0)


def test_text():
    i, j = LoopVar("i", 8), LoopVar("j", 9)
    assert repr(Index.of(i) * 3 + Index.of(j) + 2) == "3*i + j + 2"
    assert repr((Index.of(i) * 3 + Index.of(j) * 4) // 2) == "2*j + (3*i // 2)"
    assert repr(Index(0)) == "0"


def test_known_quotients_simplify():
    i, j = LoopVar("i", 4), LoopVar("j", 5)
    position = Index.of(i) * 5 + Index.of(j)
    assert position // 5 == Index.of(i)
    assert position % 5 == Index.of(j)
    assert (position - 5) // 5 == Index.of(i) - 1


def test_data_dependent_indices():
    i = LoopVar("i", 4)
    free, bounded = Dynamic("a value"), Dynamic("another", 0, 3)
    assert (Index.of(free) + Index.of(i)).range() == (None, None)
    assert (Index.of(bounded) * 2 + Index.of(i)).range() == (0, 9)
    assert (Index.of(bounded) >= 0).simplify() is True
    assert isinstance((Index.of(free) >= 0).simplify(), Guard)
    assert not (Index.of(free) // 2).depends_on(i)
    assert ((Index.of(free) + Index.of(i)) // 2).depends_on(i)


def test_conjunctions_keep_each_condition_once():
    i = Index.of(LoopVar("i", 4))
    guard = (i >= 1) & (i >= 1) & (i < 3)
    assert len(guard.conditions) == 2
    assert TRUE.simplify() is True
    assert ((i >= 1) & (i < 0)).simplify() is False


@pytest.mark.parametrize("n", [1, 2, 7])
@settings(max_examples=10)
@given(k=st.integers(-20, 20))
def test_constants_fold(n, k):
    assert Index(k) // n == Index(k // n)
    assert Index(k) % n == Index(k % n)


def test_what_is_finer_than_a_divisor_has_no_part_in_the_quotient():
    """As where axes are repeated: rows of 64 elements, each read twice."""
    i, j = Index.of(LoopVar("i", 112)), Index.of(LoopVar("j", 64))
    position = i * 64 + j
    assert position // 128 == i // 2
    assert position % 128 == i % 2 * 64 + j
